"""Values for every layout: hypothesis strategies, and a fast seeded generator.

Both make plain forms (see ``values``) from nothing but a layout. Hypothesis finds and shrinks; the
seeded generator is some fifty times faster and visits every message and version.

Lengths sit on both sides of the borders where the encoding of a length changes: 126 to 128 (a
compact length of n + 1 takes a second byte from n = 127), 16382 and 16383 (a third byte).
"""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from krammar.wire.layout import (
    Array,
    Field,
    Layout,
    Nested,
    Scalar,
    Sized,
    Text,
    Type,
    VarInteger,
    default_of,
)
from tests.generated.catalogue import Message
from tests.generated.values import Plain

BORDERS = (126, 127, 128)
LONG_BORDERS = (16382, 16383)
NULL_UUID = UUID(int=0)
# Kafka holds tags in Java integers and keeps the greatest of those for itself.
MAX_TAG = 0x7FFFFFFE
# One to four bytes a character in UTF-8.
LETTERS = "aZ0 -é߿€\uffff\U0001f600"


def int_range(type_: Scalar | VarInteger) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    if isinstance(type_, VarInteger):
        bits = 32 if type_.name == "varint" else 64
    else:
        bits = type_.width * 8
        if type_.code.isupper():
            return 0, (1 << bits) - 1
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def finish(message: Message, layout: Layout, version: int, plain: Plain) -> Plain:
    """Set the fields that depend on others or on the version: version field, length fields."""
    name = message.version_field
    if name is not None and not message.any_version:
        plain[name] = version
    for item in layout.fields:
        if item.length_of:
            plain[item.name] = len(plain[item.length_of]) + item.plus
    return plain


# ---- the seeded generator ----------------------------------------------------------------------

STYLES = ("default", "null", "low", "high", "long", "random")


