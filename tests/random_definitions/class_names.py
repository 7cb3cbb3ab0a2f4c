"""The classes of anonymous structs, as docs/definitions.md names them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tests.random_definitions.model import Array, Inline, Named, Struct, Type, innermost
from tests.random_definitions.names import SINGULARS

# The fields that lead to an anonymous struct, and the names on its path.
Places = dict[tuple[str, ...], tuple[str, ...]]


def class_names(message: Struct, parts: Sequence[Struct]) -> dict[tuple[str, ...], str]:
    """The class of each anonymous struct of a message and its own structs, by the fields that lead to it.

    The first element is the struct: the message, or one of its own.
    """
    places: Places = {}
    for struct in (message, *parts):
        path = tuple(struct.name.split(".")[1:])
        places |= {(struct.name, *at): name for at, name in _places(struct, path)}
    own = {part.name.rpartition(".")[2] for part in parts}
    found = {}
    for at, path in places.items():
        same = [each for each in places.values() if each[-1] == path[-1]]
        least = min(map(len, same))
        is_free = len(path) == least and [*map(len, same)].count(least) == 1 and path[-1] not in own
        found[at] = path[-1] if is_free else "".join(path)
    return found


def _places(
    struct: Struct, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    for item in struct.fields:
        inner = innermost(item.type)
        if isinstance(inner, Inline):
            # A name whose singular is not known differs from all others, as the strategy makes sure.
            name = inner.hint or SINGULARS.get(item.name, item.name)
            below = (*path, f"{name[:1].upper()}{name[1:]}")
            yield (item.name,), below
            for at, names in _places(inner.struct, below):
                yield (item.name, *at), names


def with_unique_classes(message: Struct, parts: Sequence[Struct]) -> tuple[Struct, list[Struct]]:
    """The message and its own structs, with other hints if two structs would be one class.

    The own structs must be those in the fields of the message.
    """
    found = class_names(message, parts)
    own = [part.name.rpartition(".")[2] for part in parts]
    if max(Counter([*found.values(), *own]).values(), default=1) == 1:
        return message, [*parts]
    numbers = {at: f"Inner{number}" for number, at in enumerate(found, 1)}
    fresh = {part.name: _hinted(part, (part.name,), numbers, {}) for part in parts}
    return _hinted(message, (message.name,), numbers, fresh), [*fresh.values()]


def _hinted(
    struct: Struct,
    at: tuple[str, ...],
    hints: Mapping[tuple[str, ...], str],
    parts: Mapping[str, Struct],
) -> Struct:
    def changed(type_: Type, place: tuple[str, ...]) -> Type:
        if isinstance(type_, Array):
            return replace(type_, element=changed(type_.element, place))
        if isinstance(type_, Inline):
            inner = _hinted(type_.struct, place, hints, parts)
            return replace(type_, struct=inner, hint=hints[place])
        if isinstance(type_, Named) and type_.struct.name in parts:
            return replace(type_, struct=parts[type_.struct.name])
        return type_

    fields = tuple(
        replace(item, type=changed(item.type, (*at, item.name))) for item in struct.fields
    )
    return replace(struct, fields=fields)
