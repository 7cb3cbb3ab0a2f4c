"""``krammar consume`` prints the records of a topic. Its options have the same letters as in kcat."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from krammar.cli.connection import ConnectionOptions, connected, errors
from krammar.cli.interrupts import Interrupts
from krammar.cli.options import examples, find_packages_here, unescape
from krammar.cli.output import echo, one_line, quantity
from krammar.util.printable import escape

if TYPE_CHECKING:
    from krammar.client import Client, Record, TopicPartition
    from krammar.client.fetch import Reader
    from krammar.wire.message import Codec
    from krammar.wire.versioned import VersionedCodec


# The option --decode: keys and values as generated classes.

_INTERNAL = {
    "__consumer_offsets": "kafka_wire.consumer_offsets",
    "__share_group_state": "kafka_wire.share_group_state",
    "__transaction_state": "kafka_wire.transaction_state",
}


@dataclass(frozen=True, slots=True)
class Undecodable:
    """Bytes that --decode cannot read, and why."""

    data: bytes
    error: str


# A key or value: bytes, None, a decoded dictionary, or Undecodable.
Part = Any


class RecordPartDecoder:
    """Decodes keys and values. ``skipped`` counts the records of other kinds.

    Args:
        kinds: the classes of key and value by kind, which is the number in the first two bytes of a key.
            If it is empty, keys are not decoded.
        cls: the class of all values. None: the kind of the record selects it.
        version: the version of values that do not contain theirs.
    """

    def __init__(
        self,
        kinds: Mapping[int, tuple[type[VersionedCodec], type[Codec]]],
        cls: type[Codec] | None = None,
        version: int | None = None,
    ) -> None:
        self._kinds = kinds
        self._cls = cls
        self._version = version
        self.skipped = 0

    def decode(self, key: bytes | None, value: bytes | None) -> tuple[Part, Part] | None:
        """Return the key and the value to print, or None for a record of another kind."""
        if not self._kinds:
            return key, self._read(self._cls, value)
        if key is None:
            return None, self._read(self._cls, value)
        if len(key) < 2:
            # The key is malformed, so the record is not skipped as another kind.
            error = "the key is too short to contain a kind"
            return Undecodable(key, error), self._read(self._cls, value)
        kind = int.from_bytes(key[:2], "big", signed=True)
        if kind in self._kinds:
            key_class, value_class = self._kinds[kind]
            return self._read(key_class, key), self._read(self._cls or value_class, value)
        if self._cls is not None:
            self.skipped += 1
            return None
        return Undecodable(key, f"unknown kind of key: {kind}"), self._read(None, value)

    def _read(self, cls: type[Codec] | None, data: bytes | None) -> Part:
        from krammar.wire import classes
        from krammar.wire.errors import WireError

        if data is None:
            return None
        if cls is None:
            return Undecodable(data, "the key does not say which class the value has")
        try:
            version = self._version if cls is self._cls else None
            return classes.decode_as(cls, data, version).to_dict()
        except WireError as error:
            text = one_line(error)
            named = text.startswith(cls.__name__)
            return Undecodable(data, text if named else f"{cls.__name__}: {text}")


def decoder_for(text: str, topic: str) -> RecordPartDecoder:
    """Build the decoder for ``--decode TEXT``.

    Args:
        text: ``CLASS``, ``CLASS:VERSION`` or ``auto``.
        topic: the topic, which ``auto`` needs.

    Raises:
        UsageError: the class or the version does not exist, or ``auto`` does not know the topic.
    """
    from krammar.wire import classes
    from krammar.wire.errors import UnsupportedVersionError

    if text == "auto":
        if topic not in _INTERNAL:
            known = ", ".join(sorted(_INTERNAL))
            raise click.UsageError(f"--decode auto works only with the topics {known}")
        module = classes.import_package(_INTERNAL[topic])
        # The classes of new records also read old ones.
        names = [name for name in dir(module) if not name.startswith("Legacy")]
        return RecordPartDecoder(
            _kinds(*(getattr(module, name) for name in names if name.endswith("Value")))
        )
    name, colon, number = text.partition(":")
    if colon and not (number.isascii() and number.isdecimal()):
        raise click.UsageError(f"--decode {text}: the version must be a number, not {number!r}")
    version = int(number) if colon else None
    find_packages_here()
    try:
        cls = classes.find_class(name)
        if version is not None:
            cls._known_version(version)
    except (classes.NotFound, UnsupportedVersionError) as error:
        raise click.UsageError(f"--decode {text}: {one_line(error)}") from error
    if version is None and classes.needs_version(cls):
        raise click.UsageError(
            f"--decode {text}: add the version, from {cls.min_version} to {cls.max_version}, because "
            f"the bytes do not contain it (--decode {text}:{cls.max_version})"
        )
    return RecordPartDecoder(_kinds(cls), cls, version)


def _kinds(
    *value_classes: type[Codec],
) -> dict[int, tuple[type[VersionedCodec], type[Codec]]]:
    """The classes of key and value by kind."""
    from krammar.wire.classes import key_class

    return {
        kind: (found[0], cls)
        for cls in value_classes
        if (found := key_class(cls)) is not None
        for kind in found[1]
    }


# Formats of records: a format text, or JSON.


@dataclass(frozen=True, slots=True)
class Shown:
    """A record, with its key and value as they are printed."""

    record: Record
    key: Part
    value: Part


Shower = Callable[["TopicPartition", Shown], bytes]


def shower(
    format_: str | None,
    json_: bool,
    delimiter: str | None,
    key_delimiter: str | None,
    null: bool,
    *,
    on_terminal: bool,
) -> Shower:
    """Return the function that formats a record.

    Args:
        null: print NULL for a null key or value.
        on_terminal: escape control characters.

    Raises:
        UsageError: the format is invalid, or the options exclude each other.
    """
    if json_:
        if format_ is not None or delimiter is not None or key_delimiter is not None or null:
            raise click.UsageError("-J cannot be combined with -f, -D, -K or -Z")
        return _json_line_for_terminal if on_terminal else _json_line
    null_text = b"NULL" if null else b""
    clean = _for_terminal if on_terminal else None
    if format_ is not None:
        if delimiter is not None or key_delimiter is not None:
            raise click.UsageError("-f cannot be combined with -D or -K")
        return partial(_formatted, _pieces(format_), null_text, clean)
    pieces: list[bytes | str] = []
    if key_delimiter is not None:
        pieces += ["k", unescape("-K", key_delimiter)]
    pieces += ["s", b"\n" if delimiter is None else unescape("-D", delimiter)]
    return partial(_formatted, pieces, null_text, clean)


def _pieces(format_: str) -> list[bytes | str]:
    """Parse a format: bytes that are printed unchanged, and letters of fields."""
    pieces: list[bytes | str] = []
    texts = format_.split("%")
    pieces.append(unescape("-f", texts[0]))
    rest = iter(texts[1:])
    for text in rest:
        if text:
            if text[0] not in _FIELDS:
                raise click.UsageError(
                    f"-f: unknown field %{text[0]} (fields: {_FIELD_NAMES}; %% is a percent sign)"
                )
            pieces += [text[0], unescape("-f", text[1:])]
            continue
        # An empty part follows a percent sign that is doubled or at the end.
        after = next(rest, None)
        if after is None:
            raise click.UsageError("-f: a field must follow the last % (%% is a percent sign)")
        pieces.append(b"%" + unescape("-f", after))
    return pieces


def _formatted(
    pieces: Sequence[bytes | str],
    null: bytes,
    clean: Callable[[bytes], bytes] | None,
    at: TopicPartition,
    shown: Shown,
) -> bytes:
    out = []
    for piece in pieces:
        if isinstance(piece, bytes):
            out.append(piece)
            continue
        field = _FIELDS[piece](at, shown, null)
        out.append(field if clean is None else clean(field))
    return b"".join(out)


def _for_terminal(data: bytes) -> bytes:
    text = data.decode(errors="backslashreplace")
    return escape(text, keep="\n\t").encode()


def _text(part: Part, null: bytes) -> bytes:
    if part is None:
        return null
    if isinstance(part, bytes):
        return part
    if isinstance(part, Undecodable):
        return f"<cannot be decoded: {part.error}: 0x{part.data.hex()}>".encode()
    import json

    return json.dumps(part, ensure_ascii=False).encode()


def _headers_text(shown: Shown) -> bytes:
    return b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else value)
        for name, value in shown.record.headers
    )


def _size(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


_FIELDS: dict[str, Callable[[TopicPartition, Shown, bytes], bytes]] = {
    "t": lambda at, shown, null: at.topic.encode(),
    "p": lambda at, shown, null: b"%d" % at.partition,
    "o": lambda at, shown, null: b"%d" % shown.record.offset,
    "k": lambda at, shown, null: _text(shown.key, null),
    "s": lambda at, shown, null: _text(shown.value, null),
    "h": lambda at, shown, null: _headers_text(shown),
    "T": lambda at, shown, null: b"%d" % shown.record.timestamp,
    "K": lambda at, shown, null: _size(shown.record.key),
    "S": lambda at, shown, null: _size(shown.record.value),
}
_FIELD_NAMES = ", ".join(f"%{name}" for name in _FIELDS)


def _json_line(at: TopicPartition, shown: Shown) -> bytes:
    """Format a record with kcat's names. Bytes that are not UTF-8 become ``{"base64": …}``."""
    import json

    record = shown.record
    value = {
        "topic": at.topic,
        "partition": at.partition,
        "offset": record.offset,
        "ts": record.timestamp,
        "headers": [part for name, data in record.headers for part in (name, _plain(data))],
        "key": _plain(shown.key),
        "payload": _plain(shown.value),
    }
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def _json_line_for_terminal(at: TopicPartition, shown: Shown) -> bytes:
    import json

    text = _json_line(at, shown).decode()
    return escape(text, keep="\n", spell=lambda c: json.dumps(c)[1:-1]).encode()


