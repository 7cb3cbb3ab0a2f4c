"""Framings, compared with bytes written manually, and with bytes that are not frames."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, Optional
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_wire import ErrorCode, MetadataResponse, ProduceRequest

from krammar.journal import (
    CSV_CONTENT_TYPE,
    FIXED_CONTENT_TYPE,
    FIXED_FRAME_HEADER_LENGTH,
    JSON_CONTENT_TYPE,
    NULL_UUID,
    PROTOBUF_CONTENT_TYPE,
    ContentTypeError,
    CSVFraming,
    CSVRecord,
    DesyncDetectedError,
    FileJournals,
    FixedFraming,
    FrameError,
    Framing,
    JournalSpec,
    JSONFraming,
    MessageError,
    Publisher,
    ReadCommittedIter,
    append_intents,
    framing_by_content_type,
    register_framing,
    unpack_line,
)

CSV = CSVFraming()
FIXED = FixedFraming()
JSON = JSONFraming()
MAGIC = b"\x66\x33\x93\x36"
SOME = UUID("89abcdef-4567-1123-a802-010203040506")


class Text:
    """A message class of a user's own."""

    def __init__(self, text: str) -> None:
        self.text = text

    def encode(self) -> bytes:
        return self.text.encode()

    @classmethod
    def decode(cls, data: bytes) -> Text:
        return cls(data.decode())


def frames(framing: Framing, data: bytes) -> tuple[list[bytes], bytes]:
    """The frames of ``data``, and the remaining bytes."""
    found = []
    at = 0
    while (end := framing.unpack(data, at)) > at:
        found.append(data[at:end])
        at = end
    return found, data[at:]


# Fixed framing.


def test_a_fixed_frame_by_hand(shop: Any) -> None:
    payment = shop.Payment(uuid=SOME, amount=258, method="ab")
    payload = bytes.fromhex("89abcdef 4567 1123 a802 010203040506 0000000000000102 0002 6162")
    frame = bytes.fromhex("66339336 1c000000") + payload
    assert FIXED.marshal(payment) == frame
    assert FIXED.unmarshal(frame, shop.Payment) == payment
    # The length counts from its lowest byte on.
    assert FIXED.marshal(Text("x" * 258))[:10] == bytes.fromhex("66339336 02010000") + b"xx"
    assert FIXED_FRAME_HEADER_LENGTH == 8


def test_the_version_of_fixed_frames(shop: Any) -> None:
    payment = shop.Payment(uuid=SOME, amount=1)
    old = framing_by_content_type("application/x-krammar-fixed; version=1")
    assert len(old.marshal(payment)) == 32
    assert old.unmarshal(old.marshal(payment), shop.Payment) == payment
    with pytest.raises(FrameError, match=r"Payment v2: method: needs 2 bytes at offset 32"):
        FIXED.unmarshal(old.marshal(payment), shop.Payment)
    # A version field decides by itself.
    for version in (0, 1):
        order = shop.Order(version=version, uuid=SOME, customer="c")
        assert FIXED.unmarshal(FIXED.marshal(order), shop.Order) == order


def test_frames_one_behind_the_other() -> None:
    data = b"".join(FIXED.marshal(Text(text)) for text in ("one", "", "three"))
    found, rest = frames(FIXED, data)
    assert [FIXED.unmarshal(frame, Text).text for frame in found] == ["one", "", "three"]
    assert rest == b""
    for size in range(len(data)):
        found, rest = frames(FIXED, data[:size])
        assert b"".join(found) + rest == data[:size]
        assert all(FIXED.unmarshal(frame, Text).text in ("one", "", "three") for frame in found)


@given(st.binary(max_size=40), st.binary(max_size=20))
def test_a_desync_is_skipped_to_the_next_frame(garbage: bytes, payload: bytes) -> None:
    garbage = garbage.replace(MAGIC[:1], b"-")
    frame = MAGIC + len(payload).to_bytes(4, "little") + payload
    found, rest = frames(FIXED, garbage + frame + frame)
    if garbage:
        with pytest.raises(DesyncDetectedError) as caught:
            FIXED.unmarshal(found[0], Text)
        assert caught.value.skipped == len(garbage) == len(found.pop(0))
    assert found == [frame, frame]
    assert rest == b""


