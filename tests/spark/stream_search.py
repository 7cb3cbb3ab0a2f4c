"""A random search for streams that lose or repeat records: ``python -m tests.spark.stream_search --plans 500 --seed 1``.

A plan is a line of text: the options of a query, and steps that change the brokers, disturb their answers, and run,
stop and kill the query. ``--plan TEXT`` runs one again. The law: every record that the brokers have at the end is
exactly once in an idempotent sink, or the query has failed with an error after which a restart continues without loss.

The readers are called here as Spark calls them, with offsets and tasks in their serialized forms, but without Spark;
``tests.spark.test_stream_search`` gives some plans to Spark.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import Any

import pyarrow as pa

from krammar.broker import Cluster
from krammar.spark.brokers import CLIENTS
from krammar.spark.datasource import FailingStreamReader, KrammarDataSource
from krammar.spark.errors import DataLossError, MissingDataError, SparkSourceError
from krammar.spark.kafka.stream import limited
from krammar.spark.kafka.stream.reader import KafkaStreamReader, PlainStreamReader
from krammar.spark.offsets import of_json
from krammar.spark.options import Options
from tests.spark.stream_world import CLIENT_ID, ERRORS, LESS, NODES, World

TOPICS = {"a": 2, "b": 1}
# Where a run of the query can be killed, in the order of a micro-batch.
MOMENTS = ("ended", "stored", "planned", "read", "written")


# How often a query may fail after the brokers are well: until losses are accepted, and topics exist again.
_MOST_FAILURES = 3


class Violation(AssertionError):
    """The law is broken."""


@dataclass(frozen=True)
class Setup:
    """The options of a query.

    Attributes:
        reader: ``limited``, or ``plain`` for PySpark 4.1
        rows: who reads the rows: ``tasks``, ``planned``, or ``both`` in turn, as by default
        trigger: ``steady`` or ``now``
        most, least: the limits per trigger; 0 for none
        level: the isolation level
        loss: the option failOnDataLoss
        start: the option startingOffsets
        select: the option that selects topics
    """

    reader: str = "limited"
    rows: str = "both"
    trigger: str = "steady"
    most: int = 0
    least: int = 0
    level: str = "read_uncommitted"
    loss: str = "true"
    start: str = "earliest"
    select: str = "subscribe"

    def __str__(self) -> str:
        return " ".join(f"{each.name}={getattr(self, each.name)}" for each in fields(self))

    @classmethod
    def parse(cls, text: str) -> Setup:
        """Read what ``str`` has written."""
        words = dict(word.split("=") for word in text.split())
        return cls(**{k: int(v) if k in ("most", "least") else v for k, v in words.items()})

    def options(self) -> dict[str, str]:
        """The options as Spark hands them over, without the brokers."""
        found = {
            "startingOffsets": self.start,
            "failOnDataLoss": self.loss,
            "kafka.isolation.level": self.level,
            "kafka.client.id": CLIENT_ID,
            self.select: {
                "subscribe": ",".join(TOPICS),
                "subscribePattern": "^[a-z]$",
                "assign": json.dumps({t: list(range(count)) for t, count in TOPICS.items()}),
            }[self.select],
        }
        if self.rows == "tasks":
            found["minPartitions"] = "1"  # a size of tasks
        if self.most:
            found["maxOffsetsPerTrigger"] = str(self.most)
        if self.least:
            found |= {"minOffsetsPerTrigger": str(self.least), "maxTriggerDelay": "50ms"}
        return found


# A query that fails fast: pauses and time-outs of milliseconds.
HASTY = {
    "kafka.retry.backoff.ms": "1",
    "kafka.retry.backoff.max.ms": "10",
    "kafka.request.timeout.ms": "250",
    "kafka.default.api.timeout.ms": "400",
    "kafka.socket.connection.setup.timeout.ms": "200",
}
# One that waits until what can pass has passed.
PATIENT = {"kafka.retry.backoff.ms": "2"}


@dataclass(frozen=True)
class Plan:
    """What to do."""

    setup: Setup
    steps: tuple[str, ...]

    def __str__(self) -> str:
        return " | ".join([str(self.setup), *self.steps])

    @classmethod
    def parse(cls, text: str) -> Plan:
        """Read what ``str`` has written."""
        first, *steps = (part.strip() for part in text.split("|"))
        return cls(Setup.parse(first), tuple(steps))


# The query.


@dataclass
class Sink:
    """Keeps the rows of each micro-batch under its number, so that writing one again changes nothing.

    A row is the topic, the partition, the offset and the value.
    """

    batches: dict[int, list[tuple[str, int, int, bytes]]] = field(default_factory=dict)


class Killed(Exception):
    """The driver of the query was killed."""


class Query:
    """A query over all its runs: its checkpoint and its sink, and the reader of the run.

    Attributes:
        ends: the offsets at which batches end, as Spark stores them
        committed: the number of finished batches
        sink: what was written
        failures: the errors of runs
    """

    def __init__(self, world: World, setup: Setup) -> None:
        self.world = world
        self.setup = setup
        self.ends: list[str] = []
        self.committed = 0
        self.sink = Sink()
        self.failures: list[SparkSourceError] = []
        self.pace: Mapping[str, str] = HASTY
        self.levels = {setup.level}
        self._reader: Any = None
        self._first = True

    def batch(self, kill: str = "", after: int = -1) -> bool:
        """Run a micro-batch, starting the query if it does not run. Returns whether there was one.

        Args:
            kill: the moment at which the driver is killed.
            after: the number of Arrow batches after which each task is killed once; it runs again.
        """
        try:
            if self._reader is None:
                self._start()
            found = self._batch(kill, after)
        except SparkSourceError as error:
            self.failures.append(error)
            self.stop()
            raise
        except Killed:
            self.stop()
            CLIENTS.close()
            return True
        if not found and self.setup.trigger == "now":
            self.stop()
        return found

    def stop(self) -> None:
        """End the run."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.stop()

    def _start(self) -> None:
        self._source = KrammarDataSource(self._options())
        self._reader = self._made()
        self._first = True
        if self.setup.trigger == "now" and self.setup.reader == "limited":
            self._reader.prepareForTriggerAvailableNow()

    def _options(self) -> dict[str, str]:
        servers = {"kafka.bootstrap.servers": self.world.cluster.bootstrap_servers}
        return {**servers, **self.setup.options(), **self.pace}

    def _made(self) -> Any:
        schema = self._source.schema()
        if self.setup.reader == "plain":
            return PlainStreamReader(Options(self._options()), schema)
        reader = self._source.streamReader(schema)
        if isinstance(reader, FailingStreamReader):
            reader.initialOffset()  # raises
        assert isinstance(reader, KafkaStreamReader)
        return reader

    def _batch(self, kill: str, after: int) -> bool:
        with self._blind():
            return self._seen_batch(kill, after)

    def _seen_batch(self, kill: str, after: int) -> bool:
        def moment(name: str) -> None:
            if name == kill:
                raise Killed

        if len(self.ends) == self.committed:
            end = self._end()
            moment("ended")
            if self.ends and end == self.ends[-1]:
                return False
            self.ends.append(end)
            self.world.note_read(of_json(json.loads(end)))
            moment("stored")
            if self.committed:
                self._reader.commit(json.loads(self.ends[-2]))
        number = self.committed
        start = json.loads(self.ends[number - 1]) if number else self._initial()
        end = self.ends[number]
        tasks = self._reader.partitions(start, json.loads(end))
        passed = getattr(self._reader, "getCache", None)
        moment("planned")
        if passed is not None:
            rows = _rows(passed(start, json.loads(end)))
        else:
            rows = [row for task in tasks for row in self._task(pickle.dumps(task), after)]
        moment("read")
        self.sink.batches[number] = rows
        moment("written")
        self.committed += 1
        return True

    @contextmanager
    def _blind(self) -> Iterator[None]:
        """Let the brokers' answers be true where nothing can be compared with them.

        PySpark 4.1 does not say where the first batch after a restart begins. And if a batch is read again, a topic
        that all brokers report as unknown for long is deleted, which failOnDataLoss=false accepts.
        """
        first, self._first = self._first, False
        accepts = self.setup.loss == "false" and len(self.ends) > self.committed
        if accepts or (first and self.setup.reader == "plain"):
            with self.world.undisturbed():
                yield
        else:
            yield

    def _end(self) -> str:
        if self.setup.reader == "plain":
            return json.dumps(self._reader.latestOffset())
        start = json.loads(self.ends[-1]) if self.ends else self._initial()
        return json.dumps(self._reader.latestOffset(start, self._reader.getDefaultReadLimit()))

    def _initial(self) -> Any:
        return json.loads(json.dumps(self._reader.initialOffset()))

    def _task(self, task: bytes, after: int) -> list[tuple[str, int, int, bytes]]:
        """Run a task in a worker of its own."""
        if after >= 0:
            killed = self._made().read(pickle.loads(task))
            for _ in range(after):
                next(killed, None)
            killed.close()
            CLIENTS.close()
        return _rows(self._made().read(pickle.loads(task)))


