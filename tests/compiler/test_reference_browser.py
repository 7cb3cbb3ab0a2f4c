"""The pages of `krammar docs` in Chromium, without a server: search, versions, links, and both layouts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from krammar.cli import main

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="needs Chromium and its driver"
)
DEFINITIONS = Path(__file__).parents[2] / "definitions"
Open = Callable[[str], Any]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reference")
    done = CliRunner().invoke(main, ["docs", str(DEFINITIONS), "-o", str(out)])
    assert done.exit_code == 0, done.output
    return out


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    assert CHROMIUM is not None
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def show(browser: webdriver.Chrome, pages: Path) -> Iterator[Open]:
    def run(address: str) -> webdriver.Chrome:
        browser.get("about:blank")  # or a change of the fragment alone would not load the page
        browser.get(f"{pages.as_uri()}/{address}")
        return browser

    yield run
    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]


def found(page: Any) -> list[str]:
    """The texts of the results."""
    return page.execute_script(
        "return [...document.querySelectorAll('#found li')].map(item => item.innerText.replace(/\\n/g, ' '))"
    )


@pytest.mark.parametrize(
    ("typed", "first", "target"),
    [
        ("fetchreq", "FetchRequest key 1", "fetch.html#FetchRequest"),
        (
            "isolation_level",
            "isolation_level field · FetchRequest",
            "#FetchRequest.isolation_level",
        ),
        (
            "not_coordinator",
            "NOT_COORDINATOR 16 · ErrorCode",
            "enums.html#ErrorCode.NOT_COORDINATOR",
        ),
        ("isolationlevel", "IsolationLevel enum", "enums.html#IsolationLevel"),
        ("kip-227", "KIP-227 KIP · FetchRequest", "fetch.html#FetchRequest"),
        (
            "FetchRequest.topics.partitions.fetch_offset",
            "fetch_offset field",
            "partitions.fetch_offset",
        ),
    ],
)
def test_search(show: Open, typed: str, first: str, target: str) -> None:
    page = show("kafka_wire/metadata.html")
    page.find_element(By.TAG_NAME, "body").send_keys("/")
    page.switch_to.active_element.send_keys(typed)
    assert found(page)[0].startswith(first)
    page.switch_to.active_element.send_keys(Keys.ENTER)

    assert page.current_url.endswith(target)
    chosen = page.find_element(By.CSS_SELECTOR, ":target")
    assert chosen.is_displayed()
    top = page.execute_script("return arguments[0].getBoundingClientRect().top", chosen)
    assert 0 <= top < page.execute_script("return innerHeight")


def test_an_error_code_is_found_by_its_number(show: Open) -> None:
    page = show("kafka_wire/index.html")
    page.find_element(By.ID, "search").send_keys("35")
    assert "UNSUPPORTED_VERSION 35 · ErrorCode" in found(page)


def test_search_with_keys(show: Open) -> None:
    page = show("kafka_wire/index.html")
    box = page.find_element(By.ID, "search")
    box.send_keys("produce", Keys.ARROW_DOWN)
    second = found(page)[1].split()[0]
    assert page.find_element(By.CSS_SELECTOR, ".chosen").text.startswith(second)
    box.send_keys(Keys.ESCAPE)
    assert not page.find_element(By.ID, "found").is_displayed()
    box.send_keys("zzzz")
    assert found(page) == ["nothing found"]


def test_the_index_searches_all_protocols(show: Open) -> None:
    page = show("index.html")
    page.find_element(By.ID, "search").send_keys("ProduceRequest")
    owners = {
        line.rpartition(" · ")[2] for line in found(page) if line.startswith("ProduceRequest ")
    }
    assert owners == {"kafka_wire", "wafka_wire"}
    page.switch_to.active_element.send_keys(Keys.ENTER)
    assert page.find_element(By.ID, "ProduceRequest").is_displayed()


def slide(page: Any, struct: str, version: int) -> Any:
    section = page.find_element(By.ID, struct)
    page.execute_script(
        "const input = arguments[0].querySelector('input');"
        "input.value = arguments[1]; input.dispatchEvent(new Event('input'))",
        section,
        version,
    )
    return section


def shown_fields(section: Any) -> set[str]:
    rows = section.find_elements(By.CSS_SELECTOR, ".fields tr[id]")
    return {row.get_attribute("id") for row in rows if row.is_displayed()}


def test_the_slider_shows_one_version(show: Open) -> None:
    page = show("kafka_wire/fetch.html")
    section = slide(page, "FetchRequest", 6)

    assert section.find_element(By.TAG_NAME, "output").text == "v6"
    fields = shown_fields(section)
    assert "FetchRequest.topics.topic" in fields
    assert not {"FetchRequest.topics.topic_id", "FetchRequest.session_id"} & fields
    (layout,) = [
        each for each in section.find_elements(By.CLASS_NAME, "layout") if each.is_displayed()
    ]
    assert (
        "FetchRequest => replica_id max_wait_ms min_bytes max_bytes isolation_level" in layout.text
    )
    places = [row.text for row in layout.find_elements(By.CSS_SELECTOR, "tr[data-path]")]
    assert places[:6] == [
        "0 4 replica_id INT32",
        "4 4 max_wait_ms INT32",
        "8 4 min_bytes INT32",
        "12 4 max_bytes INT32",
        "16 1 isolation_level INT8",
        "17 4 + elements topics ARRAY",
    ]
    assert places[6] == "+0 2 + n topic STRING"
    header = [each.text for each in section.find_elements(By.CLASS_NAME, "header") if each.text]
    assert header == ["From v0: RequestHeader v1 precedes it."]
    assert page.current_url.endswith("#FetchRequest@6")


def test_what_changed(show: Open) -> None:
    page = show("kafka_wire/fetch.html#FetchRequest@13")
    section = page.find_element(By.ID, "FetchRequest")
    assert section.find_element(By.TAG_NAME, "output").text == "v13"
    section.find_element(By.CSS_SELECTOR, "option[value='11']").click()

    changes = section.find_element(By.CLASS_NAME, "changes").text.split("\n")
    assert changes == [
        "is flexible: compact lengths and tagged fields",
        "+ topics.topic_id",
        "+ topics.partitions.last_fetched_epoch",
        "+ forgotten_topics_data.topic_id",
        "+ cluster_id",
        "- topics.topic",
        "- forgotten_topics_data.topic",
    ]
    marked = {row.get_attribute("id") for row in section.find_elements(By.CSS_SELECTOR, "tr.new")}
    assert "FetchRequest.topics.topic_id" in marked
    slide(page, "FetchRequest", 11)
    assert "v11 has the same bytes as v11" in section.find_element(By.CLASS_NAME, "changes").text


def test_a_link_to_a_field_selects_a_version_that_has_it(show: Open) -> None:
    page = show("kafka_wire/fetch.html#FetchRequest.topics.topic")
    assert page.find_element(By.ID, "FetchRequest.topics.topic").is_displayed()
    section = page.find_element(By.ID, "FetchRequest")
    assert section.find_element(By.TAG_NAME, "output").text == "v12"


def test_neighbours_and_used_by(show: Open) -> None:
    page = show("kafka_wire/produce.html")
    page.find_element(By.CSS_SELECTOR, "[rel=next]").click()
    assert page.current_url.endswith("kafka_wire/fetch.html")
    page.find_element(By.CSS_SELECTOR, "[rel=prev]").click()
    assert page.current_url.endswith("kafka_wire/produce.html")
    page = show("kafka_wire/enums.html#IsolationLevel")
    page.find_element(By.LINK_TEXT, "FetchRequest.isolation_level").click()
    assert page.current_url.endswith("fetch.html#FetchRequest.isolation_level")


@pytest.mark.parametrize("step", [16, pytest.param(1, marks=pytest.mark.sweep)])
def test_every_version_of_every_message_is_shown(show: Open, pages: Path, step: int) -> None:
    """Each slider goes through all of its versions, and each entry of the search leads somewhere."""
    text = (pages / "kafka_wire/search.js").read_text()
    entries = json.loads(text.partition("entries: ")[2].rpartition(",\n")[0])
    wanted: dict[str, list[str]] = {}
    for _, _, _, url in entries:
        name, _, place = url.partition("#")
        wanted.setdefault(name, []).append(place)
    assert len(wanted) > 90 and len(entries) > 3000
    versions = 0
    for name, places in list(wanted.items())[::step]:
        page = show(f"kafka_wire/{name}")
        missing, shown = page.execute_script(
            """
            const missing = arguments[0].filter(place => !document.getElementById(place));
            let shown = 0;
            for (const section of document.querySelectorAll("section.struct")) {
              const slider = section.querySelector(".versions input");
              for (let version = Number(slider?.min); version <= Number(slider?.max); version++) {
                section.select(version);
                const layouts = [...section.querySelectorAll(".layout")].filter(each => !each.hidden);
                if (layouts.length !== 1) missing.push(section.id + " v" + version);
                shown++;
              }
            }
            return [missing, shown];
            """,
            places,
        )
        assert missing == [], name
        versions += shown
    assert versions > 700 / step


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_screens(show: Open, browser: webdriver.Chrome, width: int, scheme: str) -> None:
    """Nothing is wider than the screen, and text differs from its background."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    scheme_ = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)  # type: ignore[no-untyped-call]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme_)  # type: ignore[no-untyped-call]
    for address in (
        "index.html",
        "kafka_wire/index.html",
        "kafka_wire/fetch.html",
        "kafka_wire/enums.html",
    ):
        page = show(address)
        assert page.execute_script("return document.documentElement.scrollWidth") <= width, address
        # No table needs scrolling, because none is wider than its box. Layouts may be wider.
        wide = page.execute_script(
            "return [...document.querySelectorAll('table:not(.places)')]"
            ".filter(each => each.scrollWidth > each.parentElement.clientWidth).length"
        )
        assert wide == 0, address
        dark = page.execute_script(
            "const sum = text => text.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0);"
            "const style = getComputedStyle(document.body);"
            "return sum(style.backgroundColor) < sum(style.color)"
        )
        assert dark == (scheme == "dark"), address
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})  # type: ignore[no-untyped-call]
