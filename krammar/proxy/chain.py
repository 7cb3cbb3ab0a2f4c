"""The chain of filters: which frames it reads, and how it runs over a message. It does no I/O."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from krammar.proxy.interface import Close, Connection, Exchange, Filter, Method, Patch, Silence
from krammar.proxy.rewrite import METADATA, TAGGED_ENDPOINTS, may_change
from krammar.util.printable import escape
from krammar.wire.elements import MAX_ELEMENTS, check_elements
from krammar.wire.errors import WireError
from krammar.wire.framing import PREFIX, body_frame, message_frame
from krammar.wire.negotiation import API_VERSIONS, UNSUPPORTED_VERSION
from krammar.wire.package import Package, package_of

PRODUCE = 0
SASL_HANDSHAKE = 17


class Refused(Exception):
    """A frame cannot go on, and its connection must be closed."""


class FilterError(Exception):
    """A method of a filter has raised an exception, or returned something else than a message."""


class Work:
    """What is done for requests of one api key and version, and for their responses.

    ``requests``, ``responses``  the methods of filters, in the order in which they run
    ``patch_request``, ``patch_response``  change frames as bytes, or are None
    ``rewrite``    whether the response can name brokers or versions
    ``has_acks``   whether the request says if there is a response (Produce)
    ``tokens``     whether frames without headers follow (SaslHandshake v0)
    ``silent``     whether there is no response
    ``refusal``    why the request is refused; empty if it is not
    ``counts``     whether requests and responses are counted for the metrics
    """

    __slots__ = (
        "api_key",
        "counts",
        "has_acks",
        "patch_request",
        "patch_response",
        "refusal",
        "requests",
        "responses",
        "rewrite",
        "silent",
        "tokens",
        "version",
    )

    def __init__(self, api_key: int, version: int) -> None:
        self.api_key = api_key
        self.version = version
        self.requests: tuple[Method, ...] = ()
        self.responses: tuple[Method, ...] = ()
        self.patch_request: Patch | None = None
        self.patch_response: Patch | None = None
        self.rewrite = self.has_acks = self.tokens = self.silent = False
        self.counts = False
        self.refusal = ""

    @property
    def reads_response(self) -> bool:
        return self.rewrite or bool(self.responses)

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to do; otherwise the frames pass as they arrive."""
        return (
            self.reads_response
            or bool(self.requests)
            or self.has_acks
            or self.tokens
            or self.silent
            or bool(self.refusal)
            or self.counts
        )


class Read(NamedTuple):
    """A decoded frame: its header, its body, the version of the body, and where the body is in the frame."""

    header: Any
    message: Any
    version: int
    begin: int
    end: int


class Settled(NamedTuple):
    """What the methods for requests have decided: the request, and the answer or None."""

    request: Any
    answer: Any
    answered_by: int