@given(st.lists(st.sampled_from([MAGIC, MAGIC[:2], MAGIC[1:], b"\0\0\0\0", b"\1\0\0\0", b"x"])))
def test_all_bytes_are_in_some_frame(parts: list[bytes]) -> None:
    data = b"".join(parts)
    found, rest = frames(FIXED, data)
    assert b"".join(found) + rest == data
    # The remaining bytes can be the beginning of a frame.
    assert MAGIC.startswith(rest[:4])
    # In pieces, it is the same frames once garbage that lies together is taken together.
    assert good(found) == good(in_pieces(data))


def in_pieces(data: bytes) -> list[bytes]:
    found: list[bytes] = []
    rest = b""
    for at in range(len(data)):
        new, rest = frames(FIXED, rest + data[at : at + 1])
        found += new
    return found


def good(found: list[bytes]) -> list[bytes]:
    kept = []
    for frame in found:
        try:
            FIXED.unmarshal(frame, bytes_class)
        except DesyncDetectedError:
            continue
        kept.append(frame)
    return kept


class bytes_class:
    @classmethod
    def decode(cls, data: bytes) -> bytes:
        return data


def test_what_is_no_fixed_frame() -> None:
    with pytest.raises(DesyncDetectedError, match="3 bytes without a magic word"):
        FIXED.unmarshal(b"abc", Text)
    with pytest.raises(DesyncDetectedError, match="9 bytes without a magic word"):
        FIXED.unmarshal(b"123456789", Text)
    with pytest.raises(DesyncDetectedError, match="a frame of 9 bytes has a header for 11 bytes"):
        FIXED.unmarshal(MAGIC + b"\3\0\0\0x", Text)


def test_a_desync_crosses_processes() -> None:
    error = pickle.loads(pickle.dumps(DesyncDetectedError("7 bytes without a magic word", 7)))
    assert (str(error), error.skipped) == ("7 bytes without a magic word", 7)


def test_a_frame_that_is_no_message(shop: Any) -> None:
    with pytest.raises(FrameError, match=r"Payment: .*uuid") as caught:
        FIXED.unmarshal(MAGIC + b"\3\0\0\0xyz", shop.Payment)
    assert not isinstance(caught.value, DesyncDetectedError)
    whole = shop.Payment(uuid=SOME).encode(2) + b"!"
    with pytest.raises(FrameError, match=r"Payment: 1 bytes are left over"):
        FIXED.unmarshal(MAGIC + bytes([len(whole), 0, 0, 0]) + whole, shop.Payment)
    with pytest.raises(FrameError, match=r"Text: .*utf-8"):
        FIXED.unmarshal(MAGIC + b"\1\0\0\0\xff", Text)


def test_a_length_above_the_limit_is_a_desync() -> None:
    small = FixedFraming(max_length=100)
    good = small.marshal(Text("good"))
    data = MAGIC + b"\x65\0\0\0" + b"x" * 7 + good
    found, _ = frames(small, data)
    assert found == [data[:15], good]
    # Without the limit it would wait for bytes that may never come.
    assert frames(FIXED, data) == ([], data)
    with pytest.raises(MessageError, match="Text: 101 bytes exceed the limit of 100"):
        small.marshal(Text("x" * 101))
    with pytest.raises(ValueError, match="max_length must be between 1 and 4294967295, not 0"):
        FixedFraming(max_length=0)


def test_what_cannot_be_framed(shop: Any) -> None:
    with pytest.raises(
        MessageError, match=r"cannot be encoded: Payment v2: amount: 9223372036854775808 is outside"
    ):
        FIXED.marshal(shop.Payment(amount=2**63))
    with pytest.raises(MessageError, match="int cannot be framed"):
        FIXED.marshal(5)
    with pytest.raises(MessageError, match="cannot read int: it has neither decode nor FromString"):
        FIXED.unmarshal(MAGIC + bytes(4), int)


def test_a_reader_that_begins_anywhere() -> None:
    inner = FIXED.marshal(Text("inner"))
    # A magic word inside of a payload is not followed by another frame.
    data = b"".join(
        FIXED.marshal(Text(t)) for t in ("a", "b" + MAGIC.decode("latin-1") + "\1", "c")
    )
    starts = [0, 9, len(data) - 9]
    for begin in range(len(data) - 9):
        assert FIXED.synchronise(data, begin) == min(s for s in starts if s >= begin)
    assert FIXED.synchronise(data, len(data) - 8) == len(data)
    assert FIXED.synchronise(b"junk" + inner + b"\x66\x33", 0) == 4
    # Not seen whole: it may be one.
    assert FIXED.synchronise(b"junk" + inner[:-1], 0) == 4


