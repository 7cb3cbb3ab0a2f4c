"""``krammar topics``, ``krammar produce`` and ``krammar consume``: a cluster's topics and records.

Options have kcat's letters where kcat has the option. What is heavy is imported by the verbs as they run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from krammar.cli_interrupts import Interrupts
from krammar.cli_text import examples, quantity

if TYPE_CHECKING:
    from krammar.client import Client, Delivery, Producer, Record, Settings, Topic, TopicPartition
    from krammar.client.fetch import Reader
    from krammar.wire.message import Codec, VersionedCodec

_DEFAULT_SERVER = "localhost:9092"
_SERVERS = ("bootstrap.servers", "metadata.broker.list")
_CHUNK = 64 * 1024
_FAILURES_SHOWN = 10
_INTERRUPTED = 130  # as shells have it for a command that Ctrl-C has ended


# What all verbs have in common.


@contextmanager
def _errors() -> Iterator[None]:
    """Turn errors into one line each, and Ctrl-C into a quiet end."""
    try:
        from krammar.client.errors import ClientError, SettingsError
        from krammar.wire.errors import WireError

        try:
            yield
        except SettingsError as error:
            raise click.UsageError(_line(error)) from error
        except (ClientError, WireError) as error:
            raise click.ClickException(_line(error)) from error
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _pairs(option: str, given: Iterable[str]) -> dict[str, str]:
    pairs = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"{option} {pair}: needs KEY=VALUE")
        pairs[name.strip()] = value
    return pairs


@dataclass(frozen=True, slots=True)
class _Connection:
    """How to get to the cluster, as the command line has it."""

    servers: str | None
    given: tuple[str, ...]
    file: Path | None

    def after(self, group: _Connection | None) -> _Connection:
        """With what was said before the verb's name, ``krammar topics -b a:9092 describe``."""
        if group is None:
            return self
        return _Connection(
            self.servers or group.servers, group.given + self.given, self.file or group.file
        )

    def settings(self, more: Mapping[str, Any] | None = None) -> Settings:
        """Settings of the file, then those of -X, then those of options. Raises SettingsError."""
        from krammar.client.settings import Settings

        values: dict[str, Any] = {} if self.file is None else _read_properties(self.file)
        given = _pairs("-X", self.given)
        values |= {name.replace("_", "."): value for name, value in given.items()}
        if self.servers is not None:
            for name in _SERVERS:
                values.pop(name, None)
            values["bootstrap.servers"] = self.servers
        elif not any(name in values for name in _SERVERS):
            values["bootstrap.servers"] = _DEFAULT_SERVER
        values |= {name: value for name, value in (more or {}).items() if value is not None}
        return Settings.of(values)


def _read_properties(path: Path) -> dict[str, Any]:
    from krammar.properties import PropertiesError, decode, parse_properties

    try:
        return {entry.name: entry.value for entry in parse_properties(decode(path.read_bytes()))}
    except (PropertiesError, OSError) as error:
        raise click.UsageError(f"{path}: {_line(error)}") from error


def _connects(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add -b, -X and the file of settings by ``names``; the function gets ``connection``."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def command(
            *arguments: Any,
            servers: str | None,
            given: tuple[str, ...],
            file: Path | None,
            **more: Any,
        ) -> Any:
            group = click.get_current_context().find_object(_Connection)
            connection = _Connection(servers, given, file).after(group)
            return function(*arguments, connection=connection, **more)

        for option in (
            click.option(
                *names,
                "file",
                type=click.Path(exists=True, dir_okay=False, path_type=Path),
                help="A properties file of client settings.",
            ),
            click.option(
                "-X",
                "--set",
                "given",
                multiple=True,
                metavar="KEY=VALUE",
                help="A client setting by Kafka's name, before those of the file. Can be repeated.",
            ),
            click.option(
                "-b",
                "--bootstrap-server",
                "servers",
                metavar="HOST:PORT",
                help=f"Where the cluster is; several with commas.  [default: {_DEFAULT_SERVER}]",
            ),
        ):
            option(command)
        return command

    return decorate


_connected = _connects("-F", "--config")


# Topics.


