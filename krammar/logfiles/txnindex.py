"""``.txnindex``: the aborted transactions whose markers are in a segment."""

from __future__ import annotations

import contextlib
from pathlib import Path
from struct import Struct

from kafka_wire import AbortedTxn

from krammar.logfiles.damage import Damage, DamageError
from krammar.logfiles.index import IndexFile


class TransactionIndex(IndexFile):
    """The entries of the file, ordered by the offsets of the markers. The file exists only if there are any."""

    __slots__ = ("entries",)

    entry = Struct(">hqqqq")
    damage = Damage.TRANSACTION_INDEX

    def __init__(self, path: Path | str) -> None:
        super().__init__(path)
        self.entries: list[AbortedTxn] = []

    def __len__(self) -> int:
        return len(self.entries)

    def read(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            super().read()

    def load(self, data: bytes) -> None:
        entries = [
            AbortedTxn(
                version=version,
                producer_id=producer,
                first_offset=first,
                last_offset=last,
                last_stable_offset=stable,
            )
            for version, producer, first, last, stable in self.entry.iter_unpack(data)
        ]
        before = -1
        for at, entry in enumerate(entries):
            if entry.version != 0 or not before < entry.last_offset >= entry.first_offset >= 0:
                text = f"the entries do not ascend at entry {at}"
                raise DamageError(self.damage, text, at * self.entry.size)
            before = entry.last_offset
        self.entries = entries
