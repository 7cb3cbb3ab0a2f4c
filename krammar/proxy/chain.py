"""The chain of filters, and the table of routes that it makes: what is done for which frames. It does no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

from krammar.proxy.errors import hook_error, name_of
from krammar.proxy.frames import Frames
from krammar.proxy.interface import Connection, Filter, Method, Named, Patch, Relay, Watch
from krammar.proxy.rewrite import check_marks, ends_with_endpoints, may_change
from krammar.proxy.route import Route
from krammar.wire.kafka import (
    API_VERSIONS,
    METADATA,
    PRODUCE,
    SASL_HANDSHAKE,
    has_acks,
    has_api_versions,
    has_tokens,
)
from krammar.wire.package import Package, package_of


class Chain:
    """The filters of a proxy, in order.

    Requests pass the filters in order, and responses in reverse order, so the first filter is next to the client. An
    answer of a filter passes the filters before it. A request of a filter passes the filters after it, and so does its
    response; no filter sees its own, so they cannot ask each other for ever.

    Attributes:
        routes: by api key and version as one number of 32 bits; None if frames pass as they arrive
        frames: decodes and encodes frames

    Args:
        protocol: a generated package.
        refuse_unknown: whether requests are refused that the protocol does not define.
        counts: whether all requests and responses are counted.
        pass_unreadable: whether frames that cannot be read pass as they came, instead of closing the connection.

    Raises:
        TypeError: an element is not a filter, or names a class of another protocol.
        ValueError: a filter is in the chain twice, frames have to be read of a protocol whose frames pass unread
            (``Package.is_kafka_like``), or Kafka's definitions do not mark the addresses of brokers.
    """

    def __init__(
        self,
        protocol: ModuleType,
        filters: Iterable[Filter],
        *,
        refuse_unknown: bool = False,
        counts: bool = False,
        pass_unreadable: bool = False,
    ) -> None:
        self.package: Package = package_of(protocol)
        self._protocol = protocol.__name__.partition(".")[0]
        self.filters: tuple[Filter, ...] = ()
        self._refuse_unknown = self.refuse_unknown = refuse_unknown
        self.counts = counts
        self.pass_unreadable = pass_unreadable
        self.frames = Frames(self.package)
        self._methods: dict[int, list[tuple[int, Named, Method]]] = {}
        # For requests of filters: by the position of the filter, and the api as in ``routes``.
        self._after: dict[tuple[int, int], Route] = {}
        self.routes: dict[int, Route | None] = {}
        for each in filters:
            self._add(each, len(self.filters))
        self.refresh()

    def add_first(self, each: Filter) -> None:
        """Add a filter before all others. Errors are those of the constructor."""
        self._add(each, 0)
        self.refresh()

    def _add(self, each: Filter, position: int) -> None:
        if not isinstance(each, Filter):
            raise TypeError(f"{each!r} is not a Filter (pass an instance, such as OnlySmall())")
        if each in self.filters:
            raise ValueError(
                f"{type(each).__name__} is in the chain twice (pass two instances, which have states of their own)"
            )
        self.filters = (*self.filters[:position], each, *self.filters[position:])
        each.attached(self.refresh)

    def refresh(self) -> None:
        """Ask the filters again which messages they name. Errors are those of the constructor."""
        methods: dict[int, list[tuple[int, Named, Method]]] = {}
        for position, each in enumerate(self.filters):
            for named, method in each.methods():
                key = named.message.api_key  # type: ignore[attr-defined]
                if named.message.__module__.partition(".")[0] != self._protocol:
                    raise TypeError(
                        f"{name_of(method)} names {named.message.__name__} of another protocol than "
                        f"{self._protocol}"
                    )
                methods.setdefault(key, []).append((position, named, method))
        before, self._methods = self._methods, methods
        self._watches = any(
            type(each).watch_connection is not Filter.watch_connection for each in self.filters
        )
        self.refuse_unknown = self._refuse_unknown or any(
            each.refuse_unknown for each in self.filters
        )
        if self.package.is_kafka_like:
            check_marks(self.package)
        else:
            self._check_unread(methods)
        # What is done, by api key and version as one number of 32 bits, for all requests of the protocol.
        # Connections have the dictionary, so it stays the same. ApiVersions depends on all that filters name, and
        # responses that were rewritten for other routes are not used again.
        self.routes.update(
            {
                key << 16 | version: self._route(key, version)
                for key, (low, high) in self.package.versions().items()
                if not self.routes or key == API_VERSIONS or before.get(key) != methods.get(key)
                for version in range(low, high + 1)
            }
        )
        self._after.clear()

    def _check_unread(self, methods: Mapping[int, list[tuple[int, Named, Method]]]) -> None:
        """Raise ValueError if a frame would have to be read: the bytes pass as they come, and nothing would be done."""
        reason = f"the frames of {self._protocol} pass unread, because it has headers of its own or one-way requests"
        if methods:
            [(_, _, method), *_] = next(iter(methods.values()))
            raise ValueError(f"{name_of(method)} would see no message: {reason}")
        if self.refuse_unknown:
            raise ValueError(f"refuse_unknown would refuse nothing: {reason}")

    def unknown(self, api: int) -> Route | None:
        """Return the route of a request that the protocol does not define."""
        key, version = api >> 16, api & 0xFFFF
        if key == API_VERSIONS and has_api_versions(self.package):
            return self._route(key, version)  # the broker answers with its versions (KIP-511)
        known = self.package.versions().get(key)
        if not self.refuse_unknown and (
            self.pass_unreadable or known is None or not self.limits(key)
        ):
            return Route(key, version, counts=True) if self.counts else None
        if known is None:
            refusal = f"api key {key} v{version} is unknown"
        else:
            name = self.package.requests[key].name
            refusal = f"{name} v{version} cannot be read: v{known[0]} to v{known[1]} are known"
        return Route(key, version, refusal=refusal, counts=self.counts)

    def limits(self, api_key: int) -> bool:
        """Whether ApiVersions offers only versions of this API that can be read."""
        return (
            self.refuse_unknown
            or self._watches
            or api_key in self._methods
            or may_change(self.package, api_key)
        )

    def after(self, method: Method | None, key: int, version: int) -> Route:
        """Return what is done for requests that the filter of a method sends: the methods of the filters after it."""
        filter_ = getattr(method, "__self__", None)
        position = self.filters.index(filter_) + 1 if filter_ in self.filters else 0
        place = position, key << 16 | version
        route = self._after.get(place)
        if route is None:
            requests, responses = self._named(key, version, position)
            route = self._after[place] = Route(key, version, requests, responses)
        return route

    def _named(
        self, key: int, version: int, first: int = 0
    ) -> tuple[tuple[Method, ...], tuple[Method, ...]]:
        """Return the methods for requests and for responses, in the order in which they run.

        Args:
            first: the position of the first filter.
        """
        methods = [
            (named, method)
            for position, named, method in self._methods.get(key, ())
            if position >= first and named.low <= version <= named.high
        ]
        requests = tuple(method for named, method in methods if named.is_request)
        responses = tuple(method for named, method in methods if not named.is_request)[::-1]
        return requests, responses

    def _route(self, key: int, version: int) -> Route | None:
        requests, responses = self._named(key, version)
        known = self.package.requests.get(key)
        patches: tuple[Patch | None, Patch | None] = None, None
        if known is not None:
            patches = (
                _patch(requests, self.package.request_class, key, version),
                _patch(responses, self.package.response_class, key, version),
            )
        rewrite = may_change(self.package, key, version)
        route = Route(
            key,
            version,
            requests,
            responses,
            *patches,
            rewrite=rewrite,
            ends_with_nodes=rewrite and ends_with_endpoints(self.package, key),
            has_acks=key == PRODUCE and has_acks(self.package),
            tokens=key == SASL_HANDSHAKE and version == 0 and has_tokens(self.package),
            silent=known is not None and self.package.responses[key] is None,
            counts=self.counts,
            in_place=any(
                method.__self__.in_place for method in (*requests, *responses)  # type: ignore[attr-defined]
            ),
        )
        return route if route.is_needed else None

    # -- connections

    def opened(self, connection: Connection) -> None:
        """Call the filters for a new connection. Raises FilterError, or Close."""
        for each in self.filters:
            try:
                each.opened(connection)
            except BaseException as error:
                raise hook_error(each, "opened", error) from error

    def watches(self, connection: Connection, relay: Relay) -> list[Watch]:
        """Return what sees the bytes of a new connection. Raises FilterError, or Close."""
        if not self._watches:
            return []
        found = []
        for each in self.filters:
            try:
                watch = each.watch_connection(connection, relay)
            except BaseException as error:
                raise hook_error(each, "watch_connection", error) from error
            if watch is not None:
                found.append(watch)
        return found

    def closed(self, connection: Connection) -> list[Exception]:
        """Call the filters for the end of a connection. Returns their errors."""
        errors: list[Exception] = []
        for each in self.filters:
            try:
                each.closed(connection)
            except BaseException as error:
                errors.append(hook_error(each, "closed", error))
        return errors

    def before(self, route: Route, answered_by: int) -> tuple[Method, ...]:
        """Return the methods that an answer passes: the ones of filters before the filter that answered."""
        answering = route.requests[answered_by].__self__  # type: ignore[attr-defined]
        position = self.filters.index(answering)
        return tuple(
            each
            for each in route.responses
            if self.filters.index(each.__self__) < position  # type: ignore[attr-defined]
        )


def _patch(
    methods: tuple[Method, ...], class_of: Callable[[int], Any], key: int, version: int
) -> Patch | None:
    if len(methods) != 1:
        return None
    message = class_of(key)
    if not message.min_version <= version <= message.max_version:
        return None
    each: Filter = methods[0].__self__  # type: ignore[attr-defined]
    return each.patch(message, version)


# The requests of logins, and ApiVersions.
_LOGIN = frozenset({17, API_VERSIONS, 36})


class RestrictedRoutes:
    """The routes of a connection on which all but a few requests are refused.

    It asks the chain each time, because filters can name other messages while the proxy runs.

    Args:
        served: the api keys that are served.
        reason: why others are refused, to follow their name.
    """

    def __init__(self, chain: Chain, served: frozenset[int], reason: str) -> None:
        self._chain = chain
        self._served = served
        self._reason = reason

    def get(self, api: int, default: Route, /) -> Route | None:
        """Return the route of an api key and a version, given as one number of 32 bits."""
        route = self._chain.routes.get(api, default)
        key = api >> 16
        if route is default or key in self._served:
            return route
        return self._refused(api, self._chain.package.requests[key].name)

    def unknown(self, api: int) -> Route | None:
        """Return the route of a request that the protocol does not define."""
        route = self._chain.unknown(api)
        if api >> 16 == API_VERSIONS or (route is not None and route.refusal):
            return route
        return self._refused(api, f"api key {api >> 16} v{api & 0xFFFF}")

    def _refused(self, api: int, name: str) -> Route:
        return Route(api >> 16, api & 0xFFFF, refusal=f"{name} {self._reason}")


def before_login(chain: Chain) -> RestrictedRoutes:
    """Return the routes before the login of a client at the proxy."""
    return RestrictedRoutes(chain, _LOGIN, "before the login of the client")


def before_metadata(chain: Chain) -> RestrictedRoutes:
    """Return the routes on the fixed port of a broker whose address is not known.

    The connection leads to any broker of the cluster. The client gets metadata there, and so the proxy knows the address.
    """
    return RestrictedRoutes(
        chain,
        _LOGIN | {METADATA},
        "on the port of a node whose address no response has named yet (the client connects again)",
    )


class RouteTable:
    """The routes of one connection, which change after the login of its client.

    Attributes:
        chain: the filters
        routes: by api key and version as one number of 32 bits
        max_frame: the largest frame that is read, in bytes
    """

    __slots__ = ("chain", "max_frame", "routes")

    def __init__(self, chain: Chain, max_frame: int) -> None:
        self.chain = chain
        self.max_frame = max_frame
        self.routes: dict[int, Route | None] | RestrictedRoutes = chain.routes

    def unknown(self, api: int) -> Route | None:
        """Return the route of a request that ``routes`` does not have."""
        routes = self.routes
        return (routes if isinstance(routes, RestrictedRoutes) else self.chain).unknown(api)
