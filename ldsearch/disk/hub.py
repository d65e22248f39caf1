"""The Hugging Face Hub: what is known from it, and said in seconds where it cannot be reached."""

import functools
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit
from urllib.request import getproxies

import huggingface_hub.constants
import yaml
from huggingface_hub import ModelCard
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

from ldsearch.errors import LdsearchError, MachineError, one_line

# Of httpx, or of its successor: whichever the Hub's library stands on.
HTTP_ERROR = cast(type[Exception], HfHubHTTPError.__bases__[0])
_PATIENCE = 3.0  # seconds


@functools.cache
def go_offline_if_unreachable() -> None:
    """Let the Hub's libraries read their caches alone where its address does not answer.

    They would try six times over 24 seconds, and warn each time. Behind a proxy they know better.
    """
    if getproxies() or huggingface_hub.constants.HF_HUB_OFFLINE:
        return
    address = urlsplit(huggingface_hub.constants.ENDPOINT)
    port = address.port or (80 if address.scheme == "http" else 443)
    try:
        socket.create_connection((address.hostname or "", port), timeout=_PATIENCE).close()
    except OSError:
        import datasets

        os.environ["HF_HUB_OFFLINE"] = "1"  # of processes that this one starts
        huggingface_hub.constants.HF_HUB_OFFLINE = True
        datasets.config.HF_HUB_OFFLINE = True


def refused(what: str, error: BaseException, kind: type[LdsearchError]) -> LdsearchError:
    """The error to raise for what a library could not load from a folder or the Hub.

    Args:
        what: What was tried, as ``"cannot load the model 'bert'"``.
        error: What the library raised.
        kind: Of the error, unless the network is at fault.
    """
    cause: BaseException | None = error
    while cause is not None:
        offline = isinstance(cause, LocalEntryNotFoundError | OfflineModeIsEnabled | ConnectionError)
        if offline or (isinstance(cause, HTTP_ERROR) and not isinstance(cause, HfHubHTTPError)):
            return MachineError(f"{what}: {huggingface_hub.constants.ENDPOINT} cannot be reached")
        cause = cause.__cause__ or cause.__context__
    return kind(f"{what}: {one_line(error)}")


@dataclass(frozen=True)
class Origin:
    """Origin of a model as its card names it: only what is known.

    Args:
        base_model: Repositories of the Hub; empty: none is known.
        datasets: Repositories of the Hub.
        licence: The base model's; empty: not known.
    """

    base_model: Sequence[str] = ()
    datasets: Sequence[str] = ()
    licence: str = ""


def origin_of(model: str | None, data: str) -> Origin:
    """The origin of a model and its data, from the Hub's cache and the card in the model's own folder.

    A name alone says nothing, since a folder may have been moved away: a repository was loaded here.

    Args:
        model: Folder or repository that training started from; None: from scratch.
        data: File, folder or repository.
    """
    datasets = [data] if _cached(data, "dataset") is not None else []
    if model is None:
        return Origin(datasets=datasets)
    home = _cached(model, "model")
    cards = [Path(model) / "README.md"] if home is None else sorted(home.glob("snapshots/*/README.md"))
    fields = _front_matter(cards[-1]) if cards and cards[-1].is_file() else {}
    licence = fields.get("license")
    if home is not None:
        return Origin([model], datasets, licence if isinstance(licence, str) else "")
    bases = fields.get("base_model") or []
    known = [bases] if isinstance(bases, str) else [str(base) for base in bases]
    return Origin(known, datasets, licence if isinstance(licence, str) else "")


def _cached(name: str, kind: str) -> Path | None:
    """The cache's folder of a repository; None: it holds none, or a file or folder is meant."""
    home = Path(huggingface_hub.constants.HF_HUB_CACHE) / f"{kind}s--{name.replace('/', '--')}"
    return home if home.is_dir() and not Path(name).exists() else None


def _front_matter(card: Path) -> dict[str, Any]:
    try:
        return dict(ModelCard.load(card, ignore_metadata_errors=True).data.to_dict())
    except (ValueError, OSError, yaml.YAMLError):
        return {}  # what a stranger's card says cannot be known then
