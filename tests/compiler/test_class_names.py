"""The class names of anonymous structs that have the same own name: which one gets the names on its path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from krammar.compiler import ir
from krammar.compiler.front.source import compile_texts
from krammar.util.diagnostics import Diagnostics
from tests.compiler.conftest import Build

# -- the cases that definitions in the wild contain ----------------------------------------------------

# A list that moved into groups in a later version, as when OffsetFetch was batched.
MOVED = """\
OffsetFetchRequest => key 9, max version 8
  Group: string // v0-v7
  Topics: [=>] // v0-v7
    Name: string
    Partitions: [int32]
  Groups: [=>] // v8+
    Group: string
    Topics: [=>]
      Name: string
      Partitions: [int32]

OffsetFetchResponse =>
  Topics: [=>] // v0-v7
    Name: string
    Partitions: [=>]
      Partition: int32
  Groups: [=>] // v8+
    Group: string
    Topics: [=>]
      Name: string
      Partitions: [=>]
        Partition: int64
"""

# The deeper struct comes first in the text.
DEEPER_FIRST = """\
AddRequest => key 24, max version 4
  Transactions: [=>] // v4+
    Id: string
    Topics: [=>]
      Name: string
  Topics: [=>] // v0-v3
    Size: int8

AddResponse =>
  Ok: bool
"""

# No struct is the shallowest one.
EQUALLY_DEEP = """\
ChangeRequest => key 0, max version 0
  Added: [=>]
    Items: [=>]
      A: int8
  Removed: [=>]Removal
    Items: [=>]
      B: int8

ChangeResponse =>
  Ok: bool
