"""Every class of the generated packages that can be encoded alone, with every version it has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import kafka_wire
import wafka_wire

from krammar.wire.layout import Layout
from krammar.wire.message import Codec, Request, Response
from krammar.wire.versioned import VersionedCodec

PACKAGES = (kafka_wire, wafka_wire)


@dataclass(frozen=True)
class Message:
    """A generated class and the versions that its codecs know."""

    package: ModuleType
    cls: Any
    versions: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.package.__name__}.{self.cls.__name__}"

    @property
    def name(self) -> str:
        return str(self.cls.__name__)

    @property
    def key(self) -> int | None:
        """The api key of a request or response; None for other messages."""
        return self.cls.api_key if issubclass(self.cls, (Request, Response)) else None

    @property
    def version_field(self) -> str | None:
        """The attribute that says the version, where the bytes begin with it."""
        return self.cls._version_field if issubclass(self.cls, VersionedCodec) else None

    @property
    def any_version(self) -> bool:
        """Whether the version field may hold any number: one layout for all of them."""
        return bool(self.cls._open_ended) and self.version_field is not None

    def reads_as_newest(self, data: bytes) -> bool:
        """Whether the bytes have a version that is newer than all, and that is read as the newest one."""
        if self.version_field is None or not self.cls._reads_newer:
            return False
        return int.from_bytes(data[:2], "big", signed=True) > int(self.cls.max_version)

    def layout(self, version: int) -> Layout:
        found: Layout = self.package.layout(self.cls, version)
        return found

    def encode(self, value: Any, version: int) -> bytes:
        """The bytes; of a struct with a version field its own field says the version."""
        data: bytes = value.encode() if self.version_field else value.encode(version)
        return data

    def decode(self, data: Any, version: int, copy: bool = True) -> Any:
        return self.cls.decode(data, None if self.version_field else version, copy)


@cache
def messages() -> tuple[Message, ...]:
    """All classes with codecs of their own, in the order of packages and names."""
    found = []
    for package in PACKAGES:
        for name in sorted(dir(package)):
            cls = getattr(package, name)
            if isinstance(cls, type) and issubclass(cls, Codec) and cls is not Codec:
                versions = range(cls.min_version, cls.max_version + 1)
                found.append(Message(package, cls, tuple(versions)))
    return tuple(found)


@cache
def by_name(package: str = "kafka_wire") -> dict[str, Message]:
    """The classes of one package by their names."""
    return {m.name: m for m in messages() if m.package.__name__ == package}
