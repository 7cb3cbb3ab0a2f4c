"""One of the log folders of a broker, with its lock and its checkpoint files."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from threading import Lock
from uuid import uuid4

from krammar.broker.log.environment import Environment
from krammar.broker.log.files import StorageError, lock, write_checkpoint
from krammar.logfiles.checkpoints import read_offsets
from krammar.logfiles.damage import DamageError
from krammar.logfiles.names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    DELETE_SUFFIX,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    RUNNING,
    parse_partition,
)
from krammar.util.boot import UNKNOWN_BOOT, current_boot
from krammar.util.durable import make_folders, unlink, write_atomically
from krammar.util.forks import close_in_children
from krammar.util.regular_files import read_small

_CHECKPOINTS = RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS  # written after flushes
LARGEST_RUNNING = 64 << 10  # bytes
_MARKED = re.compile(r".+\.[0-9a-f]{32}-(delete|stray|future)")


class LogFolder:
    """One of ``log.dirs``, with its lock and its checkpoint files.

    Attributes:
        clean: whether the last broker was shut down cleanly
        lost_power: whether a power cut, or a flush that failed in an earlier run, can have taken
            acknowledged records, and ``note_running`` was not called since
        offsets: the content of the checkpoint files, by their names
        partitions: the folders of partitions
        leftovers: the folders of deleted partitions
    """

    def __init__(self, path: Path, environment: Environment) -> None:
        self.path = path
        self._environment = environment
        self.leftovers: list[str] = []
        self._written: dict[str, dict[tuple[str, int], int]] = {}
        self._durable = environment.durable
        self._writing = Lock()
        try:
            make_folders(path, durable=self._durable)
            self._lock = lock(path)
            close_in_children(self, lambda folder: [folder._lock])
        except BlockingIOError:
            raise StorageError(f"log folder {path} is in use by another broker") from None
        except OSError as error:
            raise StorageError(f"log folder {path}: {error.strerror}") from None
        try:
            self.clean = (path / CLEAN_SHUTDOWN).exists()
            # If the file came back after a power cut, the next start would not verify the logs.
            unlink(path / CLEAN_SHUTDOWN, durable=self._durable)
            self.offsets = {
                name: self._read(name)
                for name in (RECOVERY_POINTS, LOG_STARTS, CLEANER_OFFSETS, HIGH_WATERMARKS)
            }
            self.partitions = self._find_partitions()
            self._last_run = self._read_running()
            self._has_loss = False  # whether a flush has failed in this run
            self.lost_power = (
                bool(self.partitions) and not self.clean and self._may_have_lost_power()
            )
            if not self.lost_power:
                self.note_running()
        except OSError as error:
            self.unlock()
            raise StorageError(
                f"log folder {path}: {error.filename or ''}: {error.strerror}"
            ) from None
        except StorageError:
            self.unlock()
            raise

    def _read_running(self) -> tuple[str, str] | None:
        """Return the boot id and the ``fsync`` setting of the last run. Raises OSError.

        None without a valid file: the folder is new, or another broker has written it.
        """
        try:
            running = json.loads(read_small(self.path / RUNNING, LARGEST_RUNNING))
            return str(running["boot"]), str(running["fsync"])
        except (FileNotFoundError, ValueError, LookupError, TypeError):
            return None

    def _may_have_lost_power(self) -> bool:
        """Return whether the machine was restarted since the last broker ran, or may have been.

        With ``always``, the power cut has taken nothing that was acknowledged. Another broker may
        have run at any time.
        """
        if self._last_run is None:
            return True
        boot, fsync = self._last_run
        known = {str(current_boot())} - {str(UNKNOWN_BOOT)}
        return fsync != "always" and boot not in known

    def note_running(self) -> None:
        """Write which run of the machine this is, so that the next start can notice a power cut. Raises OSError."""
        if self._has_loss:
            return
        running = {"version": 0, "boot": str(current_boot()), "fsync": self._weakest_fsync()}
        write_atomically(self.path / RUNNING, json.dumps(running).encode(), durable=self._durable)
        self.lost_power = False

    def _weakest_fsync(self) -> str:
        """Return the setting that decides what can be lost.

        It can be that of an earlier broker, which has not forced all records to the disk.
        """
        fsync = self._environment.fsync
        if self._last_run is None or fsync != "always":
            return fsync
        boot, earlier = self._last_run
        return earlier if boot == str(current_boot()) else fsync

    def note_loss(self) -> None:
        """Note that a flush has failed. Raises OSError.

        The next start cannot know what is lost, as after a power cut. With ``always``, nothing was
        acknowledged yet.
        """
        if self._weakest_fsync() != "always":
            self._has_loss = True
            unlink(self.path / RUNNING, durable=self._durable)

    def _read(self, name: str) -> dict[tuple[str, int], int]:
        try:
            offsets = read_offsets(self.path / name)
        except DamageError as error:
            self._environment.warn(f"{self.path / name}: {error}; the file is ignored")
            return {}
        self._written[name] = dict(offsets)
        return offsets

    def _find_partitions(self) -> dict[tuple[str, int], Path]:
        """Return the folders of partitions. Folders of deleted partitions become ``leftovers``.

        Raises OSError, and StorageError for a symbolic link: its target would be written, and its
        files deleted.
        """
        found = {}
        with os.scandir(self.path) as entries:
            folders = [(entry.name, entry.is_symlink()) for entry in entries if entry.is_dir()]
        for name, is_link in folders:
            if is_link and parse_partition(name):
                path = self.path / name
                raise StorageError(
                    f"{path} is a symbolic link to {os.path.realpath(path)}, and a broker only writes to folders inside"
                    " of log.dirs: move the folder there, or mount it there"
                )
            if name.endswith(DELETE_SUFFIX) and _MARKED.fullmatch(name):
                self.leftovers.append(os.fspath(self.path / name))
            elif _MARKED.fullmatch(name):
                self._environment.warn(f"{self.path / name}: the folder is ignored")
            elif key := parse_partition(name):
                found[key] = self.path / name
        return found

    def write(self, name: str) -> None:
        """Write a checkpoint file if its content has changed. Raises OSError.

        Kafka forces these files and their folder to the disk too (`CheckpointFile`). Any thread can
        call the method: the last caller writes the current offsets.
        """
        with self._writing:
            offsets = self.offsets[name].copy()
            if self._written.get(name) != offsets:
                rows = [(*key, offset) for key, offset in sorted(offsets.items())]
                write_checkpoint(self.path / name, rows, durable=self._durable)
                self._written[name] = offsets

    @property
    def is_written(self) -> bool:
        """Whether the checkpoint files have the current offsets."""
        return all(self._written.get(name) == self.offsets[name] for name in _CHECKPOINTS)

    def write_all(self) -> None:
        """Write the checkpoint files that have changed. Raises OSError."""
        for name in _CHECKPOINTS:
            self.write(name)

    def rename(self, key: tuple[str, int], suffix: str) -> Path:
        """Append a unique id and a suffix to the name of a partition's folder. Raises OSError."""
        path = self.partitions[key]
        # A file name has at most 255 bytes.
        ending = f".{uuid4().hex}{suffix}"
        path = path.rename(path.with_name(path.name[: 255 - len(ending)] + ending))
        self.forget(key)
        return path

    def forget(self, key: tuple[str, int]) -> None:
        """Remove a partition from ``partitions`` and ``offsets``."""
        self.partitions.pop(key, None)
        for offsets in self.offsets.values():
            offsets.pop(key, None)

    def unlock(self) -> None:
        """Release the lock, so that another broker can use the folder."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
