"""Stores the intents of writes in a folder, until their acknowledgements are in the journals.

A batch write has a file. The write is committed when the file exists. The file appears complete, under a name that
only one driver can create.

A query has a folder. An empty file in it, the token, names the last committed micro-batch and the file with its
intents:

    query-5c0f….batches/
        00000000000000000008-9a1e….last
        00000000000000000008-9a1e….intents

A driver writes the file of a micro-batch, and then commits the micro-batch by renaming the token. If several drivers
have seen the same token, only one can rename it. The token is never removed and its number only grows, so a driver
that has stalled for any time cannot commit a micro-batch that another driver has passed.

A file is the message WriteIntents of ``definitions/journal_wire`` and a CRC-32.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote
from uuid import uuid4
from zlib import crc32

import journal_wire as wire

from krammar.journal import AckIntent, encode_intents
from krammar.spark.errors import OptionError, SparkSourceError
from krammar.spark.options import Options
from krammar.spark.paths import local_path
from krammar.util.durable import make_folders, sync, sync_all, write_fully
from krammar.wire.errors import WireError

# The folder in the checkpoint of a query.
FOLDER = "krammar-intents"

_SUFFIX = ".intents"
_LAST = ".last"
_BATCHES = ".batches"
# The token of a query without a micro-batch. It sorts before all others.
_START = f"0-start{_LAST}"
_ONCE = re.compile(r"[^.].*-once\.intents")
_OF_BATCH = re.compile(r"\.?(\d{20})-")


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

    Attributes:
        hash: identifies the intents
        appended: whether all intents are in their journals; the intents themselves are not stored any more then
        earlier: the query's earlier micro-batches and their rows
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


def intent_folder(options: Options, is_stream: bool) -> str:
    """Return the folder in which intents are stored.

    Raises:
        OptionError: no folder is given, or the driver has not mounted it.
    """
    if options.given("intents"):
        return _local("intents", options["intents"])
    if not is_stream:
        raise OptionError(
            "intents",
            "is required for batch writes with delivery=journal: a folder in which the driver stores what it is "
            "about to acknowledge. Use the same folder for later writes",
        )
    if not options.given("checkpointLocation"):
        raise OptionError(
            "checkpointLocation",
            "is required with delivery=journal, unless the option intents is set",
        )
    checkpoint = _local("checkpointLocation", options["checkpointLocation"])
    # Spark writes this file when the query starts. A path without a scheme may belong to HDFS.
    if not os.path.exists(os.path.join(checkpoint, "metadata")):
        raise OptionError(
            "checkpointLocation",
            f"{checkpoint} is not in a file system that the driver has mounted, which delivery=journal "
            "requires; name a folder in such a file system with the option intents",
        )
    return os.path.join(checkpoint, FOLDER)


def _local(name: str, path: str) -> str:
    try:
        return local_path(path)
    except OptionError:
        raise OptionError(
            name,
            f"{path!r} is not in a file system that the driver has mounted, which delivery=journal requires; "
            "name a folder in such a file system with the option intents",
        ) from None


class IntentStore:
    """The folder with intents. It is created by the first write.

    Attributes:
        remembered: how many micro-batches' row totals are stored: as many batches as Spark retains
            in its checkpoints

    Raises:
        OSError: a file cannot be read or written.
    """

    remembered = 100

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def last(self, write: Write) -> StoredIntents | None:
        """Return what is stored about a batch write, or about the last committed micro-batch of a query.

        Raises:
            SparkSourceError: a file is damaged or missing.
        """
        if write.batch >= 0:
            return self._last(self._place(write))
        try:
            return read_intents(self._place(write))
        except FileNotFoundError:
            return None

    def all(self) -> Iterator[StoredIntents]:
        """Yield all batch writes, and the last micro-batch of each query.

        Raises:
            SparkSourceError: a file is damaged or missing.
        """
        names = sorted(os.listdir(self.folder)) if self.folder.is_dir() else []
        for name in names:
            if _ONCE.fullmatch(name):
                # Another driver may have removed it in the meantime.
                with suppress(FileNotFoundError):
                    yield read_intents(self.folder / name)
            elif name.endswith(_BATCHES) and not name.startswith("."):
                found = self._last(self.folder / name)
                if found is not None:
                    yield found

    def latest(self) -> Mapping[str, int]:
        """Return the last committed micro-batch by writer; -1 for committed batch writes."""
        return {stored.write.writer: stored.write.batch for stored in self.all()}

    def store(
        self,
        write: Write,
        intents: Iterable[AckIntent],
        rows: RowTotals,
        last: StoredIntents | None,
    ) -> StoredIntents | None:
        """Commit a write durably.

        Args:
            last: what the method ``last`` returned; all its intents are appended.

        Returns:
            What is stored now, or None if another driver was faster.
        """
        intents = list(intents)
        made = StoredIntents(write, intents, rows, hash_of(intents))
        if write.batch < 0:
            return self._store_once(made)
        if last is not None:
            earlier = (*last.earlier, (last.write.batch, last.rows))
            made = made._replace(earlier=earlier[-self.remembered :])
        folder = self._place(write)
        self._make(folder)
        path = self._path(made)
        write_intents(path, made)
        sync(folder)
        token = folder / (_START if last is None else self._path(last).stem + _LAST)
        try:
            os.rename(token, path.with_suffix(_LAST))
        except FileNotFoundError:
            # A file server may have renamed the token and received the request again, because its response was lost.
            if _token(folder) != path.stem + _LAST:
                path.unlink(missing_ok=True)
                return None
        sync(folder)
        return made

    def _store_once(self, made: StoredIntents) -> StoredIntents | None:
        path = self._place(made.write)
        make_folders(self.folder)
        temporary = write_intents(_temporary(path), made)
        try:
            try:
                os.link(temporary, path)
            except FileExistsError:
                return None
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                    raise
                # A file system without links. It cannot prevent two drivers from committing at the same time.
                if path.exists():
                    return None
                os.rename(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
            sync(self.folder)
        return made

    def secure(self, stored: StoredIntents) -> None:
        """Force to the disk that a write is committed. Call it before its intents are appended.

        A driver may have been killed between committing and forcing it to the disk. If the next one appended the intents, a
        power cut could still undo the commit, and Spark would write the rows again.
        """
        folder = self._place(stored.write)
        sync_all([*([folder] if stored.write.batch >= 0 else []), self.folder, self.folder.parent])

    def appended(self, stored: StoredIntents) -> None:
        """Note that all intents of a write are in their journals."""
        path = self._path(stored)
        # Another driver may have removed the write's file or folder.
        with suppress(FileNotFoundError):
            os.replace(
                write_intents(_temporary(path), stored._replace(appended=True, intents=[])),
                path,
            )

    def forget_before(self, write: Write) -> None:
        """Remove the files of a query's micro-batches before this committed one.

        Besides the previous micro-batch, these are files of drivers that were too slow or were killed.
        """
        folder = self._place(write)
        for name in os.listdir(folder):
            found = _OF_BATCH.match(name)
            if found and int(found[1]) < write.batch and not name.endswith(_LAST):
                (folder / name).unlink(missing_ok=True)

    def forget(self, write: Write) -> None:
        """Remove the file of a batch write."""
        self._place(write).unlink(missing_ok=True)

    def _last(self, folder: Path) -> StoredIntents | None:
        before = None
        while True:
            token = _token(folder)
            if token is None or token == _START:
                return None
            path = (folder / token).with_suffix(_SUFFIX)
            try:
                return read_intents(path)
            except FileNotFoundError:
                if token == before:
                    raise SparkSourceError(
                        f"{path} is missing. It records which micro-batch is committed, so nothing can be written"
                        " without it: restore it, or name a new folder with the option intents"
                    ) from None
                before = (
                    token  # another driver may have committed the next micro-batch in the meantime
                )

    def _place(self, write: Write) -> Path:
        """Return the path of a batch write's file, or of a query's folder."""
        writer = quote(write.writer, safe="").replace(".", "%2E")
        if len(writer) > 150:  # file systems limit the length of names
            writer = sha256(writer.encode()).hexdigest()
        return self.folder / (writer + (_BATCHES if write.batch >= 0 else f"-once{_SUFFIX}"))

    def _path(self, stored: StoredIntents) -> Path:
        place = self._place(stored.write)
        if stored.write.batch < 0:
            return place
        return place / f"{stored.write.batch:020}-{stored.hash.hex()}{_SUFFIX}"

    def _make(self, folder: Path) -> None:
        """Create a query's folder together with its token.

        The folder is never empty, so that no other driver can replace it by renaming.
        """
        if folder.is_dir():
            return
        make_folders(self.folder)
        temporary = folder.with_name(f".{folder.name}.{uuid4().hex}")
        temporary.mkdir()
        (temporary / _START).touch()
        sync(temporary)
        try:
            os.rename(temporary, folder)
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)
            if not folder.is_dir():
                raise
        sync(self.folder)


def _token(folder: Path) -> str | None:
    """Return the token of a query, or None if the folder does not exist."""
    for _ in range(100):  # while another driver renames the token, a listing may miss both names
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            return None
        tokens = [name for name in names if name.endswith(_LAST)]
        if tokens:
            return max(tokens)
    raise SparkSourceError(
        f"{folder} has no file *{_LAST}. It names the committed micro-batch, so nothing can be written without it:"
        " restore it, or name a new folder with the option intents"
    )


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
