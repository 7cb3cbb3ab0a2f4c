"""A random storm of faults, the same for the same seed, for clients that are meant to get through it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from examples.pipeline.report import Report
from krammar.faults import Faults, Rule

# The faults and their probabilities. A client that retries hides all of them. Lost connections to the
# coordinator or for Metadata are not among them: confluent-kafka's commits and its admin client fail then.
_FAULTS: tuple[tuple[str, float, Callable[[Rule], Rule]], ...] = (
    ("Produce", 0.08, lambda rule: rule.answer("NOT_LEADER_OR_FOLLOWER")),
    ("Produce", 0.05, lambda rule: rule.answer("NOT_ENOUGH_REPLICAS")),
    ("Produce", 0.05, lambda rule: rule.drop("before")),
    ("Produce", 0.05, lambda rule: rule.drop("after")),
    ("Produce", 0.05, lambda rule: rule.drop("middle")),
    ("Produce", 0.10, lambda rule: rule.delay(50)),
    ("Fetch", 0.03, lambda rule: rule.answer("NOT_LEADER_OR_FOLLOWER")),
    ("Fetch", 0.03, lambda rule: rule.drop("before")),
    ("Fetch", 0.03, lambda rule: rule.drop("middle")),
    ("Fetch", 0.05, lambda rule: rule.delay(50)),
    ("Metadata", 0.05, lambda rule: rule.delay(50)),
    ("Metadata", 0.05, lambda rule: rule.trickle(50, every_ms=1)),
    ("ListOffsets", 0.10, lambda rule: rule.answer("NOT_LEADER_OR_FOLLOWER")),
    ("FindCoordinator", 0.20, lambda rule: rule.delay(50)),
    ("OffsetCommit", 0.20, lambda rule: rule.delay(50)),
)


def brew(faults: Faults, seed: int, strength: float = 1) -> None:
    """Add the storm's rules; ``strength`` multiplies their probabilities."""
    seeds = Random(seed)
    for api, probability, act in _FAULTS:
        act(faults.on(api).with_probability(strength * probability, seed=seeds.getrandbits(32)))


def tell(faults: Faults, seed: int, report: Report) -> None:
    """Report what the storm did."""
    rows = [
        (faults.schema.name(key), rule.actions[0].key, rule.matched, rule.fired)
        for rule in faults.rules
        for key in rule.api_keys
    ]
    report.table(("api", "fault", "requests", "fired"), rows)
    total = sum(rule.fired for rule in faults.rules)
    report.say(f"{total:,} faults fired; the same storm: --storm {seed}")