def _plain(part: Part) -> Any:
    from base64 import b64encode

    if isinstance(part, Undecodable):
        return {"error": part.error, "base64": b64encode(part.data).decode()}
    if not isinstance(part, bytes):
        return part
    try:
        return part.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(part).decode()}


# The verb.


@click.command(
    epilog=examples(
        "krammar consume orders -e",
        "krammar consume orders -o -10 -e -f '%p %o %T %k=%s\\n'",
        "krammar consume orders -p 0 -o s@1700000000000 -o e@1700003600000 -J",
        "krammar consume __consumer_offsets --decode OffsetCommitValue -e -J",
        "krammar consume orders --decode mypkg.orders.OrderPlaced:2 -c 5",
    )
)
@click.argument("topic")
@connected
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    help="Read only this partition. Can be repeated.  [default: all]",
)
@click.option(
    "-o",
    "--offset",
    "offsets",
    multiple=True,
    metavar="OFFSET",
    help="Where to begin: beginning, end, an offset N, -N for the last N records of each partition, or "
    "s@MS for the first record at or after a time in milliseconds since 1970. e@MS sets the end: "
    "stop before the first record at or after that time.  [default: beginning]",
)
@click.option("-c", "--count", type=click.IntRange(1), help="Stop after this number of records.")
@click.option(
    "-e",
    "--exit",
    "exit_",
    is_flag=True,
    help="Stop after the last record that exists at the start.",
)
@click.option(
    "-f",
    "--format",
    "format_",
    metavar="TEXT",
    help="The text for each record: %t topic, %p partition, %o offset, %k key, %s value, %h headers, "
    "%T time in milliseconds, %K and %S sizes of key and value in bytes (-1 for null), %% a percent "
    "sign; \\n, \\t, \\0, \\xNN.",
)
@click.option(
    "-J", "--json", "json_", is_flag=True, help="Print one JSON object per line, like kcat."
)
@click.option(
    "-D", "--delimiter", metavar="TEXT", help="Text to print after each record.  [default: \\n]"
)
@click.option("-K", "--key-delimiter", metavar="TEXT", help="Print the key too, followed by TEXT.")
@click.option(
    "-Z", "--null", is_flag=True, help="Print NULL for a null key or value, not an empty text."
)
@click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    help="read_committed skips records of open and aborted transactions.  [default: read_uncommitted]",
)
@click.option(
    "--decode",
    "decode",
    metavar="CLASS[:VERSION]",
    help="Decode values with a generated class, such as OffsetCommitValue or mypkg.orders.OrderPlaced, "
    "and print them as JSON. If the class has a key class with a version field, keys are decoded "
    "too, and records of other kinds are skipped. `auto` selects the class for each record of an "
    "internal topic.",
)
def consume(
    topic: str,
    connection: ConnectionOptions,
    partitions: tuple[int, ...],
    offsets: tuple[str, ...],
    count: int | None,
    exit_: bool,
    format_: str | None,
    json_: bool,
    delimiter: str | None,
    key_delimiter: str | None,
    null: bool,
    isolation: str | None,
    decode: str | None,
) -> None:
    """Print the records of TOPIC.

    Without -c, -e or e@MS, krammar waits for new records until Ctrl-C, and then exits with 0. If Ctrl-C
    comes before the requested end, or before a broker has answered, the exit code is 130.

    Records that --decode cannot read are printed as bytes with the error, and the exit code is 1.

    On a terminal, control characters in keys, values and headers are escaped, except line feeds and
    tabs. In a pipe or a file, all bytes are unchanged.
    """
    begin, stop_ms = _places(offsets)
    show = shower(format_, json_, delimiter, key_delimiter, null, on_terminal=sys.stdout.isatty())
    decoder = None if decode is None else decoder_for(decode, topic)
    endless = count is None and not exit_ and stop_ms is None
    out = sys.stdout.buffer
    undecodable = 0
    reader: Reader | None = None
    try:
        with errors(), Interrupts() as interrupts:
            try:
                with connection.client({"isolation.level": isolation}) as client:
                    with interrupts.breakable():
                        reader = _reader(client, topic, partitions, begin, stop_ms, exit_)
                    for at, shown in _shown(reader, decoder, count, out.flush, interrupts):
                        undecodable += any(
                            isinstance(part, Undecodable) for part in (shown.key, shown.value)
                        )
                        out.write(show(at, shown))
            except KeyboardInterrupt:
                if interrupts.count > 1 or not endless or reader is None:
                    raise
            out.flush()
    finally:
        if decoder is not None and decoder.skipped:
            echo(f"skipped {quantity(decoder.skipped, 'record')} of other kinds", err=True)
        if undecodable:
            echo(f"{quantity(undecodable, 'record')} could not be decoded", err=True)
    if undecodable:
        sys.exit(1)


