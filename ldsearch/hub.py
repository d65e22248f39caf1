"""The Hugging Face Hub where it cannot be reached: said in seconds, and apart from what it refuses."""

import functools
import os
import socket
from typing import cast
from urllib.parse import urlsplit
from urllib.request import getproxies

import huggingface_hub.constants
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
