"""What definitions become in Python: classes, defaults, enums, names, registries."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from krammar.wire.errors import HeaderError, UnknownApiKeyError, UnsupportedVersionError
from krammar.wire.package import Package
from krammar.wire.reflection import fields, walker

Build = Callable[[str | Mapping[str, str]], Any]


# -- defaults ------------------------------------------------------------------------------------

DEFAULTS = """\
Zeros => not top level, flexible v0+
  A: bool
  B: int8
  C: varlong
  D: float64
  E: uuid
  F: string
  G: nullable-string
  H: bytes
  I: nullable-bytes
  J: varint-string
  K: varint-bytes
  L: [int8]
  M: nullable[int8]
  N: nullable=>
    A: int8
  O: =>
    A: int8(5)
  P: enum-Kind
  Q: Named
  R: varint[int8]

Named => not top level
  A: int8(6)

Kind int8 (
  1: ONE
)

Given => not top level, flexible v0+
  A: bool(true)
  B: int8(-128)
  C: int16(0x7f)
  D: int32(0x7fffffff)
  E: int64(-9223372036854775808)
  F: uint16(65535)
  G: uint32(4294967295)
  H: varint(-1)
  I: varlong(-0x10)
  J: float64(3.14)
  K: float64(-1e-3)
  L: uuid(00112233-4455-6677-8899-aabbccddeeff)
  M: string(abc)
  N: string(it's "quoted" \\\\ %s {})
  O: nullable-string(null)
  P: nullable-string(none)
  Q: nullable-bytes(null)
  R: nullable[int32](null)
  S: nullable[int32]()
  T: enum-Kind(1)
  U: enum-Kind(-1)
  V: nullable=>()
    A: int8(7)
  W: nullable=>(null)
    A: int8
  X: varint-string(null)
  Y: bool(false)
  Z: nullable-string-v0+(null)
  AA: [int32]()
  AB: bytes()
"""


@pytest.fixture(scope="module")
def defaults(build: Build) -> Any:
    return build(DEFAULTS)


def test_defaults_that_are_not_given(defaults: Any) -> None:
    zeros = defaults.Zeros()

    assert zeros.to_dict() == {
        "a": False,
        "b": 0,
        "c": 0,
        "d": 0.0,
        "e": str(UUID(int=0)),
        "f": "",
        "g": "",
        "h": "",
        "i": "",
        "j": "",
        "k": "",
        "l": [],
        "m": [],
        "n": None,
        "o": {"a": 5},
        "p": 0,
        "q": {"a": 6},
        "r": [],
    }
    assert zeros.h == zeros.i == zeros.k == b""
    assert zeros.q == defaults.Named(a=6)


def test_defaults_that_are_given(defaults: Any) -> None:
    given = defaults.Given()

    shown = {name: getattr(given, name) for name in given.to_dict()}
    assert shown == {
        "a": True,
        "b": -128,
        "c": 127,
        "d": 2**31 - 1,
        "e": -(2**63),
        "f": 65535,
        "g": 2**32 - 1,
        "h": -1,
        "i": -16,
        "j": 3.14,
        "k": -0.001,
        "l": UUID("00112233-4455-6677-8899-aabbccddeeff"),
        "m": "abc",
        "n": 'it\'s "quoted" \\\\ %s {}',
        "o": None,
        "p": "none",
        "q": None,
        "r": None,
        "s": [],
        "t": 1,
        "u": -1,
        "v": defaults.Given.V(a=7),
        "w": None,
        "x": None,
        "y": False,
        "z": None,
        "aa": [],
        "ab": b"",
    }


@pytest.mark.parametrize("name", ["Zeros", "Given"])
def test_defaults_survive_the_wire(defaults: Any, name: str) -> None:
    cls = getattr(defaults, name)

    assert cls.decode(cls().encode(0), 0) == cls()


def test_default_lists_and_structs_are_not_shared(defaults: Any) -> None:
    one, other = defaults.Zeros(), defaults.Zeros()

    one.l.append(1)
    one.q.a = 9

    assert other.l == []
    assert other.q.a == 6


# -- enums ---------------------------------------------------------------------------------------

ENUMS = """\
///////////
// ENUMS //
///////////

// What is wrong.
//
// With "quotes", a \\\\ and {braces}.
ErrorCode int16 (
  -1: UNKNOWN_SERVER_ERROR
  0: NONE
  // The server's log
  // is broken.
  2: CORRUPT_MESSAGE // retriable
  3: UNKNOWN_TOPIC // retriable, refresh_metadata
)

TransactionState int8 camelcase (
  0: Empty
  1: PrepareCommit
  2: None
)

Odd uint32 (
  0: name
  1: class
  2: mro
  3: meaning
  0xffffffff: LAST
)

Uses => not top level
  Code: enum-ErrorCode
  State: enum-TransactionState
"""


@pytest.fixture(scope="module")
def enums(build: Build) -> Any:
    return build({"enums": ENUMS})


def test_enum_members(enums: Any) -> None:
    assert issubclass(enums.ErrorCode, IntEnum)
    assert [(member.name, member.value) for member in enums.ErrorCode] == [
        ("UNKNOWN_SERVER_ERROR", -1),
        ("NONE", 0),
        ("CORRUPT_MESSAGE", 2),
        ("UNKNOWN_TOPIC", 3),
    ]


def test_enum_remarks_are_properties(enums: Any) -> None:
    assert [member.name for member in enums.ErrorCode if member.retriable] == [
        "CORRUPT_MESSAGE",
        "UNKNOWN_TOPIC",
    ]
    assert [member.name for member in enums.ErrorCode if member.refresh_metadata] == [
        "UNKNOWN_TOPIC"
    ]


def test_the_meaning_of_an_enum_member_is_its_documentation(enums: Any) -> None:
    assert enums.ErrorCode.CORRUPT_MESSAGE.meaning == "The server's log is broken."
    assert enums.ErrorCode.NONE.meaning == ""
    # Without documentation the property is missing, but the name stays reserved.
    assert not hasattr(enums.TransactionState, "meaning")
    assert enums.Odd.meaning_ == 3


def test_enum_documentation(enums: Any) -> None:
    assert inspect.getdoc(enums.ErrorCode) == (
        'What is wrong.\n\nWith "quotes", a \\\\ and {braces}.'
    )
    assert "broken" in inspect.getsource(enums.ErrorCode)
    assert "///" not in inspect.getsource(inspect.getmodule(enums.ErrorCode))


def test_camelcase_members_have_both_names(enums: Any) -> None:
    state = enums.TransactionState

    assert state.Empty is state.EMPTY is state(0)
    assert state.PrepareCommit is state.PREPARE_COMMIT
    assert state(1).name == "PrepareCommit"


def test_member_names_that_python_uses(enums: Any) -> None:
    assert [member.name for member in enums.Odd] == ["name_", "class_", "mro_", "meaning_", "LAST"]
    assert enums.TransactionState(2).name == "None_"


# -- names ---------------------------------------------------------------------------------------

NAMES = """\
NamesRequest => key 0, max version 0, flexible v0+
  Class: int8
  From: int8
  Self: int8
  Encode: int8
  Decode: int8
  DecodeFrom: int8
  EncodeInto: int8
  MinVersion: int8
  MaxVersion: int8
  FlexibleFrom: int8
  ToDict: int8
  FromDict: int8
  UnknownTags: int8
  ApiKey: int8
  Routing: int8
  ResponseClass: int8
  List: [int8]
  Bytes: bytes
  Str: string
  Int: [int32]
  Type: =>
    Encode: int8
    ApiKey: int8
    ToDict: int8
  ISRNodes: [int32]

NamesResponse =>
  ThrottleMillis(1)
  ThrottleFrom: int8
  RequestClass: int8

Plain => not top level
  ApiKey: int8
  Encode: int8
  Version: int16
"""


@pytest.fixture(scope="module")
def named(build: Build) -> Any:
    return build(NAMES)


def test_names_that_are_taken_get_an_underscore(named: Any) -> None:
    assert named.NamesRequest._fields == (
        "class_",
        "from_",
        "self_",
        "encode_",
        "decode_",
        "decode_from_",
        "encode_into_",
        "min_version_",
        "max_version_",
        "flexible_from_",
        "to_dict_",
        "from_dict_",
        "unknown_tags_",
        "api_key_",
        "routing_",
        "response_class_",
        "list",
        "bytes",
        "str",
        "int",
        "type",
        "isr_nodes",
    )
    assert named.NamesRequest.Type._fields == ("encode", "api_key", "to_dict_")
    assert named.NamesResponse._fields == ("throttle_millis", "throttle_from_", "request_class_")
    assert named.NamesResponse.throttle_from == 1
    assert named.Plain._fields == ("api_key", "encode_", "version")


def test_structs_with_such_names_work(named: Any) -> None:
    request = named.NamesRequest(
        class_=1,
        encode_=2,
        list=[3],
        bytes=b"4",
        str="5",
        int=[6],
        type=named.NamesRequest.Type(encode=7),
    )

    assert named.NamesRequest.decode(request.encode(0), 0) == request
    assert named.NamesRequest.from_dict(request.to_dict()) == request
    assert eval(repr(request), vars(named) | {n: getattr(named, n) for n in dir(named)}) == request


def test_singulars_name_anonymous_structs(build: Build) -> None:
    package = build(
        "S => not top level\n"
        + "".join(
            f"  {name}: [=>]\n    A: int8\n"
            for name in ("Batches", "Statuses", "Topologies", "ISRs", "TopicData", "Deletions")
        )
        + "  Owner: =>\n    Pets: nullable[=>Animal]\n      A: int8\n    Toys: nullable[=>]\n      A: int8\n"
    )

    assert {name for name in vars(package.S) if name[0].isupper()} == {
        "Batch",
        "Status",
        "Topology",
        "ISR",
        "TopicData",
        "Deletion",
        "Owner",
        "Animal",
        "Toy",
    }


def test_files_in_any_order_and_their_modules(build: Build) -> None:
    package = build(
        {
            "00_produce.krm": "A => not top level\n  B: B\n  Code: enum-Code\n",
            "list-offsets.krm": "B => not top level\n  C: [C]\n",
            "MISC.krm": "C => not top level\n  X: int8\n",
            "zz_enums.krm": "Code int8 (\n  0: OK\n)\n",
            "class.krm": "D => not top level\n  A: nullable[A]\n",
            ".hidden.krm": "not a definition",
            "notes.md": "# not a definition",
        }
    )

    value = package.D(a=[package.A(b=package.B(c=[package.C(x=1)]), code=package.Code.OK)])
    assert package.D.decode(value.encode(0), 0) == value
    assert [package.A.__module__, package.B.__module__, package.C.__module__] == [
        f"{package.__name__}.produce",
        f"{package.__name__}.list_offsets",
        f"{package.__name__}.misc",
    ]
    assert package.D.__module__ == f"{package.__name__}.class_"


# -- documentation -------------------------------------------------------------------------------


def test_documentation_reaches_docstrings(build: Build) -> None:
    package = build(
        "// Belongs to nothing.\n"
        "\n"
        "// A request\n"
        "// of two lines; see https://example.org/x//y.\n"
        "ARequest => key 0, max version 3, flexible v2+\n"
        "  // The first,  with  spaces.\n"
        "  A: int8(-1) // v1+\n"
        '  // Ends with a quote "\n'
        "  B: string // tag 0\n"
        "  // Ends with a backslash \\\n"
        "  C: [=>]\n"
        "    // Inner.\n"
        "    D: int8\n"
        "  //\n"
        "  E: int8\n"
        "\n"
        '// """Triple""" \\N{DASH} \x0c \u2028 control\r characters "\n'
        "B => not top level\n"
        "  A: int8\n"
    )

    assert inspect.getdoc(package.ARequest) == (
        "A request\n" "of two lines; see https://example.org/x//y. (api key 0, v0-v3, flexible v2+)"
    )
    assert [(info.name, info.doc) for info in fields(package.ARequest)] == [
        ("a", "The first,  with  spaces."),
        ("b", 'Ends with a quote "'),
        ("c", "Ends with a backslash \\"),
        ("e", ""),
    ]
    assert [info.doc for info in fields(package.ARequest.C)] == ["Inner."]
    assert (inspect.getdoc(package.B) or "").split("\n")[0].split() == [
        '"""Triple"""',
        "\\N{DASH}",
        "control",
        "characters",
        '"',
    ]
    assert "nothing" not in inspect.getsource(inspect.getmodule(package.B))


def test_a_walker_follows_versioned_structs_in_nested_ones(build: Build) -> None:
    package = build(
        "S => not top level\n"
        "  Rows: [=>]\n"
        "    Inner: V\n"
        "\n"
        "V => not top level, with version field\n"
        "  Version: int16\n"
        "  Name: string // entity topicName\n"
    )
    value = package.S(rows=[package.S.Row(inner=package.V(name="a"))])
    walker(package.S, 0, "topicName")(value, str.upper)
    assert value.rows[0].inner.name == "A"


# -- requests ------------------------------------------------------------------------------------

REQUESTS = """\
PlainRequest => key 0, max version 1
  A: int8

PlainResponse =>
  A: int8

AdminRequest => key 20, max version 6, min version 2, flexible v4+, admin
  A: string

AdminResponse =>
  ThrottleMillis(3) // v2+
  A: string

GroupRequest => key 3, max version 0, group coordinator

TxnRequest => key 4, max version 0, flexible v0+, txn coordinator

TxnResponse =>

ShareRequest => key 5, max version 2, share coordinator, flexible v1+, min version 1, cluster action
  A: int8

ShareResponse =>
  ThrottleMillis
"""


@pytest.fixture(scope="module")
def requests(build: Build) -> Any:
    return build(REQUESTS)


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("Plain", (0, 0, 1, None, "", True)),
        ("Admin", (20, 2, 6, 4, "admin", True)),
        ("Group", (3, 0, 0, None, "group coordinator", False)),
        ("Txn", (4, 0, 0, 0, "txn coordinator", True)),
        ("Share", (5, 1, 2, 1, "share coordinator", True)),
    ],
)
def test_facts_of_requests(requests: Any, name: str, facts: tuple[Any, ...]) -> None:
    request = getattr(requests, f"{name}Request")
    response = getattr(requests, f"{name}Response", None)

    assert facts == (
        request.api_key,
        request.min_version,
        request.max_version,
        request.flexible_from,
        request.routing,
        response is not None,
    )
    assert request.response_class is response
    assert requests.request_class(facts[0]) is request
    assert requests.response_class(facts[0]) is response
    assert requests.ApiKey(facts[0]).name == name.upper()
    if response is not None:
        assert response.request_class is request
        assert (response.api_key, response.min_version, response.max_version) == facts[:3]
        assert response.flexible_from == facts[3]


def test_cluster_actions(requests: Any) -> None:
    marked = {info.name for info in requests.requests() if info.is_cluster_action}
    assert marked == {"ShareRequest"}
    # A package that an older krammar generated has no such marks.
    old = Package("old", modules={}, requests={0: ("ARequest", "AResponse", 0, 0, None, "")})
    assert [info.is_cluster_action for info in old.request_infos()] == [False]


def test_throttling_starts_at_a_version(requests: Any) -> None:
    assert requests.AdminResponse.throttle_from == 3
    assert requests.ShareResponse.throttle_from == 0
    assert requests.PlainResponse.throttle_from is None


def test_versions_outside_of_a_request_are_refused(requests: Any) -> None:
    for version in (1, 7, -1):
        with pytest.raises(UnsupportedVersionError, match="versions 2 to 6 are known"):
            requests.AdminRequest().encode(version)
        with pytest.raises(UnsupportedVersionError, match=r"AdminResponse \(api key 20\)"):
            requests.AdminResponse.decode(b"", version)


def test_header_versions_without_headers_of_ones_own(requests: Any) -> None:
    assert requests.header_versions(20, 3) == (1, 0)
    assert requests.header_versions(20, 4) == (2, 1)
    assert requests.header_versions(0, 1) == (1, 0)
    with pytest.raises(UnsupportedVersionError, match="versions 2 to 6 are known"):
        requests.header_versions(20, 7)
    with pytest.raises(UnknownApiKeyError):
        requests.header_versions(99, 0)


def test_frames_with_the_standard_headers(requests: Any) -> None:
    classic = bytes.fromhex("0014 0003 00000007 0002 6d65  0001 78")
    flexible = bytes.fromhex("0014 0004 00000007 0002 6d65 00  02 78 00")

    for frame in (classic, flexible):
        header, request = requests.parse_request(frame)
        assert (header.request_api_key, header.correlation_id, header.client_id) == (20, 7, "me")
        assert request == requests.AdminRequest(a="x")
    header, request = requests.parse_request(bytes.fromhex("0000 0001 00000007 ffff 05"))
    assert header.client_id is None
    assert request == requests.PlainRequest(a=5)

    header, response = requests.parse_response(bytes.fromhex("00000007 00000009 0001 78"), 20, 3)
    assert header.correlation_id == 7
    assert response == requests.AdminResponse(throttle_millis=9, a="x")
    header, response = requests.parse_response(
        bytes.fromhex("00000007 00 00000009 02 78 00"), 20, 4
    )
    assert response == requests.AdminResponse(throttle_millis=9, a="x")


def test_frames_that_cannot_be_read(requests: Any) -> None:
    with pytest.raises(HeaderError) as header:
        requests.parse_request(bytes.fromhex("0014 0004 0000"))
    assert header.value.api_key == 20
    with pytest.raises(UnknownApiKeyError) as unknown:
        requests.parse_request(bytes.fromhex("0063 0000 00000007 ffff"))
    assert unknown.value.api_key == 99
    with pytest.raises(UnsupportedVersionError) as version:
        requests.parse_request(bytes.fromhex("0014 0001 00000007 ffff"))
    assert (version.value.min_version, version.value.max_version) == (2, 6)


def test_headers_of_ones_own_replace_the_standard_ones(build: Build) -> None:
    package = build(
        "RequestHeader => not top level\n"
        "  RequestApiKey: int16\n"
        "  RequestApiVersion: int16\n"
        "  CorrelationId: int32\n"
        "  Trace: int64\n"
        "\n"
        "ResponseHeader => not top level\n"
        "  Trace: int64\n"
        "  CorrelationId: int32\n"
        "\n"
        "ARequest => key 1, max version 0, flexible v0+\n"
        "\n"
        "AResponse =>\n"
    )

    assert package.header_versions(1, 0) == (0, 0)
    header, request = package.parse_request(bytes.fromhex("0001 0000 00000009 0000000000000005 00"))
    assert (header.trace, request) == (5, package.ARequest())


def test_a_protocol_without_requests_has_no_registries(build: Build) -> None:
    package = build("S => not top level\n  A: int8\n")

    assert package.__all__ == ["S", "layout"]
    assert not hasattr(package, "parse_request")
    assert not hasattr(package, "RequestHeader")


# -- texts ---------------------------------------------------------------------------------------


def test_the_grammars_own_examples(build: Build) -> None:
    """Plain structs, pairs without a key, all forms of nesting, as the language's first document has
    them."""
    package = build(
        "SimpleType =>\n"
        "  Field1: int8\n"
        "\n"
        "FooRequest =>\n"
        "  Field1: string // v1+\n"
        "  Field2: int8\n"
        "  Field3Pluralies: [=>]Field3Pluraly // v3-v5\n"
        "    InnerField1: int8\n"
        "    InnerField2: nullable-bytes\n"
        "    InnerField3: [SimpleType]\n"
        "    InnerField4s: [=>]\n"
        "      InnerInner: string\n"
        "    InnerField5: =>\n"
        "      SuperIn: varint\n"
        "  Field4: int8\n"
        "\n"
        "FooResponse =>\n"
        "  ErrorCode: int16\n"
    )

    value = package.FooRequest(
        field1="x",
        field2=1,
        field3_pluralies=[
            package.FooRequest.Field3Pluraly(
                inner_field1=2,
                inner_field2=None,
                inner_field3=[package.SimpleType(field1=3)],
                inner_field4s=[package.FooRequest.InnerField4(inner_inner="y")],
                inner_field5=package.FooRequest.InnerField5(super_in=-1),
            )
        ],
        field4=4,
    )
    data = "0001 78 01  00000001 02 ffffffff 00000001 03 00000001 0001 79 01  04"
    assert value.encode(3) == bytes.fromhex(data)
    assert package.FooRequest.decode(bytes.fromhex(data), 5) == value
    assert package.FooRequest(field2=1, field4=4).encode(0) == b"\1\4"
    assert not hasattr(package.FooRequest, "api_key")


def test_shapes_from_the_wild(build: Build) -> None:
    """What definition files have and the reference's examples do not: named structs held over
    disjoint versions, annotations that change nothing, requests without fields, double blank lines,
    odd comments, shorthands beside fields of their name."""
    package = build(
        "// //////\n"
        "// Commented => not top level\n"
        "//   Out:  int8\n"
        "\n"
        "Part => not top level, no encoding, flexible v4+\n"
        "  //   - a list,  spaced\n"
        "  //\n"
        "  Topic: string // v0-v4\n"
        "  Adding: [int32] // v3+\n"
        "\n"
        "\n"
        "HoldRequest => key 4, max version 7, flexible v4+\n"
        "  Key: string // v0+\n"
        "  Old: [Part] // v0-v1\n"
        "  New: [=>] // v5+\n"
        "    Parts: [Part] // v5+\n"
        "  TimeoutMillis: int32(30000) // v1-v1\n"
        "  Single: int8 // v6-v6\n"
        "\n"
        "\n"
        "HoldResponse =>\n"
        "  ThrottleMillis: int32 // v1+\n"
        "  TimeoutMillis\n"
        "  Empty: [=>] // tag 0\n"
        "    Later: int8 // v7+\n"
        "\n"
        "NoneRequest => key 74, max version 0, flexible v0+\n"
        "\n"
        "NoneResponse =>\n"
        "\n"
    )

    old = package.HoldRequest(key="k", old=[package.Part(topic="t")])
    assert old.encode(0) == bytes.fromhex("0001 6b 00000001 0001 74")
    new = package.HoldRequest(
        key="k", new=[package.HoldRequest.New(parts=[package.Part(adding=[1])])]
    )
    assert new.encode(7) == bytes.fromhex("02 6b  02 02 02 00000001 00 00 00")
    assert package.HoldRequest.decode(new.encode(7), 7) == new
    response = package.HoldResponse(empty=[package.HoldResponse.Empty()] * 2)
    assert response.encode(4) == bytes.fromhex("00000000 00003a98  01 00 03 03 00 00")
    assert package.NoneRequest().encode(0) == b"\0"
    assert package.HoldResponse().timeout_millis == 15000


def test_files_say_where_they_come_from(requests: Any) -> None:
    source = Path(inspect.getfile(requests.AdminRequest)).read_text("utf-8")

    lines = source.split("\n")
    assert lines[0].startswith("# Generated by krammar. Do not edit")
    assert lines[1].startswith("# krammar: inputs ")
    assert lines[2].startswith("# From definitions/") and lines[2].endswith("/a.krm")
    compile(source, "module", "exec")
