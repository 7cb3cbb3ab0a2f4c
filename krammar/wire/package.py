"""The functions of every generated package: lazy imports, registries, and parsing of frames."""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import cached_property
from importlib import import_module
from struct import Struct
from types import ModuleType
from typing import Any, NamedTuple

from krammar.wire.errors import (
    DecodeError,
    HeaderError,
    UnknownApiKeyError,
    UnsupportedVersionError,
)
from krammar.wire.heads import REQUEST_HEAD, RESPONSE_HEAD, HeaderPlaces, header_places
from krammar.wire.limits import MAX_ZERO_WIDTH

# Pairs of a first version and the header version from it on.
_Pairs = tuple[tuple[int, int], ...]

# The places in Kafka's headers.
_kafkas_key_and_version = Struct(">hh").unpack_from


class ParsedRequest(NamedTuple):
    """A parsed request frame."""

    header: Any
    request: Any


class ParsedPush(NamedTuple):
    """A parsed frame with a message that the server sent by itself."""

    header: Any
    push: Any


class ParsedResponse(NamedTuple):
    """A parsed response frame."""

    header: Any
    response: Any


class HeaderVersions(NamedTuple):
    """The header versions for a version of a request and of its response."""

    request: int
    response: int


class RequestInfo(NamedTuple):
    """A request of a protocol.

    Attributes:
        key: the api key
        name: the class, such as ``"MetadataRequest"``
        min_version, max_version: the first and the last version in the definitions
        flexible_from: the first flexible version (KIP-482), or None
        routing: where it is sent: "" (any broker), "admin" (the controller), "group coordinator",
            "txn coordinator" or "share coordinator"
        is_cluster_action: whether only brokers and controllers send it, to each other. The marks of ``kafka_wire`` are
            those of Kafka's ApiKeys, which has DescribeQuorum and UpdateFeatures among them
        endpoints_from: the first version whose response has addresses of brokers (entity ``brokerHost``), or None
    """

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int | None
    routing: str
    is_cluster_action: bool = False
    endpoints_from: int | None = None

    @property
    def api_name(self) -> str:
        """The name without ``Request``, such as ``"Metadata"``."""
        return self.name.removesuffix("Request")


class PushInfo(NamedTuple):
    """A message that servers send by themselves. The fields are as for ``RequestInfo``."""

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int | None


def _header_pairs(low: int, flexible_from: int | None) -> tuple[_Pairs, ...]:
    """Return the usual header versions of requests and responses: 1 and 0, and 2 and 1 when flexible (KIP-482)."""
    if flexible_from is None:
        return ((low, 1),), ((low, 0),)
    start = max(low, flexible_from)
    return ((low, 1), (start, 2)), ((low, 0), (start, 1))


