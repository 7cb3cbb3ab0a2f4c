"""Bytes of every type, in classic and flexible versions.

The expected bytes are written by hand, from the tables of the language's reference. Each struct is
compiled with the whole pipeline: definition, package, import, encode and decode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from krammar.wire.errors import DecodeError, EncodeError, UnsupportedVersionError

DEFINITIONS = """\
Fixed => not top level, flexible v1+
  A: bool
  B: int8
  C: int16
  D: int32
  E: int64
  F: uint16
  G: uint32
  H: float64
  I: uuid

Varints => not top level, flexible v1+
  A: varint
  B: varlong

Texts => not top level, flexible v1+
  A: string
  B: nullable-string
  C: nullable-string-v2+
  D: varint-string
  E: bytes
  F: nullable-bytes
  G: varint-bytes
  H: nullable-bytes-v2+

Arrays => not top level, flexible v1+
  A: [int16]
  B: nullable[string]
  C: nullable-v2+[uuid]
  D: varint[int8]
  E: [[int32]]
  F: nullable[[string]]
  G: varint[[bool]]
  H: [nullable-string]
  I: [varint]
  J: [bytes]

Structs => not top level, flexible v1+
  Plain: =>
    A: int8
    Deeper: =>
      B: int8
  Maybe: nullable=>
    C: int8
  Rows: [=>]
    D: int8
    Cells: [=>]
      E: string
  Boxes: [=>]Crate
    F: int8
  Things: [=>Gadget]
    G: int8
  Perhaps: nullable[=>]Chance
    H: int8
  Last: int8

Later => not top level, flexible v1+
  Held: Named
  Many: varint[Named]
  More: nullable[Named]

Named => not top level, no encoding
  A: string
  B: int8 // v1+

Present => not top level, flexible v1+
  Maybe: nullable=>()
    A: int8(3)

Tagged => not top level, flexible v1+
  Second: int32(7) // tag 1
  Plain: int8
  First: string // tag 0
  Maybe: nullable=> // tag 2
    A: int8
  Here: nullable=>() // tag 3
    B: int8(9)
  Inner: => // tag 4
    C: int16(-1)
  Late: [int8] // v2+, tag 5
  Own: Value // tag 6
  Far: nullable[int8](null) // v2+, tag 7

Classic => not top level, flexible v1+
  A: nullable-string // v0+, not flexible
  B: [string] // not flexible
  C: string

Ranges => not top level
  A: int8 // v1+
  B: int8(4) // v1-v2
  C: int8 // v2-v2
  D: [=>] // v1-v3
    E: int8 // v2+
    F: int8 // v1-v2

Value => not top level, with version field, flexible v2+
  Version: int16
  A: string
  B: int8 // v1-v1

Limited => not top level, with version field, max version 3
  Version: int16
  A: int8 // v1+

AnyVersion => not top level, with version field
  Version: int16
  Group: string

Holder => not top level, flexible v0+
  Values: [Value]
  One: Value

Coded => not top level, flexible v1+
  A: enum-Small
  B: enum-Colour
  C: enum-Wide
  D: enum-Huge
  E: enum-Port
  F: enum-Mask
  G: [enum-Colour]

Small int8 (
  -1: NONE
  0: ZERO
)

Colour int16 (
  0: RED
  0x10: BLUE
)

Wide int32 (
  -2147483648: LEAST
)

Huge int64 (
  9223372036854775807: MOST
)

Port uint16 (
  65535: LAST
)

Mask uint32 (
  4294967295: ALL
)

Sized => not top level
  Before: int8
  Length: int32
  Magic: int8
  Body: length-field-minus => Length - 1
  After: int8

Millis => not top level, flexible v2+
  ThrottleMillis(2) // v1+
  TimeoutMillis
  Inner: =>
    TimeoutMillis(60000)
    ThrottleMillis // v1+
  Written: =>
    ThrottleMillis: int32
    TimeoutMillis: int32(5)
  Typed: ThrottleMillis(1)
  Other: TimeoutMillis

Empty => not top level, flexible v1+

EmptyElements => not top level, flexible v1+
  Rows: [=>]
    A: int8 // v2+
