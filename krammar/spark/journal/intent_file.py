"""The file with the intents of one write: the message WriteIntents of ``definitions/journal_wire`` and a CRC-32."""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import journal_wire as wire

from krammar.journal import AckIntent, encode_intents
from krammar.spark.errors import SparkSourceError
from krammar.util.durable import write_fully
from krammar.wire.errors import WireError


class Write(NamedTuple):
    """A micro-batch of the query ``writer``; or, if ``batch`` is -1, the batch write ``writer``."""

    writer: str
    batch: int = -1

    @property
    def text(self) -> str:
        """The write, for messages."""
        return f"batch {self.batch} of {self.writer}" if self.batch >= 0 else self.writer


class RowTotals(NamedTuple):
    """How many rows a write has, and the sum of their hashes modulo 2 ** 128.

    Neither depends on the order of rows or the number of tasks. An empty sum means unknown rows.
    """

    number: int
    sum: bytes


class StoredIntents(NamedTuple):
    """What is stored about a write.

    ``hash``      identifies the intents
    ``appended``  whether all intents are in their journals; the intents themselves are not stored any more then
    ``earlier``   the query's earlier micro-batches and their rows
    """

    write: Write
    intents: list[AckIntent]
    rows: RowTotals
    hash: bytes
    appended: bool = False
    earlier: tuple[tuple[int, RowTotals], ...] = ()

    def rows_of(self, batch: int) -> RowTotals | None:
        """Return the row totals of a micro-batch, or None if they are not stored any more."""
        return {**dict(self.earlier), self.write.batch: self.rows}.get(batch)


def hash_of(intents: Iterable[AckIntent]) -> bytes:
    """Return a hash that is unique to one attempt: each attempt has its own producers."""
    return sha256(encode_intents(intents)).digest()[:16]


def write_intents(path: Path, stored: StoredIntents) -> Path:
    """Write a new file durably; remove it if that fails."""
    data = wire.WriteIntents(
        version=1,
        writer=stored.write.writer,
        batch=stored.write.batch,
        appended=stored.appended,
        intents=[wire.AckIntent(journal=j, intent=intent) for j, intent in stored.intents],
        intents_hash=stored.hash,
        rows=wire.WrittenRows(count=stored.rows.number, sum=stored.rows.sum),
        earlier=[
            wire.WriteIntents.Earlier(
                batch=batch, rows=wire.WrittenRows(count=rows.number, sum=rows.sum)
            )
            for batch, rows in stored.earlier
        ],
    ).encode()
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            write_fully(file, data + crc32(data).to_bytes(4, "big"), 0)
            os.fsync(file)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        finally:
            os.close(file)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def read_intents(path: Path) -> StoredIntents:
    """Read a file.

    Raises:
        FileNotFoundError: it does not exist.
        SparkSourceError: it is damaged.
    """
    data = path.read_bytes()
    body, checksum = data[:-4], data[-4:]
    try:
        if len(data) < 4 or crc32(body).to_bytes(4, "big") != checksum:
            raise ValueError("its checksum is wrong")
        found = wire.WriteIntents.decode(body)
    except (WireError, ValueError) as error:
        raise SparkSourceError(
            f"{path}: {error}. It records what was about to be committed, so nothing can be written without it:"
            " restore it, or name a new folder with the option intents"
        ) from None
    return StoredIntents(
        Write(found.writer, found.batch),
        [AckIntent(one.journal, one.intent) for one in found.intents],
        RowTotals(found.rows.count, found.rows.sum),
        found.intents_hash,
        found.appended,
        tuple((one.batch, RowTotals(one.rows.count, one.rows.sum)) for one in found.earlier),
    )