def test_objects_with_protobufs_methods() -> None:
    """Of protobuf itself, and of a class that has the methods."""
    wrappers = pytest.importorskip("google.protobuf.wrappers_pb2")
    descriptors = pytest.importorskip("google.protobuf.descriptor_pb2")
    value = wrappers.StringValue(value="ab")
    frame = FIXED.marshal(value)
    assert frame == MAGIC + bytes.fromhex("04000000 0a 02 6162")
    assert FIXED.unmarshal(frame, wrappers.StringValue) == value
    with pytest.raises(FrameError, match="StringValue: Error parsing message"):
        FIXED.unmarshal(MAGIC + b"\1\0\0\0\xff", wrappers.StringValue)
    # proto2 has fields that are required.
    part = descriptors.UninterpretedOption.NamePart()
    with pytest.raises(MessageError, match=r"NamePart cannot be framed: .*required fields"):
        FIXED.marshal(part)
    with pytest.raises(MessageError, match="StringValue: 6 bytes exceed the limit of 5"):
        FixedFraming(max_length=5).marshal(wrappers.StringValue(value="abcd"))


class Protobuf:
    """A message that is a protobuf message on disk; any with bytes and a number will do here."""

    def __init__(self, uuid: UUID = NULL_UUID, number: int = 0) -> None:
        self.uuid, self.number = uuid, number

    def get_uuid(self) -> UUID:
        return self.uuid

    def set_uuid(self, uuid: UUID) -> None:
        self.uuid = uuid

    def new_acknowledgement(self, journal: str) -> Protobuf:
        return Protobuf()

    def SerializeToString(self) -> bytes:
        from google.protobuf.descriptor_pb2 import UninterpretedOption

        message = UninterpretedOption(string_value=self.uuid.bytes, positive_int_value=self.number)
        return bytes(message.SerializeToString())

    @classmethod
    def FromString(cls, data: bytes) -> Protobuf:
        from google.protobuf.descriptor_pb2 import UninterpretedOption

        message = UninterpretedOption.FromString(data)
        return cls(UUID(bytes=message.string_value), message.positive_int_value)


