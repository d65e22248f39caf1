"""The Hub where there is no network: what is cached is loaded at once, and the rest refused at once."""

import functools
import os
import socket
from urllib.parse import urlsplit
from urllib.request import getproxies

_PATIENCE = 5.0  # seconds


@functools.cache
def without_network_offline() -> None:
    """Put the Hub's libraries into their offline mode if it cannot be reached; asked once in a process.

    They ask six times before they look into their cache, which takes half a minute and a dozen lines.
    Behind a proxy nothing is asked: it reaches what this machine does not.
    """
    from huggingface_hub import constants

    address = urlsplit(constants.ENDPOINT)
    if constants.HF_HUB_OFFLINE or getproxies():
        return
    port = address.port or {"http": 80}.get(address.scheme, 443)
    try:
        socket.create_connection((address.hostname or "", port), _PATIENCE).close()
    except OSError:
        import datasets

        os.environ["HF_HUB_OFFLINE"] = "1"  # of processes that this one starts
        constants.HF_HUB_OFFLINE = True
        datasets.config.HF_HUB_OFFLINE = True