def _rows(batches: Iterator[pa.RecordBatch]) -> list[tuple[str, int, int, bytes]]:
    names = ("topic", "partition", "offset", "value")
    return [
        row
        for batch in batches
        for row in zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    ]


# Running a plan.


class Run:
    """One run of a plan: its steps, and then the law."""

    def __init__(self, world: World, query: Query, plan: Plan) -> None:
        self.plan = plan
        self.world = world
        self.query = query
        # Records that a query from "latest" may miss: they were written before its first batch was stored.
        self._early: set[bytes] = set()

    def run(self) -> None:
        """Do all steps, let the query finish, and check the law.

        Raises:
            Violation: the law is broken.
        """
        for topic, count in TOPICS.items():
            self.world.step("create", topic, str(count))
        for step in self.plan.steps:
            self._step(*step.split())
        self._settle()
        self._check()

    def _step(self, verb: str, *words: str) -> None:
        match verb:
            case "batch":
                self._batch()
            case "batch-killed":
                self._batch(kill=words[0])
            case "batch-with-killed-tasks":
                self._batch(after=int(words[0]))
            case "stop":
                self.query.stop()
            case "level":
                self.query.stop()
                self.query.setup = replace(self.query.setup, level=words[0])
                self.query.levels.add(words[0])
            case _:
                self.world.step(verb, *words)

    def _batch(self, **how: Any) -> bool:
        found = False
        with suppress(SparkSourceError):
            found = self.query.batch(**how)
        self._note_early()
        return found

    def _note_early(self) -> None:
        if self.query.setup.start == "latest" and len(self.query.ends) <= 1:
            self._early = set(self.world.places)

    def _settle(self) -> None:
        """Repair the brokers, and let the query read all there is."""
        world, query = self.world, self.query
        query.stop()
        world.repair()
        self._note_early()
        query.pace = PATIENT
        self._rest()
        self._complete()
        for number, topic in enumerate(sorted(TOPICS)):
            for partition in range(world.topics[topic]):
                world.step("produce", topic, str(partition), str(number + 1))
        self._rest()

    def _rest(self) -> None:
        query = self.query
        query.stop()
        query.setup = replace(query.setup, least=0)
        loss = query.setup.loss
        for attempt in range(_MOST_FAILURES + 1):
            try:
                for _ in range(2 if query.setup.reader == "plain" else 1):
                    while query.batch():
                        pass
                break
            except SparkSourceError as error:
                if attempt == _MOST_FAILURES:
                    raise Violation(f"the query does not recover: {error}") from error
                self._judge(error)
                query.setup = replace(query.setup, loss="false")
        query.stop()
        query.setup = replace(query.setup, loss=loss)

    def _judge(self, error: SparkSourceError) -> None:
        """Check an error that remains although the brokers are well: records must really be lost."""
        lost = self.world.lossy | (TOPICS.keys() - self.world.topics.keys())
        named = any(f"{topic}-" in str(error) or f"'{topic}'" in str(error) for topic in lost)
        if self.query.setup.loss == "false" and not isinstance(error, MissingDataError):
            raise Violation(f"failOnDataLoss=false fails: {error}") from error
        if not isinstance(error, DataLossError | MissingDataError) or not named:
            raise Violation(f"an error without a reason remains: {error}") from error
        if self.query.setup.loss == "false":
            self._complete()

    def _complete(self) -> None:
        """Create the topics and partitions again that the options may name."""
        for topic, count in TOPICS.items():
            self.world.step("create", topic, str(count))
            while self.world.topics[topic] < count:
                self.world.step("grow", topic)

    def _check(self) -> None:
        world, query = self.world, self.query
        where: dict[bytes, list[int]] = defaultdict(list)
        for number, rows in query.sink.batches.items():
            for *place, value in rows:
                if world.places[value] != tuple(place):
                    raise Violation(f"{place} has the value {value!r} of {world.places[value]}")
                where[value].append(number)
        twice = {world.places[v]: found for v, found in where.items() if len(found) > 1}
        if twice:
            raise Violation(f"records arrived twice, with their batches: {_some(twice)}")
        if query.levels == {"read_committed"} and (wrong := world.aborted & where.keys()):
            raise Violation(f"aborted records: {sorted(world.places[v] for v in wrong)[:10]}")
        chosen = {at for at in world.logs if self._is_chosen(at)}
        expected = {value for at in chosen for value in world.logs[at].values()}
        missing = expected - where.keys() - world.aborted - self._early
        if missing:
            raise Violation(f"records are missing: {sorted(world.places[v] for v in missing)[:10]}")

    def _is_chosen(self, at: tuple[str, int]) -> bool:
        return self.plan.setup.select != "assign" or at[1] < TOPICS[at[0]]


