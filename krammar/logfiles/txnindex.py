"""``.txnindex``: the aborted transactions whose markers are in a segment."""

from __future__ import annotations

from pathlib import Path
from struct import Struct

from kafka_wire import AbortedTxn

from krammar.logfiles.damage import Damage, DamageError

ENTRY = Struct(">hqqqq")


class TransactionIndex:
    """The entries of the file, ordered by the offsets of the markers. The file exists only if there are any."""

    __slots__ = ("entries", "path")

    def __init__(self, path: Path | str) -> None:
        self.path = path
        self.entries: list[AbortedTxn] = []

    def read(self) -> None:
        """Read the file.

        Raises:
            OSError: the file cannot be read.
            DamageError: Kafka would not have written the content. The index is empty then.
        """
        try:
            with open(self.path, "rb", buffering=0) as file:
                data = file.readall() or b""
        except FileNotFoundError:
            return
        if len(data) % ENTRY.size:
            raise DamageError(
                Damage.TRANSACTION_INDEX,
                f"the size of {len(data)} bytes is not a multiple of {ENTRY.size}",
                len(data) - len(data) % ENTRY.size,
            )
        entries = [
            AbortedTxn(
                version=version,
                producer_id=producer,
                first_offset=first,
                last_offset=last,
                last_stable_offset=stable,
            )
            for version, producer, first, last, stable in ENTRY.iter_unpack(data)
        ]
        before = -1
        for at, entry in enumerate(entries):
            if entry.version != 0 or not before < entry.last_offset >= entry.first_offset >= 0:
                raise DamageError(
                    Damage.TRANSACTION_INDEX,
                    f"the entries do not ascend at entry {at}",
                    at * ENTRY.size,
                )
            before = entry.last_offset
        self.entries = entries
