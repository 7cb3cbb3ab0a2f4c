"""Finds the handler of an API, and gives each class of handlers the parts that it uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from krammar.broker.apis import APIS, Handler, answer_with_error
from krammar.broker.cluster import ClusterMetadata
from krammar.broker.nodes import Nodes
from krammar.broker.releases import Release

T = TypeVar("T")


class Handlers(dict[int, Handler]):
    """All handlers of a node by api key. The handler of an unserved API returns an error.

    Args:
        release: what is served
        parts: the parts of the node; an object of handlers gets those that its constructor names
    """

    def __init__(self, *, release: Release, **parts: Any) -> None:
        self.release = release
        self._parts = {"ranges": release.offered, **parts}
        self._objects: dict[type, Any] = {}
        self._observe: Callable[[Handler], Handler] | None = None
        self._guards: list[Callable[[Handler], Handler]] = []

    def __missing__(self, api_key: int) -> Handler:
        api = APIS.get(api_key)
        handler = (answer_with_error if api is None else api.find)(self.of)
        if self._observe is not None:
            handler = self._observe(handler)
        for guard in self._guards:
            handler = guard(handler)
        self[api_key] = handler
        return handler

    def of(self, kind: type[T], /) -> T:
        """Return the node's object of a class of handlers. It lives as long as the node."""
        if kind not in self._objects:
            wanted = self._parts.keys() & kind.__init__.__annotations__
            self._objects[kind] = kind(**{each: self._parts[each] for each in wanted})
        found: T = self._objects[kind]
        return found

    def observe_by(self, observe: Callable[[Handler], Handler]) -> None:
        """Replace all handlers by those that ``observe`` returns for them."""
        self._observe = observe
        self.clear()

    def guard_by(self, guard: Callable[[Handler], Handler]) -> None:
        """Let all requests pass through what ``guard`` returns for their handlers, before earlier guards."""
        self._guards.append(guard)
        self.clear()

    def unguard(self, guard: Callable[[Handler], Handler]) -> None:
        """Undo ``guard_by``."""
        self._guards.remove(guard)
        self.clear()

    def see(self, cluster: ClusterMetadata) -> None:
        """Answer from this state of the cluster from now on."""
        seen = {"cluster": cluster, "nodes": Nodes(cluster.running, self._parts["nodes"])}
        self._parts.update(seen)
        for handlers in self._objects.values():
            for name in seen.keys() & type(handlers).__init__.__annotations__:
                setattr(handlers, name, seen[name])