def test_protobuf_messages_in_a_transaction(tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf")
    with FileJournals(tmp_path) as journals:
        spec = journals.create(JournalSpec("a", PROTOBUF_CONTENT_TYPE))
        publisher = Publisher(journals)
        for number in range(3):
            publisher.publish_uncommitted(
                lambda _: (spec.name, spec.framing), Protobuf(number=number)
            )
        assert list(ReadCommittedIter(journals.reader("a"), Protobuf)) == []
        append_intents(journals, publisher.build_ack_intents())
        found = list(ReadCommittedIter(journals.reader("a"), Protobuf))
        assert [envelope.message.number for envelope in found] == [0, 1, 2]


# JSON framing.


def test_a_json_frame_by_hand(shop: Any) -> None:
    payment = shop.Payment(uuid=SOME, amount=258, method="ä\n")
    line = '{"uuid":"89abcdef-4567-1123-a802-010203040506","amount":258,"method":"ä\\n"}\n'.encode()
    assert JSON.marshal(payment) == line
    assert JSON.unmarshal(line, shop.Payment) == payment
    assert JSON.unmarshal(line[:-1], shop.Payment) == payment
    assert json.loads(line) == payment.to_dict()


def test_json_is_that_of_to_dict() -> None:
    """Structs in structs, in arrays, null, enums, unknown tags, bytes of any kind."""
    topic = MetadataResponse.Topic(
        error_code=ErrorCode.NOT_COORDINATOR,
        name="ä",
        topic_id=SOME,
        partitions=[
            MetadataResponse.Partition(partition_index=n, replica_nodes=[1, n]) for n in (2, 3)
        ],
    )
    topic.unknown_tags[5] = b"x"
    for value in (
        MetadataResponse(topics=[topic], cluster_id=None),
        ProduceRequest.PartitionProduceData(records=b"abc"),
        ProduceRequest.PartitionProduceData(records=bytearray(b"\xff")),
    ):
        line = JSON.marshal(value)
        assert json.loads(line) == value.to_dict()
        assert JSON.unmarshal(line, type(value)) == value


@dataclass
class Item:
    name: str
    picture: bytes = b""


@dataclass
class Basket:
    uuid: UUID
    items: list[Item]
    pair: tuple[Item, ...] = ()
    maybe: Item | None = None
    data: Optional[bytes] = None  # noqa: UP045
    either: int | str = 0
    more: dict[str, Any] = field(default_factory=dict)


class Event(dict[str, Any]):
    """A mapping of a user's own."""


def test_dataclasses_in_json() -> None:
    basket = Basket(SOME, [Item("ä", b"\xff"), Item("b")], (Item("c"),), Item("d"), b"x", "e")
    line = JSON.marshal(basket)
    assert json.loads(line) == {
        "uuid": str(SOME),
        "items": [{"name": "ä", "picture": "/w=="}, {"name": "b", "picture": ""}],
        "pair": [{"name": "c", "picture": ""}],
        "maybe": {"name": "d", "picture": ""},
        "data": "eA==",
        "either": "e",
        "more": {},
    }
    assert JSON.unmarshal(line, Basket) == basket
    line = JSON.marshal(Basket(SOME, []))
    assert JSON.unmarshal(line, Basket) == Basket(SOME, [])
    assert JSON.unmarshal(b'{"uuid":null,"items":"x"}\n', Basket).items == "x"
    for wrong in ('{"uuid":"x","items":[]}', '{"items":[]}', '{"name":"x"}', '{"items":[{"x":1}]}'):
        with pytest.raises(FrameError, match="Basket: "):
            JSON.unmarshal(wrong.encode() + b"\n", Basket)

    @dataclass
    class Unresolved:
        item: Local

    class Local:
        pass

    with pytest.raises(MessageError, match=r"an annotation cannot be resolved \(name 'Local'"):
        JSON.unmarshal(b'{"item":1}\n', Unresolved)


def test_mappings_in_json() -> None:
    values = {"uuid": SOME, "data": b"ab", "item": Item("x"), "list": [1, None]}
    plain = {
        "uuid": str(SOME),
        "data": "YWI=",
        "item": {"name": "x", "picture": ""},
        "list": [1, None],
    }
    for mapping in (values, Event(values), MappingProxyType(values)):
        line = JSON.marshal(mapping)
        assert json.loads(line) == plain
        for cls in (dict, Event):
            found = JSON.unmarshal(line, cls)
            assert type(found) is cls and found == plain


def test_any_object_with_to_dict_in_json() -> None:
    class Plain:
        def to_dict(self) -> object:
            return {"at": SOME}

    assert JSON.marshal(Plain()) == f'{{"at":"{SOME}"}}\n'.encode()
    for wrong in (5, "text", [1], None, object()):
        with pytest.raises(
            MessageError, match=r"cannot be framed: .* is not a mapping or dataclass"
        ):
            JSON.marshal(wrong)
    Plain.to_dict = lambda self: [1]  # type: ignore[method-assign]
    with pytest.raises(MessageError, match="Plain cannot be framed: a message is a JSON object"):
        JSON.marshal(Plain())


def test_a_line_of_a_reader() -> None:
    reader = BytesIO(b"one\n\ntwo" + b"o" * 20_000 + b"\nrest")
    assert unpack_line(reader) == b"one\n"
    assert unpack_line(reader) == b"\n"
    assert len(unpack_line(reader)) == 20_004
    with pytest.raises(EOFError, match="the last 4 bytes are not a complete line"):
        unpack_line(reader)
    assert unpack_line(reader) == b""


def test_lines_one_behind_the_other(shop: Any) -> None:
    lines = [JSON.marshal(shop.Payment(amount=n)) for n in range(3)]
    assert frames(JSON, b"".join(lines) + b"rest") == (lines, b"rest")
    assert frames(JSON, b"\n\nx\n") == ([b"\n", b"\n", b"x\n"], b"")


def test_lines_that_are_no_messages(shop: Any) -> None:
    for line in (b"\n", b"{\n", b"\xff\n", b"[" * 100_000 + b"\n"):
        with pytest.raises(DesyncDetectedError):
            JSON.unmarshal(line, shop.Payment)
    with pytest.raises(FrameError, match="a line contains a JSON list instead of an object"):
        JSON.unmarshal(b"[1]\n", shop.Payment)
    with pytest.raises(FrameError, match=r"Payment: Payment has no field 'colour'"):
        JSON.unmarshal(b'{"colour":1}\n', shop.Payment)
    with pytest.raises(FrameError, match=r"Payment: .*'x' is not a JSON value of uuid"):
        JSON.unmarshal(b'{"uuid":"x"}\n', shop.Payment)


def test_what_json_cannot_frame(shop: Any) -> None:
    with pytest.raises(MessageError, match=r"Text cannot be framed: .*to_dict"):
        JSON.marshal(Text("x"))
    with pytest.raises(
        MessageError,
        match="cannot read Text: it has no from_dict and is not a dataclass or mapping",
    ):
        JSON.unmarshal(b"{}\n", Text)
    with pytest.raises(MessageError, match="a message cannot be encoded"):
        JSON.marshal(shop.Payment(amount=float("nan")))


def test_a_reader_of_lines_that_begins_anywhere() -> None:
    data = b"one\ntwo\n\nfour"
    assert [JSON.synchronise(data, at) for at in range(len(data))] == [
        0, 4, 4, 4, 4, 8, 8, 8, 8, 9, 13, 13, 13,
    ]  # fmt: skip


# CSV.


@pytest.mark.parametrize(
    ("field", "written"),
    [
        ("a", b"a"),
        ("a b ", b"a b "),
        (" a", b'" a"'),
        ("\u2003a", b'"\xe2\x80\x83a"'),
        ("\x1ca", b"\x1ca"),
        ("a,b", b'"a,b"'),
        ('a"b', b'"a""b"'),
        ("a\nb", b'"a\nb"'),
        ("a\rb", b'"a\rb"'),
        ("\\.", b'"\\."'),
        ("é", b"\xc3\xa9"),
    ],
)
def test_fields_of_csv(field: str, written: bytes) -> None:
    record = CSVRecord([str(SOME), field, ""])
    frame = str(SOME).encode() + b"," + written + b",\n"
    assert CSV.marshal(record) == frame
    assert CSV.unpack(frame + b"x") == len(frame)
    found = CSV.unmarshal(frame, CSVRecord)
    assert type(found) is CSVRecord and found == record
    assert found.get_uuid() == SOME
    for short in range(len(frame)):
        assert CSV.unpack(frame[:short]) == 0


def test_csv_as_others_write_it() -> None:
    data = f'\r\n\n"{SOME}","a\r\nb",c\r\n{SOME},d'.encode()
    end = CSV.unpack(data)
    assert data[end:] == f"{SOME},d".encode()
    assert CSV.unmarshal(data[:end], CSVRecord) == [str(SOME), "a\nb", "c"]
    # Records of topics may lack the newline.
    assert CSV.unmarshal(data[end:], CSVRecord) == [str(SOME), "d"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'a"b,c\n', "field 1 has a quote, but does not begin with one"),
        (b'a,"b"c,d\n', "field 2 has a quote that is not doubled"),
        (b'a,"b" \n', "field 2 has a quote that is not doubled"),
    ],
)
def test_lines_that_are_not_csv(line: bytes, why: str) -> None:
    assert CSV.unpack(line + b"next\n") == len(line)
    with pytest.raises(DesyncDetectedError, match=why):
        CSV.unmarshal(line, CSVRecord)