"""

ID = "00112233-4455-6677-8899-aabbccddeeff"


@dataclass(frozen=True)
class Vector:
    """A value (made from the package), its struct's version, and its bytes in hexadecimal."""

    name: str
    version: int
    value: Callable[[Any], Any]
    data: str

    def __str__(self) -> str:
        return f"{self.name}-v{self.version}"


def fixed(p: Any) -> Any:
    return p.Fixed(
        a=True, b=-2, c=-3, d=0x01020304, e=-1, f=0xFFFE, g=0xFFFFFFFD, h=1.5, i=UUID(ID)
    )


FIXED = (
    "01 fe fffd 01020304 ffffffffffffffff fffe fffffffd 3ff8000000000000 "
    + ID.replace("-", "")
    + " "
)


def texts(p: Any, **more: Any) -> Any:
    return p.Texts(a="aé", b=None, d=None, e=b"\0\xff", f=None, g=b"\7", **more)


def arrays(p: Any) -> Any:
    return p.Arrays(
        a=[1, -1],
        b=None,
        d=[5],
        e=[[1], []],
        f=None,
        g=[[True, False]],
        h=[None, "x"],
        i=[-1, 1],
        j=[b"\1", b""],
    )


def structs(p: Any, maybe: Any = None, perhaps: Any = None) -> Any:
    return p.Structs(
        plain=p.Structs.Plain(a=1, deeper=p.Structs.Deeper(b=2)),
        maybe=maybe,
        rows=[p.Structs.Row(d=3, cells=[p.Structs.Cell(e="x")])],
        boxes=[p.Structs.Crate(f=4)],
        things=[p.Structs.Gadget(g=5)],
        perhaps=perhaps,
        last=6,
    )


def later(p: Any, b: int) -> Any:
    return p.Later(held=p.Named(a="h", b=b), many=[p.Named(a="m", b=b)], more=None)


def value(p: Any, version: int, **more: Any) -> Any:
    return p.Value(version=version, a="x", **more)


def coded(p: Any) -> Any:
    return p.Coded(
        a=p.Small.NONE,
        b=p.Colour.BLUE,
        c=p.Wide.LEAST,
        d=p.Huge.MOST,
        e=p.Port.LAST,
        f=p.Mask.ALL,
        g=[p.Colour.BLUE, 99],
    )


CODED = "ff 0010 80000000 7fffffffffffffff ffff ffffffff "


def millis(p: Any, **more: int) -> Any:
    return p.Millis(
        timeout_millis=2,
        inner=p.Millis.Inner(timeout_millis=3, **more),
        written=p.Millis.Written(throttle_millis=5, timeout_millis=6),
        typed=7,
        other=8,
        **more,
    )


