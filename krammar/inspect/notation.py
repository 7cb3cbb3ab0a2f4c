"""``krammar show``: messages in the notation of Kafka's protocol guide."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from krammar.wire.classes import generated_class, import_package
from krammar.wire.layout import INT16, Layout
from krammar.wire.message import Codec, Push, Request, Response
from krammar.wire.package import package_of
from krammar.wire.versioned import VersionedCodec

# The guide's word at the end of structs in flexible versions, until Kafka 3.9.
_TAGS = "TAG_BUFFER"
# What the title of a struct's last version says about those after it.
_NEWER = ", newer versions read as the newest"


def show(package: str, name: str | None = None, version: int | None = None) -> Iterator[str]:
    """Yield the texts of a message-version, of all versions of a message, or of all messages of a package.

    Headings such as ``Fetch API (Key: 1)`` precede all versions of a request or a push, so that ``krammar import``
    finds the API keys and the modifiers.

    Raises:
        NotFound: the package or the class does not exist.
        UnsupportedVersionError: the class has no such version.
    """
    module = import_package(package)
    if name is None:
        for cls in _classes(module):
            yield from _all_versions(cls)
    elif version is None:
        yield from _all_versions(generated_class(module, name))
    else:
        yield _text(generated_class(module, name), version)


def _classes(module: ModuleType) -> Iterator[type[Codec]]:
    """The classes of a package that can be encoded alone, a response after its request."""
    found = {
        name: cls
        for name in dir(module)
        if isinstance(cls := getattr(module, name), type) and issubclass(cls, Codec)
    }

    def order(name: str) -> tuple[str, int]:
        stem = re.sub(r"(Request|Response)$", "", name)
        return stem, name.endswith("Response")

    return (found[name] for name in sorted(found, key=order))


def _all_versions(cls: type[Codec]) -> Iterator[str]:
    heading = _heading(cls)
    if heading:
        yield heading
    for version in range(cls.min_version, cls.max_version + 1):
        yield _text(cls, version)


def _heading(cls: type[Codec]) -> str:
    """The line with the key and the modifiers of a request or a push; empty for other classes."""
    package = package_of(import_module(cls.__module__.rpartition(".")[0]))
    if issubclass(cls, Request):
        info = package.requests[cls.api_key]
        name, words = info.api_name, [info.routing] if info.routing else []
        words += ["cluster action"] if info.is_cluster_action else []
        words += ["one way"] if package.responses[info.key] is None else []
        response_key = package.response_key(info.key)
        words += [] if response_key == info.key else [f"response key {response_key}"]
        pairs = [package.header_versions(info.key, v) for v in _versions(cls)]
        words += _headers("header", cls, [each.request for each in pairs], 1)
        words += _headers("response header", cls, [each.response for each in pairs], 0)
    elif issubclass(cls, Push):
        name, words = cls.__name__, ["push"]
        headers = [package.push_header_version(cls.api_key, v) for v in _versions(cls)]
        words += _headers("header", cls, headers, 0)
    else:
        return ""
    return f"{name} API ({', '.join([f'Key: {cls.api_key}', *words])})"


def _versions(cls: type[Codec]) -> range:
    return range(cls.min_version, cls.max_version + 1)


def _headers(word: str, cls: type[Codec], headers: list[int], classic: int) -> list[str]:
    """The modifiers for headers. Without them, flexible versions have the version after that of other versions."""
    first = cls.flexible_from
    flexible = [first is not None and version >= first for version in _versions(cls)]
    if headers == [classic + each for each in flexible]:
        return []
    found: list[str] = []
    before = None
    for version, header in zip(_versions(cls), headers, strict=True):
        if header != before:
            found.append(f"{word} {header}{f' v{version}+' if found else ''}")
        before = header
    return found


def _text(cls: Any, version: int) -> str:
    layout: Layout = cls._layout(version)
    title = cls.__name__
    if title in ("RequestHeader", "ResponseHeader"):
        title = f"{title.removesuffix('Header')} Header v{version}"
    # A single layout that serves any version has no version in the text.
    elif not cls._open_ended or (cls.min_version, cls.max_version) != (0, 0):
        title = re.sub(r"(?<=.)(Request|Response)$", r" \1", title)
        newer = ""
        if version == cls.max_version:
            newer = (
                "+" if cls._open_ended else _NEWER if getattr(cls, "_reads_newer", False) else ""
            )
        title = f"{title} (Version: {version}{newer})"
    elif not layout.fields and not layout.flexible:
        return f"{title} => {{}}"
    text = layout.notation(title, _TAGS)
    first = layout.fields[0] if layout.fields else None
    if (
        first is not None
        and (first.name, first.type) == ("version", INT16)
        and not issubclass(cls, VersionedCodec | Request | Response | Push)
    ):
        # An import reads a first field `version` as the version of the struct.
        text = text.replace("=> version", "=> plain(version)", 1)
    return text
