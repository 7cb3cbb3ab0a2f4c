"""The versions of requests that an older release of Apache Kafka serves (``krammar.kafka.version``).

``releases.csv`` has the versions that brokers of the releases offer. This broker offers those of them that it
serves, and refuses all others.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from kafka_wire import ApiKey

from krammar.broker.apis import RANGES, SERVED

Ranges = Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Release:
    """The versions of requests that a release serves, by api key.

    Attributes:
        offered: those that ApiVersions lists
        answered: those that get a response
    """

    offered: Ranges
    answered: Ranges


# Clients that see them push their metrics.
_TELEMETRY = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})


@cache
def release_of(version: str | None, *, telemetry: bool = False) -> Release:
    """Return a release.

    Args:
        version: such as ``3.9``; None for the newest one
        telemetry: whether it offers client telemetry, which is answered in any case
    """
    release = Release(RANGES, SERVED) if version is None else _read(version)
    if telemetry:
        return release
    offered = {key: each for key, each in release.offered.items() if key not in _TELEMETRY}
    return Release(offered, release.answered)


def _read(version: str) -> Release:
    table = files(__package__).joinpath("releases.csv")  # the package may be in an archive
    theirs = {
        int(row["api_key"]): (int(row["low"]), int(row["high"]))
        for row in csv.DictReader(table.read_text("utf-8").splitlines())
        if row["release"] == version
    }
    return Release(_common(RANGES, theirs), _common(SERVED, theirs))


def _common(ours: Ranges, theirs: Ranges) -> Ranges:
    both = {
        key: (max(low, theirs[key][0]), min(high, theirs[key][1]))
        for key, (low, high) in ours.items()
        if key in theirs
    }
    return {key: (low, high) for key, (low, high) in both.items() if low <= high}
