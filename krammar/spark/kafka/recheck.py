"""Asks a broker again while its answer is doubtful."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from krammar.client import Client

T = TypeVar("T")

# A broker that has just become leader or controller may briefly know less than its predecessor.
_ATTEMPTS = 4


def recheck(client: Client, ask: Callable[[], T], is_doubtful: Callable[[T], bool]) -> T:
    """Call ``ask`` up to four times while its answer is doubtful, and return the last answer.

    The pauses in between are the client's ``retry.backoff.ms``.
    """
    backoff = client.cluster.backoff()
    answer = ask()
    for _ in range(_ATTEMPTS - 1):
        if not is_doubtful(answer):
            break
        time.sleep(backoff.next())
        answer = ask()
    return answer
