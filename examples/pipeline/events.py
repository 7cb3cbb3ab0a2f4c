"""A day of orders of a shop with customers in five countries, the same in every run."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shop import OrderPlaced

DAY = datetime(2026, 3, 14, tzinfo=UTC)
DAY_MS = int(DAY.timestamp()) * 1000
MINUTE_MS = 60_000
DAY_END_MS = DAY_MS + 24 * 60 * MINUTE_MS
WINDOW_MINUTES = 30
# The longest delay of an order; the watermark is longer.
LATEST_MS = 8 * MINUTE_MS

# The share of orders of each country, and by how many minutes it orders later than the first one.
COUNTRIES = {"DE": (34, 0), "FR": (24, 30), "NL": (16, -15), "ES": (15, 110), "SE": (11, -30)}

# Orders by hour: quiet at night, a peak at lunch, a higher one in the evening.
_HOURS = (6, 4, 2, 2, 2, 3, 7, 15, 26, 36, 43, 52, 61, 52, 44, 42, 47, 58, 72, 88, 92, 74, 42, 18)

# The price of each article in cents, and its relative frequency.
_ARTICLES = {
    "espresso beans 1 kg": (1890, 30),
    "filter papers": (349, 22),
    "oat milk 6 x 1 l": (1194, 18),
    "green tea 100 g": (790, 12),
    "moka pot": (3490, 6),
    "hand grinder": (5990, 4),
    "milk frother": (2450, 5),
    "espresso machine": (48900, 1),
    "stoneware cups, 4": (2790, 6),
}
_CHANNELS = {"web": 55, "app": 38, "store": 7}


@dataclass(slots=True)
class Event:
    """An order, when it was placed (milliseconds since 1970), and when it reaches the broker."""

    time_ms: int
    arrival_ms: int
    channel: str
    order: OrderPlaced


@dataclass
class Tally:
    """The number and the cents of the produced orders, by window and country."""

    orders: Counter[tuple[int, str]] = field(default_factory=Counter)
    cents: Counter[tuple[int, str]] = field(default_factory=Counter)

    def add(self, event: Event) -> None:
        at = window_of(event.time_ms), event.order.country
        self.orders[at] += 1
        self.cents[at] += event.order.total


def window_of(time_ms: int) -> int:
    """Return when the window of a time begins, in milliseconds since 1970."""
    return time_ms - time_ms % (WINDOW_MINUTES * MINUTE_MS)


def orders(count: int, seed: int = 7) -> Iterator[Event]:
    """Yield ``count`` orders of the day, sorted by arrival.

    A few customers of the app are offline when they order, and their orders arrive minutes later.
    """
    chance = random.Random(seed)
    for number, (arrival, time, country, channel) in enumerate(sorted(_moments(count, chance))):
        yield Event(time, arrival, channel, _order(number, country, chance))


def closing_order() -> Event:
    """Return the first order of the next day, long after midnight. It closes all windows of the day."""
    time = DAY_END_MS + 60 * MINUTE_MS
    return Event(time, time, "web", _order(-1, "DE", random.Random(0)))


def _moments(count: int, chance: random.Random) -> Iterator[tuple[int, int, str, str]]:
    """Yield arrival, time, country and channel, unsorted."""
    shares = [share for share, _ in COUNTRIES.values()]
    countries = chance.choices(list(COUNTRIES), shares, k=count)
    channels = chance.choices(list(_CHANNELS), list(_CHANNELS.values()), k=count)
    minutes = chance.choices(range(24 * 60), _profile(), k=count)
    for country, channel, minute in zip(countries, channels, minutes, strict=True):
        shifted = (minute + COUNTRIES[country][1]) % (24 * 60)
        time = DAY_MS + shifted * MINUTE_MS + int(chance.random() * MINUTE_MS)
        late = channel == "app" and chance.random() < 0.03
        delay = chance.random() * (LATEST_MS if late else 2000)
        yield time + int(delay), time, country, channel


def _profile() -> list[float]:
    """Return the relative number of orders per minute, interpolated between the hours."""
    return [
        _HOURS[hour] + (_HOURS[(hour + 1) % 24] - _HOURS[hour]) * minute / 60
        for hour in range(24)
        for minute in range(60)
    ]


_NAMES = list(_ARTICLES)
_WEIGHTS = list(accumulate(weight for _, weight in _ARTICLES.values()))


def _order(number: int, country: str, chance: random.Random) -> OrderPlaced:
    from shop import OrderPlaced, Payment

    names = dict.fromkeys(
        chance.choices(_NAMES, cum_weights=_WEIGHTS, k=chance.choice((1, 1, 2, 3)))
    )
    lines = [
        OrderPlaced.Line(
            article=name, count=1 + int(chance.random() ** 4 * 3), price=_ARTICLES[name][0]
        )
        for name in names
    ]
    return OrderPlaced(
        id=1_000_000 + number,
        # Some customers order far more often than others.
        customer=int(20_000 * chance.random() ** 2),
        country=country,
        payment=Payment(chance.choice((0, 0, 0, 1, 2))),
        lines=lines,
        total=sum(line.count * line.price for line in lines),
    )