class Package:
    """The contents of a generated package.

    ``modules`` maps each module to the names that it defines. ``requests`` has for each api key the names of the
    request's and the response's class, first, last and first flexible version, routing, and unusual header versions.
    ``cluster_actions`` are the keys of requests that only brokers and controllers send. ``endpoints`` has for each
    request whose response has addresses of brokers the first version with them. ``pushes`` has for each key of a
    message that the server sends by itself the name of its class, first, last and first flexible version, and header
    versions. ``response_keys`` are the keys in headers of responses that differ from those of the requests. ``heads``
    are the places of key, version and correlation id in the headers of requests and of responses, if they are not
    those of Kafka.
    """

    def __init__(
        self,
        name: str,
        *,
        modules: Mapping[str, tuple[str, ...]],
        requests: Mapping[int, tuple[Any, ...]],
        pushes: Mapping[int, tuple[Any, ...]] | None = None,
        response_keys: Mapping[int, int] | None = None,
        cluster_actions: tuple[int, ...] = (),
        endpoints: Mapping[int, int] | None = None,
        heads: tuple[Any, Any] | None = None,
    ) -> None:
        self.name = name
        self.requests: dict[int, RequestInfo] = {}
        self.responses: dict[int, str | None] = {}
        self._headers: dict[int, tuple[_Pairs, ...]] = {}
        for key, (request, response, low, high, flexible, routing, *headers) in requests.items():
            action, addresses = key in cluster_actions, (endpoints or {}).get(key)
            self.requests[key] = RequestInfo(
                key, request, low, high, flexible, routing, action, addresses
            )
            self.responses[key] = response
            self._headers[key] = tuple(headers) or _header_pairs(low, flexible)
        self.pushes = {key: PushInfo(key, *facts[:4]) for key, facts in (pushes or {}).items()}
        self._push_headers = {key: facts[4] for key, facts in (pushes or {}).items()}
        self._response_keys = response_keys or {}
        self.request_head, self.response_head = REQUEST_HEAD, RESPONSE_HEAD
        if heads is not None:
            self.request_head, self.response_head = header_places(*heads[0]), header_places(
                *heads[1]
            )
        self.has_kafkas_heads = heads is None
        self._client_ids: dict[int, bool] = {}
        self._header_fields: dict[tuple[str, int], frozenset[str]] = {}
        self._module_of = {
            defined: module for module, inside in modules.items() for defined in inside
        }
        self._modules = modules
        # Parsing a frame looks up its classes here, because the import system takes 7 µs each time.
        self._loaded: dict[str, Any] = {}

    @property
    def is_kafka_like(self) -> bool:
        """Whether frames have Kafka's headers, each request has a response, and the server sends nothing else."""
        return self.has_kafkas_heads and not self.pushes and None not in self.responses.values()

    def get(self, name: str) -> Any:
        """Import the module that defines ``name``, as the package's ``__getattr__``."""
        if name in self._loaded:
            return self._loaded[name]
        module = self._module_of.get(name)
        if module is None:
            if name in self._modules:
                return import_module(f"{self.name}.{name}")
            raise AttributeError(f"module {self.name!r} has no attribute {name!r}")
        package = import_module(self.name)
        value = getattr(import_module(f"{self.name}.{module}"), name)
        setattr(package, name, value)
        self._loaded[name] = value
        return value

    def names(self) -> list[str]:
        """Return all names, as the package's ``__dir__``."""
        return sorted({*vars(import_module(self.name)), *self._module_of, *self._modules})

    def request_infos(self) -> tuple[RequestInfo, ...]:
        """Return the requests of the protocol, ordered by key, without importing their modules."""
        return tuple(self.requests[key] for key in sorted(self.requests))

    def versions(self) -> dict[int, tuple[int, int]]:
        """Return the first and the last version of each request by api key, without importing modules."""
        return {key: (each.min_version, each.max_version) for key, each in self.requests.items()}

    def layout(self, cls: Any, version: int) -> Any:
        """Return the layout of ``cls`` at ``version``, with all fields, their types and versions.

        A layout can decode to dictionaries and encode them. Raises UnsupportedVersionError.
        """
        return cls._layout(version)

    def request_class(self, api_key: int) -> Any:
        """Return the request class of an api key. Raises UnknownApiKeyError."""
        return self.get(self._request(api_key).name)

    def response_class(self, api_key: int) -> Any:
        """Return the class of the response to an api key, or None. Raises UnknownApiKeyError."""
        self._request(api_key)
        name = self.responses[api_key]
        return None if name is None else self.get(name)

    def header_versions(self, api_key: int, version: int) -> HeaderVersions:
        """Return the header versions of a request and its response.

        Raises UnknownApiKeyError and UnsupportedVersionError.
        """
        _, name, low, high, *_ = self._request(api_key)
        if not low <= version <= high:
            raise UnsupportedVersionError(name, version, low, high, api_key=api_key)
        request, response = self._headers[api_key]
        return HeaderVersions(_pick(request, version), _pick(response, version))

    def parse_request(
        self,
        frame: bytes | bytearray | memoryview,
        *,
        allow_trailing: bool = False,
        explain_limit: int | None = None,
        max_elements: int | None = None,
        views: Container[int] = (),
    ) -> ParsedRequest:
        """Parse a request frame without its length prefix.

        Args:
            allow_trailing: ignore bytes after the body, as Kafka's brokers do.
            explain_limit: the largest frame, in bytes, for which an error contains the path of the invalid
                field. Finding it costs several times as much as decoding.
            max_elements: the maximum number of array elements. They are counted before objects are created.
            views: the api keys of requests that are decoded with ``copy=False``.

        Raises:
            HeaderError: the header is invalid. It contains the best guess at the api key.
            UnknownApiKeyError: no request has this key.
            UnsupportedVersionError: the request does not have this version. If the header could be read, the
                error contains it, so that ApiVersions can be answered (KIP-511).
            TooManyElements: the body has more than ``max_elements``.
            DecodeError: the body is invalid. It contains the path, the offset in the frame, and the header.
        """
        data = frame if isinstance(frame, bytes) else bytes(memoryview(frame))
        if max_elements is None or len(data) + MAX_ZERO_WIDTH <= max_elements:
            found: ParsedRequest | None = self._frames.request(data, allow_trailing, views)
            if found is not None:
                return found
        if self.has_kafkas_heads and len(data) >= 4:
            key, version = _kafkas_key_and_version(data)
        else:
            key, version = self._key_and_version(data)
        info = self.requests.get(key)
        if info is None:
            headers: _Pairs = ((0, 1),) if self.has_kafkas_heads else ()
            raise self._unknown(key, self._try_header(data, headers, version))
        _, name, low, high, *_ = info
        headers, _ = self._headers[key]
        if not low <= version <= high:
            header = self._try_header(data, headers, version)
            raise UnsupportedVersionError(name, version, low, high, api_key=key, header=header)
        explained = explain_limit is None or len(data) <= explain_limit
        try:
            header, pos = _decode(
                self.get("RequestHeader"), data, 0, _pick(headers, version), explained
            )
        except DecodeError as cause:
            text = f"{cause} (best guess of the api key: {key}, {name})"
            raise HeaderError(text, api_key=key, path=cause.path, offset=cause.offset) from None
        cls = self.get(name)
        if self.has_kafkas_heads:
            self._learn(True, key, version, type(header), _pick(headers, version), cls)
        # Other elements have at least one byte, so a short body cannot exceed the limit.
        if max_elements is not None and len(data) - pos + MAX_ZERO_WIDTH > max_elements:
            from krammar.wire.skip import check_elements

            try:
                check_elements(cls, version, data, pos, max_elements)
            except DecodeError as cause:
                cause.header = header
                raise
        return ParsedRequest(
            header,
            _body(cls, data, pos, version, header, allow_trailing, explained, key not in views),
        )

    def parse_response(
        self,
        frame: bytes | bytearray | memoryview,
        api_key: int,
        version: int,
        *,
        copy: bool = True,
    ) -> ParsedResponse:
        """Parse a response frame without its length prefix.

        Args:
            api_key: the key of the request.
            version: the version of the request.
            copy: as for ``decode``.

        Raises:
            UnknownApiKeyError: no request has this key.
            UnsupportedVersionError: the request does not have this version.
            DecodeError: the frame is invalid.
        """
        data = frame if isinstance(frame, bytes) else bytes(memoryview(frame))
        found: ParsedResponse | None = self._frames.response(data, api_key, version, copy)
        if found is not None:
            return found
        header_version = self.header_versions(api_key, version).response
        header, pos = self.get("ResponseHeader").decode_from(data, 0, header_version)
        cls = self.response_class(api_key)
        if cls is None:
            raise DecodeError(f"requests of api key {api_key} have no response")
        self._learn(False, api_key, version, type(header), header_version, cls)
        return ParsedResponse(header, _body(cls, data, pos, version, header, copy=copy))

    @cached_property
    def _frames(self) -> Any:
        """The engine's parser of frames, with the message-versions that were parsed before; empty without it."""
        # Imported here, so that a package that is only imported does not load the engine.
        from krammar.wire.engine_loading import ENGINE

        return _NoFrames() if ENGINE is None else ENGINE.Frames(ParsedRequest, ParsedResponse)

    def _learn(
        self, of_requests: bool, key: int, version: int, header: Any, header_version: int, cls: Any
    ) -> None:
        """Let the engine parse the frames of a message-version from now on."""
        if isinstance(self._frames, _NoFrames) or not -0x8000 <= key <= 0x7FFF:
            return  # the last is an unsigned key
        programs = header._load_program(header_version), cls._load_program(version)
        if None not in programs:
            self._frames.add(of_requests, key, version, *programs)

    def parse_push(self, frame: bytes | bytearray | memoryview, *, copy: bool = True) -> ParsedPush:
        """Parse a frame of a server, without its length prefix, that ``is_push`` tells from a response.

        Raises:
            UnknownApiKeyError: no push has this key.
            UnsupportedVersionError: the push does not have this version.
            DecodeError: the frame is invalid.
        """
        data = frame if isinstance(frame, bytes) else bytes(memoryview(frame))
        key, version = (
            None if place is None else place.read(data) for place in self.response_head[:2]
        )
        if key is None or version is None:
            raise DecodeError(f"a frame of {len(data)} bytes is too short for the header of a push")
        if key not in self.pushes:
            raise self._unknown(key)
        _, name, low, high, _ = self.pushes[key]
        if not low <= version <= high:
            raise UnsupportedVersionError(name, version, low, high, api_key=key)
        header_version = self.push_header_version(key, version)
        header, pos = self.get("ResponseHeader").decode_from(data, 0, header_version)
        return ParsedPush(header, _body(self.get(name), data, pos, version, header, copy=copy))

    def is_push(self, frame: bytes) -> bool:
        """Return whether the header of a server's frame has the key of a push."""
        place = self.response_head.key
        return bool(self.pushes) and place is not None and place.read(frame) in self.pushes

    def push_header_version(self, key: int, version: int) -> int:
        """Return the version of the header of a push."""
        return _pick(self._push_headers[key], version)

    def push_infos(self) -> list[PushInfo]:
        """Return the messages that servers send by themselves, ordered by key."""
        return [self.pushes[key] for key in sorted(self.pushes)]

    def push_class(self, key: int) -> Any:
        """Return the class of a push. Raises UnknownApiKeyError."""
        if key not in self.pushes:
            raise self._unknown(key)
        return self.get(self.pushes[key].name)

    def response_key(self, api_key: int) -> int:
        """Return the key in the header of the response to a request."""
        return self._response_keys.get(api_key, api_key)

    def request_header(self, version: int, key: int, api_version: int, correlation_id: int) -> Any:
        """Return a request header of a version with these values."""
        if self.has_kafkas_heads:
            return self.get("RequestHeader")(
                request_api_key=key,
                request_api_version=api_version,
                correlation_id=correlation_id,
            )
        return self._header(
            "RequestHeader", version, self.request_head, key, api_version, correlation_id
        )

    def response_header(self, version: int, key: int, api_version: int, correlation_id: int) -> Any:
        """Return a response header of a version with these values."""
        if self.has_kafkas_heads:
            return self.get("ResponseHeader")(correlation_id=correlation_id)
        return self._header(
            "ResponseHeader", version, self.response_head, key, api_version, correlation_id
        )

    def _header(self, name: str, version: int, places: HeaderPlaces, *numbers: int) -> Any:
        values = places.values(*numbers)
        present = self.header_fields(name, version)
        return self.get(name)(
            **{each: number for each, number in values.items() if each in present}
        )

    @property
    def largest_correlation_id(self) -> int:
        """The largest correlation id that fits both headers. Kafka's clients use no negative ones."""
        places = (self.request_head.correlation_id, self.response_head.correlation_id)
        return min(0x7FFFFFFF, *(place.largest for place in places if place is not None))

    def has_client_id(self, version: int) -> bool:
        """Return whether a version of the request header has a string ``ClientId``."""
        if self.name == "kafka_wire":  # whose layouts would be imported, which takes 8 ms
            return version > 0
        found = self._client_ids.get(version)
        if found is None:
            from krammar.wire.layout import Text

            layout = self.get("RequestHeader")._layout(version)
            found = any(
                each.name == "client_id"
                and isinstance(each.type, Text)
                and each.type.kind == "string"
                for each in (*layout.fields, *layout.tags)
            )
            self._client_ids[version] = found
        return found

    def header_fields(self, name: str, version: int) -> frozenset[str]:
        """Return the attributes that a version of a header has. Versions of one's own headers can lack some."""
        found = self._header_fields.get((name, version))
        if found is None:
            layout = self.get(name)._layout(version)
            found = frozenset(item.name for item in (*layout.fields, *layout.tags))
            self._header_fields[name, version] = found
        return found

    def _key_and_version(self, data: bytes) -> tuple[int, int]:
        """Read the first bytes of a request. Raises HeaderError if they are too short."""
        places = self.request_head
        if places.key is None or places.version is None:
            raise HeaderError(
                "RequestHeader has no api key and version at the same place in all versions, so "
                "requests cannot be parsed",
                api_key=None,
                offset=0,
            )
        guess, version = places.key.read(data), places.version.read(data)
        if guess is None or version is None:
            raise HeaderError(
                f"request header: needs {max(places.key.end, places.version.end)} bytes for api key and "
                f"version, {len(data)} there"
                + ("" if guess is None else f" (best guess of the api key: {guess})"),
                api_key=guess,
                offset=0,
            )
        return guess, version

    def _try_header(self, data: bytes, headers: _Pairs, version: int) -> Any:
        if not headers:
            return None  # the version of the header depends on the request
        try:
            return self.get("RequestHeader").decode_from(data, 0, _pick(headers, version))[0]
        except DecodeError:
            return None

    def _request(self, api_key: int) -> RequestInfo:
        if api_key not in self.requests:
            raise self._unknown(api_key)
        return self.requests[api_key]

    def _unknown(self, key: int, header: Any = None) -> UnknownApiKeyError:
        error = UnknownApiKeyError(
            key, min(self.requests, default=-1), max(self.requests, default=-1)
        )
        error.header = header
        return error


