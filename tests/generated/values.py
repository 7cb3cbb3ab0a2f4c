"""Values of generated classes as plain dictionaries, and back.

The *plain form* of a value is what ``Layout.read`` returns: a dictionary of the fields that the
layout has, structs as dictionaries, arrays as lists, ``"unknown_tags"`` only where there are some.
Walking values by the layout keeps these tests independent of the codecs under test.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from krammar.wire.layout import Array, Layout, Nested, Type
from tests.generated.catalogue import Message

Plain = dict[str, Any]


def build(message: Message, layout: Layout, plain: Plain) -> Any:
    """The object of generated classes whose plain form is ``plain``."""
    arguments = {
        item.name: _build(message, item.type, plain[item.name])
        for item in (*layout.fields, *layout.tags)
    }
    value = attrgetter(layout.name)(message.package)(**arguments)
    if "unknown_tags" in plain:
        value.unknown_tags = dict(plain["unknown_tags"])
    return value


def _build(message: Message, type_: Type, plain: Any) -> Any:
    if plain is None:
        return None
    if isinstance(type_, Array):
        return [_build(message, type_.element, element) for element in plain]
    if isinstance(type_, Nested):
        return build(message, type_.layout, plain)
    return plain


def content(value: Any, layout: Layout) -> Plain:
    """The plain form of a generated object."""
    plain = {
        item.name: _content(getattr(value, item.name), item.type)
        for item in (*layout.fields, *layout.tags)
    }
    if value.unknown_tags:
        plain["unknown_tags"] = dict(value.unknown_tags)
    return plain


def _content(value: Any, type_: Type) -> Any:
    if value is None:
        return None
    if isinstance(type_, Array):
        return [_content(element, type_.element) for element in value]
    if isinstance(type_, Nested):
        return content(value, type_.layout)
    return value


def without_unknown_tags(plain: Any) -> Any:
    """The plain form without any struct's unknown tags."""
    if isinstance(plain, dict):
        return {k: without_unknown_tags(v) for k, v in plain.items() if k != "unknown_tags"}
    if isinstance(plain, list):
        return [without_unknown_tags(element) for element in plain]
    return plain


def same(left: Any, right: Any) -> bool:
    """Equality of plain forms that also tells ``True`` from ``1`` and bytes from strings."""
    if left.__class__ is not right.__class__:
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(v, right[k]) for k, v in left.items())
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)