def test_csv_that_is_not_a_message() -> None:
    with pytest.raises(FrameError, match="CSVRecord: badly formed hexadecimal UUID"):
        CSV.unmarshal(b"a,b\n", CSVRecord)
    with pytest.raises(FrameError, match=r"CSVRecord: .*codec can't decode"):
        CSV.unmarshal(b"\xff\n", CSVRecord)
    with pytest.raises(DesyncDetectedError, match="a quote is not closed"):
        CSV.unmarshal(b'a,"b\n', CSVRecord)
    with pytest.raises(MessageError, match="CSV framing cannot read dict: it has no from_csv"):
        CSV.unmarshal(b"a\n", dict)
    with pytest.raises(MessageError, match=r"dict cannot be framed: .*to_csv"):
        CSV.marshal({})
    with pytest.raises(MessageError, match=r"a field contains \\r\\n"):
        CSV.marshal(CSVRecord(["a\r\nb"]))
    for empty in ([], [""]):
        with pytest.raises(MessageError, match="skip a record without a value as an empty line"):
            CSV.marshal(CSVRecord(empty))


def test_a_quote_too_many_hides_no_more_than_a_record() -> None:
    framing = CSVFraming(max_length=20)
    data = b'a,"b\nc\n'
    assert framing.unpack(data) == 0
    assert framing.unpack(data + b"d" * 20) == 5
    with pytest.raises(MessageError, match="21 bytes exceed the limit of 20"):
        framing.marshal(CSVRecord(["e" * 20]))
    with pytest.raises(ValueError, match="max_length must be at least 1, not 0"):
        CSVFraming(max_length=0)