class Chain:
    """The filters of a proxy, in order.

    Requests pass the filters in order, and responses in reverse order, so the first filter is next to the client. An
    answer of a filter passes the filters before it.

    Args:
        protocol: a generated package.
        refuse_unknown: whether requests are refused that the protocol does not define.
        counts: whether all requests and responses are counted.

    Raises:
        TypeError: an element is not a filter, or names a class of another protocol.
    """

    def __init__(
        self,
        protocol: ModuleType,
        filters: Iterable[Filter],
        *,
        refuse_unknown: bool = False,
        counts: bool = False,
    ) -> None:
        self.package: Package = package_of(protocol)
        self._protocol = protocol.__name__.partition(".")[0]
        self.filters: tuple[Filter, ...] = ()
        self._refuse_unknown = self.refuse_unknown = refuse_unknown
        self.counts = counts
        self.is_kafka = may_change(self.package, METADATA)
        self._methods: dict[int, list[tuple[Any, Method]]] = {}
        self.works: dict[int, Work | None] = {}
        for each in filters:
            self._add(each, len(self.filters))
        self.refresh()

    def add_first(self, each: Filter) -> None:
        """Add a filter before all others. Raises TypeError, as the constructor."""
        self._add(each, 0)
        self.refresh()

    def _add(self, each: Filter, position: int) -> None:
        if not isinstance(each, Filter):
            raise TypeError(f"{each!r} is not a Filter (pass an instance, such as OnlySmall())")
        self.filters = (*self.filters[:position], each, *self.filters[position:])
        each.attached(self.refresh)

    def refresh(self) -> None:
        """Find out again what the filters name. Raises TypeError for a class of another protocol."""
        methods: dict[int, list[tuple[Any, Method]]] = {}
        for each in self.filters:
            for named, method in each.methods():
                key = named.message.api_key  # type: ignore[attr-defined]
                if named.message.__module__.partition(".")[0] != self._protocol:
                    raise TypeError(
                        f"{name_of(method)} names {named.message.__name__} of another protocol than "
                        f"{self._protocol}"
                    )
                methods.setdefault(key, []).append((named, method))
        before, self._methods = self._methods, methods
        self.refuse_unknown = self._refuse_unknown or any(
            each.refuse_unknown for each in self.filters
        )
        # What is done, by api key and version as one number of 32 bits, for all requests of the protocol.
        # Connections have the dictionary, so it stays the same. ApiVersions depends on all that filters name, and
        # responses that were rewritten for other work are not used again.
        self.works.update(
            {
                key << 16 | version: self._work(key, version)
                for key, (low, high) in self.package.versions().items()
                if not self.works or key == API_VERSIONS or before.get(key) != methods.get(key)
                for version in range(low, high + 1)
            }
        )

    def unknown(self, api: int) -> Work | None:
        """Return what is done for a request that the protocol does not define."""
        key, version = api >> 16, api & 0xFFFF
        if key == API_VERSIONS and self.is_kafka:
            return self._work(key, version)  # the broker answers with its versions (KIP-511)
        known = self.package.versions().get(key)
        work = Work(key, version)
        work.counts = self.counts
        if not self.refuse_unknown and (known is None or not self.limits(key)):
            return work if self.counts else None
        if known is None:
            work.refusal = f"api key {key} v{version} is unknown"
        else:
            name = self.package.requests[key][0]
            work.refusal = f"{name} v{version} cannot be read: v{known[0]} to v{known[1]} are known"
        return work

    def limits(self, api_key: int) -> bool:
        """Whether ApiVersions offers only versions of this API that can be read."""
        return self.refuse_unknown or api_key in self._methods or self._rewrites(api_key)

    def _rewrites(self, api_key: int) -> bool:
        return self.is_kafka and may_change(self.package, api_key)

    def _work(self, key: int, version: int) -> Work | None:
        work = Work(key, version)
        methods = [
            each for each in self._methods.get(key, ()) if each[0].low <= version <= each[0].high
        ]
        work.requests = tuple(method for named, method in methods if named.is_request)
        work.responses = tuple(method for named, method in methods if not named.is_request)[::-1]
        known = self.package.requests.get(key)
        work.silent = known is not None and known.response is None
        if self.is_kafka:
            work.rewrite = self._rewrites(key) and version >= TAGGED_ENDPOINTS.get(key, 0)
            work.has_acks = key == PRODUCE
            work.tokens = key == SASL_HANDSHAKE and version == 0
        work.counts = self.counts
        if known is not None:
            work.patch_request = _patch(work.requests, self.package.request_class, key, version)
            work.patch_response = _patch(work.responses, self.package.response_class, key, version)
        return work if work.is_needed else None

    # -- connections

    def opened(self, connection: Connection) -> None:
        """Call the filters for a new connection. Raises FilterError, or Close."""
        for each in self.filters:
            try:
                each.opened(connection)
            except Exception as error:
                raise _hook_error(each, "opened", error) from error

    def closed(self, connection: Connection) -> list[Exception]:
        """Call the filters for the end of a connection. Returns their errors."""
        errors: list[Exception] = []
        for each in self.filters:
            try:
                each.closed(connection)
            except Exception as error:
                errors.append(_hook_error(each, "closed", error))
        return errors

    # -- frames, with their length prefixes

    def version_of(
        self, request: Any, version: int | None, offered: Mapping[int, tuple[int, int]]
    ) -> int:
        """Return the version of a request of a filter: the given one, or the newest one that is offered.

        Raises:
            ValueError: the request gets no response.
        """
        cls = type(request)
        if cls.response_class is None or (
            self.is_kafka and cls.api_key == PRODUCE and request.acks == 0
        ):
            raise ValueError(f"{cls.__name__} gets no response (send a request that gets one)")
        if version is not None:
            return version
        _, newest = offered.get(cls.api_key, (0, cls.max_version))
        return int(min(newest, cls.max_version))

    def read_request(self, work: Work, frame: bytes) -> Read:
        """Decode a request. Raises DecodeError; TooManyElements before that takes long."""
        headers = self.package.header_versions(work.api_key, work.version)
        header, begin = self.package.get("RequestHeader").decode_from(
            frame, PREFIX, headers.request
        )
        cls = self.package.request_class(work.api_key)
        if len(frame) > MAX_ELEMENTS:  # each has a byte at least
            check_elements(cls, work.version, frame, begin, MAX_ELEMENTS)
        message, end = cls.decode_from(frame, begin, work.version)
        return Read(header, message, work.version, begin, end)

    def read_response(self, work: Work, frame: bytes) -> Read:
        """Decode a response. Raises DecodeError."""
        version = work.version
        if (
            work.api_key == API_VERSIONS
            and self.is_kafka
            and int.from_bytes(frame[8:10], "big", signed=True) == UNSUPPORTED_VERSION
        ):
            version = 0  # KIP-511
        headers = self.package.header_versions(work.api_key, version)
        header, begin = self.package.get("ResponseHeader").decode_from(
            frame, PREFIX, headers.response
        )
        cls = self.package.response_class(work.api_key)
        message, end = cls.decode_from(frame, begin, version)
        return Read(header, message, version, begin, end)

    def changed(self, frame: bytes, read: Read, message: Any) -> bytes:
        """Return a frame with another body; header and bytes after the body stay. Raises EncodeError."""
        return body_frame(frame[PREFIX : read.begin], message, read.version, frame[read.end :])

    def answer(self, work: Work, correlation_id: int, message: Any) -> bytes:
        """Return the frame of a filter's answer. Raises EncodeError."""
        headers = self.package.header_versions(work.api_key, work.version)
        header = self.package.get("ResponseHeader")(correlation_id=correlation_id)
        return message_frame(header, headers.response, message, work.version)

    # -- running

    def run_request(
        self, work: Work, request: Any, exchange: Exchange, first: int = 0
    ) -> Settled | Awaitable[Settled]:
        """Run the methods for a request. What is awaited is returned, so that plain methods need no task.

        Raises:
            Close: a filter closes the connection.
            FilterError: a filter has failed.
        """
        methods = work.requests
        for index in range(first, len(methods)):
            exchange.request = request
            result = _call(methods[index], request, exchange)
            if inspect.isawaitable(result):
                return self._await_request(work, request, exchange, index, result)
            if result is not None:
                settled = self._settle(work, request, index, result)
                if settled.answer is not None:
                    return settled
                request = settled.request
        exchange.request = request
        return Settled(request, None, -1)

    async def _await_request(
        self, work: Work, request: Any, exchange: Exchange, index: int, result: Awaitable[Any]
    ) -> Settled:
        found = await _wait(work.requests[index], result)
        if found is not None:
            settled = self._settle(work, request, index, found)
            if settled.answer is not None:
                return settled
            request = settled.request
        rest = self.run_request(work, request, exchange, index + 1)
        return rest if isinstance(rest, Settled) else await rest

    def _settle(self, work: Work, request: Any, index: int, result: Any) -> Settled:
        if isinstance(result, type(request)):
            return Settled(result, None, -1)
        if isinstance(result, Silence):
            return Settled(request, result, index)
        cls = self.package.response_class(work.api_key)
        if cls is not None and isinstance(result, cls):
            return Settled(request, result, index)
        raise FilterError(
            f"{name_of(work.requests[index])} returned {type(result).__name__} for "
            f"{type(request).__name__} (return None, a request or a response of this API)"
        )

    def before(self, work: Work, answered_by: int) -> tuple[Method, ...]:
        """Return the methods that an answer passes: those of the filters before the one that answered."""
        answering = work.requests[answered_by].__self__  # type: ignore[attr-defined]
        position = self.filters.index(answering)
        return tuple(
            each
            for each in work.responses
            if self.filters.index(each.__self__) < position  # type: ignore[attr-defined]
        )

    def run_response(
        self, methods: tuple[Method, ...], response: Any, exchange: Exchange, first: int = 0
    ) -> Any:
        """Run methods for a response. Returns the response, or an awaitable of it; errors as ``run_request``."""
        for index in range(first, len(methods)):
            result = _call(methods[index], response, exchange)
            if inspect.isawaitable(result):
                return self._await_response(methods, response, exchange, index, result)
            response = _replaced(methods[index], response, result)
        return response

    async def _await_response(
        self,
        methods: tuple[Method, ...],
        response: Any,
        exchange: Exchange,
        index: int,
        result: Awaitable[Any],
    ) -> Any:
        found = await _wait(methods[index], result)
        response = _replaced(methods[index], response, found)
        rest = self.run_response(methods, response, exchange, index + 1)
        return await rest if inspect.isawaitable(rest) else rest


