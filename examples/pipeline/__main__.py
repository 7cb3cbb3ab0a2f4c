"""``make demo``, or ``python -m examples.pipeline`` in the repository's folder."""

from __future__ import annotations

import argparse
import signal
import sys
from io import TextIOWrapper
from random import Random
from typing import NoReturn

from examples.pipeline.checks import Missing, check_java, check_packages
from examples.pipeline.places import Places, shown
from examples.pipeline.report import Report

ORDERS = 200_000


def main() -> int:
    arguments = parse()
    places = Places()
    # Not every terminal has a euro sign.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    # Stop the broker and Spark on SIGTERM as on Ctrl-C.
    signal.signal(signal.SIGTERM, _terminated)
    try:
        check_packages()
        check_java()
        from examples.pipeline.stages import run

        return run(Report(), places, arguments.orders, arguments.port, arguments.storm)
    except Missing as missing:
        message = str(missing)
    except KeyboardInterrupt:
        message = "Stopped."
    except Exception as error:
        message = explain(error, places)
        if not message:
            raise
    print(f"\n{message}", file=sys.stderr)
    return 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.pipeline",
        description="A day of orders: broker, producer, consumer groups, Spark, a chart.",
    )
    parser.add_argument(
        "--orders", type=int, default=ORDERS, help=f"how many (default: {ORDERS:,})"
    )
    parser.add_argument("--port", type=int, default=0, help="of the broker (default: any free one)")
    parser.add_argument(
        "--storm",
        type=int,
        nargs="?",
        const=Random().randrange(1_000_000),
        metavar="SEED",
        help="let requests fail at random; the same seed gives the same faults",
    )
    arguments = parser.parse_args()
    if not 1000 <= arguments.orders <= 10_000_000:
        parser.error("--orders: 1,000 to 10,000,000")
    if not 0 <= arguments.port <= 65535:
        parser.error("--port: 0 to 65535")
    return arguments


def _terminated(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def explain(error: Exception, places: Places) -> str:
    """Describe an error without a traceback; return an empty text for a bug of the demo itself."""
    from confluent_kafka import KafkaException
    from pyspark.errors import PySparkException

    from examples.pipeline.session import SparkFailed
    from krammar.broker.errors import BrokerError

    if isinstance(error, BrokerError):
        return f"The broker: {error}. Try another --port, or omit it to use any free one."
    if isinstance(error, KafkaException):
        return f"The Kafka client: {error.args[0]}"
    if isinstance(error, PySparkException | SparkFailed):
        more = f"\n\nSee {shown(places.log)} for details." if places.log.exists() else ""
        return f"Spark: {error}{more}"
    if isinstance(error, TimeoutError):
        return f"This took too long: {error}"
    if isinstance(error, PermissionError):
        return f"{error.filename}: {error.strerror}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
