"""``krammar groups`` lists and describes groups of all kinds, and resets the offsets at which they read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from krammar.cli.connection import ConnectionOptions, connected, errors, prints_json
from krammar.cli.options import examples
from krammar.cli.output import echo, print_json, print_table, quantity

if TYPE_CHECKING:
    from krammar.client import Client, TopicPartition


@click.group(
    invoke_without_command=True,
    epilog=examples(
        "krammar groups",
        "krammar groups -b broker:9092 --json",
        "krammar groups describe billing",
        "krammar groups reset billing orders --to earliest",
    ),
)
@connected
@prints_json
@click.pass_context
def groups(context: click.Context, connection: ConnectionOptions, json_: bool) -> None:
    """List, describe and reset classic, consumer and share groups.

    Without a command, list the groups.
    """
    context.obj = connection
    if context.invoked_subcommand is None:
        _list_groups(connection, json_)


@groups.command("list")
@connected
@prints_json
def list_(connection: ConnectionOptions, json_: bool) -> None:
    """List all groups."""
    _list_groups(connection, json_)


def _list_groups(connection: ConnectionOptions, json_: bool) -> None:
    with errors(), connection.client() as client:
        found = client.groups.list()
    if json_:
        print_json([{"group": g.group_id, "type": g.type.lower(), "state": g.state} for g in found])
        return
    print_table(
        ("GROUP", "TYPE", "STATE"), [(g.group_id, g.type.lower() or "-", g.state) for g in found]
    )


@groups.command(
    epilog=examples("krammar groups describe billing", "krammar groups describe billing --json")
)
@click.argument("group")
@connected
@prints_json
def describe(group: str, connection: ConnectionOptions, json_: bool) -> None:
    """Show the members and the offsets of a group.

    OFFSET is the committed offset; in a share group it is the start offset: all records before it are
    done. LAG is the number of records that the group has not read or finished.
    """
    with errors(), connection.client() as client:
        found = client.group_overviews.read(group)
        lag = found.lag if found.type == "share" else _lag(client, found.positions)
    readers: dict[TopicPartition, list[str]] = {}
    for member in found.members:
        for at in member.partitions:
            readers.setdefault(at, []).append(member.member_id)
    offsets = [
        {
            "topic": at.topic,
            "partition": at.partition,
            "offset": found.positions.get(at),
            "lag": lag.get(at),
            "members": readers.get(at, []),
        }
        for at in sorted(found.positions.keys() | readers.keys())
    ]
    if json_:
        members = [
            {"member": each.member_id, "client": each.client_id, "host": each.host}
            for each in found.members
        ]
        head = {"group": found.group_id, "type": found.type, "state": found.state}
        print_json({**head, "members": members, "offsets": offsets})
        return
    echo(f"{group}  {found.type}  {found.state}  {quantity(len(found.members), 'member')}")
    print_table(
        ("TOPIC", "PARTITION", "OFFSET", "LAG", "MEMBERS"),
        [[_cell(value) for value in row.values()] for row in offsets],
    )


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return ",".join(value) or "-"
    return "-" if value is None else value


def _lag(client: Client, positions: Any) -> dict[TopicPartition, int]:
    """Return how many records follow the committed offsets. Topics that were deleted have no lag."""
    from krammar.client import At

    topics = client.topics()
    known = [at for at in positions if at.topic in topics]
    ends = client.list_offsets(dict.fromkeys(known, At.LATEST))
    return {at: max(end.offset - positions[at], 0) for at, end in ends.items()}


@groups.command(
    epilog=examples(
        "krammar groups reset billing orders --to earliest",
        "krammar groups reset billing orders --partition 2 --to 1500",
    )
)
@click.argument("group")
@click.argument("topic")
@click.option(
    "-p",
    "--partition",
    "numbers",
    type=click.IntRange(0),
    multiple=True,
    help="A partition. Can be repeated.  [default: all]",
)
@click.option(
    "--to",
    "to",
    required=True,
    metavar="OFFSET",
    help="earliest, latest, or an offset.",
)
@connected
def reset(
    group: str, topic: str, numbers: tuple[int, ...], to: str, connection: ConnectionOptions
) -> None:
    """Let a group without members continue at other offsets."""
    from krammar.client import At, TopicPartition

    if to not in ("earliest", "latest") and not (to.isascii() and to.isdigit()):
        raise click.UsageError(f"--to must be earliest, latest, or an offset, not {to!r}")
    with errors(), connection.client() as client:
        wanted = [at for at in client.partitions(topic) if not numbers or at.partition in numbers]
        wanted += [
            TopicPartition(topic, n) for n in numbers if TopicPartition(topic, n) not in wanted
        ]
        if to.isdigit():
            offsets = dict.fromkeys(wanted, int(to))
        else:
            found = client.list_offsets(dict.fromkeys(wanted, At[to.upper()]))
            offsets = {at: each.offset for at, each in found.items()}
        client.group_overviews.reset(group, offsets)
    echo(f"{group} continues at {to} in {quantity(len(offsets), 'partition')} of {topic}")
