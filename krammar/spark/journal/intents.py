"""Stores the intents of writes in a folder.

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

``intent_file`` reads and writes the files.
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
from urllib.parse import quote
from uuid import uuid4

from krammar.journal import AckIntent
from krammar.spark.errors import SparkSourceError
from krammar.spark.journal.intent_file import (
    RowTotals,
    StoredIntents,
    Write,
    hash_of,
    read_intents,
    write_intents,
)
from krammar.util.durable import make_folders, sync, sync_all

_SUFFIX = ".intents"
_LAST = ".last"
_FOLDER = ".batches"
# The token of a query without a micro-batch. It sorts before all others.
_START = f"0-start{_LAST}"
_ONCE = re.compile(r"[^.].*-once\.intents")
_OF_BATCH = re.compile(r"\.?(\d{20})-")

# How many micro-batches' row totals are stored: as many batches as Spark retains in its checkpoints.
_REMEMBERED = 100


class IntentStore:
    """The folder with intents. It is created by the first write.

    Raises:
        OSError: a file cannot be read or written.
    """

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
            elif name.endswith(_FOLDER) and not name.startswith("."):
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
            made = made._replace(earlier=earlier[-_REMEMBERED:])
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
        return self.folder / (writer + (_FOLDER if write.batch >= 0 else f"-once{_SUFFIX}"))

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
