"""What the proxy aims at beside Kroxylicious, and whether a run reaches it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tests.bench.page import Target
from tests.bench.proxy_clients import DIRECT, Traffic
from tests.bench.proxy_systems import BYTES_ONLY

# The frames, how many are in flight, and the microseconds of each system; None where it does not pass them.
PerFrame = dict[tuple[str, int], dict[str, float | None]]

_KROXYLICIOUS = "Kroxylicious"
_MOST = {16: 4.0, 1: 30.0}  # microseconds per frame by the frames in flight
_MOST_PER_MB = 1.0
_CONSUMED = 0.8
_TENANTS = 1.5
_MEMORY = 5
_SOONER = 5


def targets(frames: PerFrame, traffic: Mapping[str, Traffic]) -> Iterator[Target]:
    """Yield the aims. Those beside Kroxylicious are left out where it cannot run."""
    for window, most in _MOST.items():
        yield _all(
            f"no filters, {window} in flight: at most {most:.0f} µs for each small frame",
            (
                (name, times["proxy"], most)
                for (name, each), times in frames.items()
                if each == window and "100 kB" not in name
            ),
        )
    yield _all(
        f"Tenants: at most {_TENANTS} times the proxy without filters for Produce and Fetch",
        (
            (f"{name}, {window}", times["Tenants"], _TENANTS * (times["proxy"] or 0))
            for (name, window), times in frames.items()
            if name.startswith(("Produce", "Fetch"))
        ),
        "frames of 1 kB that arrive together: the change of names is most of what they cost",
    )
    proxy, direct, least = traffic["proxy"], traffic[DIRECT], traffic[BYTES_ONLY]
    per_mb = max(proxy.produce, proxy.consume)
    yield Target(
        f"at most {_MOST_PER_MB} ms of processor time per MB in both directions",
        f"{proxy.produce:.2f} and {proxy.consume:.2f}",
        per_mb <= _MOST_PER_MB,
    )
    share, most = (each.rate / direct.rate for each in (proxy, least))
    yield Target(
        f"consume: at least {_CONSUMED} of direct",
        f"{share:.2f} (bytes only: {most:.2f})",
        share >= _CONSUMED,
    )
    peer = traffic.get(_KROXYLICIOUS)
    if peer is None:
        return
    yield _all(
        "no filters: no frame takes longer than with Kroxylicious",
        (
            (f"{name}, {window}", times["proxy"], times[_KROXYLICIOUS])
            for (name, window), times in frames.items()
        ),
    )
    for name, mine, other, relay in (
        ("p50", proxy.middle, peer.middle, least.middle),
        ("p99", proxy.slow, peer.slow, least.slow),
    ):
        yield Target(
            f"latency {name}: no more than with Kroxylicious",
            f"{mine:.0f} and {other:.0f} µs (bytes only: {relay:.0f})",
            mine <= other,
        )
    for name, mine, other, relay in (
        ("idle", proxy.idle, peer.idle, least.idle),
        ("after", proxy.after, peer.after, least.after),
    ):
        yield Target(
            f"memory {name}: at most a fifth of Kroxylicious",
            f"{mine:.0f} and {other:.0f} MiB (bytes only: {relay:.0f})",
            mine * _MEMORY <= other,
        )
    if proxy.ready is not None and peer.ready is not None:
        yield Target(
            f"ready {_SOONER} times sooner than Kroxylicious",
            f"{peer.ready / proxy.ready:.1f} times",
            proxy.ready * _SOONER <= peer.ready,
        )


def _all(
    promise: str, rows: Iterable[tuple[str, float | None, float | None]], why: str = ""
) -> Target:
    """A promise about several frames: their time and the most that it may be, in microseconds."""
    known = [(name, mine, most) for name, mine, most in rows if mine is not None and most]
    over = [f"{name}: {mine:.1f} of {most:.1f}" for name, mine, most in known if mine > most]
    measured = f"{len(known) - len(over)} of {len(known)}"
    return Target(promise, "; ".join([measured, *over]), not over, why)
