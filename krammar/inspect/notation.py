"""``krammar show``: messages in the notation of Kafka's protocol guide."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from krammar.wire.classes import generated_class, import_package
from krammar.wire.layout import Layout
from krammar.wire.message import Codec

# The guide's word at the end of structs in flexible versions, until Kafka 3.9.
_TAGS = "TAG_BUFFER"


def show(package: str, name: str | None = None, version: int | None = None) -> Iterator[str]:
    """Yield the texts of a message-version, of all versions of a message, or of all messages of a package.

    Headings such as ``Fetch API (Key: 1)`` precede all versions of a request, so that ``krammar import``
    finds the API keys.

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
    key = getattr(cls, "api_key", None)
    if key is not None and cls.__name__.endswith("Request"):
        yield f"{cls.__name__.removesuffix('Request')} API (Key: {key})"
    for version in range(cls.min_version, cls.max_version + 1):
        yield _text(cls, version)


def _text(cls: Any, version: int) -> str:
    layout: Layout = cls._layout(version)
    title = cls.__name__
    if title in ("RequestHeader", "ResponseHeader"):
        title = f"{title.removesuffix('Header')} Header v{version}"
    # A single layout that serves any version has no version in the text.
    elif not cls._open_ended or cls.min_version != cls.max_version:
        title = re.sub(r"(?<=.)(Request|Response)$", r" \1", title)
        title = f"{title} (Version: {version})"
    return layout.notation(title, _TAGS)