VECTORS = [
    Vector("Fixed", 0, fixed, FIXED),
    Vector("Fixed", 1, fixed, FIXED + "00"),
    Vector("Varints", 0, lambda p: p.Varints(a=-1, b=300), "01 d804"),
    Vector(
        "Varints",
        0,
        lambda p: p.Varints(a=-(2**31), b=2**63 - 1),
        "ffffffff0f" "feffffffffffffffff01",
    ),
    Vector("Varints", 1, lambda p: p.Varints(a=64, b=-64), "8001 7f 00"),
    Vector("Texts", 0, texts, "0003 61c3a9 ffff 0000 01 00000002 00ff ffffffff 0207 00000000"),
    Vector("Texts", 1, texts, "04 61c3a9 00 01 01 03 00ff 00 0207 01 00"),
    Vector(
        "Texts", 2, lambda p: texts(p, c=None, h=None), "04 61c3a9 00 00 01 03 00ff 00 0207 00 00"
    ),
    Vector(
        "Texts",
        1,
        lambda p: p.Texts(a="y" * 200, d="z" * 64),
        "c901" + "79" * 200 + "01 01 8001" + "7a" * 64 + "01 01 00 01 00",
    ),
    Vector(
        "Arrays",
        0,
        arrays,
        "00000002 0001 ffff"
        "ffffffff"
        "00000000"
        "02 05"
        "00000002 00000001 00000001 00000000"
        "ffffffff"
        "02 00000002 01 00"
        "00000002 ffff 0001 78"
        "00000002 01 02"
        "00000002 00000001 01 00000000",
    ),
    Vector(
        "Arrays",
        1,
        arrays,
        "03 0001 ffff  00  01  02 05  03 02 00000001 01  00  02 03 01 00  03 00 02 78  03 01 02"
        "03 02 01 01  00",
    ),
    Vector(
        "Arrays",
        2,
        lambda p: p.Arrays(c=None, f=[["a"], []]),
        "01 01 00 00 01  03 02 02 61 01  00 01 01 01 00",
    ),
    Vector(
        "Arrays",
        2,
        lambda p: p.Arrays(c=[UUID(ID)]),
        "01 01 02" + ID.replace("-", "") + "00 01 01 00 01 01 01 00",
    ),
    Vector(
        "Structs",
        0,
        structs,
        "01 02  ff  00000001 03 00000001 0001 78  00000001 04  00000001 05  ffffffff  06",
    ),
    Vector(
        "Structs",
        0,
        lambda p: structs(p, p.Structs.Maybe(c=7), [p.Structs.Chance(h=8)]),
        "01 02  01 07  00000001 03 00000001 0001 78  00000001 04  00000001 05  00000001 08  06",
    ),
    Vector(
        "Structs",
        1,
        structs,
        "01 02 00 00  ff  02 03 02 02 78 00 00  02 04 00  02 05 00  00  06  00",
    ),
    Vector(
        "Structs",
        1,
        lambda p: structs(p, p.Structs.Maybe(c=7), []),
        "01 02 00 00  01 07 00  02 03 02 02 78 00 00  02 04 00  02 05 00  01  06  00",
    ),
    Vector("Later", 0, lambda p: later(p, 0), "0001 68  02 0001 6d  ffffffff"),
    Vector("Later", 1, lambda p: later(p, 9), "02 68 09 00  02 02 6d 09 00  00  00"),
    Vector("Present", 0, lambda p: p.Present(), "01 03"),
    Vector("Present", 0, lambda p: p.Present(maybe=None), "ff"),
    Vector("Present", 1, lambda p: p.Present(), "01 03 00 00"),
    Vector("Present", 1, lambda p: p.Present(maybe=None), "ff 00"),
    Vector("Tagged", 0, lambda p: p.Tagged(plain=5), "05"),
    Vector("Tagged", 1, lambda p: p.Tagged(plain=5), "05 00"),
    Vector(
        "Tagged",
        1,
        lambda p: p.Tagged(second=8, plain=5, first="x"),
        "05 02  00 02 0278  01 04 00000008",
    ),
    Vector("Tagged", 1, lambda p: p.Tagged(maybe=p.Tagged.Maybe(a=1)), "00 01  02 03 01 01 00"),
    Vector("Tagged", 1, lambda p: p.Tagged(maybe=p.Tagged.Maybe()), "00 01  02 03 01 00 00"),
    Vector("Tagged", 1, lambda p: p.Tagged(here=None), "00 01  03 01 00"),
    Vector("Tagged", 1, lambda p: p.Tagged(here=p.Tagged.Here(b=4)), "00 01  03 03 01 04 00"),
    Vector("Tagged", 1, lambda p: p.Tagged(inner=p.Tagged.Inner(c=3)), "00 01  04 03 0003 00"),
    Vector("Tagged", 2, lambda p: p.Tagged(late=[1]), "00 01  05 02 02 01"),
    Vector("Tagged", 1, lambda p: p.Tagged(own=value(p, 0)), "00 01  06 05 0000 0001 78"),
    Vector("Tagged", 2, lambda p: p.Tagged(far=[]), "00 01  07 01 01"),
    Vector("Classic", 0, lambda p: p.Classic(b=["x"], c="y"), "0000  00000001 0001 78  0001 79"),
    Vector(
        "Classic",
        1,
        lambda p: p.Classic(a=None, b=["x"], c="y"),
        "ffff  00000001 0001 78  02 79  00",
    ),
    Vector("Ranges", 0, lambda p: p.Ranges(), ""),
    Vector("Ranges", 1, lambda p: p.Ranges(a=1, b=2, d=[p.Ranges.D(f=3)]), "01 02 00000001 03"),
    Vector(
        "Ranges",
        2,
        lambda p: p.Ranges(a=1, b=2, c=3, d=[p.Ranges.D(e=4, f=5)]),
        "01 02 03 00000001 04 05",
    ),
    Vector("Ranges", 3, lambda p: p.Ranges(a=1, d=[p.Ranges.D(e=4)]), "01 00000001 04"),
    Vector("Ranges", 4, lambda p: p.Ranges(a=1), "01"),
    Vector("Ranges", 99, lambda p: p.Ranges(a=1), "01"),
    Vector(
        "Holder",
        0,
        lambda p: p.Holder(values=[value(p, 0), value(p, 1, b=5)], one=value(p, 2)),
        "03  0000 0001 78  0001 0001 78 05  0002 02 78 00  00",
    ),
    Vector("Coded", 0, coded, CODED + "00000002 0010 0063"),
    Vector("Coded", 1, coded, CODED + "03 0010 0063 00"),
    Vector(
        "Sized",
        0,
        lambda p: p.Sized(before=1, length=4, magic=2, body=b"abc", after=3),
        "01 00000004 02 616263 03",
    ),
    Vector(
        "Sized", 0, lambda p: p.Sized(before=1, length=1, magic=2, after=3), "01 00000001 02 03"
    ),
    Vector("Millis", 0, millis, "00000002  00000003  00000005 00000006  00000007 00000008"),
    Vector(
        "Millis",
        1,
        lambda p: millis(p, throttle_millis=1),
        "00000001 00000002  00000003 00000001  00000005 00000006  00000007 00000008",
    ),
    Vector(
        "Millis",
        2,
        lambda p: millis(p, throttle_millis=1),
        "00000001 00000002  00000003 00000001 00  00000005 00000006 00  00000007 00000008  00",
    ),
    Vector("Empty", 0, lambda p: p.Empty(), ""),
    Vector("Empty", 1, lambda p: p.Empty(), "00"),
    Vector(
        "EmptyElements", 0, lambda p: p.EmptyElements(rows=[p.EmptyElements.Row()] * 3), "00000003"
    ),
    Vector("EmptyElements", 1, lambda p: p.EmptyElements(rows=[p.EmptyElements.Row()]), "02 00 00"),
    Vector(
        "EmptyElements",
        2,
        lambda p: p.EmptyElements(rows=[p.EmptyElements.Row(a=7)]),
        "02 07 00 00",
    ),
]