def _prints_json(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --json, which may stand before the verb's name too."""

    @wraps(function)
    def command(*arguments: Any, json_: bool, **more: Any) -> Any:
        group = click.get_current_context().parent
        if group is not None:
            json_ = json_ or bool(group.params.get("json_"))
        return function(*arguments, json_=json_, **more)

    return click.option("--json", "json_", is_flag=True, help="Print JSON.")(command)


def _print_json(value: Any) -> None:
    import json

    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _print_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Columns below their names; numbers to the right."""
    texts = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    right = [bool(rows) and all(isinstance(row[i], int) for row in rows) for i in range(len(head))]
    for row in texts:
        cells = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, right, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


@click.group(
    invoke_without_command=True,
    epilog=examples(
        "krammar topics",
        "krammar topics -b broker:9092 --json",
        "krammar topics describe orders",
        "krammar topics create orders -p 4 --config cleanup.policy=compact",
        "krammar topics delete orders",
    ),
)
@_connected
@_prints_json
@click.pass_context
def topics(context: click.Context, connection: _Connection, json_: bool) -> None:
    """List, describe, create and delete topics. Without a verb, list them."""
    context.obj = connection
    if context.invoked_subcommand is None:
        _list_topics(connection, json_)


@topics.command("list")
@_connected
@_prints_json
def list_(connection: _Connection, json_: bool) -> None:
    """List all topics."""
    _list_topics(connection, json_)


def _list_topics(connection: _Connection, json_: bool) -> None:
    with _errors(), _client(connection) as client:
        found = [topic for _, topic in sorted(client.topics().items())]
    if json_:
        _print_json([_summary(topic) for topic in found])
        return
    _print_table(
        ("TOPIC", "PARTITIONS", "REPLICAS", "INTERNAL"),
        [
            (t.name, len(t.partitions), _replicas(t), "internal" if t.internal else "")
            for t in found
        ],
    )


def _summary(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": str(topic.topic_id),
        "internal": topic.internal,
        "partitions": len(topic.partitions),
        "replicas": _replicas(topic),
    }


def _replicas(topic: Topic) -> int:
    return max((len(p.replicas) for p in topic.partitions.values()), default=0)


@contextmanager
def _client(connection: _Connection, more: Mapping[str, Any] | None = None) -> Iterator[Client]:
    from krammar.client import Client

    with Client(connection.settings(more)) as client:
        yield client


@topics.command(
    epilog=examples("krammar topics describe orders", "krammar topics describe t --json")
)
@click.argument("topic")
@_connected
@_prints_json
def describe(topic: str, connection: _Connection, json_: bool) -> None:
    """Show a topic's partitions, offsets and own settings.

    BEGIN is the first offset that can be read, END the one behind the last record.
    """
    from krammar.client.metadata import TopicPartition
    from krammar.client.offsets import At

    with _errors(), _client(connection) as client:
        found = client.topics([topic])[topic]
        # Those without a leader have nobody to ask.
        led = [TopicPartition(topic, i) for i, p in found.partitions.items() if p.leader >= 0]
        begins = client.list_offsets(dict.fromkeys(led, At.EARLIEST))
        ends = client.list_offsets(
            dict.fromkeys(led, At.LATEST), isolation_level="read_uncommitted"
        )
        configs = client.admin.topic_configs(topic)
    own = {name: c.value for name, c in sorted(configs.items()) if not c.is_default}
    partitions = []
    for index, partition in sorted(found.partitions.items()):
        at = TopicPartition(topic, index)
        partitions.append(
            {
                "partition": index,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": partition.replicas,
                "isr": partition.isr,
                "begin": begins[at].offset if at in begins else None,
                "end": ends[at].offset if at in ends else None,
            }
        )
    if json_:
        _print_json({**_summary(found), "configs": own, "partitions": partitions})
        return
    click.echo(f"{topic}  id {found.topic_id}{'  internal' if found.internal else ''}")
    for name, value in own.items():
        click.echo(f"  {name} = {'(secret)' if value is None else value}")
    _print_table(
        ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "BEGIN", "END"),
        [[_cell(value) for value in partition.values()] for partition in partitions],
    )


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "-" if value is None else value


# Here --config is a setting of the topic, as kafka-topics has it, and the file is -F alone.
@topics.command(
    epilog=examples(
        "krammar topics create orders -p 4",
        "krammar topics create orders -p 4 -r 3 --config retention.ms=60000",
    )
)
@click.argument("topic")
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(1),
    help="How many partitions.  [default: the broker's]",
)
@click.option(
    "-r",
    "--replication-factor",
    "replicas",
    type=click.IntRange(1, 32767),
    help="How many replicas of each.  [default: the broker's]",
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the topic. Can be repeated.",
)
@_connects("-F")
def create(
    topic: str,
    partitions: int | None,
    replicas: int | None,
    configs: tuple[str, ...],
    connection: _Connection,
) -> None:
    """Create a topic."""
    pairs: dict[str, str | None] = {**_pairs("--config", configs)}
    with _errors(), _client(connection) as client:
        made = client.admin.create_topic(topic, partitions or -1, replicas or -1, configs=pairs)
    click.echo(f"{topic} created with {quantity(len(made.partitions), 'partition')}")


@topics.command()
@click.argument("topic")
@_connected
def delete(topic: str, connection: _Connection) -> None:
    """Delete a topic with all its records."""
    with _errors(), _client(connection) as client:
        client.admin.delete_topic(topic)
    click.echo(f"{topic} deleted")


# Escapes, in formats and delimiters.

_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}


def _unescape(option: str, text: str) -> bytes:
    r"""The bytes of a text with \n, \t, \r, \0, \\ and \xNN. Raises UsageError for another escape."""
    out = bytearray()
    position = 0
    while position < len(text):
        letter = text[position]
        position += 1
        if letter != "\\":
            out += os.fsencode(letter)
            continue
        escape = text[position : position + 1]
        position += 1
        if escape == "x":
            digits = text[position : position + 2]
            position += 2
            try:
                out += bytes.fromhex(digits if len(digits) == 2 else "?")
            except ValueError:
                raise click.UsageError(
                    f"{option}: \\x needs two hexadecimal digits, not {digits!r}"
                ) from None
        elif escape in _ESCAPES:
            out += _ESCAPES[escape]
        else:
            raise click.UsageError(f"{option}: there is no escape \\{escape}")
    return bytes(out)


def _delimiter(option: str, text: str) -> bytes:
    delimiter = _unescape(option, text)
    if not delimiter:
        raise click.UsageError(f"{option}: a delimiter cannot be empty")
    return delimiter


# Producing.


@click.command(
    epilog=examples(
        "echo hello | krammar produce orders",
        "krammar produce orders -K : < lines-of-key-and-value.txt",
        "krammar produce orders -k invoice -H type=pdf -z zstd invoice.pdf    # a file a record",
        "krammar produce orders -l -X acks=1 -X enable.idempotence=false a.txt b.txt",
    )
)
@click.argument("topic")
@click.argument(
    "files",
    nargs=-1,
    metavar="[FILE]...",
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
)
@_connected
@click.option("-p", "--partition", type=click.IntRange(0), help="To this one, whatever the key.")
@click.option("-k", "--key", help="The key of all records.")
@click.option(
    "-K", "--key-delimiter", metavar="TEXT", help="The key is what stands before TEXT in a record."
)
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="A header of all records; NAME alone has a null value. Can be repeated.",
)
@click.option(
    "-D",
    "--delimiter",
    default="\\n",
    show_default=True,
    metavar="TEXT",
    help="What stands between records; \\t, \\0, \\xNN and the like are known.",
)
@click.option("-l", "--lines", is_flag=True, help="Every line of FILE is a record.")
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    help="The codec of batches.  [default: none]",
)
@click.option("-Z", "--null", is_flag=True, help="Empty values, and empty keys of -K, become null.")
def produce(
    topic: str,
    files: tuple[Path, ...],
    connection: _Connection,
    partition: int | None,
    key: str | None,
    key_delimiter: str | None,
    headers: tuple[str, ...],
    delimiter: str,
    lines: bool,
    compression: str | None,
    null: bool,
) -> None:
    """Write records to TOPIC: each line of standard input, or each FILE as a whole.

    What was sent is counted on standard error at the end; what was not is named there, with exit code
    1. With a transactional.id (-X) all is one transaction, which is aborted if anything goes wrong.
    Ctrl-C ends the reading; what was read before is sent, and the exit code is 130. Another Ctrl-C does not
    wait for that.
    """
    if key is not None and key_delimiter is not None:
        raise click.UsageError("give -k or -K, not both")
    if lines and not files:
        raise click.UsageError("-l is for FILE; the lines of standard input are records anyway")
    between = _delimiter("-D", delimiter)
    before_value = None if key_delimiter is None else _delimiter("-K", key_delimiter)
    fixed_key = None if key is None else os.fsencode(key)
    all_headers = [_header(text) for text in headers]

    with _errors(), Interrupts() as interrupts:
        from krammar.client.produce import Producer

        producer = Producer(connection.settings({"compression.type": compression}))
        sending = _Sending(producer, topic, partition, all_headers, interrupts)
        try:
            with sending.transaction():
                for name, data in _inputs(files, lines, between, sending.flush, interrupts):
                    record_key, value = fixed_key, data
                    if before_value is not None:
                        head, found, tail = data.partition(before_value)
                        if found:
                            record_key, value = head, tail
                    sending.send(
                        name,
                        (
                            None
                            if null and before_value is not None and not record_key
                            else record_key
                        ),
                        None if null and not value else value,
                    )
                    if sending.stopped:
                        break
            sending.report()
        finally:
            # Nothing but connections is left: all is done, or given up.
            producer.cluster.close()
        if interrupts.count:
            sys.exit(_INTERRUPTED)


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise click.UsageError(f"-H {text}: needs NAME=VALUE")
    return name, os.fsencode(value) if equals else None


def _inputs(
    files: Sequence[Path],
    lines: bool,
    delimiter: bytes,
    pause: Callable[[], None],
    interrupts: Interrupts,
) -> Iterator[tuple[str, bytes]]:
    """Records with a name for each; ``pause`` is called before input is waited for.

    Raises OSError, and KeyboardInterrupt for a Ctrl-C when all records that were read have been given.
    """
    if not files:
        for number, data in enumerate(_split(sys.stdin.buffer, delimiter, pause, interrupts), 1):
            yield f"line {number}", data
    for path in files:
        # A named pipe may be waited for.
        with interrupts.breakable():
            if lines:
                stream = path.open("rb")
            else:
                data = path.read_bytes()
        if not lines:
            yield str(path), data
            continue
        with stream:
            for number, data in enumerate(_split(stream, delimiter, pause, interrupts), 1):
                yield f"{path}: line {number}", data


def _split(
    stream: BinaryIO, delimiter: bytes, pause: Callable[[], None], interrupts: Interrupts
) -> Iterator[bytes]:
    """The parts between delimiters; one at the very end has nothing behind it."""
    rest = b""
    while True:
        if not _has_input(stream):
            pause()
        chunk = interrupts.read(stream, _CHUNK)
        if not chunk:
            break
        *parts, rest = (rest + chunk).split(delimiter)
        yield from parts
    if rest:
        yield rest


def _has_input(stream: BinaryIO) -> bool:
    """Whether reading would not wait; true where that cannot be told."""
    import select

    try:
        return bool(select.select([stream.fileno()], [], [], 0)[0])
    except (OSError, ValueError):
        return True


class _Sending:
    """Counts what becomes of records.

    ``stopped`` is true after an error that other records would have as well.
    """

    def __init__(
        self,
        producer: Producer,
        topic: str,
        partition: int | None,
        headers: Sequence[tuple[str, bytes | None]],
        interrupts: Interrupts,
    ) -> None:
        from krammar.client import errors

        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._headers = headers
        self._client_error = errors.ClientError
        self._about_one = (errors.MessageTooLarge, errors.InvalidRecord, errors.RecordListTooLarge)
        self._failures: list[str] = []
        self._given = 0
        self._sent = 0
        self._failed = 0
        self._interrupts = interrupts
        self._aborted = False
        self.stopped = False

    def send(self, name: str, key: bytes | None, value: bytes | None) -> None:
        self._given += 1
        try:
            self._producer.send(
                self._topic,
                value,
                key,
                partition=self._partition,
                headers=self._headers,
                on_delivery=partial(self._done, name),
            )
        except self._client_error as error:
            self._fail(name, error)

    def _done(self, name: str, delivery: Delivery) -> None:
        if delivery.error is None:
            self._sent += 1
        else:
            self._fail(name, delivery.error)

    def _fail(self, name: str, error: BaseException) -> None:
        self._failed += 1
        self.stopped = self.stopped or not isinstance(error, self._about_one)
        if self._failed <= _FAILURES_SHOWN:
            self._failures.append(f"{name}: {_line(error)}")

    def flush(self) -> None:
        """Wait for all that was sent. Errors are kept for the report."""
        try:
            self._producer.flush()
        except self._client_error as error:
            self.stopped = True
            self._failures.append(_line(error))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Around all records: what Ctrl-C cuts short is sent to its end; a transaction, if there is to be
        one, is committed if nothing is missing. Another Ctrl-C ends the command, after what is known.
        """
        transactional = self._producer.settings.transactional_id is not None
        if transactional:
            with self._interrupts.breakable():
                self._producer.init_transactions()
                self._producer.begin()
        try:
            try:
                yield
            except KeyboardInterrupt:
                if self._interrupts.count > 1:
                    raise
            except OSError as error:  # of the input
                self.stopped = True
                self._failures.append(str(error))
            self.flush()
            if transactional:
                self._end_transaction()
        except KeyboardInterrupt:
            self._report_unknown(transactional)
            raise

    def _end_transaction(self) -> None:
        self._aborted = self._interrupts.count > 0 or self._failed > 0 or self.stopped
        try:
            if self._aborted:
                self._producer.abort()
            else:
                self._producer.commit()
        except self._client_error as error:
            self._failures.append(_line(error))

    def report(self) -> None:
        """Say what was sent and what was not; exits with 1 if anything was not."""
        self._report_failures()
        missing = self._given - self._sent
        sent = f"{quantity(self._sent, 'record')} sent to {self._topic}"
        if missing:
            sent += f", {missing} not"
        if self.stopped:
            sent += "; the rest of the input was not read"
        if self._aborted:
            sent += "; the transaction was aborted, so none of them will be seen"
        click.echo(sent, err=True)
        if self._failures or missing:
            sys.exit(1)

    def _report_unknown(self, transactional: bool) -> None:
        """The same where the producer was broken off."""
        self._report_failures()
        sent = f"{quantity(self._sent, 'record')} sent to {self._topic}"
        if self._failed:
            sent += f", {self._failed} not"
        if unknown := self._given - self._sent - self._failed:
            sent += f"; {unknown} may have been sent or not"
        if transactional:
            sent += "; it is not known whether the transaction has ended"
        click.echo(sent, err=True)

    def _report_failures(self) -> None:
        for failure in self._failures:
            click.echo(f"not sent: {failure}", err=True)
        if self._failed > _FAILURES_SHOWN:
            click.echo(f"not sent: {self._failed - _FAILURES_SHOWN} more", err=True)


# Consuming.


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
@_connected
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    help="This one alone. Can be repeated.  [default: all]",
)
@click.option(
    "-o",
    "--offset",
    "offsets",
    multiple=True,
    metavar="OFFSET",
    help="Where to begin: beginning, end, an offset N, -N for the last N of each partition, s@MS for "
    "the first since that many milliseconds after 1970; and e@MS, which ends before the first of "
    "that time.  [default: beginning]",
)
@click.option("-c", "--count", type=click.IntRange(1), help="Stop after so many records.")
@click.option(
    "-e", "--exit", "exit_", is_flag=True, help="Stop at the end of what there is at the start."
)
@click.option(
    "-f",
    "--format",
    "format_",
    metavar="TEXT",
    help="%t topic, %p partition, %o offset, %k key, %s value, %h headers, %T time in milliseconds, "
    "%K and %S sizes of key and value in bytes (-1 for null), %% a percent sign; \\n, \\t, \\0, \\xNN.",
)
@click.option("-J", "--json", "json_", is_flag=True, help="A JSON object a line, as kcat's.")
@click.option(
    "-D", "--delimiter", metavar="TEXT", help="What stands behind each record.  [default: \\n]"
)
@click.option("-K", "--key-delimiter", metavar="TEXT", help="Show the key too, TEXT behind it.")
@click.option("-Z", "--null", is_flag=True, help="Show null as NULL, not as nothing.")
@click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    help="Whether records of open and aborted transactions are shown.  [default: read_uncommitted]",
)
@click.option(
    "--decode",
    "decode",
    metavar="CLASS[:VERSION]",
    help="Show values as JSON, by a generated class: OffsetCommitValue, mypkg.orders.OrderPlaced. If "
    "it has a key class with a version field, keys too, and records of other kinds are left out. "
    "`auto` takes the class of each record of an internal topic.",
)
def consume(
    topic: str,
    connection: _Connection,
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
    """Print the records of TOPIC, and go on with new ones until Ctrl-C, unless told when to stop.

    Records that --decode cannot read are shown as bytes with the error; exit code 1 says that there
    were some. After Ctrl-C the exit code is 0, but 130 where -c, -e or an end (e@MS) was not reached.
    """
    begin, stop_ms = _places(offsets)
    show = _shower(format_, json_, delimiter, key_delimiter, null)
    decoder = None if decode is None else _decoder(decode, topic)
    endless = count is None and not exit_ and stop_ms is None
    out = sys.stdout.buffer
    undecodable = 0
    try:
        with _errors(), Interrupts() as interrupts:
            try:
                with _client(connection, {"isolation.level": isolation}) as client:
                    with interrupts.breakable():
                        reader = _reader(client, topic, partitions, begin, stop_ms, exit_)
                    for at, shown in _shown(reader, decoder, count, out.flush, interrupts):
                        undecodable += any(
                            isinstance(part, _Undecodable) for part in (shown.key, shown.value)
                        )
                        out.write(show(at, shown))
            except KeyboardInterrupt:
                if interrupts.count > 1 or not endless:
                    raise
            out.flush()
    finally:
        if decoder is not None and decoder.left_out:
            click.echo(f"{quantity(decoder.left_out, 'record')} of other kinds left out", err=True)
        if undecodable:
            click.echo(f"{quantity(undecodable, 'record')} could not be decoded", err=True)
    if undecodable:
        sys.exit(1)


def _places(offsets: Sequence[str]) -> tuple[tuple[str, int], int | None]:
    """Where to begin, as a kind of place and its number; and the time to end at, if any."""
    begin: tuple[str, int] | None = None
    stop_ms: int | None = None
    for text in offsets:
        mark, at, number = text.rpartition("@")
        digits = number.removeprefix("-") if not mark else number
        if text in ("beginning", "end"):
            place = text, 0
        elif not digits.isdecimal() or not digits.isascii() or at != ("@" if mark else ""):
            raise click.UsageError(f"-o {text}: none of beginning, end, N, -N, s@MS, e@MS")
        elif mark == "e":
            if stop_ms is not None:
                raise click.UsageError("-o: give one end")
            stop_ms = int(number)
            continue
        elif mark == "s":
            place = "time", int(number)
        elif mark:
            raise click.UsageError(f"-o {text}: none of beginning, end, N, -N, s@MS, e@MS")
        else:
            place = ("last", int(digits)) if number.startswith("-") else ("offset", int(number))
        if begin is not None:
            raise click.UsageError("-o: give one place to begin at")
        begin = place
    if any(number >= 2**63 for number in (stop_ms or 0, (begin or ("", 0))[1])):
        raise click.UsageError("-o: the number is too great")
    return begin or ("beginning", 0), stop_ms


def _reader(
    client: Client,
    topic: str,
    partitions: Sequence[int],
    begin: tuple[str, int],
    stop_ms: int | None,
    exit_: bool,
) -> Reader:
    """A reader of the partitions from the place on. Raises ClientError."""
    from krammar.client.errors import OffsetOutOfRange, UnknownTopicOrPartition
    from krammar.client.offsets import At

    found = client.partitions(topic)
    wanted = [at for at in found if not partitions or at.partition in partitions]
    for index in partitions:
        if index not in {at.partition for at in found}:
            raise UnknownTopicOrPartition(f"{topic}-{index}")

    def offsets(place: int) -> dict[TopicPartition, int]:
        told = client.list_offsets(dict.fromkeys(wanted, place))
        return {at: told[at].offset for at in wanted}

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
        # Nothing is asked of the broker for these, so that it would not complain.
        behind = [at for at in wanted if start[at] > ends[at]]
        last = client.list_offsets(
            dict.fromkeys(behind, At.LATEST), isolation_level="read_uncommitted"
        )
        for at in behind:
            if number > last[at].offset:
                raise OffsetOutOfRange(
                    topic=topic,
                    partition=at.partition,
                    offset=number,
                    log_start_offset=first[at],
                    end_offset=last[at].offset,
                )
    return client.fetch(start, until=until)


@dataclass(frozen=True, slots=True)
class _Undecodable:
    """Bytes that --decode cannot read, and why."""

    data: bytes
    error: str


# A key or value: bytes, None, or as --decode has made it.
_Part = Any


@dataclass(frozen=True, slots=True)
class _Shown:
    """A record, with its key and value as they are to be shown."""

    record: Record
    key: _Part
    value: _Part


def _shown(
    reader: Reader,
    decoder: _Decoder | None,
    count: int | None,
    flush: Callable[[], None],
    interrupts: Interrupts,
) -> Iterator[tuple[TopicPartition, _Shown]]:
    """Records one by one, ``count`` at most; ``flush`` is called before more of them are waited for.
    Raises KeyboardInterrupt for a Ctrl-C, while none of them is being printed."""
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
                parts: tuple[_Part, _Part] | None = (record.key, record.value)
            else:
                parts = decoder.decode(record.key, record.value)
            if parts is None:
                continue
            yield fetched.at, _Shown(record, *parts)
            left -= 1
            if left == 0:
                return
        flush()


# How a record is printed.

_Shower = Callable[["TopicPartition", _Shown], bytes]


def _shower(
    format_: str | None,
    json_: bool,
    delimiter: str | None,
    key_delimiter: str | None,
    null: bool,
) -> _Shower:
    if json_:
        if format_ is not None or delimiter is not None or key_delimiter is not None or null:
            raise click.UsageError("-J has a form of its own: it goes without -f, -D, -K and -Z")
        return _json_line
    if format_ is not None:
        if delimiter is not None or key_delimiter is not None:
            raise click.UsageError("-f says all: it goes without -D and -K")
        return partial(_formatted, _pieces(format_), b"NULL" if null else b"")
    pieces: list[bytes | str] = []
    if key_delimiter is not None:
        pieces += ["k", _unescape("-K", key_delimiter)]
    pieces += ["s", b"\n" if delimiter is None else _unescape("-D", delimiter)]
    return partial(_formatted, pieces, b"NULL" if null else b"")


def _pieces(format_: str) -> list[bytes | str]:
    """A format as bytes that stand for themselves and letters of what is to be filled in."""
    pieces: list[bytes | str] = []
    texts = format_.split("%")
    pieces.append(_unescape("-f", texts[0]))
    rest = iter(texts[1:])
    for text in rest:
        if text:
            if text[0] not in _FIELDS:
                raise click.UsageError(f"-f: there is no %{text[0]}; %% is a percent sign")
            pieces += [text[0], _unescape("-f", text[1:])]
            continue
        # Nothing before the next percent sign: there are two in a row, or it is the last letter.
        after = next(rest, None)
        if after is None:
            raise click.UsageError("-f: nothing behind the last %; %% is a percent sign")
        pieces.append(b"%" + _unescape("-f", after))
    return pieces


def _formatted(
    pieces: Sequence[bytes | str], null: bytes, at: TopicPartition, shown: _Shown
) -> bytes:
    return b"".join(
        piece if isinstance(piece, bytes) else _FIELDS[piece](at, shown, null) for piece in pieces
    )


def _text(part: _Part, null: bytes) -> bytes:
    if part is None:
        return null
    if isinstance(part, bytes):
        return part
    if isinstance(part, _Undecodable):
        return f"<cannot be decoded: {part.error}: 0x{part.data.hex()}>".encode()
    import json

    return json.dumps(part, ensure_ascii=False).encode()


def _headers_text(shown: _Shown) -> bytes:
    return b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else value)
        for name, value in shown.record.headers
    )


