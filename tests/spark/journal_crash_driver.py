"""Drivers and tasks of a query that are killed: what Spark calls, in its order, in processes of their own.

A process that reads lines of JSON. For each it forks a driver, which may kill itself before (or halfway
through) its n-th call that changes a file or sends to a broker; and answers what was being done then.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

from krammar.spark.datasource import KrammarDataSource
from krammar.spark.journal import delivery
from krammar.spark.journal.intents import IntentStore
from krammar.spark.schema import arrow_schema

BATCHES = 2
TASKS = 2
ROWS = 3

_SCHEMA = StructType().add("topic", "string").add("key", "binary").add("value", "string")


def values_of(batch: int) -> list[str]:
    """Return the values of all rows of a micro-batch."""
    return [f"{batch}-{task}-{row}" for task in range(TASKS) for row in range(ROWS)]


class Fault:
    """Kills the process at the n-th call, if there is one, or where a step begins."""

    def __init__(self, at: int, report: int, begin: str = "") -> None:
        self.left = at
        self.begin = begin
        self.report = report
        self.step = "before publishing"

    def wrap(self, owner: Any, name: str, half: Callable[..., object] | None = None) -> None:
        real = getattr(owner, name)

        def call(*args: Any, **more: Any) -> Any:
            self.count(lambda: half and half(real, *args))
            return real(*args, **more)

        setattr(owner, name, call)

    def during(self, owner: Any, name: str, step: str, after: str) -> None:
        """Enter ``step`` while a function runs, and ``after`` when it has returned."""
        real = getattr(owner, name)

        def call(*args: Any, **more: Any) -> Any:
            self.enter(step)
            result = real(*args, **more)
            self.enter(after)
            return result

        setattr(owner, name, call)

    def enter(self, step: str) -> None:
        """Begin a step; the moment counts as a call."""
        self.step = step
        if step == self.begin:
            self.left = 1
        self.count()

    def count(self, first: Callable[[], object] = lambda: None) -> None:
        self.left -= 1
        if self.left == 0:
            first()
            os.write(self.report, self.step.encode())
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        for name in ("fsync", "link", "replace", "rename", "unlink", "ftruncate", "mkdir"):
            self.wrap(os, name)
        self.wrap(os, "pwrite", lambda real, file, data, at: real(file, data[: len(data) // 2], at))
        for name in ("send", "sendall", "sendmsg"):
            self.wrap(socket.socket, name)
        self.during(IntentStore, "store", "storing intents", "between intents and acknowledgements")
        self.during(
            delivery, "append_intents", "appending acknowledgements", "after the acknowledgements"
        )


def drive(order: dict[str, Any], fault: Fault) -> None:
    """A run of the query: the batches that are not committed yet."""
    checkpoint = Path(order["options"]["checkpointLocation"])
    (checkpoint / "metadata").touch()
    for number in range(BATCHES):
        done = checkpoint / f"commit-{number}"
        if done.exists():
            continue
        fault.enter("before publishing")
        tasks = [rows_of(order["topic"], number, task) for task in range(TASKS)]
        messages = publish(order["options"], number, tasks, fault)
        fault.enter("between publishing and intents")
        commit(order["options"], number, messages)
        fault.enter("before Spark's commit")
        done.touch()


def publish(
    options: dict[str, str], number: int, tasks: list[list[pa.RecordBatch]], fault: Fault
) -> list[Any]:
    """Write the tasks of a micro-batch; return what they send to the driver."""
    writer = KrammarDataSource(options).streamWriter(_SCHEMA, False)
    writer = pickle.loads(pickle.dumps(writer))
    fault.enter("publishing")
    messages = []
    for rows in tasks:
        context = TaskContext._getOrCreate()
        context._localProperties = {
            "streaming.sql.batchId": str(number),
            "sql.streaming.queryId": "the-query",
        }
        messages.append(writer.write(iter(rows)))
        TaskContext._taskContext = None
    return messages


def commit(options: dict[str, str], number: int, messages: list[Any]) -> None:
    """Commit a micro-batch, with another writer than that of its tasks."""
    writer = KrammarDataSource(options).streamWriter(_SCHEMA, False)
    writer.commit(pickle.loads(pickle.dumps(messages)), number)


def rows_of(topic: str, batch: int, task: int) -> list[pa.RecordBatch]:
    """Return the rows of a task."""
    names = [f"{batch}-{task}-{row}" for row in range(ROWS)]
    return [
        pa.RecordBatch.from_pydict(
            {"topic": [topic], "key": [name.encode()], "value": [name]},
            schema=arrow_schema(_SCHEMA),
        )
        for name in names
    ]


def serve(drive: Callable[[dict[str, Any], Fault], None]) -> None:
    """Run drivers, as the orders on standard input say."""
    for line in sys.stdin:
        order = json.loads(line)
        if order["at"] < 0:  # modules that are loaded now are not loaded again by each driver
            drive(order, Fault(0, -1))
            print(json.dumps({"killed": False, "failed": False, "step": ""}), flush=True)
            continue
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            fault = Fault(order["at"], writing, order["begin"])
            fault.install()
            status = 1
            try:
                drive(order, fault)
                status = 0
            except BaseException as error:
                os.write(writing, repr(error).encode())
            finally:
                os._exit(status)
        os.close(writing)
        with open(reading, encoding="utf-8") as file:
            step = file.read()
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status)
        failed = not killed and os.WEXITSTATUS(status) != 0
        print(json.dumps({"killed": killed, "failed": failed, "step": step}), flush=True)


if __name__ == "__main__":
    serve(drive)
