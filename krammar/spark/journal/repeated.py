"""Checks that a write which Spark repeats has the rows that were committed."""

from __future__ import annotations

from krammar.spark.errors import SparkSourceError
from krammar.spark.journal.intent_file import RowTotals, StoredIntents, Write

_UNKNOWN = RowTotals(0, b"")


def check_repeated(write: Write, rows: RowTotals, stored: StoredIntents) -> None:
    """Raise SparkSourceError if a write was committed with other rows."""
    committed = stored.rows_of(write.batch)
    if committed is None:
        if not rows.number:
            return  # a micro-batch without rows is not stored
        text = (
            f"Spark runs {write.text}, but batch {stored.write.batch} is already committed, and it is not known "
            f"any more which rows batch {write.batch} had"
        )
    elif committed in (rows, _UNKNOWN):
        return
    else:
        text = (
            f"{write.text} was committed with {committed.number} rows, and now has {rows.number} different rows, "
            "which were not written"
        )
    raise SparkSourceError(
        f"{text}. "
        + (
            "Use another writeId for different rows"
            if write.batch < 0
            else "Probably the checkpoint was restored or damaged, or another driver runs the same query. Restore "
            "the newest checkpoint; or name a new folder with the option intents, and rows may be written twice"
        )
        + ". If the query computes different rows in each run (random values, the current time), set "
        "repeatedBatch=skip to leave the committed rows unchanged"
    )