"""


def _names(message: type) -> list[str]:
    """The classes of the structs in a message."""
    return sorted(name for name in vars(message) if name[0].isupper())


def test_the_deeper_struct_has_the_names_on_its_path(build: Build) -> None:
    package = build(MOVED)
    request, response = package.OffsetFetchRequest, package.OffsetFetchResponse
    assert _names(request) == ["Group", "GroupTopic", "Topic"]
    classes = ["Group", "GroupTopic", "GroupTopicPartition", "Partition", "Topic"]
    assert _names(response) == classes
    new = request(groups=[request.Group(group="g", topics=[request.GroupTopic(name="t")])])
    assert request.decode(new.encode(8), 8) == new
    old = request(group="g", topics=[request.Topic(name="t", partitions=[3])])
    assert request.decode(old.encode(0), 0) == old


def test_the_order_in_the_text_does_not_matter(build: Build) -> None:
    package = build(DEEPER_FIRST)
    assert _names(package.AddRequest) == ["Topic", "Transaction", "TransactionTopic"]
    assert package.AddRequest.Topic(size=1).size == 1


def test_equally_deep_structs_all_have_the_names_on_their_paths(build: Build) -> None:
    package = build(EQUALLY_DEEP)
    assert _names(package.ChangeRequest) == ["Added", "AddedItem", "Removal", "RemovalItem"]


def test_a_hint_chooses_another_name(build: Build) -> None:
    package = build(DEEPER_FIRST.replace("    Topics: [=>]\n", "    Topics: [=>]Added\n"))
    assert _names(package.AddRequest) == ["Added", "Topic", "Transaction"]


def test_a_struct_of_the_message_keeps_its_name(build: Build) -> None:
    package = build(
        "S => not top level\n  Outer: =>\n    Parts: [=>]\n      A: int8\n  Other: S.Part\n\n"
        "S.Part => not top level, no encoding\n  Outers: [=>]\n    B: int8\n"
    )
    assert _names(package.S) == ["Outer", "OuterPart", "Part", "PartOuter"]


# -- random trees of structs ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Tree:
    """A struct: its field, its hint or an empty text, and the structs in it."""

    field: str
    hint: str
    inner: tuple[Tree, ...] = field(default=())

    @property
    def name(self) -> str:
        return self.hint or self.field.removesuffix("s")


def _distinct(trees: list[Tree]) -> tuple[Tree, ...]:
    return tuple({tree.field: tree for tree in trees}.values())


FIELDS = st.sampled_from(["A", "As", "B", "Bs", "C", "AB"])
HINTS = st.sampled_from(["", "", "", "A", "B", "AB"])
TREES = st.recursive(
    st.builds(Tree, FIELDS, HINTS),
    lambda inner: st.builds(Tree, FIELDS, HINTS, st.lists(inner, max_size=3).map(_distinct)),
    max_leaves=8,
)
FORESTS = st.lists(TREES, min_size=1, max_size=3).map(_distinct)


def _text(forest: tuple[Tree, ...]) -> str:
    def lines(trees: tuple[Tree, ...], depth: int) -> Iterator[str]:
        for tree in trees:
            yield f"{'  ' * depth}{tree.field}: [=>]{tree.hint}"
            yield f"{'  ' * depth}  Leaf: int8"
            yield from lines(tree.inner, depth + 1)

    return "\n".join(["S => not top level", *lines(forest, 1)]) + "\n"


def _compiled(forest: tuple[Tree, ...]) -> tuple[dict[tuple[str, ...], str], Counter[str]]:
    """Compile a forest. Return the class of each path of fields, and how often each class is reported."""
    diagnostics = Diagnostics()
    protocol = compile_texts("p", {Path("p/a.krm"): _text(forest).encode()}, diagnostics)
    (struct,) = protocol.files[0].structs
    found: dict[tuple[str, ...], str] = {}

    def visit(struct: ir.Struct, path: tuple[str, ...]) -> None:
        for item in struct.fields:
            inner = ir.struct_of(item.type)
            if inner is not None:
                found[*path, item.name] = inner.name
                visit(inner, (*path, item.name))

    visit(struct, ())
    assert {each.code for each in diagnostics.found} <= {"E205"}
    return found, Counter(each.message.split('"')[1] for each in diagnostics.found)


def _expected(forest: tuple[Tree, ...]) -> dict[tuple[str, ...], str]:
    """The class of each path of fields, by the rule of docs/definitions.md."""
    paths: dict[tuple[str, ...], tuple[str, ...]] = {}

    def visit(trees: tuple[Tree, ...], fields: tuple[str, ...], names: tuple[str, ...]) -> None:
        for tree in trees:
            paths[*fields, tree.field] = (*names, tree.name)
            visit(tree.inner, (*fields, tree.field), (*names, tree.name))

    visit(forest, (), ())
    result = {}
    for fields, names in paths.items():
        rivals = [len(other) for other in paths.values() if other[-1] == names[-1]]
        alone = rivals.count(min(rivals)) == 1 and len(names) == min(rivals)
        result[fields] = f"S.{names[-1] if alone else ''.join(names)}"
    return result


@settings(max_examples=300, deadline=None)
@given(FORESTS, st.randoms())
def test_names_follow_the_rule_in_any_order(forest: tuple[Tree, ...], random: Any) -> None:
    expected = _expected(forest)
    # Of all structs with one class, each but the first is reported, in one run.
    reported = Counter(expected.values())
    reported.subtract(set(expected.values()))

    assert _compiled(forest) == (expected, +reported)

    def shuffled(trees: tuple[Tree, ...]) -> tuple[Tree, ...]:
        order = [Tree(tree.field, tree.hint, shuffled(tree.inner)) for tree in trees]
        random.shuffle(order)
        return tuple(order)

    assert _compiled(shuffled(forest)) == (expected, +reported)


@pytest.mark.parametrize("text", [MOVED, DEEPER_FIRST, EQUALLY_DEEP])
def test_check_accepts_the_definitions(text: str) -> None:
    diagnostics = Diagnostics()
    compile_texts("p", {Path("p/a.krm"): text.encode()}, diagnostics)
    assert diagnostics.sorted() == []