@pytest.fixture(scope="module")
def package(build: Callable[[str], Any]) -> Any:
    return build(DEFINITIONS)


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_bytes(package: Any, vector: Vector) -> None:
    made = vector.value(package)
    data = bytes.fromhex(vector.data)

    assert made.encode(vector.version).hex(" ") == data.hex(" ")
    assert type(made).decode(data, vector.version) == made


@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_layouts_say_the_same(package: Any, vector: Vector) -> None:
    layout = package.layout(type(vector.value(package)), vector.version)
    data = bytes.fromhex(vector.data)

    assert layout.write(layout.read(data)).hex(" ") == data.hex(" ")


# -- versions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "data"),
    [(0, "0000 0001 78"), (1, "0001 0001 78 00"), (2, "0002 02 78 00")],
)
def test_a_value_chooses_its_own_version(package: Any, version: int, data: str) -> None:
    made = value(package, version)

    assert made.encode() == bytes.fromhex(data)
    assert package.Value.decode(bytes.fromhex(data)) == made


@pytest.mark.parametrize("version", [-1, 3, 32767])
def test_versions_beyond_those_that_are_named_are_refused(package: Any, version: int) -> None:
    data = version.to_bytes(2, "big", signed=True) + bytes(8)
    message = f"Value has no version {version}: versions 0 to 2 are known"

    with pytest.raises(UnsupportedVersionError, match=message):
        package.Value.decode(data)
    with pytest.raises(UnsupportedVersionError, match=message):
        package.Value(version=version).encode()
    with pytest.raises((UnsupportedVersionError, DecodeError)):
        package.Holder.decode(b"\2" + data, 0)
    with pytest.raises((UnsupportedVersionError, EncodeError)):
        package.Holder(one=package.Value(version=version)).encode(0)


