"""Deadlines, and the pauses between attempts."""

from __future__ import annotations

import random
import time

from kafka_wire import ErrorCode

from krammar.client.errors import DeadlineError, KafkaError, UnreachableError, is_retriable

# A broker may not know a topic yet that another broker has just created, so the request is repeated a few
# times, but not until the deadline.
_UNKNOWN_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_UNKNOWN_TOPIC_ATTEMPTS = 4


class Deadline:
    """A point in time, ``timeout_ms`` milliseconds from now; ``doing`` names the operation in errors."""

    __slots__ = ("at", "doing", "timeout_ms")

    def __init__(self, timeout_ms: float, doing: str) -> None:
        self.at = time.monotonic() + timeout_ms / 1000
        self.timeout_ms = timeout_ms
        self.doing = doing

    @property
    def left(self) -> float:
        """The remaining time in seconds, at least 0."""
        return max(0.0, self.at - time.monotonic())

    @property
    def left_ms(self) -> int:
        """The remaining time in milliseconds, at least 0."""
        return int(self.left * 1000)

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.at

    def error(self, last: BaseException | None = None) -> DeadlineError:
        """Return the error for this deadline; ``last`` is the error of the last attempt."""
        return DeadlineError(self.doing, self.timeout_ms, last)

    def check(self, last: BaseException | None = None) -> None:
        """Raise DeadlineError if the time is over."""
        if self.over:
            raise self.error(last)


class Backoff:
    """Pauses between attempts, which double up to a limit (KIP-580).

    Each pause is randomly up to 20 % longer or shorter, so that clients that failed together do not
    retry together.
    """

    def __init__(self, first_ms: int, most_ms: int, retries: int = 2**31 - 1) -> None:
        self.first_ms = first_ms
        self.most_ms = most_ms
        self.retries = retries
        self.attempts = 0
        self.missing = 0  # attempts that did not find the topic

    def next(self) -> float:
        """Return the next pause, in seconds."""
        pause = min(self.first_ms * 2.0 ** min(self.attempts, 30), max(self.most_ms, self.first_ms))
        self.attempts += 1
        return pause * random.uniform(0.8, 1.2) / 1000

    def reset(self) -> None:
        """Start again with the shortest pause."""
        self.attempts = self.missing = 0

    def delay(self, deadline: Deadline, error: BaseException) -> float:
        """Return how many seconds to wait before the next attempt.

        Raises ``error`` if it is not retriable, if ``retries`` are used up, and for a missing topic
        after a few attempts. Otherwise raises DeadlineError if the pause would exceed the deadline, but
        UnreachableError unchanged.
        """
        missing = isinstance(error, KafkaError) and error.code in _UNKNOWN_TOPIC
        self.missing += missing
        gone = missing and self.missing > _UNKNOWN_TOPIC_ATTEMPTS
        if not is_retriable(error) or self.attempts >= self.retries or gone:
            raise error
        seconds = self.next()
        if seconds >= deadline.left:
            if missing or isinstance(error, UnreachableError | DeadlineError):
                raise error
            raise deadline.error(error) from error
        return seconds

    def pause(self, deadline: Deadline, error: BaseException) -> None:
        """Sleep before the next attempt. Raises the same errors as ``delay``."""
        time.sleep(self.delay(deadline, error))