def _some(found: Mapping[Any, Any]) -> str:
    return str(dict(sorted(found.items())[:10]))


def run(plan: Plan) -> None:
    """Run a plan on brokers of its own. Raises Violation, or any error that readers must not raise."""
    before = limited.SmallBatches.first_batches
    limited.SmallBatches.first_batches = 0 if plan.setup.rows == "planned" else before
    properties = {"auto.create.topics.enable": "false", "krammar.fsync": "off"}
    try:
        with Cluster.start(properties=properties) as cluster:
            world = World(cluster)
            query = Query(world, plan.setup)
            try:
                Run(world, query, plan).run()
            finally:
                query.stop()
                world.calm()
                CLIENTS.close()
    finally:
        limited.SmallBatches.first_batches = before


# Random plans.


def random_plan(seed: int) -> Plan:
    """Return a plan; the same seed gives the same one."""
    chance = Random(seed)
    plain = chance.random() < 0.2
    setup = Setup(
        reader="plain" if plain else "limited",
        rows="tasks" if plain else chance.choice(["tasks", "planned", "both"]),
        trigger="steady" if plain else chance.choice(["steady", "now"]),
        most=0 if plain else chance.choice([0, 0, 1, 3, 5]),
        level=chance.choice(["read_uncommitted", "read_committed"]),
        loss=chance.choice(["true", "false"]),
        start=chance.choice(["earliest", "earliest", "earliest", "latest"]),
        select=chance.choice(["subscribe", "subscribePattern", "assign"]),
    )
    if not plain and chance.random() < 0.2:
        setup = replace(setup, least=min(chance.choice([2, 4]), setup.most or 4))
    kinds = [kind for kind in _KINDS if not (plain and kind in _UNSEEN_BY_PLAIN)]
    troubles = chance.sample(kinds, chance.randint(1, 4))
    steps: list[str] = []
    for _ in range(chance.randint(3, 12)):
        steps += [_produce(chance) for _ in range(chance.randint(0, 2))]
        steps += [chance.choice(troubles)(chance) for _ in range(chance.randint(0, 2))]
        steps += ["batch"] * chance.randint(0, 3)
    return Plan(setup, tuple(steps))


