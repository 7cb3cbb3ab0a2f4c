"""Names the classes of anonymous structs: diagnostics E205 and E208."""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from krammar.compiler import names
from krammar.compiler.front.declarations import Declarations
from krammar.compiler.front.syntax import ArrayNode, FieldNode, Word, anonymous_of
from krammar.util.diagnostics import Position


@dataclass(frozen=True, slots=True)
class _Anonymous:
    """An anonymous struct.

    ``word``  the hint, or the field's name, from which its own name comes
    ``path``  the names of the structs that contain it inside the message, and its own name
    """

    node: FieldNode
    word: Word
    path: tuple[str, ...]


def anonymous_class_names(declarations: Declarations) -> dict[Position, str]:
    """Return the classes of all anonymous structs, by the positions of their fields' names.

    The own name of a struct is its hint, or the singular of the field's name. If structs of one message have the same
    own name, the shallowest one is the class ``Message.Name``. The classes of the others have all names on their paths,
    such as ``Message.OuterName``, and so do all of them if two are equally deep. That does not depend on the order of
    the definitions. What still collides is an error.
    """
    owners: dict[str, list[_Anonymous]] = {}
    for name, header in declarations.headers.items():
        owner, *part = name.split(".", 1)
        owners.setdefault(owner, []).extend(_anonymous(header.node.fields, tuple(part)))
    found: dict[Position, str] = {}
    for owner, structs in owners.items():
        found |= _name(owner, structs, declarations)
    return found


def _anonymous(fields: Sequence[FieldNode], path: tuple[str, ...]) -> Iterator[_Anonymous]:
    seen: set[str] = set()
    for node in fields:
        arrow = None if node.type is None else anonymous_of(node.type)
        if arrow is None or node.name.text in seen:  # a second field of a name is E202
            continue
        seen.add(node.name.text)
        outer = node.type.hint if isinstance(node.type, ArrayNode) else None
        hint = outer or arrow.hint
        name = hint.text if hint is not None else names.singular(node.name.text)
        inner = (*path, f"{name[:1].upper()}{name[1:]}")
        yield _Anonymous(node, hint or node.name, inner)
        yield from _anonymous(node.fields, inner)


def _name(
    owner: str, structs: Sequence[_Anonymous], declarations: Declarations
) -> dict[Position, str]:
    groups: dict[str, list[_Anonymous]] = {}
    for struct in structs:
        groups.setdefault(struct.path[-1], []).append(struct)
    own_names: list[tuple[_Anonymous, str]] = []
    paths: list[tuple[_Anonymous, str]] = []
    for name, group in groups.items():
        least = min(len(struct.path) for struct in group)
        shallowest = [struct for struct in group if len(struct.path) == least]
        free = len(shallowest) == 1 and f"{owner}.{name}" not in declarations.class_names
        for struct in group:
            if free and struct is shallowest[0]:
                own_names.append((struct, f"{owner}.{name}"))
            else:
                paths.append((struct, f"{owner}.{''.join(struct.path)}"))
    found = {}
    for struct, name in own_names + paths:
        word = struct.node.name
        found[word.position] = name
        if keyword.iskeyword(name.rpartition(".")[2]):
            declarations.report.error(
                "E208",
                f'the struct of "{word.text}" would be the class "{struct.path[-1]}", which Python reserves',
                struct.word,
                "choose another name for its class with a hint: `=>Hint` or `[=>]Hint`",
            )
        other = declarations.class_names.setdefault(name, word.position)
        if other != word.position:
            declarations.report.error(
                "E205",
                f"this struct and the one at {other.path.name}:{other.line} would both be the class "
                f'"{name}"',
                word,
                "choose another class name for one of them with a hint: `=>Hint` or `[=>]Hint`",
            )
    return found
