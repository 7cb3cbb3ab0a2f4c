"""``krammar topics`` lists, describes, creates and deletes topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from krammar.cli.connection import ConnectionOptions, connected, connects, errors, prints_json
from krammar.cli.options import examples, key_values
from krammar.cli.output import echo, print_json, print_table, quantity

if TYPE_CHECKING:
    from krammar.client import Topic


@click.group(
    invoke_without_command=True,
    epilog=examples(
        "krammar topics",
        "krammar topics -b broker:9092 --json",
        "krammar topics describe orders",
        "krammar topics create orders -p 4 --config cleanup.policy=compact",
        "krammar topics delete orders",
    ),
)
@connected
@prints_json
@click.pass_context
def topics(context: click.Context, connection: ConnectionOptions, json_: bool) -> None:
    """List, describe, create and delete topics.

    Without a command, list the topics.
    """
    context.obj = connection
    if context.invoked_subcommand is None:
        _list_topics(connection, json_)


@topics.command("list")
@connected
@prints_json
def list_(connection: ConnectionOptions, json_: bool) -> None:
    """List all topics."""
    _list_topics(connection, json_)


def _list_topics(connection: ConnectionOptions, json_: bool) -> None:
    with errors(), connection.client() as client:
        found = [topic for _, topic in sorted(client.topics().items())]
    if json_:
        print_json([_summary(topic) for topic in found])
        return
    print_table(
        ("TOPIC", "PARTITIONS", "REPLICAS", "INTERNAL"),
        [
            (t.name, len(t.partitions), _replicas(t), "internal" if t.internal else "")
            for t in found
        ],
    )


def _summary(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": str(topic.topic_id),
        "internal": topic.internal,
        "partitions": len(topic.partitions),
        "replicas": _replicas(topic),
    }


def _replicas(topic: Topic) -> int:
    return max((len(p.replicas) for p in topic.partitions.values()), default=0)


@topics.command(
    epilog=examples("krammar topics describe orders", "krammar topics describe t --json")
)
@click.argument("topic")
@connected
@prints_json
def describe(topic: str, connection: ConnectionOptions, json_: bool) -> None:
    """Show the partitions, offsets and settings of a topic.

    BEGIN is the first offset that can be read. END is the offset after the last record. Settings with
    their default values are not shown.
    """
    from krammar.client.metadata import TopicPartition
    from krammar.client.offsets import At

    with errors(), connection.client() as client:
        found = client.topics([topic])[topic]
        # Partitions without a leader have no offsets to ask for.
        led = [TopicPartition(topic, i) for i, p in found.partitions.items() if p.leader >= 0]
        begins = client.list_offsets(dict.fromkeys(led, At.EARLIEST))
        ends = client.list_offsets(
            dict.fromkeys(led, At.LATEST), isolation_level="read_uncommitted"
        )
        configs = client.admin.topic_configs(topic)
    own = {name: c.value for name, c in sorted(configs.items()) if not c.is_default}
    partitions = []
    for index, partition in sorted(found.partitions.items()):
        at = TopicPartition(topic, index)
        partitions.append(
            {
                "partition": index,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": partition.replicas,
                "isr": partition.isr,
                "begin": begins[at].offset if at in begins else None,
                "end": ends[at].offset if at in ends else None,
            }
        )
    if json_:
        print_json({**_summary(found), "configs": own, "partitions": partitions})
        return
    echo(f"{topic}  id {found.topic_id}{'  internal' if found.internal else ''}")
    for name, value in own.items():
        echo(f"  {name} = {'(secret)' if value is None else value}")
    print_table(
        ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "BEGIN", "END"),
        [[_cell(value) for value in partition.values()] for partition in partitions],
    )


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "-" if value is None else value


# --config is a setting of the topic here, as in kafka-topics, so the properties file is only -F.
@topics.command(
    epilog=examples(
        "krammar topics create orders -p 4",
        "krammar topics create orders -p 4 -r 3 --config retention.ms=60000",
    )
)
@click.argument("topic")
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(1),
    help="Number of partitions.  [default: num.partitions of the broker]",
)
@click.option(
    "-r",
    "--replication-factor",
    "replicas",
    type=click.IntRange(1, 32767),
    help="Number of replicas per partition.  [default: default.replication.factor of the broker]",
)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the topic, such as retention.ms=60000. Can be repeated.",
)
@connects("-F")
def create(
    topic: str,
    partitions: int | None,
    replicas: int | None,
    configs: tuple[str, ...],
    connection: ConnectionOptions,
) -> None:
    """Create a topic."""
    pairs: dict[str, str | None] = {**key_values("--config", configs)}
    with errors(), connection.client() as client:
        made = client.admin.create_topic(topic, partitions or -1, replicas or -1, configs=pairs)
    echo(f"{topic} created with {quantity(len(made.partitions), 'partition')}")


@topics.command()
@click.argument("topic")
@connected
def delete(topic: str, connection: ConnectionOptions) -> None:
    """Delete a topic with all its records."""
    with errors(), connection.client() as client:
        client.admin.delete_topic(topic)
    echo(f"{topic} deleted")
