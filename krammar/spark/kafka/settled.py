"""Looking again at what a broker says while it is doubtful."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from krammar.client import Client

T = TypeVar("T")

# A broker that has just taken over may know less than the one before it, for a moment.
_LOOKS = 4


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
