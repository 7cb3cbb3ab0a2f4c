"""Measure what ACLs and quotas cost Produce and Fetch: the same broker without them, with ACLs, and with quotas.

python -m tests.bench.limits            some minutes; writes its section of docs/benchmarks.md
python -m tests.bench.limits --quick    one turn of a twentieth; prints it

`python -m tests.bench.broker.before DIR` compares the broker without both with an older checkout.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles

import kafka_wire as kw

from tests.bench.broker.contenders import Ours
from tests.bench.broker.measure import Cell, Latency, throughput
from tests.bench.page import (
    machine,
    markdown_table,
    put_file,
    section,
    subsection,
)
from tests.broker.support import RawClient

_PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
_PLAIN, _ACLS, _QUOTAS = "neither", "ACLs", "quotas"
_CELLS = (
    Cell(100, "none", 1, 800_000),
    Cell(1000, "none", 4, 250_000),
    Cell(10_000, "none", 1, 25_000),
)
# ACLs of others.
_OTHERS = 1_000
_NOTE = f"""\
Three brokers take turns: one without ACLs and quotas, one with the StandardAuthorizer, {_OTHERS:,} ACLs of other users
and one of the client, and one with quotas for bytes and time that the client does not reach. Figures are the broker's
processor time, and records per second, each divided by that of the first broker in the same turn: the median, and the
quartiles. 1.00 is no cost."""

Ratios = dict[str, dict[str, list[float]]]


class _Broker(Ours):
    """A broker whose processor time is exact to the nanosecond."""

    def processor_time(self) -> float:
        assert self.process is not None
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def _start(name: str, folder: Path) -> _Broker:
    # A deleted topic frees its memory for the next one.
    properties = {"log.segment.delete.delay.ms": "0"}
    if name == _ACLS:
        properties["authorizer.class.name"] = (
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        )
        # What has no ACL, such as the cluster, is free for all.
        properties["allow.everyone.if.no.acl.found"] = "true"
    return _Broker(folder / name, properties=properties)


def _rule(
    topic: str, principal: str, pattern: int = kw.AclPatternType.LITERAL
) -> kw.CreateAclsRequest.AclCreation:
    """Return a rule that allows a user everything with a topic, or with all whose names begin so."""
    return kw.CreateAclsRequest.AclCreation(
        resource_type=kw.AclResourceType.TOPIC,
        resource_name=topic,
        resource_pattern_type=pattern,
        principal=principal,
        host="*",
        operation=kw.AclOperation.ALL,
        permission_type=kw.AclPermissionType.ALLOW,
    )


def _limit(name: str, broker: _Broker) -> None:
    """Create ACLs or quotas."""
    with RawClient(broker.port) as client:
        if name == _ACLS:
            rules = [_rule(f"other-{number}", f"User:other-{number}") for number in range(_OTHERS)]
            # The topics of this benchmark begin with these names.
            for prefix in ("t-", "latency"):
                rules.append(_rule(prefix, "User:ANONYMOUS", kw.AclPatternType.PREFIXED))
            results = client.call(kw.CreateAclsRequest(creations=rules)).results
            assert not any(each.error_code for each in results), results[0]
        elif name == _QUOTAS:
            kind = kw.AlterClientQuotasRequest
            operations = [
                kind.OpData(key=key, value=value)
                for key, value in (
                    ("producer_byte_rate", 1e12),
                    ("consumer_byte_rate", 1e12),
                    ("request_percentage", 1e6),
                )
            ]
            entity = [kind.EntityData(entity_type="user", entity_name=None)]
            request = kind(entries=[kind.EntryData(entity=entity, ops=operations)])
            (result,) = client.call(request).entries
            assert result.error_code == 0, result


def run(folder: Path, *, quick: bool) -> Ratios:
    """Return the ratios to the broker without limits, by what was measured and by broker."""
    turns, part, asked = (1, 20, 100) if quick else (9, 1, 2_000)
    cells = [replace(cell, records=cell.records // part) for cell in _CELLS]
    found: Ratios = defaultdict(lambda: defaultdict(list))
    with ExitStack() as stack:
        brokers = {
            name: stack.enter_context(_start(name, folder)) for name in (_PLAIN, _ACLS, _QUOTAS)
        }
        for broker in brokers.values():
            assert broker.process is not None
            os.sched_setaffinity(broker.process.pid, {0})
        # Two processors: one for the brokers, one for the client. Moving between them costs up to a tenth.
        os.sched_setaffinity(0, {1})
        latencies = {name: Latency(broker) for name, broker in brokers.items()}
        for name, broker in brokers.items():
            _limit(name, broker)
        names = list(brokers)
        for turn in range(-1, turns):  # the first turn warms up
            order = names[turn % 3 :] + names[: turn % 3]
            for number, cell in enumerate(cells):
                speeds = {
                    name: throughput(brokers[name], cell, f"t-{number}-{turn + 1}")
                    for name in order
                }
                if turn < 0:
                    continue
                for at, verb in enumerate(("produce", "consume")):
                    base = speeds[_PLAIN][at]
                    for name in (_ACLS, _QUOTAS):
                        own = speeds[name][at]
                        label = f"{verb} {cell.name}"
                        found[f"{label}, processor"][name].append(own.processor / base.processor)
                        found[f"{label}, rate"][name].append(own.rate / base.rate)
            times = {}
            for name in order:
                used = brokers[name].processor_time()
                median_time = median(latencies[name].ask(asked))
                times[name] = median_time, brokers[name].processor_time() - used
            if turn >= 0:
                for name in (_ACLS, _QUOTAS):
                    for at, what in enumerate(("latency", "processor")):
                        ratio = times[name][at] / times[_PLAIN][at]
                        found[f"one record in flight, {what}"][name].append(ratio)
            print(f"turn {turn + 1} of {turns}", file=sys.stderr)
    return found


def lines(found: Mapping[str, Mapping[str, list[float]]]) -> Iterator[str]:
    """The section of the page."""
    yield "## ACLs and quotas"
    yield ""
    yield from machine()
    rows = [
        (what, *(_cell(ratios[name]) for name in (_ACLS, _QUOTAS)))
        for what, ratios in found.items()
    ]
    head = ("Measured", f"with {_ACLS}", f"with {_QUOTAS}")
    yield from subsection("Cost of a check", _NOTE, markdown_table(head, rows))


def _cell(ratios: list[float]) -> str:
    if len(ratios) < 2:
        return f"{ratios[0]:.2f}"
    low, middle, high = quantiles(ratios, n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.limits",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="one turn of a twentieth")
    parser.add_argument("--folder", type=Path, help="data is stored here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="krammar-bench-", dir=options.folder) as folder:
        found = run(Path(folder), quick=options.quick)
    written = list(lines(found))
    print("\n".join(written))
    if not options.quick:
        put_file(_PAGE, section("limits", "python -m tests.bench.limits", written))


if __name__ == "__main__":
    main()
