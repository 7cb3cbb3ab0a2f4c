"""How far streaming queries lag behind their topics.

```python
from krammar.spark.metrics import LagListener

spark.streams.addListener(LagListener())  # logs each micro-batch, at INFO
spark.streams.addListener(LagListener(lambda lag: gauge.set(lag.maximum)))
```

Spark's interface for data sources in Python has no metrics, so these are computed from the offsets in a
query's progress. They need PySpark 4.2, whose progress contains the latest offsets.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from krammar.spark.offsets import TopicPartition, of_json

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lag:
    """Offsets that one source of a query has not read yet, after a micro-batch.

    Attributes:
        query: the query's name, or its id if it has no name
        source: the number of the source in the query, from 0
        offsets: by topic and partition; never negative
    """

    query: str
    batch_id: int
    source: int
    offsets: dict[TopicPartition, int]

    @property
    def minimum(self) -> int:
        return min(self.offsets.values())

    @property
    def maximum(self) -> int:
        return max(self.offsets.values())

    @property
    def average(self) -> float:
        return self.total / len(self.offsets)

    @property
    def total(self) -> int:
        return sum(self.offsets.values())

    def metrics(self) -> dict[str, float]:
        """Return the three metrics by the names that Spark's Kafka connector gives them."""
        return {
            "minOffsetsBehindLatest": self.minimum,
            "maxOffsetsBehindLatest": self.maximum,
            "avgOffsetsBehindLatest": self.average,
        }


def lags(progress: StreamingQueryProgress) -> list[Lag]:
    """Return the lag of each source in a query's progress (``query.lastProgress``).

    Sources without offsets of topics, or without latest offsets, are left out.
    """
    found = []
    for number, source in enumerate(progress.sources):
        end, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
        if end and latest:
            behind = {at: max(0, offset - end.get(at, 0)) for at, offset in latest.items()}
            name = progress.name or str(progress.id)
            found.append(Lag(name, progress.batchId, number, behind))
    return found


def _offsets(value: Any) -> dict[TopicPartition, int]:
    """Offsets of topics; none for the offsets of another kind of source."""
    try:
        return of_json(json.loads(value) if isinstance(value, str) else value)
    except (ValueError, TypeError, AttributeError):
        return {}


def log_lag(lag: Lag) -> None:
    """Log the lag of a source after a micro-batch, at INFO."""
    texts = ", ".join(f"{name} {value:g}" for name, value in lag.metrics().items())
    _log.info("query %s, batch %d, source %d: %s", lag.query, lag.batch_id, lag.source, texts)


class LagListener(StreamingQueryListener):
    """Reports the lag of all queries of a session.

    Args:
        report: Called for each source after each micro-batch, and while a query waits for records.
    """

    def __init__(self, report: Callable[[Lag], None] = log_lag) -> None:
        self._report = report

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Report the lag of each source."""
        for lag in lags(event.progress):
            self._report(lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing."""
