"""Producer ids, which no two producers of a cluster may share."""

from __future__ import annotations

from collections.abc import Callable

from kafka_wire import ErrorCode

from krammar.broker.errors import ApiError

BLOCK = 1000


class ProducerIds:
    """Ids from blocks that the metadata log has allotted to this broker. What is left of a block when
    the broker stops is lost."""

    def __init__(self, allocate: Callable[[int], int]) -> None:
        """``allocate`` allots that many ids for good and gives the first one."""
        self._allocate = allocate
        self._next = 0
        self._end = 0

    def take(self) -> int:
        """A new id. Raises ApiError(COORDINATOR_LOAD_IN_PROGRESS), which clients try again for, if no
        block can be allotted now."""
        if self._next == self._end:
            try:
                self._next = self._allocate(BLOCK)
            except ApiError as error:
                raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message) from error
            self._end = self._next + BLOCK
        taken = self._next
        self._next += 1
        return taken
