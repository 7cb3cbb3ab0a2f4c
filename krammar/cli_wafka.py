"""``krammar wafka-produce``: lines as records of a Wafka server."""

from __future__ import annotations

import sys

import click

from krammar.cli_text import examples

# Lines of a request. A request of this many of the longest strings is far below any limit of a server.
_LINES = 500
# Bytes: a string of the protocol cannot be longer.
_LONGEST = 32767


@click.command(
    epilog=examples(
        "krammar broker --protocol wafka --data-dir data --port 9095 --kafka-port 9092",
        "echo hello | krammar wafka-produce greetings",
        "krammar wafka-produce -b localhost:9095 -p 1 greetings < lines.txt",
        "krammar consume -b localhost:9092 greetings -o beginning -e",
    )
)
@click.argument("topic")
@click.option(
    "-b",
    "--server",
    default="localhost:9095",
    show_default=True,
    metavar="HOST:PORT",
    help="Where the server listens.",
)
@click.option("-p", "--partition", type=click.IntRange(0), default=0, show_default=True)
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "-1"]),
    default="-1",
    show_default=True,
    help="0 does not wait for the server.",
)
@click.option(
    "--timeout", type=click.IntRange(1), default=15000, show_default=True, help="Milliseconds."
)
def wafka_produce(topic: str, server: str, partition: int, acks: str, timeout: int) -> None:
    """Write each line of standard input as a record of TOPIC, by the Wafka protocol.

    \b
    The records are strings of 32,767 bytes at most. Kafka's clients read
    them as values of records without a key.
    """
    from krammar.client.errors import ClientError
    from krammar.client.wafka import WafkaClient
    from krammar.wire.errors import WireError

    host, colon, port = server.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 65536:
        raise click.BadParameter(f"{server!r} is not HOST:PORT", param_hint="--server")
    done = 0
    lines: list[str] = []
    try:
        with WafkaClient(host.strip("[]"), int(port), timeout_ms=timeout) as client:

            def flush() -> None:
                nonlocal done
                client.produce(topic, lines, partition=partition, acks=int(acks))
                done += len(lines)
                lines.clear()

            for number, raw in enumerate(sys.stdin.buffer, 1):
                line = raw.rstrip(b"\r\n")
                if len(line) > _LONGEST:
                    raise click.ClickException(
                        f"line {number} has {len(line)} bytes; a string has {_LONGEST} at most"
                        f" ({done} records were written)"
                    )
                try:
                    lines.append(line.decode())
                except UnicodeDecodeError:
                    raise click.ClickException(
                        f"line {number} is not UTF-8 ({done} records were written)"
                    ) from None
                if len(lines) == _LINES:
                    flush()
            if lines:
                flush()
    except (ClientError, WireError) as error:
        raise click.ClickException(f"{error} ({done} records were written)") from error
    click.echo(f"{done} records written to {topic}-{partition}", err=True)