def _topic(chance: Random) -> str:
    return chance.choice(["a", "a", "b"])


def _at(chance: Random) -> str:
    topic = _topic(chance)
    return f"{topic} {chance.randint(0, TOPICS[topic])}"


def _times(chance: Random) -> str:
    return chance.choice(["1", "2", "3", "8", "all"])


def _produce(chance: Random) -> str:
    return f"produce {_at(chance)} {chance.randint(1, 5)}"


def _restarts(chance: Random) -> str:
    moments = [f"batch-killed {moment}" for moment in MOMENTS]
    return chance.choice(["stop", *moments])


def _tasks(chance: Random) -> str:
    return f"batch-with-killed-tasks {chance.randint(0, 1)}"


def _transactions(chance: Random) -> str:
    return chance.choice(["begin", "begin", "commit", "abort"]).replace(
        "begin", f"begin {_at(chance)} {chance.randint(1, 3)}"
    )


def _levels(chance: Random) -> str:
    return f"level {chance.choice(['read_uncommitted', 'read_committed'])}"


def _deletions(chance: Random) -> str:
    return f"delete {_at(chance)} {chance.randint(1, 4)}"


def _truncations(chance: Random) -> str:
    return f"truncate {_at(chance)} {chance.randint(1, 4)}"


def _recreations(chance: Random) -> str:
    topic = _topic(chance)
    return chance.choice(
        [
            f"recreate {topic} {chance.randint(1, 3)}",
            f"drop {topic}",
            f"create {topic} {TOPICS[topic]}",
        ]
    )


