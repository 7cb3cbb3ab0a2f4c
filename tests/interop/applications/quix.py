"""Counts words with quixstreams and exactly-once: ``quix.py SERVERS STATE COUNT`` stops after COUNT messages."""

import sys

from quixstreams import Application

servers, state, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
app = Application(
    broker_address=servers,
    consumer_group="words",
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    state_dir=state,
    loglevel="ERROR",
)
words = app.topic("words", key_deserializer="str", value_deserializer="str")
counts = app.topic("counts", key_serializer="str", value_serializer="json")


def add(word, state):
    total = state.get("total", 0) + 1
    state.set("total", total)
    return total


app.dataframe(words).apply(add, stateful=True).to_topic(counts)
app.run(count=count, timeout=60)
