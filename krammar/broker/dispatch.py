"""Finds the handler of an API, and gives each group of handlers the parts that it uses."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from krammar.broker.apis import APIS, REFUSED
from krammar.broker.nodes import Nodes

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.handlers.produce import ProduceHandlers
    from krammar.broker.handlers.wafka import WafkaHandlers
    from krammar.broker.session import Session

    # Returns a response, ``Steps`` of one, or an awaitable of one.
    Handler = Callable[[Session, Any, int], Any]


class Handlers(dict[int, "Handler"]):
    """All handlers by api key. The handler of an unserved API returns an error.

    A group of handlers is an attribute with the name of its module, which has one class ``…Handlers``. It is imported
    and created at its first use, so that a broker starts fast.

    Args:
        parts: the parts of one node; a group gets those that the parameters of its constructor name
    """

    produce: ProduceHandlers
    wafka: WafkaHandlers

    def __init__(self, **parts: Any) -> None:
        self._parts = parts
        self._groups: dict[str, Any] = {}
        self._observe: Callable[[Handler], Handler] | None = None

    def __missing__(self, api_key: int) -> Handler:
        api = APIS.get(api_key)
        handler: Handler = attrgetter(REFUSED if api is None else api.handler)(self)
        if self._observe is not None:
            handler = self._observe(handler)
        self[api_key] = handler
        return handler

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._groups:
            module = vars(import_module(f"krammar.broker.handlers.{name}"))
            kind = next(module[each] for each in module if each.endswith("Handlers"))
            wanted = self._parts.keys() & kind.__init__.__annotations__
            self._groups[name] = kind(**{each: self._parts[each] for each in wanted})
        return self._groups[name]

    def observe_by(self, observe: Callable[[Handler], Handler]) -> None:
        """Replace all handlers by those that ``observe`` returns for them."""
        self._observe = observe
        self.clear()

    def see(self, cluster: ClusterMetadata) -> None:
        """Answer from this state of the cluster from now on."""
        nodes = Nodes(cluster.running, self._parts["nodes"])
        self._parts.update(cluster=cluster, nodes=nodes)
        self.clear()
        self._groups.clear()
