"""Producer ids, in blocks that the metadata log reserves."""

from __future__ import annotations

from collections.abc import Callable

from kafka_wire import ErrorCode

from krammar.broker.errors import ApiError

# The number of producer ids that are reserved at a time.
BLOCK = 1000


class ProducerIds:
    """Producer ids, unique in a cluster, from blocks that the metadata log has reserved for this broker.

    The rest of a block is lost when the broker stops.
    """

    def __init__(self, allocate: Callable[[int], int]) -> None:
        """Start without a block. ``allocate`` reserves that many ids permanently and returns the first one."""
        self._allocate = allocate
        self._block = iter(range(0))

    def take(self) -> int:
        """Return a new id.

        Raises:
            ApiError: COORDINATOR_LOAD_IN_PROGRESS, which clients retry, if no block can be reserved.
        """
        taken = next(self._block, None)
        if taken is None:
            try:
                taken = self._allocate(BLOCK)
            except ApiError as error:
                raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message) from error
            self._block = iter(range(taken + 1, taken + BLOCK))
        return taken
