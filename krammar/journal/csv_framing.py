"""CSV framing: one message as a record of comma-separated values (RFC 4180), as Gazette's ``text/csv``.

It writes the same bytes as Gazette, and accepts the same records: fields may be quoted, quoted fields may contain
newlines, lines may end with ``\\r\\n``, and empty lines are skipped.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from krammar.journal.errors import DesyncDetectedError, FrameError, MessageError
from krammar.journal.frames import UNREADABLE, Framing, cannot_marshal
from krammar.journal.uuids import NULL_UUID

CSV_CONTENT_TYPE = "text/csv"

_NEWLINE, _COMMA = b"\n,"
# Python counts these as white space, Go and RFC 4180 do not.
_SEPARATORS = "\x1c\x1d\x1e\x1f"


class CSVRecord(list[str]):
    """A message whose fields are strings. The first field is the UUID."""

    def to_csv(self) -> list[str]:
        return self

    @classmethod
    def from_csv(cls, fields: list[str]) -> CSVRecord:
        """Build a record. Raises ValueError if the first field is not a UUID."""
        UUID(fields[0])
        return cls(fields)

    def get_uuid(self) -> UUID:
        return UUID(self[0]) if self and self[0] else NULL_UUID

    def set_uuid(self, uuid: UUID) -> None:
        self[:1] = [str(uuid)]

    def new_acknowledgement(self, journal: str) -> CSVRecord:
        """Return a record with as many fields: Gazette's readers refuse a record with another number of them."""
        return CSVRecord([""] * len(self))


class CSVFraming(Framing):
    """Comma-separated values, one record per message.

    Messages are ``CSVRecord`` or objects with ``to_csv() -> list[str]`` and a class method ``from_csv(list[str])``.

    Args:
        max_length: longer records, in bytes, are neither written nor read. Without a limit, one quote too many could
            hide all later records.
    """

    def __init__(self, *, max_length: int = 1 << 28) -> None:
        if max_length < 1:
            raise ValueError(f"max_length must be at least 1, not {max_length}")
        self.max_length = max_length

    @property
    def content_type(self) -> str:
        return CSV_CONTENT_TYPE

    def marshal(self, message: Any) -> bytes:
        try:
            fields = message.to_csv()
            frame = (",".join(map(_quoted, fields)) + "\n").encode()
        except (AttributeError, TypeError, ValueError) as error:
            raise cannot_marshal(message, error) from error
        if len(frame) == 1:
            raise MessageError(
                f"{type(message).__name__} cannot be framed: readers skip a record without a value as an empty line"
            )
        if len(frame) > self.max_length:
            raise MessageError(
                f"{type(message).__name__}: {len(frame)} bytes exceed the limit of {self.max_length}"
            )
        return frame

    def unpack(self, data: bytes | bytearray, begin: int = 0) -> int:
        record = _after_empty_lines(data, begin)
        line = data.find(b"\n", record) + 1
        if line and data.find(b'"', record, line) < 0:
            return line  # the usual case
        end = _Scan(data, record).end
        if not end and len(data) - begin > self.max_length:
            end = line or len(data)
        return end or begin

    def unmarshal(self, frame: bytes, cls: type[Any]) -> Any:
        read = getattr(cls, "from_csv", None)
        if read is None:
            raise MessageError(f"CSV framing cannot read {cls.__name__}: it has no from_csv")
        # Records of topics may lack the newline.
        data = frame if frame.endswith(b"\n") else frame + b"\n"
        found = _Scan(data, _after_empty_lines(data, 0))
        if found.error or found.end != len(data):
            raise DesyncDetectedError(
                f"a line is not a CSV record: {found.error or 'a quote is not closed'}", len(frame)
            )
        try:
            return read([field.decode() for field in found.fields])
        except MessageError:
            raise
        except UNREADABLE as error:
            raise FrameError(f"{cls.__name__}: {error}") from error

    def synchronise(self, data: bytes | bytearray, begin: int) -> int:
        # A newline inside of a quoted field is taken for the end of a record.
        if begin == 0 or data[begin - 1] == _NEWLINE:
            return begin
        return data.find(b"\n", begin) + 1 or len(data)

    def __repr__(self) -> str:
        return "CSVFraming()"


def _quoted(field: str) -> str:
    """Return a field with quotes where Gazette writes them."""
    if "\r\n" in field:
        raise ValueError("a field contains \\r\\n, which readers of CSV turn into \\n")
    first = field[:1]
    if (
        any(each in field for each in ',"\r\n')
        or (first.isspace() and first not in _SEPARATORS)
        or field == "\\."
    ):
        return '"' + field.replace('"', '""') + '"'
    return field


def _after_empty_lines(data: bytes | bytearray, begin: int) -> int:
    while data[begin : begin + 1] == b"\n" or data[begin : begin + 2] == b"\r\n":
        begin = data.index(b"\n", begin) + 1
    return begin


class _Scan:
    """The fields of the record that begins at a position.

    Attributes:
        end: the position after the record; 0 if it is incomplete
        error: why it is malformed. It then ends with the line in which this was found
    """

    def __init__(self, data: bytes | bytearray, begin: int) -> None:
        self.fields: list[bytes] = []
        self.error = ""
        self.end = 0
        at = begin
        while not self.error:
            quoted = data[at : at + 1] == b'"'
            end = _closing_quote(data, at) if quoted else _end_of_plain(data, at)
            if end < 0:
                return
            field = bytes(data[at + quoted : end])
            if quoted:
                field = field.replace(b'""', b'"').replace(b"\r\n", b"\n")
                end += 1
                if data[end : end + 2] == b"\r\n":
                    end += 1
            elif data[end] == _NEWLINE:
                field = field.removesuffix(b"\r")
            if end >= len(data):
                return
            self.fields.append(field)
            at = end + 1
            if data[end] == _NEWLINE:
                self.end = at
                return
            if data[end] != _COMMA:
                self.error = (
                    f"field {len(self.fields)} has a quote that is not doubled"
                    if quoted
                    else f"field {len(self.fields)} has a quote, but does not begin with one"
                )
                self.end = data.find(b"\n", end) + 1


def _closing_quote(data: bytes | bytearray, opening: int) -> int:
    """Return the position of the quote that closes a field; -1 if it is missing."""
    at = data.find(b'"', opening + 1)
    while at >= 0 and data[at + 1 : at + 2] == b'"':
        at = data.find(b'"', at + 2)
    return at


def _end_of_plain(data: bytes | bytearray, begin: int) -> int:
    """Return the position of the next comma, newline or quote; -1 if there is none."""
    line = data.find(b"\n", begin)
    if line < 0:
        return -1
    ends = (data.find(b",", begin, line), data.find(b'"', begin, line))
    return min((at for at in ends if at >= 0), default=line)
