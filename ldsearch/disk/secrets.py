"""Tokens and passwords, which are in no record: runs and reports are passed on."""

import re
from collections.abc import Mapping
from typing import Any

MASK = "***"


def without_tokens(trainer: Mapping[str, Any]) -> dict[str, Any]:
    """Flags of TrainingArguments without the token of the Hub, also where its flag is abbreviated."""
    return {
        name: MASK if name.replace("-", "_").startswith("hub_t") else value for name, value in trainer.items()
    }


def without_password(url: str) -> str:
    """A database's URL without its password, whether that is before the host or a parameter."""
    url = re.sub(r"(://[^:/?#]*:).*@", rf"\1{MASK}@", url)
    return re.sub(r"([?&]password=)[^&]*", rf"\1{MASK}", url)