class _NoFrames:
    """A parser of no frames."""

    def request(self, *arguments: Any) -> None:
        return None

    def response(self, *arguments: Any) -> None:
        return None


def package_of(protocol: ModuleType) -> Package:
    """Return the ``Package`` of a generated package's module. Raises TypeError for other modules."""
    package = getattr(protocol, "_package", None)
    if not isinstance(package, Package):
        raise TypeError(f"{protocol!r} is not a package that krammar generated")
    return package


def _pick(pairs: _Pairs, version: int) -> int:
    """The header version for ``version``."""
    found = pairs[0][1]
    for first, header in pairs:
        if version >= first:
            found = header
    return found


def _body(
    cls: Any,
    data: bytes,
    pos: int,
    version: int,
    header: Any,
    allow_trailing: bool = False,
    explained: bool = True,
    copy: bool = True,
) -> Any:
    try:
        value, end = _decode(cls, data, pos, version, explained, copy)
        if end != len(data) and not allow_trailing:
            raise DecodeError(
                f"{cls.__name__} v{version}: {len(data) - end} bytes left over at offset {end}",
                offset=end,
            )
    except DecodeError as cause:
        cause.header = header
        raise
    return value


def _decode(
    cls: Any, data: bytes, pos: int, version: int, explained: bool, copy: bool = True
) -> tuple[Any, int]:
    """``cls.decode_from``. Unless ``explained``, an error does not contain the path of the invalid field."""
    if explained:
        found: tuple[Any, int] = cls.decode_from(data, pos, version, copy)
        return found
    quietly: tuple[Any, int] | None = cls._decode_quietly(data, pos, version, copy)
    if quietly is None:
        raise DecodeError(
            f"{cls.__name__} v{version}: the frame of {len(data)} bytes does not match the layout"
        )
    return quietly