class Maker:
    """Plain values from a seeded source of random numbers, in one of these styles:

    - ``default``: every field has its default;
    - ``null``: null where it is allowed, otherwise empty, -1 or the least value;
    - ``low``, ``high``: the least and the greatest integers, one and two elements;
    - ``long``: strings and arrays as long as the borders of their lengths' encodings;
    - ``random``: any of these, field by field.
    """

    def __init__(self, rng: Random, style: str, *, unknown_tags: bool = True) -> None:
        self.rng = rng
        self.style = style
        self.unknown = unknown_tags
        self.budget = (
            400  # elements and characters' hundreds: bounds what nested arrays multiply to
        )

    def message(self, message: Message, version: int) -> Plain:
        layout = message.layout(version)
        return finish(message, layout, version, self.struct(layout, 0))

    def struct(self, layout: Layout, depth: int) -> Plain:
        plain = {item.name: self.field(item, depth) for item in layout.fields}
        if layout.flexible:
            for item in layout.tags:
                plain[item.name] = self.tagged(item, depth)
            if self.unknown and self.style not in ("default", "null"):
                tags = self.unknown_tags(layout)
                if tags:
                    plain["unknown_tags"] = tags
        return plain

    def field(self, item: Field, depth: int) -> Any:
        if self.style == "default" and not item.length_of:
            return default_of(item)
        return self.value(item.type, depth)

    def tagged(self, item: Field, depth: int) -> Any:
        """Tagged fields are written only when they differ from the default: have both."""
        if self.style == "default" or self.rng.random() < 0.3:
            return default_of(item)
        return self.value(item.type, depth)

    def unknown_tags(self, layout: Layout) -> dict[int, bytes]:
        chance = 0.15 if self.style == "random" else 0.35
        if self.rng.random() > chance:
            return {}
        known = {item.tag for item in layout.tags}
        choices = [len(known), len(known) + 1, 127, 128, 16384, MAX_TAG]
        picked = sorted(set(self.rng.sample(choices, self.rng.choice((1, 1, 2, 3)))) - known)
        return {tag: self.rng.randbytes(self.rng.choice((0, 1, 2, 127, 128))) for tag in picked}

    def value(self, type_: Type, depth: int) -> Any:
        style = self.style
        if style == "random":
            style = self.rng.choice(("null", "low", "high", "any", "any", "any", "long"))
        rng = self.rng
        if isinstance(type_, VarInteger) or (isinstance(type_, Scalar) and type_.code in "bhiqHI"):
            low, high = int_range(type_)
            if style == "null":
                return max(-1, low)
            if style == "low":
                return low
            if style == "high":
                return high
            if rng.random() < 0.3:
                return rng.choice((0, 1, max(low, -1), 63, 64, -65 if low else 65, 127))
            return rng.randint(low, high) >> rng.randrange(8)
        if isinstance(type_, Scalar):
            if type_.code == "?":
                return {"low": False, "high": True}.get(style, rng.random() < 0.5)
            if type_.code == "d":
                return {"low": -1.7976931348623157e308, "high": float("inf")}.get(
                    style, rng.choice((0.0, -1.5, 5e-324, rng.random()))
                )
            if style in ("null", "low"):
                return NULL_UUID
            return UUID(int=(1 << 128) - 1 if style == "high" else rng.getrandbits(128))
        if isinstance(type_, (Text, Sized)):
            return self.text(type_, style)
        if isinstance(type_, Array):
            return self.array(type_, style, depth)
        assert isinstance(type_, Nested), type_
        if type_.nullable and (style == "null" or rng.random() < 0.2):
            return None
        return self.struct(type_.layout, depth + 1)

    def text(self, type_: Text | Sized, style: str) -> Any:
        kind = type_.kind if isinstance(type_, Text) else "bytes"
        if style == "null":
            return None if isinstance(type_, Text) and type_.nullable else _empty(kind)
        if style == "low":
            return _empty(kind)
        if style == "long" and self.budget > 100:
            borders = BORDERS if self.rng.random() < 0.9 else LONG_BORDERS
            length = self.rng.choice(borders)
            self.budget -= length // 100
        else:
            length = self.rng.choice((0, 1, 2, 5, 9))
        if kind == "bytes":
            return self.rng.randbytes(length)
        if self.rng.randrange(2):
            return "k" * length
        # Long texts repeat a piece, since drawing every letter takes longer than all the rest.
        text = "".join(self.rng.choices(LETTERS, k=min(length, 64))) * (length // 64 + 1)
        # The borders count bytes: cut where the text would step over one.
        return (
            text
            if len(text.encode()) == length
            else text.encode()[:length].decode("utf-8", "ignore")
        )

    def array(self, type_: Array, style: str, depth: int) -> Any:
        if style == "null" and type_.nullable:
            return None
        if self.budget <= 0 or style == "null":
            return []
        simple = isinstance(type_.element, (Scalar, VarInteger, Text))
        if style == "long" and self.budget > 130 and (simple or depth == 0):
            length = self.rng.choice(BORDERS)
        elif style in ("low", "high"):
            length = 1 if style == "low" else 2
        else:
            length = self.rng.choice((0, 1, 1, 2, 3))
        self.budget -= length
        return [self.value(type_.element, depth + 1) for _ in range(length)]


def _empty(kind: str) -> Any:
    return b"" if kind == "bytes" else ""


def samples(message: Message, version: int, seed: int = 0, extra: int = 2) -> list[Plain]:
    """One value of each style and ``extra`` more random ones; the same in every run."""
    rng = Random(f"{message} {version} {seed}")
    return [
        Maker(rng, style).message(message, version) for style in (*STYLES, *("random",) * extra)
    ]


# ---- hypothesis --------------------------------------------------------------------------------


def plain_values(message: Message, version: int, *, unknown_tags: bool = True) -> Any:
    """A strategy of plain forms of ``message`` at ``version``."""
    layout = message.layout(version)
    return struct_strategy(layout, unknown_tags).map(
        lambda plain: finish(message, layout, version, dict(plain))
    )


@cache
def struct_strategy(layout: Layout, unknown_tags: bool = True) -> Any:
    """A strategy of plain forms of one layout."""
    fields = {item.name: type_strategy(item.type, unknown_tags) for item in layout.fields}
    for item in layout.tags:
        fields[item.name] = st.one_of(
            st.builds(default_of, st.just(item)), type_strategy(item.type, unknown_tags)
        )
    values = st.fixed_dictionaries(fields)
    if not layout.flexible or not unknown_tags:
        return values
    known = {item.tag for item in layout.tags}
    tags = st.one_of(st.integers(0, 300), st.sampled_from((16384, MAX_TAG)))
    unknown = st.dictionaries(
        tags.filter(lambda tag: tag not in known), st.binary(max_size=3), max_size=2
    )
    return st.builds(_with_tags, values, st.one_of(st.just({}), unknown))


def _with_tags(plain: Plain, tags: dict[int, bytes]) -> Plain:
    return {**plain, "unknown_tags": dict(sorted(tags.items()))} if tags else plain


def type_strategy(type_: Type, unknown_tags: bool = True) -> Any:
    """A strategy of plain forms of one type."""
    if isinstance(type_, VarInteger):
        return st.integers(*int_range(type_))
    if isinstance(type_, Scalar):
        if type_.code == "?":
            return st.booleans()
        if type_.code == "d":
            return st.floats(allow_nan=False)
        if type_.code == "16s":
            return st.one_of(st.just(NULL_UUID), st.uuids())
        low, high = int_range(type_)
        return st.one_of(st.integers(low, high), st.sampled_from((low, high)))
    if isinstance(type_, (Text, Sized)):
        if isinstance(type_, Text) and type_.kind == "string":
            some = st.one_of(
                st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
                st.sampled_from(BORDERS).map(lambda n: "k" * n),
            )
        else:
            some = st.one_of(st.binary(max_size=8), st.sampled_from(BORDERS).map(bytes))
        return st.none() | some if isinstance(type_, Text) and type_.nullable else some
    if isinstance(type_, Array):
        element = type_strategy(type_.element, unknown_tags)
        lists = st.lists(element, max_size=2)
        if isinstance(type_.element, (Scalar, VarInteger, Text)):
            lists = st.one_of(
                lists,
                st.tuples(element, st.sampled_from(BORDERS)).map(lambda pair: [pair[0]] * pair[1]),
            )
        return st.none() | lists if type_.nullable else lists
    assert isinstance(type_, Nested), type_
    inner = struct_strategy(type_.layout, unknown_tags)
    return st.none() | inner if type_.nullable else inner
