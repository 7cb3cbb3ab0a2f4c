"""Draws revenue by window and country, and the lag of each group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

# The palette of Okabe and Ito, which people with colour blindness can distinguish.
_COLORS = ("#0072B2", "#56B4E9", "#009E73", "#E69F00", "#CC79A7", "#D55E00")
_GREY = "#555555"


def draw(
    path: Path,
    revenue: Mapping[str, Sequence[tuple[datetime, int]]],
    window: timedelta,
    lags: Sequence[tuple[str, int, str]],
) -> None:
    """Write a PNG.

    Args:
        revenue: by country, the beginning of each window and its cents; the same windows for all.
        window: the length of a window.
        lags: the name of each group, its number of unread records, and a note.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.ticker import FuncFormatter

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, (upper, lower) = plt.subplots(
        2,
        1,
        figsize=(10, 7.5),
        height_ratios=(3, 0.5 + 0.4 * len(lags)),
        layout=ConstrainedLayoutEngine(w_pad=0.2, h_pad=0.15, hspace=0.04),
    )

    begins = [begin for begin, _ in next(iter(revenue.values()))]
    bottom = [0.0] * len(begins)
    largest_first = sorted(revenue, key=lambda name: -sum(cents for _, cents in revenue[name]))
    for color, country in zip(_COLORS, largest_first, strict=False):
        heights = [cents / 100 for _, cents in revenue[country]]
        upper.bar(
            begins,
            heights,
            window * 0.88,
            bottom,
            align="edge",
            color=color,
            label=f"{country}  € {sum(heights) / 1e6:.2f} m",
        )
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    minutes = window // timedelta(minutes=1)
    total = sum(bottom) / 1e6
    upper.set_title(
        f"Revenue of the day by country, each {minutes} minutes: € {total:.2f} m",
        loc="left",
        weight="bold",
    )
    upper.set_ylabel(f"euros in {minutes} minutes")
    upper.set_xlabel(f"time of order on {begins[0]:%d %B %Y}, UTC")
    upper.set_xlim(begins[0], begins[-1] + window)
    ticks = [begins[0] + timedelta(hours=hour) for hour in range(0, 25, 3)]
    upper.set_xticks(ticks, [f"{tick:%H:%M}" for tick in ticks])
    upper.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    upper.grid(axis="y", color="#dddddd")
    upper.set_axisbelow(True)
    # In the order in which they are stacked.
    handles, labels = upper.get_legend_handles_labels()
    upper.legend(handles[::-1], labels[::-1], loc="upper left", frameon=False)

    # The first group appears at the top.
    shown = list(reversed(lags))
    bars = lower.barh([name for name, _, _ in shown], [lag for _, lag, _ in shown], 0.6)
    for bar in bars:
        bar.set_color(_COLORS[5])
    lower.bar_label(bars, [f"{lag:,}   {note}" for _, lag, note in shown], padding=4, color=_GREY)
    lower.set_title(
        "Lag of the consumer groups: orders not read yet, and the time of the first of them",
        loc="left",
        weight="bold",
    )
    lower.set_xlabel("orders")
    lower.set_xlim(0, 1.25 * max([1, *(lag for _, lag, _ in shown)]))
    lower.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    lower.tick_params(axis="y", length=0)

    figure.savefig(path, dpi=120)
    plt.close(figure)
