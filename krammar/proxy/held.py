"""Closes filters after the last connection that uses them."""

from __future__ import annotations

from collections.abc import Iterable

from krammar.proxy.clients import LOG
from krammar.proxy.interface import Filter


class HeldFilters:
    """The filters of chains that are in use. The same filter can be in several chains, one after the other."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Filter, int]] = {}

    def hold(self, filters: Iterable[Filter]) -> None:
        """Note that a chain with these filters is in use."""
        for each in filters:
            _, count = self._held.get(id(each), (each, 0))
            self._held[id(each)] = each, count + 1

    def release(self, filters: Iterable[Filter]) -> None:
        """Note that a chain is not used any more, and close the filters that no other one has."""
        for each in filters:
            _, count = self._held.pop(id(each), (each, 0))
            if count > 1:
                self._held[id(each)] = each, count - 1
            elif count == 1:
                close_filter(each)


def close_filter(each: Filter) -> None:
    """Close a filter. Its errors are logged."""
    try:
        each.close()
    except Exception as error:
        LOG.error("%s.close raised %s: %s", type(each).__name__, type(error).__name__, error)
