"""``krammar produce`` writes lines or files as records. Its options have the same letters as in kcat."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from krammar.cli.connection import INTERRUPTED, ConnectionOptions, connected, errors
from krammar.cli.interrupts import Interrupts
from krammar.cli.options import INPUT_FILE, examples, parse_delimiter, standard_input
from krammar.cli.output import echo, one_line, quantity

if TYPE_CHECKING:
    from krammar.client import Delivery, Producer


# Sending, and the report of what was sent.

_FAILURES_SHOWN = 10


class Sending:
    """Sends records, and counts those that were sent and those that failed.

    ``stopped`` is True after an error that is not specific to one record.
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
        # Errors of a single record; other records can still be sent.
        self._record_errors = (
            errors.MessageTooLarge,
            errors.InvalidRecord,
            errors.RecordListTooLarge,
        )
        self._failures: list[str] = []
        self._given = 0
        self._sent = 0
        self._failed = 0
        self._interrupts = interrupts
        self._transactional = producer.settings.transactional_id is not None
        self._aborted = False
        self.stopped = False

    def send(self, name: str, key: bytes | None, value: bytes | None) -> None:
        self._given += 1
        try:
            if self._given == 1 and not self._transactional:
                # Nothing has been sent yet, so Ctrl-C does not wait for the brokers.
                with self._interrupts.breakable():
                    self._producer.partition_count(self._topic)
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
        self.stopped = self.stopped or not isinstance(error, self._record_errors)
        if self._failed <= _FAILURES_SHOWN:
            self._failures.append(f"{name}: {one_line(error)}")

    def flush(self) -> None:
        """Wait until all records are sent or have failed. Errors are stored for the report."""
        try:
            self._producer.flush()
        except self._client_error as error:
            self.stopped = True
            self._failures.append(one_line(error))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Send the records of the ``with`` block, in a transaction if a transactional.id is set.

        After the first Ctrl-C, records that were read are sent, and the transaction is aborted. It is
        committed only if all records were sent. A second Ctrl-C reports what is known and raises
        KeyboardInterrupt.
        """
        if self._transactional:
            with self._interrupts.breakable():
                self._producer.init_transactions()
                self._producer.begin()
        try:
            try:
                yield
            except KeyboardInterrupt:
                if self._interrupts.count > 1:
                    raise
            except OSError as error:  # reading the input failed
                self.stopped = True
                self._failures.append(f"the rest of the input, which cannot be read: {error}")
            self.flush()
            if self._transactional:
                self._end_transaction()
        except KeyboardInterrupt:
            self._report_unknown()
            raise

    def _end_transaction(self) -> None:
        self._aborted = self._interrupts.count > 0 or self._failed > 0 or self.stopped
        try:
            if self._aborted:
                self._producer.abort()
            else:
                self._producer.commit()
        except self._client_error as error:
            self._failures.append(one_line(error))

    def report(self) -> None:
        """Print what was sent and what was not. Exits with 1 if records are missing, except after Ctrl-C."""
        self._report_failures()
        missing = self._given - self._sent
        sent = f"{quantity(self._sent, 'record')} sent to {self._topic}"
        if missing:
            sent += f", {missing} not sent"
        if self.stopped:
            sent += "; the rest of the input was not read"
        if self._aborted:
            sent += "; the transaction was aborted: consumers with isolation.level=read_committed will not see them"
        echo(sent, err=True)
        if (self._failures or missing) and not self._interrupts.count:
            sys.exit(1)

    def _report_unknown(self) -> None:
        """Print what is known after a second Ctrl-C."""
        self._report_failures()
        sent = f"{quantity(self._sent, 'record')} sent to {self._topic}"
        if self._failed:
            sent += f", {self._failed} not sent"
        if unknown := self._given - self._sent - self._failed:
            sent += f"; {unknown} may or may not have been sent"
        if self._transactional:
            sent += "; the state of the transaction is unknown"
        echo(sent, err=True)

    def _report_failures(self) -> None:
        for failure in self._failures:
            echo(f"not sent: {failure}", err=True)
        if self._failed > _FAILURES_SHOWN:
            echo(f"not sent: {self._failed - _FAILURES_SHOWN} more", err=True)


if TYPE_CHECKING:
    pass

_CHUNK = 64 * 1024


# The verb.


@click.command(
    epilog=examples(
        "echo hello | krammar produce orders",
        "krammar produce orders -K : < lines.txt                              # lines such as key:value",
        "krammar produce orders -k invoice -H type=pdf -z zstd invoice.pdf    # one record per file",
        "krammar produce orders -l -X acks=1 -X enable.idempotence=false a.txt b.txt",
    )
)
@click.argument("topic")
@click.argument(
    "files",
    nargs=-1,
    metavar="[FILE]...",
    type=INPUT_FILE,
)
@connected
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(0),
    help="Write to this partition.  [default: the key selects the partition]",
)
@click.option("-k", "--key", help="The key of all records.")
@click.option(
    "-K", "--key-delimiter", metavar="TEXT", help="Split each record at TEXT into key and value."
)
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="A header of all records. Without =VALUE, its value is null. Can be repeated.",
)
@click.option(
    "-D",
    "--delimiter",
    default="\\n",
    show_default=True,
    metavar="TEXT",
    help="Separator of records. Escapes such as \\t, \\0 and \\xNN work.",
)
@click.option("-l", "--lines", is_flag=True, help="Write each line of FILE as a record.")
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    help="Compression of record batches.  [default: none]",
)
@click.option(
    "-Z", "--null", is_flag=True, help="Write null for empty values, and for empty keys of -K."
)
def produce(
    topic: str,
    files: tuple[Path, ...],
    connection: ConnectionOptions,
    partition: int | None,
    key: str | None,
    key_delimiter: str | None,
    headers: tuple[str, ...],
    delimiter: str,
    lines: bool,
    compression: str | None,
    null: bool,
) -> None:
    """Write lines or files as records of TOPIC.

    Each line of standard input becomes a record, or each FILE as a whole. With a transactional.id (-X),
    all records form one transaction, which is aborted after any error.

    krammar reports the number of sent records on standard error. If records could not be sent, it
    lists them there, and the exit code is 1.

    Ctrl-C stops reading. Records that were already read are sent, and the exit code is 130. A second
    Ctrl-C does not wait for them.
    """
    if key is not None and key_delimiter is not None:
        raise click.UsageError("give -k or -K, not both")
    if lines and not files:
        raise click.UsageError("-l needs FILE (lines of standard input are always records)")
    between = parse_delimiter("-D", delimiter)
    before_value = None if key_delimiter is None else parse_delimiter("-K", key_delimiter)
    fixed_key = None if key is None else os.fsencode(key)
    all_headers = [_header(text) for text in headers]

    with errors(), Interrupts() as interrupts:
        from krammar.client.produce import Producer

        producer = Producer(connection.settings({"compression.type": compression}))
        sending = Sending(producer, topic, partition, all_headers, interrupts)
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
            # Records are sent or given up, so only connections are left to close.
            producer.cluster.close()
        if interrupts.count:
            sys.exit(INTERRUPTED)


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
    """Yield each record with a name for messages. ``pause`` is called before waiting for input.

    Raises:
        OSError: a file cannot be read.
        KeyboardInterrupt: Ctrl-C came, and all records that were read have been yielded.
    """
    if not files:
        for number, data in enumerate(_split(standard_input(), delimiter, pause, interrupts), 1):
            yield f"line {number}", data
    for path in files:
        # Opening and reading a named pipe can block.
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
    """Yield the parts between delimiters. A delimiter at the end of the input adds no empty part."""
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
    """Return whether reading would not block; True if ``select`` does not support the stream."""
    import select

    try:
        return bool(select.select([stream.fileno()], [], [], 0)[0])
    except (OSError, ValueError):
        return True
