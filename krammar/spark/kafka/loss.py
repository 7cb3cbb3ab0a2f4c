"""What to do about records that should be there and are not, and how to be sure of it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from krammar.client import Client
from krammar.spark.errors import DataLossError

_log = logging.getLogger(__name__)

T = TypeVar("T")

# A broker that has just taken over may know less than the one before it, for a moment.
_LOOKS = 4


def lost(text: str, fail: bool) -> None:
    """Raises DataLossError if ``fail``, the option ``failOnDataLoss``; else there is a warning."""
    if fail:
        raise DataLossError(f"{text}; failOnDataLoss=false goes on with what is there")
    _log.warning("%s", text)


def settled(client: Client, look: Callable[[], T], doubtful: Callable[[T], bool]) -> T:
    """What ``look`` sees, after the pauses of the client's ``retry.backoff.ms`` again while it is
    doubtful, a few times."""
    backoff = client.cluster.backoff()
    found = look()
    for _ in range(_LOOKS - 1):
        if not doubtful(found):
            break
        time.sleep(backoff.next())
        found = look()
    return found
