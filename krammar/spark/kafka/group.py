"""Commits the offsets of a stream to a consumer group (option ``commitGroup``).

Checkpoints alone decide what a query reads. The group only shows its progress to Kafka's tools, so an
error is a warning and never fails the query.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from uuid import uuid4

from krammar.client import Client, ClientError, TopicPartition
from krammar.client.committed import Committed

_log = logging.getLogger(__name__)

# The query waits for the coordinator no longer than this.
_TIMEOUT_MS = 5_000


class GroupCommits:
    """Commits to one group, for one run of a query.

    The metadata of each commit names the run. Another name, or another offset, where this run has
    committed before means that something else commits to the group.
    """

    def __init__(self, group: str) -> None:
        self.group = group
        self._run = f"krammar {uuid4()}"
        self._last: dict[TopicPartition, int] = {}
        self._warned_of_another = False

    def commit(self, client: Client, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets unless they are committed already. An error is logged as a warning."""
        if offsets == self._last:
            return
        groups = client.groups
        try:
            if self._last and not self._warned_of_another:
                self._compare(
                    groups.committed(self.group, list(self._last), timeout_ms=_TIMEOUT_MS)
                )
            committed = {at: Committed(offset, -1, self._run) for at, offset in offsets.items()}
            groups.commit(self.group, committed, timeout_ms=_TIMEOUT_MS)
        except ClientError as error:
            _log.warning(
                "offsets are not committed to group %r (option commitGroup), the query continues: %s",
                self.group,
                error,
            )
        else:
            self._last = dict(offsets)

    def _compare(self, found: Mapping[TopicPartition, Committed]) -> None:
        for at, committed in found.items():
            if committed.offset != self._last.get(at) or committed.metadata != self._run:
                is_query = committed.metadata.startswith("krammar ")
                _log.warning(
                    "%s commits to group %r too (%s: offset %d), so the group's lag is not that of "
                    "this query: give each query its own commitGroup",
                    "another query" if is_query else "something else",
                    self.group,
                    at,
                    committed.offset,
                )
                self._warned_of_another = True
                return
