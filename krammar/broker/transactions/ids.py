"""Producer ids, which are unique in a cluster."""

from __future__ import annotations

from collections.abc import Callable

from kafka_wire import ErrorCode

from krammar.broker.errors import ApiError

BLOCK = 1000


class ProducerIds:
    """Ids from blocks that the metadata log has reserved for this broker.

    The rest of a block is lost when the broker stops.
    """

    def __init__(self, allocate: Callable[[int], int]) -> None:
        """Start without a block. ``allocate`` reserves that many ids permanently and returns the first one."""
        self._allocate = allocate
        self._next = 0
        self._end = 0

    def take(self) -> int:
        """Return a new id.

        Raises:
            ApiError: COORDINATOR_LOAD_IN_PROGRESS, which clients retry, if no block can be reserved.
        """
        if self._next == self._end:
            try:
                self._next = self._allocate(BLOCK)
            except ApiError as error:
                raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message) from error
            self._end = self._next + BLOCK
        taken = self._next
        self._next += 1
        return taken