def why_closed(error: BaseException) -> tuple[int, str]:
    """Return the level and the text of the log line for the error that closes a connection."""
    if isinstance(error, Close):
        return logging.INFO, f"closed by a filter: {escape(error.reason)}"
    if isinstance(error, (FilterError, Refused, WireError)):
        return logging.WARNING, f"closed: {escape(str(error))}"
    return logging.ERROR, "closed"  # a bug in krammar, which must not be hidden


def _hook_error(each: Filter, name: str, error: Exception) -> FilterError | Close:
    if isinstance(error, Close):
        return error
    return FilterError(f"{type(each).__name__}.{name} raised {type(error).__name__}: {error}")


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


def name_of(method: Method) -> str:
    """Return the name of a filter's method for people, such as ``OnlySmall.limit``."""
    return str(getattr(method, "__qualname__", method))


def _call(method: Method, message: Any, exchange: Exchange) -> Any:
    try:
        return method(message, exchange)
    except Close:
        raise
    except Exception as error:
        raise _failed(method, error) from error


async def _wait(method: Method, result: Awaitable[Any]) -> Any:
    try:
        return await result
    except Close:
        raise
    except Exception as error:
        raise _failed(method, error) from error


def _failed(method: Method, error: Exception) -> FilterError:
    return FilterError(f"{name_of(method)} raised {type(error).__name__}: {error}")


def _replaced(method: Method, response: Any, result: Any) -> Any:
    if result is None:
        return response
    if isinstance(result, type(response)):
        return result
    raise FilterError(
        f"{name_of(method)} returned {type(result).__name__} for {type(response).__name__} (return None "
        "or a response of this class)"
    )
