"""Removes tagged fields that the definitions do not have: a newer broker could find names in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from typing import Any

import kafka_wire

from krammar.wire.layout import Array, Layout, Nested


@cache
def untag_of(cls: Any, version: int) -> Callable[[Any], None] | None:
    """Return a function that removes the unknown tags of a message; None if the version has no tags."""
    layout = kafka_wire.layout(cls, version)
    if not layout.flexible:
        return None
    code = "\n".join(["def untag(message):", *_lines(layout, "message", "    ", count())])
    scope: dict[str, Any] = {}
    exec(compile(code, f"<tags of {cls.__qualname__} v{version}>", "exec"), scope)
    found: Callable[[Any], None] = scope["untag"]
    return found


def _lines(layout: Layout, place: str, indent: str, numbers: Iterator[int]) -> Iterator[str]:
    yield f"{indent}if {place}.unknown_tags:"
    yield f"{indent}    {place}.unknown_tags = {{}}"
    for item in (*layout.fields, *layout.tags):
        inner, depth = item.type, 0
        while isinstance(inner, Array):
            inner, depth = inner.element, depth + 1
        if not isinstance(inner, Nested):
            continue
        value = f"value_{next(numbers)}"
        if depth:
            yield f"{indent}for {value} in {place}.{item.name} or ():"
        else:
            yield f"{indent}{value} = {place}.{item.name}"
            yield f"{indent}if {value} is not None:"
        yield from _lines(inner.layout, value, f"{indent}    ", numbers)
