"""Chooses the reader of a stream for the installed version of PySpark, and checks the options that depend on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from krammar.spark.errors import OptionError
from krammar.spark.kafka.plan import named_topics
from krammar.spark.kafka.stream.reader import KafkaStreamReader, PlainStreamReader
from krammar.spark.options import Options
from krammar.spark.pyspark_version import PYSPARK

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_HAS_LIMITS = PYSPARK >= (4, 2)


def reader_of(options: Options, schema: StructType) -> KafkaStreamReader:
    """Return the reader of a stream.

    Raises:
        OptionError: an option needs a newer PySpark, or options contradict each other.
    """
    named_topics(options)
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        if options.given(name) and not _HAS_LIMITS:
            raise OptionError(name, "needs PySpark 4.2 or later")
    if options.given("maxTriggerDelay") and not options.given("minOffsetsPerTrigger"):
        raise OptionError("maxTriggerDelay", "has no meaning without minOffsetsPerTrigger")
    most, least = options["maxOffsetsPerTrigger"], options["minOffsetsPerTrigger"]
    if most is not None and least is not None and least > most:
        raise OptionError(
            "minOffsetsPerTrigger", f"{least} is more than maxOffsetsPerTrigger={most}"
        )
    if not _HAS_LIMITS:
        return PlainStreamReader(options, schema)
    from krammar.spark.kafka.stream.limited import LimitedStreamReader

    return LimitedStreamReader(options, schema)