def test_max_version_raises_the_versions_of_a_versioned_struct(package: Any) -> None:
    assert (package.Limited.min_version, package.Limited.max_version) == (0, 3)
    assert package.Limited(version=3, a=4).encode() == b"\0\3\4"
    assert package.Limited.decode(b"\0\2\4").a == 4
    with pytest.raises(UnsupportedVersionError):
        package.Limited.decode(b"\0\4\4")


@pytest.mark.parametrize("version", [-32768, -1, 0, 1, 7, 32767])
def test_a_struct_that_names_no_version_takes_any(package: Any, version: int) -> None:
    data = version.to_bytes(2, "big", signed=True) + b"\0\1g"

    assert package.AnyVersion.decode(data) == package.AnyVersion(version=version, group="g")
    assert package.AnyVersion(version=version, group="g").encode() == data


def test_no_encoding_means_no_methods(package: Any) -> None:
    assert not hasattr(package.Named, "encode")
    assert not hasattr(package.Named, "decode")
    assert not hasattr(package.Structs.Row, "encode")


def test_absent_fields_have_their_defaults(package: Any) -> None:
    assert package.Ranges.decode(b"", 0) == package.Ranges(a=0, b=4, c=0, d=[])
    assert package.Later.decode(bytes.fromhex("0001 68 00 00000000"), 0).held.b == 0


# -- tags ----------------------------------------------------------------------------------------


def test_unknown_tags_are_kept_in_order(package: Any) -> None:
    data = bytes.fromhex("05 04  00 02 0278  01 04 00000008  09 02 aabb  8001 00")

    made = package.Tagged.decode(data, 1)

    assert made.unknown_tags == {9: b"\xaa\xbb", 128: b""}
    assert made.encode(1) == data


def test_unknown_tags_are_sorted_among_the_known(package: Any) -> None:
    made = package.Tagged(second=8, first="x")
    made.unknown_tags[200] = b"\1"
    made.unknown_tags[8] = b"\2"

    assert made.encode(1) == bytes.fromhex(
        "00 04  00 02 0278  01 04 00000008  08 01 02  c801 01 01"
    )


def test_a_tag_of_a_later_version_is_unknown_before(package: Any) -> None:
    data = bytes.fromhex("00 01  05 02 02 01")

    made = package.Tagged.decode(data, 1)

    assert made.late == []
    assert made.unknown_tags == {5: b"\2\1"}
    assert made.encode(1) == data


def test_unknown_tags_inside_of_other_structs(package: Any) -> None:
    data = bytes.fromhex("01 02 01 03 01 aa 00  ff  01  01  01  01  06  00")

    made = package.Structs.decode(data, 1)

    assert made.plain.deeper.unknown_tags == {3: b"\xaa"}
    assert made.encode(1) == data


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("00 02  01 04 00000008  00 02 0278", id="descending"),
        pytest.param("00 02  01 04 00000008  01 04 00000008", id="twice"),
        pytest.param("00 01  01 05 00000008 00", id="longer than its type"),
        pytest.param("00 01  01 03 000008", id="shorter than its type"),
        pytest.param("00 01  02 01 02", id="neither null nor present"),
    ],
)
def test_broken_tags_are_refused(package: Any, data: str) -> None:
    with pytest.raises(DecodeError):
        package.Tagged.decode(bytes.fromhex(data), 1)


def test_a_null_struct_is_minus_one_outside_of_tags(package: Any) -> None:
    with pytest.raises(DecodeError):
        package.Present.decode(b"\0", 0)
    with pytest.raises(DecodeError):
        package.Present.decode(b"\2\3", 0)


# -- null ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "field", "version"),
    [
        ("Texts", "a", 0),
        ("Texts", "a", 2),
        ("Texts", "c", 0),
        ("Texts", "c", 1),
        ("Texts", "e", 0),
        ("Texts", "h", 1),
        ("Arrays", "a", 0),
        ("Arrays", "c", 0),
        ("Arrays", "c", 1),
        ("Arrays", "d", 0),
        ("Arrays", "e", 2),
        ("Structs", "rows", 1),
    ],
)
def test_null_is_refused_where_the_version_has_none(
    package: Any, name: str, field: str, version: int
) -> None:
    made = getattr(package, name)()
    setattr(made, field, None)

    with pytest.raises(EncodeError) as caught:
        made.encode(version)
    assert caught.value.path == field


