"""Commands for a running broker: what tests ask about records and groups, and waits for it."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from krammar.broker import ConfigError
from krammar.logfiles.uuids import format_uuid
from krammar.testing.client_metrics import ClientMetricsPush
from krammar.testing.groups import Group
from krammar.testing.options import read_options
from krammar.testing.probe import Probe, append_seeds
from krammar.testing.records import Record, seeds
from krammar.testing.waits import (
    NotInTime,
    is_committed,
    wait_for_consumer,
    wait_for_lag,
    wait_for_records,
)
from krammar.util.http_server import Command, Reply

# How long commands wait by default, and at most, in seconds. The end of the broker waits for them.
_TIMEOUT, _MOST = 10.0, 60.0

_OF_RECORDS = ("partition", "isolation_level", "count", "timeout")
_OF_NEW_RECORDS = ("transaction", "transactional_id")


class ProbeControl:
    """The commands. Those that wait have ``timeout`` in the query, in seconds.

    ``GET /records/orders``           the records of a topic; ``partition``, ``isolation_level``; with
                                      ``count`` it waits until there are so many
    ``POST /records/orders``          stores the records of the body, a JSON array; ``transaction``,
                                      ``transactional_id``
    ``GET /topics``                   the number of partitions by topic
    ``POST /topics/orders/compact``   compacts a topic at once
    ``GET /groups``                   the groups by id
    ``GET /groups/billing``           one group
    ``GET /groups/billing/consumes``  waits until the members of a group read, and returns the group
    ``GET /groups/billing/lag/0``     waits until the lag of a group is so small, and returns the group
    ``GET /client-metrics``           what clients have pushed of their metrics
    ``GET /requests``                 the last requests, one line each
    """

    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    def __call__(self, command: Command) -> Reply | None:
        """Run a command. Returns None for another one. Raises ValueError."""
        try:
            return self._run(command)
        except NotInTime as error:
            return Reply(408, {"error": str(error)})
        except (ConfigError, TypeError) as error:
            raise ValueError(str(error)) from None

    def _run(self, command: Command) -> Reply | None:
        probe, query = self._probe, command.query
        match command.method, command.parts:
            case "GET", ("records", topic):
                return Reply(200, [_record(each) for each in self._records(topic, query)])
            case "POST", ("records", topic):
                stored = self._store(topic, command.body, query)
                return Reply(200, [_record(each) for each in stored])
            case "GET", ("topics",):
                return Reply(200, probe.topics())
            case "POST", ("topics", topic, "compact"):
                probe.compact(topic)
                return Reply(200, {})
            case "GET", ("groups",):
                return Reply(200, {name: _group(each) for name, each in probe.groups().items()})
            case "GET", ("groups", group):
                found = probe.groups().get(group)
                if found is None:
                    return Reply(404, {"error": f"group {group!r} does not exist"})
                return Reply(200, _group(found))
            case "GET", ("groups", group, "consumes"):
                return Reply(200, _group(wait_for_consumer(probe, group, _timeout(query))))
            case "GET", ("groups", group, "lag", most):
                lag = _number("the lag", most)
                return Reply(200, _group(wait_for_lag(probe, group, lag, _timeout(query))))
            case "GET", ("client-metrics",):
                return Reply(200, [_push(each) for each in probe.client_metrics()])
            case "GET", ("requests",):
                return Reply(200, probe.requests(0))
        return None

    def _records(self, topic: str, query: Mapping[str, str]) -> list[Record]:
        _check(query, _OF_RECORDS)
        partition = _number("partition", query["partition"]) if "partition" in query else None
        committed = is_committed(query.get("isolation_level", "read_committed"))
        if "count" not in query:
            return self._probe.records(topic, partition, committed)
        count = _number("count", query["count"])
        return wait_for_records(self._probe, topic, count, partition, committed, _timeout(query))

    def _store(self, topic: str, body: str, query: Mapping[str, str]) -> list[Record]:
        _check(query, _OF_NEW_RECORDS)
        read_options(topics={topic: None})
        try:
            records = json.loads(body)
        except ValueError as error:
            raise ValueError(f"the body is not JSON: {error}") from None
        transaction, transactional_id = map(query.get, _OF_NEW_RECORDS)
        return append_seeds(self._probe, seeds(records), topic, transaction, transactional_id)


def _record(record: Record) -> dict[str, Any]:
    """Return a record for JSON: bytes as text, with U+FFFD for what is not UTF-8, and exactly as base64."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_data("key", record.key),
        **_data("value", record.value),
        "headers": [{"name": name, **_data("value", value)} for name, value in record.headers],
    }


def _data(name: str, data: bytes | None) -> dict[str, str | None]:
    return {
        name: None if data is None else data.decode("utf-8", "replace"),
        f"{name}_base64": None if data is None else b64encode(data).decode(),
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "state": group.state,
        "protocol": group.protocol,
        "members": [
            {
                "member_id": member.member_id,
                "client_id": member.client_id,
                "instance_id": member.instance_id,
                "partitions": [
                    {"topic": topic, "partition": index} for topic, index in member.partitions
                ],
            }
            for member in group.members
        ],
        "offsets": [
            {
                "topic": topic,
                "partition": index,
                "offset": offset,
                "lag": group.lag.get((topic, index)),
            }
            for (topic, index), offset in group.offsets.items()
        ],
    }


def _push(push: ClientMetricsPush) -> dict[str, Any]:
    """Return a push for JSON. Raises ValueError."""
    return {
        "client_id": push.client_id,
        "client_instance_id": format_uuid(push.client_instance_id),
        "software_name": push.software_name,
        "software_version": push.software_version,
        "time_ms": push.time_ms,
        "is_last": push.is_last,
        "labels": push.labels,
        "metrics": [asdict(each) for each in push.metrics],
    }


def _timeout(query: Mapping[str, str]) -> float:
    """Return how long to wait, in seconds. Raises ValueError."""
    text = query.get("timeout")
    try:
        seconds = _TIMEOUT if text is None else float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= _MOST:
        raise ValueError(f"timeout: {text!r} is not a number of seconds up to {_MOST:g}")
    return seconds


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 9:
        raise ValueError(f"{name}: {text[:40]!r} is not a number")
    return int(text)


def _check(query: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Raise ValueError for an unknown name."""
    for name in query:
        if name not in known:
            raise ValueError(f"{name[:40]!r} is not one of {', '.join(known)}")