@given(st.lists(st.lists(st.text('a,"\n\r ,'), min_size=1), min_size=1), st.integers(1, 9))
def test_records_of_csv_in_pieces(rows: list[list[str]], piece: int) -> None:
    rows = [[str(SOME), *(field.replace("\r", "") for field in row)] for row in rows]
    data = b"".join(CSV.marshal(CSVRecord(row)) for row in rows)
    found, rest = [], b""
    for at in range(0, len(data), piece):
        rest += data[at : at + piece]
        while end := CSV.unpack(rest):
            found.append(list(CSV.unmarshal(rest[:end], CSVRecord)))
            rest = rest[end:]
    assert (found, rest) == (rows, b"")


def test_transactions_in_csv(journals: FileJournals) -> None:
    spec = journals.create(JournalSpec("rows", CSV_CONTENT_TYPE))
    publisher = Publisher(journals)
    for text in ("one", "two\nlines"):
        publisher.publish_uncommitted(lambda m: (spec.name, spec.framing), CSVRecord(["", text]))
    append_intents(journals, publisher.build_ack_intents())
    read = [e.message[1] for e in ReadCommittedIter(journals.reader("rows"), CSVRecord)]
    assert read == ["one", "two\nlines"]
    # An acknowledgement has as many fields as the messages.
    last = (journals.folder("rows") / f"{0:020}.fragment").read_bytes().splitlines()[-1]
    assert last.endswith(b",") and last.count(b",") == 1
    begins = [CSV.synchronise(b'a\nb,"c\nd"\n', at) for at in (0, 1, 2, 3)]
    assert begins == [0, 2, 2, 7]


# Content types.


class Shout(JSONFraming):
    """A framing of a user's own."""

    content_type = "application/x-shout"  # type: ignore[assignment]

    def marshal(self, message: Any) -> bytes:
        return super().marshal(message).upper()


def test_framings_that_are_registered(journals: FileJournals) -> None:
    with pytest.raises(ContentTypeError, match="or register one with register_framing"):
        JournalSpec("loud", "Application/X-Shout")
    register_framing(Shout())
    spec = journals.create(JournalSpec("loud", "Application/X-Shout"))
    journals.append("loud", spec.framing.marshal({"a": "b"})).result()
    assert [data for _, _, data in journals.reader("loud").read()] == [b'{"A":"B"}\n']
    other = Shout()
    register_framing(other)
    assert spec.framing is other


def test_framings_by_content_type() -> None:
    assert CSV.content_type == CSV_CONTENT_TYPE == "text/csv"
    assert FIXED.content_type == FIXED_CONTENT_TYPE
    assert JSON.content_type == JSON_CONTENT_TYPE == "application/x-ndjson"
    for framing in (
        CSV,
        FIXED,
        JSON,
        FixedFraming(3),
        FixedFraming(content_type=PROTOBUF_CONTENT_TYPE),
    ):
        found = framing_by_content_type(framing.content_type)
        assert repr(found) == repr(framing)
        assert found.content_type == framing.content_type
        assert framing_by_content_type(framing.content_type) is found
    assert (
        repr(framing_by_content_type("Application/X-Krammar-Fixed;Version=3")) == "FixedFraming(3)"
    )


def test_content_types_of_gazette() -> None:
    fixed = framing_by_content_type("application/x-protobuf-fixed")
    assert fixed.marshal(Text("a")) == FIXED.marshal(Text("a"))
    assert JournalSpec("a", "application/x-protobuf-fixed").framing is fixed
    assert framing_by_content_type("application/x-ndjson").marshal({}) == b"{}\n"
    with pytest.raises(ContentTypeError, match="a content type of Gazette that krammar does not"):
        framing_by_content_type("application/x-gazette-recoverylog")


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "application/json",
        "application/x-ndjson; version=1",
        "application/x-krammar-fixed; version=-1",
        "application/x-krammar-fixed; version=32768",
        "application/x-krammar-fixed; charset=3",
        "application/x-krammar-fixed; version=1; version=2",
    ],
)
def test_unknown_content_types(wrong: str) -> None:
    with pytest.raises(ContentTypeError, match="no framing has the content type"):
        framing_by_content_type(wrong)