@pytest.mark.parametrize(
    ("version", "data"), [(0, "0000 ffff ffff"), (1, "01 00 00"), (0, "ffff"), (1, "00")]
)
def test_null_bytes_are_refused_where_the_version_has_none(
    package: Any, version: int, data: str
) -> None:
    with pytest.raises(DecodeError, match="null"):
        package.Texts.decode(bytes.fromhex(data), version)


@pytest.mark.parametrize("field", ["d", "g"])
def test_varint_texts_are_nullable(package: Any, field: str) -> None:
    made = package.Texts(**{field: None})

    assert getattr(package.Texts.decode(made.encode(0), 0), field) is None


# -- lengths -------------------------------------------------------------------------------------


def test_encoding_sets_the_length_field(package: Any) -> None:
    made = package.Sized(length=12345, body=b"abc")

    assert made.encode(0) == bytes.fromhex("00 00000004 00 616263 00")


def test_with_lengths_sets_what_encoding_writes(package: Any) -> None:
    made = package.Sized(length=12345, body=b"abc", after=7)
    decoded = package.Sized.decode(made.encode(0), 0)

    assert decoded != made
    assert decoded == made.with_lengths() == package.Sized(length=4, body=b"abc", after=7)
    assert made.length == 12345
    assert "``with_lengths()``" in package.Sized.__doc__
    assert "with_lengths" not in package.Fixed.__doc__

    made.body = None
    with pytest.raises(EncodeError, match="body: needs bytes, not NoneType") as caught:
        made.with_lengths()
    assert caught.value.path == "body"


def test_with_lengths_reaches_nested_structs(build: Callable[[str], Any]) -> None:
    package = build(NESTED_LENGTHS)
    made = package.Frame(
        first=package.Body(length=1, content=bytearray(b"ab")),
        more=[package.Body(content=b"c"), package.Body(content=b"")],
    )
    made.unknown_tags = {5: b"x"}
    copied = made.with_lengths()

    assert package.Frame.decode(made.encode(0), 0) == copied
    assert [copied.first.length, *(body.length for body in copied.more)] == [2, 1, 0]
    assert (made.first.length, made.more[0].length, made.maybe) == (1, 0, None)
    copied.unknown_tags.clear()
    assert made.unknown_tags == {5: b"x"}


NESTED_LENGTHS = """\
Frame => not top level, flexible v0+
  First: Body
  More: [Body]
  Maybe: nullable=>
    Size: int8

Body => not top level, no encoding
  Length: int16
  Content: length-field-minus => Length - 0
"""


def test_a_field_may_be_called_with_lengths(build: Callable[[str], Any]) -> None:
    package = build("S => not top level\n  WithLengths: int8\n")

    assert package.S(with_lengths_=3).with_lengths().encode(0) == b"\3"


def test_a_length_below_the_minus_is_refused(package: Any) -> None:
    with pytest.raises(DecodeError):
        package.Sized.decode(bytes.fromhex("01 00000000 02 03"), 0)
    with pytest.raises(DecodeError):
        package.Sized.decode(bytes.fromhex("01 7fffffff 02 03"), 0)


# -- enums ---------------------------------------------------------------------------------------


def test_enum_values_without_a_name_survive(package: Any) -> None:
    data = bytes.fromhex("7e 0011 00000001 0000000000000001 0001 00000001 00000001 7fff")

    made = package.Coded.decode(data, 0)

    assert (made.a, made.b, made.g) == (0x7E, 0x11, [0x7FFF])
    assert type(made.a) is int
    assert made.encode(0) == data


def test_repr_names_enum_members(package: Any) -> None:
    assert repr(coded(package)) == (
        "Coded(a=Small.NONE, b=Colour.BLUE, c=Wide.LEAST, d=Huge.MOST, "
        "e=Port.LAST, f=Mask.ALL, g=[Colour.BLUE, 99])"
    )