def _places(offsets: Sequence[str]) -> tuple[tuple[str, int], int | None]:
    """Parse -o: a kind of place and its number to begin at, and the time to end at, if any."""
    begin: tuple[str, int] | None = None
    stop_ms: int | None = None
    for text in offsets:
        mark, at, number = text.rpartition("@")
        digits = number.removeprefix("-") if not mark else number
        if text in ("beginning", "end"):
            place = text, 0
        elif not digits.isdecimal() or not digits.isascii() or at != ("@" if mark else ""):
            raise click.UsageError(f"-o {text}: {_PLACES}")
        elif mark == "e":
            if stop_ms is not None:
                raise click.UsageError("-o: give only one end (e@MS)")
            stop_ms = int(number)
            continue
        elif mark == "s":
            place = "time", int(number)
        elif mark:
            raise click.UsageError(f"-o {text}: {_PLACES}")
        else:
            place = ("last", int(digits)) if number.startswith("-") else ("offset", int(number))
        if begin is not None:
            raise click.UsageError("-o: give only one place to begin at")
        begin = place
    if any(number >= 2**63 for number in (stop_ms or 0, (begin or ("", 0))[1])):
        raise click.UsageError("-o: the number is too large (at most 2^63 - 1)")
    return begin or ("beginning", 0), stop_ms


