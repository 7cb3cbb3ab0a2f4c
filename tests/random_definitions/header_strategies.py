"""Strategies of headers, and of what a message says about its headers and keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.random_definitions import names
from tests.random_definitions.class_names import with_unique_classes
from tests.random_definitions.headers import (
    ROLES,
    field_of,
    is_placed,
    limit,
    offsets,
    usual_versions,
    versions,
)
from tests.random_definitions.model import (
    ALL,
    Enum,
    Field,
    Headers,
    Number,
    Struct,
    Text,
    Type,
    Versions,
    struct_in,
    zero,
)
from tests.random_definitions.reference import has
from tests.random_definitions.strategies import Context, Maker

Pairs = tuple[tuple[int, int], ...]

NUMBERS = ("int16", "int32", "uint16", "uint32", "int8", "uint8", "int64", "uint64")
RESERVED = {names.normal(name) for each in ROLES.values() for name in (*each, "ClientId")}
CLIENT_IDS: tuple[Type, ...] = (
    Text("string", ALL),
    Text("string"),
    Text("string", ALL, "varint"),
    Text("string", None, "uvarint"),
    Text("string", ALL, "int16"),
    Text("bytes"),
    Number("int32"),
)


def make_headers(maker: Maker, enums: Sequence[Enum]) -> Headers:
    """Own headers, with key, version and correlation id at any place that connections can find."""
    return Headers(
        _header(maker, enums, "RequestHeader", ("key", "version", "id")),
        _header(
            maker,
            enums,
            "ResponseHeader",
            ("key", "version", "id") if maker.chance("pushes", 60) else ("id",),
        ),
    )


def _header(maker: Maker, enums: Sequence[Enum], name: str, roles: Sequence[str]) -> Struct:
    top = maker.pick((1, 0, 2, 3))
    lowest = maker.number(0, top) if maker.chance("min version", 15) else 0
    flexible = maker.number(0, top) if maker.chance("flexible", 40) else None
    context = Context(name, lowest, top, flexible, tags=flexible is not None)
    fields = [_role(maker, role, context) for role in roles]
    others: list[Field] = []
    taken = set(RESERVED)
    if name == "RequestHeader" and maker.chance("", 60):
        others.append(_client_id(maker, context))
    for _ in range(maker.pick((0, 0, 1, 2))):
        others += maker.field(context, (), enums, taken)
    if maker.chance("moved headers", 50):
        fields = maker.order(fields)
        front: list[Field] = []
        for _ in range(maker.number(0, 2)):
            type_ = Number(maker.pick(("int8", "uuid", "bool", "float64", "uint32")))
            word = maker.name(taken, names.FIELDS, ())
            early = Field(word, type_, zero(type_))
            if maker.chance("", 30):
                early = replace(early, versions=maker.versions(context))
            front.append(early)
        mixed = maker.order([*fields, *front])
    else:
        mixed = fields
    struct = Struct("header", (*mixed, *others), name, lowest, top, flexible, doc=maker.doc())
    if not _is_valid(struct, roles):
        first = sorted(fields, key=lambda item: item.versions != ALL)
        rest = [item for item in mixed if item not in fields]
        struct = replace(struct, fields=(*first, *rest, *others))
    struct, _ = with_unique_classes(maker.finished(struct, context), ())
    if lowest == 0 and maker.chance("", 20):
        struct = replace(struct, highest=_implied_top(struct), implied=True)
        if not _is_valid(struct, roles):
            return replace(struct, highest=top, implied=False)
    return struct


def _is_valid(header: Struct, roles: Sequence[str]) -> bool:
    """Whether connections find all fields in a header: keys and versions in all of its versions."""
    return all(
        is_placed(header, role)
        and (role == "id" or [*offsets(header, role)] == [*versions(header)])
        for role in roles
    )


def _role(maker: Maker, role: str, context: Context) -> Field:
    type_ = Number(
        maker.pick(NUMBERS if role != "id" else ("int32", *NUMBERS))
        if "unsigned" in maker.forms
        else ("int32" if role == "id" else "int16")
    )
    found = Field(maker.pick(ROLES[role]), type_, 0, doc=maker.doc())
    if maker.chance("defaults", 10):
        found = replace(found, default=1, written="(1)")
    if role == "id" and context.top > context.lowest and maker.chance("", 30):
        first = maker.number(context.lowest, context.top)
        found = replace(found, versions=maker.pick((Versions(first), Versions(0, first))))
        if found.versions == ALL:
            return replace(found, versions=Versions(context.lowest))
    return found


def _client_id(maker: Maker, context: Context) -> Field:
    type_ = maker.pick(CLIENT_IDS) if maker.chance("prefixes", 40) else CLIENT_IDS[0]
    found = maker.versions(context) if maker.chance("", 40) else ALL
    return Field("ClientId", type_, zero(type_), versions=found, classic=maker.chance("", 50))


def _implied_top(struct: Struct) -> int:
    """The last version of a header that does not name it: the last one in which its bytes change."""
    found = [0 if struct.flexible_from is None else struct.flexible_from]

    def note(each: Versions | None) -> None:
        if each is not None:
            found.append(each.first if each.last is None else each.last + 1)

    def visit(inside: Struct) -> None:
        for item in inside.fields:
            note(item.versions)
            type_: object = item.type
            while type_ is not None:
                nulls = getattr(type_, "nullable", None)
                note(nulls if isinstance(nulls, Versions) else None)
                type_ = getattr(type_, "element", None)
            inner = struct_in(item.type)
            if inner is not None:
                visit(inner)

    visit(struct)
    return max(found)


class Numbering:
    """Chooses the keys and the headers of the messages of a package."""

    def __init__(self, maker: Maker, headers: Headers) -> None:
        self.maker = maker
        self.headers = headers
        # The keys that the server sends.
        self.sent: set[int] = set()

    @property
    def can_push(self) -> bool:
        """Whether a client can tell pushes from responses."""
        return field_of(self.headers.response, "key") is not None

    @property
    def highest(self) -> int:
        """The last version that the headers can express."""
        tops = [limit(self.headers.request, "version")]
        if field_of(self.headers.response, "version") is not None:
            tops.append(limit(self.headers.response, "version"))
        return min(tops)

    def fits(self, request: Struct) -> bool:
        """Whether a request of another package fits the headers of this one."""
        if request.headers or request.response_headers or request.response_key is not None:
            return False
        top = limit(self.headers.request, "key")
        if self.can_push and not request.one_way:
            top = min(top, limit(self.headers.response, "key"))
            if request.key in self.sent:
                return False
        assert request.highest is not None
        if request.key > top or request.highest > self.highest:
            return False
        return not self._needed(request, True) and (
            request.one_way or not self._needed(request, False)
        )

    def key(self) -> int:
        """The key of a request."""
        maker, top = self.maker, min(limit(self.headers.request, "key"), 65535)
        steps = (1, 2, 1000, 32768) if top > 32767 else (1, 2, 1000)
        key = max(maker.keys, default=0) + maker.pick(steps)
        if key > top:
            key = next(number for number in range(top + 1) if number not in maker.keys)
        maker.keys.add(key)
        return key

    def sent_key(self, own: int | None = None) -> int:
        """A key that the server sends: ``own``, if it can be."""
        maker, top = self.maker, min(limit(self.headers.response, "key"), 65535)
        wanted = (own or maker.pick((1, 2, 100))) | (0x8000 if maker.chance("", 50) else 0)
        if wanted > top or wanted in self.sent or maker.chance("", 20):
            wanted = next(number for number in range(top + 1) if number not in self.sent)
        self.sent.add(wanted)
        return wanted

    def request(self, struct: Struct) -> Struct:
        """Add key and headers to a request."""
        maker, answered = self.maker, not struct.one_way
        struct = replace(struct, key=self.key())
        if self.can_push and answered:
            free = struct.key <= limit(self.headers.response, "key") and struct.key not in self.sent
            if not free or maker.chance("response keys", 40):
                number = self.sent_key(struct.key)
                struct = replace(struct, response_key=number if number != struct.key else None)
            else:
                self.sent.add(struct.key)
        struct = replace(struct, headers=self._pairs(struct, True))
        return replace(struct, response_headers=self._pairs(struct, False)) if answered else struct

    def push(self, struct: Struct) -> Struct:
        """Add key and headers to a push."""
        return replace(struct, key=self.sent_key(), headers=self._pairs(struct, False))

    def _good(self, struct: Struct, before: bool) -> list[int]:
        """The versions of a header that can precede a message."""
        header = self.headers.request if before else self.headers.response
        number = field_of(header, "id")
        assert number is not None
        found = [*versions(header)]
        if struct.role == "push" or struct.one_way:
            return found
        return [each for each in found if has(number, each, header.flexible(each))]

    def _needed(self, struct: Struct, before: bool) -> bool:
        """Whether a message cannot have the usual headers."""
        good = self._good(struct, before)
        assert struct.highest is not None
        return any(
            usual_versions(struct, version, self.headers)[not before] not in good
            for version in range(struct.lowest, struct.highest + 1)
        )

    def _pairs(self, struct: Struct, before: bool) -> Pairs:
        maker, good = self.maker, self._good(struct, before)
        needed = self._needed(struct, before)
        assert struct.highest is not None
        if not needed and not maker.chance("header versions", 20):
            return ()
        pairs: list[tuple[int, int]] = []
        if needed or maker.chance("", 60):
            pairs.append((0, maker.pick(good)))
        if struct.highest > struct.lowest and maker.chance("", 60):
            pairs.append((maker.number(struct.lowest + 1, struct.highest), maker.pick(good)))
        return tuple(maker.order(pairs)) if len(pairs) == 2 else tuple(pairs)
