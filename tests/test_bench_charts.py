"""The comparisons of docs/benchmarks.md say what its tables say."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.bench import charts
from tests.bench.charts import CHARTS, Chart, Panel


@pytest.fixture(scope="module")
def page() -> str:
    return charts.PAGE.read_text("utf-8")


def test_the_page_and_its_pictures_are_drawn_from_its_tables(page: str) -> None:
    assert charts.comparisons(page) in page
    for chart in CHARTS:
        assert charts.image(chart).read_text("utf-8") == charts.svg(chart, page)


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_a_bar_is_as_long_as_its_figure(chart: Chart, page: str) -> None:
    picture = ElementTree.fromstring(charts.svg(chart, page))
    drawn = [float(bar.attrib["width"]) for bar in picture.iter("{http://www.w3.org/2000/svg}rect")]
    expected: list[float] = []
    for panel in chart.panels:
        figures = [value for _, value in charts.values(panel, page)]
        widest = max(drawn[len(expected) : len(expected) + len(figures)])
        expected += [max(2, value / max(figures) * widest) for value in figures]
    assert drawn == pytest.approx(expected, abs=1)


@pytest.mark.parametrize(
    "panel",
    [
        Panel("no table", ("Nothing",), (("krammar", "krammar µs"),), ("a row",)),
        Panel("no row", ("Decoding messages",), (("krammar", "krammar µs"),), ("Nothing",)),
        Panel("no column", ("Decoding messages",), (("krammar", "x"),), ("HeartbeatRequest",)),
    ],
    ids=lambda panel: panel.title,
)
def test_a_figure_that_no_table_has_is_named(panel: Panel, page: str) -> None:
    with pytest.raises(LookupError, match="in the table under"):
        list(charts.values(panel, page))
