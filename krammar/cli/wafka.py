"""``krammar wafka-produce`` writes lines as records, with the Wafka protocol."""

from __future__ import annotations

import click

from krammar.cli.options import examples, standard_input
from krammar.cli.output import echo, quantity

# Lines per request. Even with the longest strings, such a request is far below a server's limit.
_LINES_PER_REQUEST = 500
# Bytes. The protocol has no longer strings.
_MAX_STRING = 32767


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
    help="Address of the server.",
)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(0),
    help="Write to this partition.  [default: all partitions round robin, in requests of up to 500 lines]",
)
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "-1"]),
    default="-1",
    show_default=True,
    help="With 0, do not wait for the server.",
)
@click.option(
    "--timeout",
    type=click.IntRange(1, 2**31 - 1),
    default=15000,
    show_default=True,
    help="Timeout in milliseconds.",
)
def wafka_produce(topic: str, server: str, partition: int | None, acks: str, timeout: int) -> None:
    """Write lines as records, with the Wafka protocol.

    Each line of standard input becomes a record of TOPIC: a string of at most 32,767 bytes. Kafka
    clients read records without a key, with the line as their value.
    """
    from krammar.client.errors import ClientError
    from krammar.client.wafka import WafkaClient
    from krammar.util.sockets import parse_address
    from krammar.wire.errors import WireError

    try:
        host, port = parse_address(server, lowest=1)
    except ValueError:
        raise click.BadParameter(f"{server!r} is not HOST:PORT", param_hint="--server") from None
    done = 0
    lines: list[str] = []
    try:
        with WafkaClient(host, port, timeout_ms=timeout) as client:

            def flush() -> None:
                nonlocal done
                client.produce(topic, lines, partition=partition, acks=int(acks))
                done += len(lines)
                lines.clear()

            for number, raw in enumerate(standard_input(), 1):
                line = raw.rstrip(b"\r\n")
                if len(line) > _MAX_STRING:
                    raise click.ClickException(
                        f"line {number} has {len(line)} bytes; at most {_MAX_STRING} are allowed"
                        f" ({done} records were written)"
                    )
                try:
                    lines.append(line.decode())
                except UnicodeDecodeError:
                    raise click.ClickException(
                        f"line {number} is not UTF-8 ({done} records were written)"
                    ) from None
                if len(lines) == _LINES_PER_REQUEST:
                    flush()
            if lines:
                flush()
    except (ClientError, WireError) as error:
        raise click.ClickException(f"{error} ({done} records were written)") from error
    place = topic if partition is None else f"{topic}-{partition}"
    echo(f"{quantity(done, 'record')} written to {place}", err=True)
