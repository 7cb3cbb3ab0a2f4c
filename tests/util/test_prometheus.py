"""Counters, histograms and their text."""

from __future__ import annotations

import re

from krammar.util.prometheus import Histogram, Metric, Registry

_LINE = re.compile(r'[a-z_]+(\{[a-z]+="(\\.|[^"\\\n])*"(,[a-z]+="(\\.|[^"\\\n])*")*\})? \S+')


def written(*metrics: Metric) -> list[str]:
    steps = Registry(metrics).text()
    try:
        while True:
            next(steps)
    except StopIteration as end:
        lines: list[str] = end.value.splitlines()
        return lines


def test_counters_and_readings() -> None:
    counter = Metric("counter", "requests_total", "Requests.", ("request", "version"))
    counter.series["Fetch", "4"] += 2
    size = Metric("gauge", "size", "Bytes.", (), lambda: 1.5)
    by_topic = Metric("gauge", "log", "Logs.", ("topic",), lambda: {("a",): 7})
    assert written(counter, size, by_topic) == [
        "# HELP requests_total Requests.",
        "# TYPE requests_total counter",
        'requests_total{request="Fetch",version="4"} 2',
        "# HELP size Bytes.",
        "# TYPE size gauge",
        "size 1.5",
        "# HELP log Logs.",
        "# TYPE log gauge",
        'log{topic="a"} 7',
    ]


def test_histograms_count_up_to_each_bound() -> None:
    times = Histogram("ms", "Times.", ["api"], (1, 2.5))
    for value in (0.5, 1, 2, 3):
        times.observe(value, "Fetch")
    assert written(times)[2:] == [
        'ms_bucket{api="Fetch",le="1"} 2',
        'ms_bucket{api="Fetch",le="2.5"} 3',
        'ms_bucket{api="Fetch",le="+Inf"} 4',
        'ms_sum{api="Fetch"} 6.5',
        'ms_count{api="Fetch"} 4',
    ]


def test_labels_are_escaped() -> None:
    counter = Metric("counter", "total", "Odd.", ["group"])
    counter.series['a"b\\c\nd',] += 1
    [*_, line] = written(counter)
    assert line == r'total{group="a\"b\\c\nd"} 1'
    assert _LINE.fullmatch(line)


def test_long_texts_are_written_in_steps() -> None:
    counter = Metric("counter", "total", "Many.", ["number"])
    for number in range(2000):
        counter.series[str(number),] += 1
    steps = Registry([counter]).text()
    assert sum(1 for _ in steps) == 10