_PLACES = "must be beginning, end, N, -N, s@MS or e@MS"


def _reader(
    client: Client,
    topic: str,
    partitions: Sequence[int],
    begin: tuple[str, int],
    stop_ms: int | None,
    exit_: bool,
) -> Reader:
    """Return a reader that begins at the place. Raises ClientError."""
    from krammar.client.errors import OffsetOutOfRange, UnknownTopicOrPartition
    from krammar.client.offsets import At
    from krammar.util.sockets import address_text

    try:
        found = client.partitions(topic)
    except UnknownTopicOrPartition:
        servers = ",".join(map(address_text, client.settings.bootstrap_servers))
        raise click.ClickException(
            f"topic {topic!r} does not exist on {servers} (create it with `krammar topics create {topic}`)"
        ) from None
    wanted = [at for at in found if not partitions or at.partition in partitions]
    for index in partitions:
        if index not in {at.partition for at in found}:
            raise click.ClickException(
                f"partition {index} of topic {topic!r} does not exist: the topic has the partitions 0 to "
                f"{len(found) - 1}"
            )

    def offsets(place: int) -> dict[TopicPartition, int]:
        listed = client.list_offsets(dict.fromkeys(wanted, place))
        return {at: listed[at].offset for at in wanted}

    first, ends = offsets(At.EARLIEST), offsets(At.LATEST)

    def since(ms: int) -> dict[TopicPartition, int]:
        return {at: ends[at] if offset < 0 else offset for at, offset in offsets(ms).items()}

    kind, number = begin
    if kind == "beginning":
        start = first
    elif kind == "end":
        start = ends
    elif kind == "last":
        start = {at: max(first[at], ends[at] - number) for at in wanted}
    elif kind == "time":
        start = since(number)
    else:
        start = dict.fromkeys(wanted, number)
    until = since(stop_ms) if stop_ms is not None else ends if exit_ else None
    if kind == "offset" and until is not None:
        # These partitions are not fetched, so the broker cannot report the offset.
        beyond = [at for at in wanted if start[at] > ends[at]]
        last = client.list_offsets(
            dict.fromkeys(beyond, At.LATEST), isolation_level="read_uncommitted"
        )
        for at in beyond:
            if number > last[at].offset:
                raise OffsetOutOfRange(
                    topic=topic,
                    partition=at.partition,
                    offset=number,
                    log_start_offset=first[at],
                    end_offset=last[at].offset,
                )
    return client.fetch(start, until=until)


def _shown(
    reader: Reader,
    decoder: RecordPartDecoder | None,
    count: int | None,
    flush: Callable[[], None],
    interrupts: Interrupts,
) -> Iterator[tuple[TopicPartition, Shown]]:
    """Yield up to ``count`` records. ``flush`` is called before waiting for more.

    Raises KeyboardInterrupt after Ctrl-C, but never while a record is being printed.
    """
    left = -1 if count is None else count
    came = iter(reader)
    while True:
        with interrupts.breakable():
            fetched = next(came, None)
        if fetched is None:
            return
        for record in fetched:
            interrupts.check()
            if decoder is None:
                parts: tuple[Part, Part] | None = (record.key, record.value)
            else:
                parts = decoder.decode(record.key, record.value)
            if parts is None:
                continue
            yield fetched.at, Shown(record, *parts)
            left -= 1
            if left == 0:
                return
        flush()