def _size(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


_FIELDS: dict[str, Callable[[TopicPartition, _Shown, bytes], bytes]] = {
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


def _json_line(at: TopicPartition, shown: _Shown) -> bytes:
    """A record with kcat's names; bytes that are no UTF-8 are ``{"base64": …}``."""
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


def _plain(part: _Part) -> Any:
    from base64 import b64encode

    if isinstance(part, _Undecodable):
        return {"error": part.error, "base64": b64encode(part.data).decode()}
    if not isinstance(part, bytes):
        return part
    try:
        return part.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(part).decode()}


# --decode.

_INTERNAL = {
    "__consumer_offsets": "kafka_wire.consumer_offsets",
    "__share_group_state": "kafka_wire.share_group_state",
    "__transaction_state": "kafka_wire.transaction_state",
}


class _Decoder:
    """Reads keys and values.

    ``kinds`` has the classes of keys and values by the number that keys begin with; without any, keys
    stay bytes. ``cls`` is the class of all values, None where the kind tells it. ``left_out`` counts
    the records of other kinds.
    """

    def __init__(
        self,
        kinds: Mapping[int, tuple[type[VersionedCodec], type[VersionedCodec]]],
        cls: type[Codec] | None = None,
        version: int | None = None,
    ) -> None:
        self._kinds = kinds
        self._cls = cls
        self._version = version
        self.left_out = 0

    def decode(self, key: bytes | None, value: bytes | None) -> tuple[_Part, _Part] | None:
        """Key and value to be shown; None for a record of another kind."""
        if not self._kinds:
            return key, self._read(self._cls, value)
        if key is None:
            return None, self._read(self._cls, value)
        if len(key) < 2:
            # Too short to be of a kind: malformed, rather than another one.
            error = "the key is too short to tell its kind"
            return _Undecodable(key, error), self._read(self._cls, value)
        kind = int.from_bytes(key[:2], "big", signed=True)
        if kind in self._kinds:
            key_class, value_class = self._kinds[kind]
            return self._read(key_class, key), self._read(self._cls or value_class, value)
        if self._cls is not None:
            self.left_out += 1
            return None
        return _Undecodable(key, f"unknown kind {kind} of keys"), self._read(None, value)

    def _read(self, cls: type[Codec] | None, data: bytes | None) -> _Part:
        from krammar.wire.errors import WireError
        from krammar.wire.message import VersionedCodec

        if data is None:
            return None
        if cls is None:
            return _Undecodable(data, "its key does not tell its class")
        try:
            if issubclass(cls, VersionedCodec):
                version = self._version if cls is self._cls else None
                return cls.decode(data, version).to_dict()
            number = cls.max_version if self._version is None else self._version
            return cls.decode(data, number).to_dict()
        except WireError as error:
            text = _line(error)
            named = text.startswith(cls.__name__)
            return _Undecodable(data, text if named else f"{cls.__name__}: {text}")


def _decoder(text: str, topic: str) -> _Decoder:
    """What --decode asks for. Raises UsageError."""
    from importlib import import_module

    from krammar.wire.errors import UnsupportedVersionError
    from krammar.wire.message import VersionedCodec

    if text == "auto":
        if topic not in _INTERNAL:
            raise click.UsageError(f"--decode auto: is for {', '.join(sorted(_INTERNAL))}")
        return _Decoder(_kinds(import_module(_INTERNAL[topic])))
    name, colon, number = text.partition(":")
    if colon and not (number.isascii() and number.isdecimal()):
        raise click.UsageError(f"--decode {text}: the version is a number, not {number!r}")
    version = int(number) if colon else None
    cls = _find_class(name)
    if version is not None:
        try:
            cls._known_version(version)
        except UnsupportedVersionError as error:
            raise click.UsageError(f"--decode {text}: {_line(error)}") from error
    elif not issubclass(cls, VersionedCodec) and cls.min_version != cls.max_version:
        raise click.UsageError(
            f"--decode {text}: needs a version, {cls.min_version} to {cls.max_version}, which its "
            f"bytes do not tell: {text}:{cls.max_version}"
        )
    if not issubclass(cls, VersionedCodec):
        return _Decoder({}, cls, version)
    kinds = {
        kind: pair for kind, pair in _kinds(import_module(cls.__module__)).items() if pair[1] is cls
    }
    return _Decoder(kinds, cls, version)


def _find_class(name: str) -> type[Codec]:
    """The class of ``OffsetCommitValue`` (kafka_wire's) or ``mypkg.orders.OrderPlaced``."""
    from importlib import import_module

    from krammar.wire.message import Codec

    package, _, simple = name.rpartition(".")
    # As `python -m` does, so that packages in this folder are found.
    sys.path.append(os.getcwd())
    try:
        module = import_module(package or "kafka_wire")
    except Exception as error:  # importing a user's package can raise anything
        raise click.UsageError(f"--decode {name}: {_line(error)}") from error
    found = getattr(module, simple, None)
    if not isinstance(found, type) or not issubclass(found, Codec):
        raise click.UsageError(
            f"--decode {name}: {module.__name__} has no message {simple!r} that can be read alone"
        )
    return found


def _kinds(module: Any) -> dict[int, tuple[type[VersionedCodec], type[VersionedCodec]]]:
    """The classes ``…Key`` with their ``…Value`` in a module, by the number that such keys begin with.

    A ``Legacy…Key`` is the number of old keys that are read like the new ones.
    """
    from krammar.wire.message import VersionedCodec

    def versioned(name: str) -> type[VersionedCodec] | None:
        cls = getattr(module, name, None)
        return cls if isinstance(cls, type) and issubclass(cls, VersionedCodec) else None

    found = {}
    for name in dir(module):
        if not name.endswith("Key") or (cls := versioned(name)) is None:
            continue
        stem = name.removesuffix("Key").removeprefix("Legacy")
        key_class, value_class = versioned(f"{stem}Key"), versioned(f"{stem}Value")
        if key_class is not None and value_class is not None:
            found[int(getattr(cls(), cls._version_field))] = key_class, value_class
    return found
