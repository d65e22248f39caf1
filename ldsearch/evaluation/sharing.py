"""Divides sub-networks among the workers that share a storage."""

import time
from collections.abc import Callable, Generator, Sequence

from ldsearch.storage import MeasurementCache
from ldsearch.storage.claims import name_of
from ldsearch.subnet import Subnet

_FIRST_PAUSE, _LAST_PAUSE = 0.02, 0.2  # seconds between two looks at what others have stored


def nobody(news: object) -> None:
    """Nobody asked."""


def parts_of(
    cache: MeasurementCache | None, subnets: Sequence[Subnet], on_wait: Callable[[int], None]
) -> Generator[tuple[list[Subnet], int], None, None]:
    """Parts for this worker to measure and store, until every sub-network is stored, by whomever.

    Close the iterator where storing fails: what is claimed is given back then.

    Args:
        cache: The storage; without one this worker is alone.
        subnets: What is not known; with common prefixes beside each other.
        on_wait: Called with the number of missing sub-networks while others measure them.

    Yields:
        A part, and how many of it another worker had claimed and did not store in time.

    Raises:
        RunError: If the storage fails.
    """
    if cache is None or not subnets:
        if subnets:
            yield list(subnets), 0
        return
    names = {name_of(subnet.to_json()): subnet for subnet in subnets}
    pause = _FIRST_PAUSE
    with cache.claims.renewing():
        while names:
            held, again = cache.claims.take(list(names))
            # Whoever held it before may have stored it after the last look.
            cache.refresh()
            part = {name: names[name] for name in held if cache.get(names[name]) is None}
            if part:
                yield list(part.values()), len(again & part.keys())
                cache.refresh()
                pause = _FIRST_PAUSE
            names = {name: subnet for name, subnet in names.items() if cache.get(subnet) is None}
            if names and not part:
                on_wait(len(names))
                time.sleep(pause)
                pause = min(2 * pause, _LAST_PAUSE)
