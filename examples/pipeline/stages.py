"""The stages of the demo.

1. Generate a package of a shop's messages from its definition.
2. Start a broker in this process, and write a day of orders to it with confluent-kafka.
3. Read the orders in consumer groups, some of which stop early.
4. Sum up the orders with a streaming query in Spark, into Parquet. The query is stopped in the middle, and
   continues from its checkpoint; every order is counted once.
5. Compute the lag of the groups with Spark, from the broker's ``__consumer_offsets``.
6. Draw both results.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from examples.pipeline.chart import draw
from examples.pipeline.events import (
    COUNTRIES,
    DAY_END_MS,
    DAY_MS,
    MINUTE_MS,
    WINDOW_MINUTES,
    Tally,
    orders,
)
from examples.pipeline.groups import run_groups
from examples.pipeline.lag import GroupLag, by_group, lag
from examples.pipeline.places import DEFINITIONS, Places, shown
from examples.pipeline.produce import PARTITIONS, TOPIC, create_topic, produce
from examples.pipeline.report import Report
from examples.pipeline.session import start_spark, stop_spark, tell_failures
from examples.pipeline.storm import brew, tell
from examples.pipeline.stream import Job, Revenue, compare, result, run_stream
from krammar.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The approximate number of micro-batches, and the number after which the query is stopped.
BATCHES = 10
STOP_AFTER = 4


def run(report: Report, places: Places, count: int, port: int = 0, storm: int | None = None) -> int:
    """Run all stages; return the exit code, 1 if the query's sums are wrong.

    With ``storm``, requests fail at random; it is the seed.
    """
    places.clear()
    with report.stage("Generate the shop's messages from their definition"):
        report.say(f"krammar gen {shown(DEFINITIONS)} -o {shown(places.generated)}")
        generate(places.generated)
    sys.path.insert(0, str(places.generated))
    with ExitStack() as stack:
        with report.stage(f"Produce a day of {count:,} orders with confluent-kafka"):
            broker = stack.enter_context(Broker.start(port=port, data_dir=places.broker))
            bootstrap = broker.bootstrap_servers
            report.say(f"krammar's broker listens on {bootstrap}")
            if storm is not None:
                report.say(f"a storm of faults begins, with seed {storm}")
                brew(broker.faults, storm)
            tally = produce_day(bootstrap, count, report)
        with report.stage("Consume them in groups with confluent-kafka"):
            run_groups(bootstrap, tally.orders.total(), report)
        with report.stage("Start Spark, and look at the first orders"):
            spark = start_spark(places.generated, places.log)
            stack.callback(stop_spark, spark)
            stack.push(tell_failures)
            peek(spark, bootstrap, report)
        job = Job(bootstrap, TOPIC, places.revenue, places.checkpoint, count // BATCHES)
        with report.stage(f"Stream: revenue each {WINDOW_MINUTES} minutes by country, to Parquet"):
            stream_twice(spark, job, report)
        with report.stage("Compare the sums with what was produced"):
            revenue = result(spark, job)
            if wrong := compare(revenue, tally, DAY_END_MS):
                report.say("They differ:")
                report.say("\n   ".join(wrong[:20]))
                return 1
            revenue_table(revenue, report)
        with report.stage("Compute the lag of the groups from __consumer_offsets"):
            lags = by_group(lag(spark, bootstrap, TOPIC))
            lag_table(lags, report)
        if storm is not None:
            with report.stage("Count the faults that fired"):
                tell(broker.faults, storm, report)
        with report.stage("Draw a chart"):
            chart(places.chart, revenue, lags)
            report.say(shown(places.chart))
        with report.stage("Stop Spark and the broker"):
            stack.close()
    ending(report, places)
    return 0


def generate(folder: Path) -> None:
    """Generate the package ``shop`` below a folder, as a user would."""
    command = [sys.executable, "-m", "krammar", "gen", str(DEFINITIONS), "-o", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)


def produce_day(bootstrap: str, count: int, report: Report) -> Tally:
    create_topic(bootstrap)
    tally = produce(bootstrap, orders(count), report)
    euros = tally.cents.total() / 100
    report.say(f"{tally.orders.total():,} orders in {PARTITIONS} partitions, € {euros:,.2f}")
    return tally


def peek(spark: SparkSession, bootstrap: str, report: Report) -> None:
    """Show three records with all their columns. The filter is pushed down, so little more is fetched."""
    rows = (
        spark.read.format("krammar")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .option("includeHeaders", "true")
        .option("decode", "shop.OrderPlaced")
        .load()
        .where("partition = 0 and offset < 3")
        .selectExpr(
            "offset",
            "date_format(timestamp, 'HH:mm:ss') as timestamp",
            "cast(key as string) as key",
            "concat(headers[0].key, '=', cast(headers[0].value as string)) as header",
            "cast(value.id as string) as order",
            "value.country",
            "value.lines[0].article as first_article",
            "value.total as cents",
        )
        .collect()
    )
    report.table(rows[0].__fields__, rows)


def stream_twice(
    spark: SparkSession, job: Job, report: Report, stop_after: int = STOP_AFTER
) -> int:
    """Run the query, stop it in the middle, and run it again to its end.

    Returns:
        How many micro-batches the first run has committed.
    """
    run_stream(spark, job, report, stop_after=stop_after)
    begun, done = job.begun(), job.committed()
    middle = f" in the middle of batch {done}" if begun > done else ""
    report.say(f"stopped{middle}; the checkpoint has {done} batches. A new query continues:")
    run_stream(spark, job, report)
    return done


def revenue_table(revenue: list[Revenue], report: Report) -> None:
    """Print the revenue by country."""
    rows: list[tuple[object, ...]] = []
    for country in COUNTRIES:
        each = [row for row in revenue if row.country == country]
        best = max(each, key=lambda row: row.cents)
        rows.append(
            (
                country,
                len(each),
                sum(row.orders for row in each),
                round(sum(row.cents for row in each) / 100),
                clock(best.begin_ms),
            )
        )
    count, cents = sum(row.orders for row in revenue), sum(row.cents for row in revenue)
    rows.append(("all", len(revenue), count, round(cents / 100), ""))
    report.table(("country", "windows", "orders", "euros", "best"), rows)
    report.say("Orders and euros of every window and country match the produced orders.")


def lag_table(lags: list[GroupLag], report: Report) -> None:
    numbers = range(len(lags[0].partitions)) if lags else ()
    report.table(
        ("group", "committed", "lag", *(f"of {TOPIC}-{n}" for n in numbers), "first unread order"),
        [
            (each.group, each.committed, each.lag, *each.partitions, clock(each.waiting_since))
            for each in lags
        ],
    )


def chart(path: Path, revenue: list[Revenue], lags: list[GroupLag]) -> None:
    cents = {(row.begin_ms, row.country): row.cents for row in revenue}
    begins = range(DAY_MS, DAY_END_MS, WINDOW_MINUTES * MINUTE_MS)
    draw(
        path,
        {
            country: [(moment(begin), cents.get((begin, country), 0)) for begin in begins]
            for country in COUNTRIES
        },
        timedelta(minutes=WINDOW_MINUTES),
        [(each.group, each.lag, note(each)) for each in lags],
    )


def note(group: GroupLag) -> str:
    return "all read" if group.waiting_since is None else f"from {clock(group.waiting_since)} on"


def moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def clock(milliseconds: int | None) -> str:
    return "" if milliseconds is None else f"{moment(milliseconds):%H:%M}"


def ending(report: Report, places: Places) -> None:
    rows = [(title, seconds) for title, seconds in report.times]
    report.table(("stage", "seconds"), [*rows, ("all", report.seconds)])
    for path, what in (
        (places.chart, "the chart"),
        (places.revenue, "revenue by window and country"),
        (places.checkpoint, "the checkpoint of the streaming query"),
        (places.broker, "the broker's files: krammar broker --data-dir " + shown(places.broker)),
        (places.generated, "the package of the shop's messages"),
        (places.log, "the log of Spark"),
    ):
        print(f"   {shown(path):<28}  {what}")
