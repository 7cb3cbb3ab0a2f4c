"""A driver with little memory that reads micro-batches where it plans them: ``test_small_heap.py`` runs it.

It prints one JSON value when the query has read everything.
"""

from __future__ import annotations

import json
import sys

import krammar.spark
from krammar.spark.kafka.stream import limited

# A batch has a little less than 1 MiB, the most that is read where it is planned.
VALUE_BYTES = 4000
BATCH = 240
# Together more than the JVM could keep.
BATCHES = 150


def main() -> None:
    servers, folder = sys.argv[1:]
    assert BATCH * VALUE_BYTES < limited._SMALL_BYTES
    spark = krammar.spark.session(
        "local[2]",
        {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.streaming.numRecentProgressUpdates": "1000",
        },
    )
    spark.sparkContext.setLogLevel("OFF")
    reader = spark.readStream.format("krammar").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", "in").option("startingOffsets", "earliest")
    writer = reader.option("maxOffsetsPerTrigger", BATCH).load().writeStream.format("noop")
    writer = writer.option("checkpointLocation", folder).trigger(availableNow=True)
    query = writer.start()
    query.awaitTermination()
    # What the JVM may store, and what is free of it.
    most, free = 0, 0
    memory = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().values().toList()
    for number in range(memory.size()):
        most, free = most + memory.apply(number)._1(), free + memory.apply(number)._2()
    progress = query.recentProgress
    found = {
        "rows": [each.numInputRows for each in progress if each.numInputRows],
        "longest ms": max(each.durationMs["triggerExecution"] for each in progress),
        "most": most,
        "used": most - free,
    }
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
