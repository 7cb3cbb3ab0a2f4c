"""What every generated package does by itself: lazy names, registries, and reading whole frames."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from krammar.wire.errors import (
    DecodeError,
    HeaderError,
    UnknownApiKeyError,
    UnsupportedVersionError,
)

# Of a request: its class, its response's class, first and last version, and the header versions of
# request and response as pairs (from version, header version).
_Pairs = tuple[tuple[int, int], ...]
_Request = tuple[str, str | None, int, int, _Pairs, _Pairs]


class ParsedRequest(NamedTuple):
    """A request frame, read: its header and its body."""

    header: Any
    request: Any


class ParsedResponse(NamedTuple):
    """A response frame, read: its header and its body."""

    header: Any
    response: Any


class HeaderVersions(NamedTuple):
    """The versions of the headers that go with a request's version."""

    request: int
    response: int


class Package:
    """The contents of one generated package. ``modules`` maps each module to the names it defines."""

    def __init__(
        self,
        name: str,
        *,
        modules: Mapping[str, tuple[str, ...]],
        requests: Mapping[int, _Request],
    ) -> None:
        self.name = name
        self.requests = requests
        self._module_of = {
            defined: module for module, inside in modules.items() for defined in inside
        }
        self._modules = modules
        # Reading a frame looks up its classes here: asking the import system takes 7 µs each time.
        self._loaded: dict[str, Any] = {}
        # A package in an archive has nothing compiled: its path is no folder.
        for folder in getattr(sys.modules.get(name), "__path__", ()):
            if os.path.isdir(os.path.join(folder, "_native")):
                from krammar.wire.native import activate

                activate(name, folder)

    def get(self, name: str) -> Any:
        """The package's ``__getattr__``: loads the module that defines ``name``."""
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
        """The package's ``__dir__``."""
        return sorted({*vars(import_module(self.name)), *self._module_of, *self._modules})

    def versions(self) -> dict[int, tuple[int, int]]:
        """The first and the last version of each request, by api key; no module is loaded for it."""
        return {key: (low, high) for key, (_, _, low, high, _, _) in self.requests.items()}

    def layout(self, cls: Any, version: int) -> Any:
        """The layout of ``cls`` at ``version``: fields with types and versions; it reads bytes to
        plain dictionaries and writes them. Raises UnsupportedVersionError."""
        return cls._layout(version)

    def request_class(self, api_key: int) -> Any:
        """The request class of a key. Raises UnknownApiKeyError."""
        return self.get(self._request(api_key)[0])

    def response_class(self, api_key: int) -> Any:
        """The response class of a key; None for a request without response. Raises UnknownApiKeyError."""
        name = self._request(api_key)[1]
        return None if name is None else self.get(name)

    def header_versions(self, api_key: int, version: int) -> HeaderVersions:
        """The header versions of request and response. Raises UnknownApiKeyError and
        UnsupportedVersionError."""
        name, _, low, high, request, response = self._request(api_key)
        if not low <= version <= high:
            raise UnsupportedVersionError(name, version, low, high, api_key=api_key)
        return HeaderVersions(_pick(request, version), _pick(response, version))

    def parse_request(
        self, frame: bytes | bytearray | memoryview, *, allow_trailing: bool = False
    ) -> ParsedRequest:
        """Read a request frame, without its length prefix: header, then body to the last byte.

        ``allow_trailing`` leaves bytes behind the body alone, as Kafka's brokers do.

        Raises, as Kafka's own reader does:

        - HeaderError for a header that cannot be read, with the best guess of the api key;
        - UnknownApiKeyError and UnsupportedVersionError, with key, version and the known range, and
          the header where it can be read (so that ApiVersions can be answered, KIP-511);
        - DecodeError for a broken body, with path, offset in the frame, and header.
        """
        data = frame if isinstance(frame, bytes) else bytes(memoryview(frame))
        if len(data) < 4:
            guess = int.from_bytes(data[:2], "big", signed=True) if len(data) >= 2 else None
            raise HeaderError(
                f"request header: needs 4 bytes for api key and version, {len(data)} there"
                + ("" if guess is None else f" (best guess of the api key: {guess})"),
                api_key=guess,
                offset=0,
            )
        key = int.from_bytes(data[:2], "big", signed=True)
        version = int.from_bytes(data[2:4], "big", signed=True)
        entry = self.requests.get(key)
        if entry is None:
            error = self._unknown(key)
            error.header = self._try_header(data, ((0, 1),), version)
            raise error
        name, _, low, high, headers, _ = entry
        if not low <= version <= high:
            raise UnsupportedVersionError(
                name,
                version,
                low,
                high,
                api_key=key,
                header=self._try_header(data, headers, version),
            )
        try:
            header, pos = self.get("RequestHeader").decode_from(data, 0, _pick(headers, version))
        except DecodeError as cause:
            raise HeaderError(
                f"{cause} (best guess of the api key: {key}, {name})",
                api_key=key,
                path=cause.path,
                offset=cause.offset,
            ) from None
        return ParsedRequest(
            header, _body(self.get(name), data, pos, version, header, allow_trailing)
        )

    def parse_response(
        self, frame: bytes | bytearray | memoryview, api_key: int, version: int
    ) -> ParsedResponse:
        """Read a response frame, without its length prefix, to a request of that key and version.

        Raises UnknownApiKeyError, UnsupportedVersionError and DecodeError.
        """
        data = frame if isinstance(frame, bytes) else bytes(memoryview(frame))
        header_version = self.header_versions(api_key, version).response
        header, pos = self.get("ResponseHeader").decode_from(data, 0, header_version)
        cls = self.response_class(api_key)
        if cls is None:
            raise DecodeError(f"requests of api key {api_key} have no response")
        return ParsedResponse(header, _body(cls, data, pos, version, header))

    def _try_header(self, data: bytes, headers: _Pairs, version: int) -> Any:
        try:
            return self.get("RequestHeader").decode_from(data, 0, _pick(headers, version))[0]
        except DecodeError:
            return None

    def _request(self, api_key: int) -> _Request:
        entry = self.requests.get(api_key)
        if entry is None:
            raise self._unknown(api_key)
        return entry

    def _unknown(self, api_key: int) -> UnknownApiKeyError:
        return UnknownApiKeyError(
            api_key, min(self.requests, default=-1), max(self.requests, default=-1)
        )


def package_of(protocol: ModuleType) -> Package:
    """What stands behind a generated package, given as the module. Raises TypeError for another."""
    package = getattr(protocol, "_package", None)
    if not isinstance(package, Package):
        raise TypeError(f"{protocol!r} is not a package that krammar generated")
    return package


def _pick(pairs: _Pairs, version: int) -> int:
    """The header version of the last pair whose first version is not above ``version``."""
    found = pairs[0][1]
    for first, header in pairs:
        if version >= first:
            found = header
    return found


def _body(
    cls: Any, data: bytes, pos: int, version: int, header: Any, allow_trailing: bool = False
) -> Any:
    try:
        value, end = cls.decode_from(data, pos, version)
    except DecodeError as cause:
        cause.header = header
        raise
    if end != len(data) and not allow_trailing:
        error = DecodeError(
            f"{cls.__name__} v{version}: {len(data) - end} bytes left over at offset {end}",
            offset=end,
        )
        error.header = header
        raise error
    return value