def _growth(chance: Random) -> str:
    return f"grow {_topic(chance)}"


def _leaders(chance: Random) -> str:
    return f"lead {_at(chance)} {chance.choice(NODES)}"


def _nodes(chance: Random) -> str:
    verb = chance.choice(["kill", "kill", "stop", "stop", "silence", "start", "start"])
    return f"{verb} {chance.choice(NODES)}"


def _isolation(chance: Random) -> str:
    return chance.choice([f"isolate {chance.choice(NODES)}", "heal"])


def _less(chance: Random) -> str:
    kind = chance.choice(sorted(LESS))
    # If all of a broker's answers agree that records are lost, they are.
    times = chance.choice(["1", "2"]) if kind == "lower-epochs" else _times(chance)
    return chance.choice([f"less {kind} {times}", f"less {kind} {times}", "calm"])


def _errors(chance: Random) -> str:
    api = chance.choice(sorted(ERRORS))
    code = chance.choice(ERRORS[api]).name
    return chance.choice(
        [f"error {api} {code} {_topic(chance)} {_times(chance)}"] * 2
        + [f"hang-up {api} {_times(chance)}", "calm"]
    )


_KINDS: list[Callable[[Random], str]] = [
    _restarts,
    _tasks,
    _transactions,
    _levels,
    _deletions,
    _truncations,
    _recreations,
    _growth,
    _leaders,
    _nodes,
    _isolation,
    _less,
    _errors,
]
# What happens between two runs, and shows only by the offsets at which the second one begins.
_UNSEEN_BY_PLAIN = (_levels, _truncations, _isolation)


# The search.


def search(seeds: Sequence[int], say: Callable[[str], None] = lambda _: None) -> list[str]:
    """Run the plans of these seeds, and return the failures: the seed, the smallest plan found, and the error."""
    failures = []
    for seed in seeds:
        began = time.monotonic()
        plan = random_plan(seed)
        error = failure(plan)
        if error:
            smallest, error = shrunk(plan, error)
            failures.append(f"seed {seed}: {error}\n  --plan '{smallest}'")
            say(failures[-1])
        else:
            say(f"seed {seed}: {time.monotonic() - began:.1f} s")
    return failures


def failure(plan: Plan) -> str:
    """Run a plan, and return how it fails; the empty text if it does not."""
    try:
        run(plan)
    except Exception as error:
        if isinstance(error, Violation):
            return str(error)
        return "".join(traceback.format_exception(error, limit=-4))
    return ""


def shrunk(plan: Plan, error: str) -> tuple[Plan, str]:
    """Leave out steps as long as the plan still fails; return the plan that is left, and its error."""
    size = len(plan.steps) // 2
    while size:
        at = 0
        while at < len(plan.steps):
            smaller = replace(plan, steps=plan.steps[:at] + plan.steps[at + size :])
            if found := failure(smaller):
                plan, error = smaller, found
            else:
                at += size
        size //= 2
    return plan, error


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.spark.stream_search",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--plans", type=int, default=100, help="how many plans (default: 100)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--plan", metavar="TEXT", help="run one plan")
    options = parser.parse_args()
    if options.plan:
        error = failure(Plan.parse(options.plan))
        print(error or "the law holds")
        return 1 if error else 0
    seeds = range(options.seed, options.seed + options.plans)
    failures = search(seeds, lambda text: print(text, flush=True))
    print(f"{options.plans} plans, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
