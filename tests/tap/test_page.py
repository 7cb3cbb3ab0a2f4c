"""The page in headless Chromium: a capture as a file, and a running tap."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka_wire
import pytest
from kafka_wire import MetadataResponse, SaslAuthenticateRequest, SaslAuthenticateResponse

from krammar.tap.capture import CaptureError, CaptureWriter
from krammar.tap.exchanges import EVERYTHING, ExchangeSelection
from krammar.tap.frame import Frame
from krammar.tap.page import block, page_html, parts
from krammar.tap.page_file import write_html
from tests.support.waiting import PATIENCE
from tests.tap.support import inspector, invoke
from tests.tap.test_exchanges import asking, beat
from tests.tap.test_inspector import request, response
from tests.tap.test_pcap import talk
from tests.tap.test_server import feeding, served

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "\"'><b>&amp;$CONFIG<!-- data -->",
)

# One browser for the module, in one process of pytest-xdist.
pytestmark = pytest.mark.xdist_group("chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("needs chromium and chromedriver")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,850"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    chrome.set_script_timeout(PATIENCE)
    yield chrome
    chrome.quit()


class View:
    """A page in the browser."""

    def __init__(self, browser: Any, url: str) -> None:
        self.browser = browser
        browser.get_log("browser")
        browser.get(url)

    def all(self, selector: str) -> list[Any]:
        return list(self.browser.find_elements("css selector", selector))

    def one(self, selector: str) -> Any:
        return self.browser.find_element("css selector", selector)

    def run(self, script: str, *values: Any) -> Any:
        return self.browser.execute_script(script, *values)

    def texts(self, selector: str) -> list[str]:
        texts = self.run(
            "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector
        )
        return list(texts)

    def wait(self, script: str) -> Any:
        """Wait until a script returns something true."""
        wait = pytest.importorskip("selenium.webdriver.support.wait").WebDriverWait
        return wait(self.browser, PATIENCE, 0.02).until(lambda _: self.run(f"return {script}"))

    def rows(self, number: int) -> list[str]:
        """Wait until the list has this number of rows. Return the ones that the browser draws."""
        self.wait(f"list.length === {number}")
        return self.texts("#rows .row .api b")

    def choose(self, control: str, value: str) -> None:
        self.run(
            "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
            "e.dispatchEvent(new Event('input'))",
            control,
            value,
        )

    def open(self, index: int) -> None:
        self.run("list.show(arguments[0]); openRow(shown[arguments[0]].n)", index)
        self.wait("!document.getElementById('detail').hidden && detail.lines.length > 0")

    def log(self) -> list[str]:
        return [entry["message"] for entry in self.browser.get_log("browser")]


def metadata(*topics: str) -> list[Frame]:
    seen = inspector()
    told = MetadataResponse(
        brokers=[MetadataResponse.Broker(node_id=1, host="h", port=9)],
        topics=[
            MetadataResponse.Topic(
                name=name,
                error_code=3,
                partitions=[MetadataResponse.Partition(partition_index=n) for n in range(2)],
            )
            for name in topics
        ],
    )
    return [
        seen.request(asking(topics[0]).data, START + SECOND),
        seen.response(response(told, 12, 7), START + SECOND + 3_000_000),
    ]


def html(
    folder: Path, frames: list[Frame], select: ExchangeSelection = EVERYTHING, **options: Any
) -> str:
    writer = CaptureWriter(folder / "a.tap")
    writer.opened(START, 1, "127.0.0.1:5", "broker:9092")
    for frame in sorted(frames, key=lambda frame: frame.time_ns):
        writer.frame(frame)
    writer.close()
    write_html(kafka_wire, folder / "a.tap", folder / "a.html", select, **options)
    return (folder / "a.html").as_uri()


def test_a_capture_in_the_browser(browser: Any, tmp_path: Path) -> None:
    view = View(browser, html(tmp_path, [*talk(100), *metadata("orders", "payments")]))
    assert sorted(view.rows(3)) == ["Heartbeat", "Metadata", "Produce"]
    assert view.texts("#rows .row.bad .api b") == ["Metadata", "Heartbeat"]
    assert view.one("#count").text == "3 requests, 2 errors"
    red = view.run("return getComputedStyle(document.querySelector('.row.bad')).color")
    assert red == "rgb(200, 32, 47)"

    view.choose("topic", "payments")
    assert view.rows(1) == ["Metadata"]
    view.one("#reset").click()
    view.choose("text", "REBALANCE")
    assert view.rows(1) == ["Heartbeat"]
    view.choose("text", "")
    view.choose("api", "Produce")
    assert view.rows(1) == ["Produce"]
    view.choose("api", "")
    view.one("#errors").click()
    view.rows(2)
    view.choose("client", "nobody")  # not in the list, so nothing is selected
    view.one("#errors").click()
    view.rows(3)

    view.one("#head .num:nth-last-child(2) button").click()  # the longest latency first
    assert view.rows(3)[-1] == "Metadata"
    view.one("#head .time button").click()
    chart = view.one("#overview")
    chains = pytest.importorskip("selenium.webdriver").ActionChains(browser)
    chains.move_to_element_with_offset(chart, 0, 5).click_and_hold().move_by_offset(600, 0)
    chains.release().perform()
    assert view.rows(1) == ["Heartbeat"]  # the others are in the first half of the time
    view.one("#reset").click()
    view.rows(3)

    view.one("#tab-connections").click()
    assert view.texts(".lane .who div") == ["#1 c"]
    view.one("#tab-summary").click()
    assert view.texts(".tile b")[0] == "3"
    assert {"Produce v7", "Metadata v12"} <= set(view.texts(".chip"))
    assert "UNKNOWN_TOPIC_OR_PARTITION" in view.one("#summary").text
    assert view.log() == []


def test_the_field_under_the_pointer_is_marked_in_tree_and_bytes(
    browser: Any, tmp_path: Path
) -> None:
    frames = metadata("orders")
    view = View(browser, html(tmp_path, frames))
    view.rows(1)
    view.open(0)  # an error: the response is shown first
    names = view.texts("#tree .node .name")
    assert "error_code" in names
    values = view.texts("#tree .node.code .value")
    assert values == ["3 UNKNOWN_TOPIC_OR_PARTITION"]
    chains = pytest.importorskip("selenium.webdriver").ActionChains
    node = view.all("#tree .node")[names.index("name")]
    chains(browser).move_to_element(node).perform()
    view.wait("document.querySelectorAll('#bytes .marked').length")
    at = frames[1].data.index(b"\x07orders")
    marked = "return [...document.querySelectorAll('#bytes .pair.marked')].map(e => +e.dataset.o)"
    assert view.run(marked) == list(range(at, at + 7))
    assert view.one("#path").text.startswith(
        f"topics[0].name · COMPACT_NULLABLE_STRING · offset {at}, 7"
    )
    # From the bytes to the tree.
    cell = view.one(f"#bytes [data-o='{at - 1}']")
    chains(browser).move_to_element(cell).perform()
    view.wait("document.getElementById('path').textContent.startsWith('topics[0].error_code')")
    assert view.texts("#tree .node.marked .name") == ["error_code"]
    view.one("#tab-request").click()
    assert view.texts("#tree .node .name")[0] == "RequestHeader"


def test_selections_are_announced(browser: Any, tmp_path: Path) -> None:
    """Screen readers hear which row and which field are selected."""
    view = View(browser, html(tmp_path, metadata("orders")))
    view.rows(1)
    assert view.one("#rows .row").get_attribute("aria-selected") == "false"
    view.open(0)
    row = view.one("#rows").get_attribute("aria-activedescendant")
    assert view.one(f"#{row}").get_attribute("aria-selected") == "true"
    view.one("#tree").send_keys("\ue015")  # the arrow down
    field = view.one("#tree").get_attribute("aria-activedescendant")
    assert view.one(f"#{field}").get_attribute("aria-selected") == "true"
    assert view.one(f"#{field}").get_attribute("role") == "treeitem"
    view.one("#close").click()
    view.wait("!document.getElementById('rows').hasAttribute('aria-activedescendant')")


def test_an_error_scrolls_to_its_field(browser: Any, tmp_path: Path) -> None:
    view = View(browser, html(tmp_path, metadata(*(f"topic-{n}" for n in range(150)))))
    view.run("document.getElementById('tree').style.height = '200px'")
    view.open(0)
    view.wait("document.querySelector('.node.marked.code') !== null")
    assert "error_code" in view.one(".node.marked").text


def test_hostile_names_stay_text(browser: Any, tmp_path: Path) -> None:
    view = View(browser, html(tmp_path, metadata(*HOSTILE)))
    view.rows(1)
    view.open(0)
    assert json.dumps(HOSTILE[0]) in view.texts("#tree .node .value")
    assert set(HOSTILE) <= set(view.texts("#topic option"))
    for tab in ("connections", "summary"):
        view.one("#close").click() if view.one("#close").is_displayed() else None
        view.one(f"#tab-{tab}").click()
    assert view.run("return document.title") == "a.tap · krammar tap"
    assert view.all("img, b[onerror], #rows script") == []
    assert view.log() == []


def test_hostile_names_in_the_document() -> None:
    begin, end = parts({"source": HOSTILE[0] + HOSTILE[2]})
    assert "owned" not in begin
    assert end.count("<script") == 2
    text = end.partition('id="config">')[2].partition("</script>")[0]
    assert json.loads(text) == {"source": HOSTILE[0] + HOSTILE[2]}
    assert block("x", list(HOSTILE)).count("<") == 2
    assert "http://" not in page_html({}) and "https://" not in page_html({})


def test_100_000_rows_scroll(browser: Any) -> None:
    with served(feeding()[0]) as server:
        view = View(browser, server.page.url)
        view.run("""
            source.close();
            const rows = [];
            for (let n = 1; n <= 100000; n += 1) rows.push(
                [n, 1.7e15 + n * 100, n % 20, "Fetch", 16, "c" + n % 9, ["t" + n % 50], "t[0]", 80, n, n % 5000,
                 n % 1000 ? "ok" : "error", n % 1000 ? [] : ["NOT_COORDINATOR"]]);
            take({rows, connections: [], first: 1});
            """)
        started = time.monotonic()
        view.run("refresh()")
        view.rows(100_000)
        assert (
            time.monotonic() - started < 10
        )  # 0.4 s on a busy machine; it would take minutes to draw all rows
        assert 10 < len(view.all("#rows .row")) < 80
        assert view.run("return document.getElementById('rows').scrollHeight") == 2_700_000
        view.run("document.getElementById('rows').scrollTop = 1350000")
        view.wait("[...list.drawn.keys()].includes(50000)")
        assert len(view.all("#rows .row")) < 80
        view.one("#errors").click()
        view.rows(100)


def test_a_running_tap(browser: Any) -> None:
    feed, exchanges = feeding()
    feed.opened(START, 1, "127.0.0.1:5", "broker:9092")
    with served(feed) as server:
        view = View(browser, server.page.url)
        view.wait("document.getElementById('dot').className === 'live'")
        asked, told = beat(error=27)
        exchanges.frame(asked)
        view.rows(1)
        assert view.texts("#rows .row.waiting .state") == ["waiting"]
        exchanges.frame(told)
        view.wait("document.querySelector('#rows .row.bad')")
        assert view.texts("#rows .row .state") == ["2.00 ms"]
        view.open(0)
        assert "error_code" in view.texts("#tree .node .name")
        view.one("#pause").click()
        exchanges.frame(asking("orders"))
        view.one("#pause").click()
        view.rows(2)
        view.one("#clear").click()
        view.rows(0)
        exchanges.frame(asking("orders", 8))
        view.rows(1)
        assert view.log() == []
    view.wait("document.getElementById('dot').className === 'ended'")


@pytest.mark.parametrize("dark", [False, True])
def test_narrow_screens(browser: Any, tmp_path: Path, dark: bool) -> None:
    scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    size = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        view = View(browser, html(tmp_path, [*talk(100), *metadata("orders" * 30)]))
        view.rows(3)
        for tab in ("requests", "connections", "summary"):
            view.one(f"#tab-{tab}").click()
            assert view.run("return document.documentElement.scrollWidth") == 400
        background = view.run("return getComputedStyle(document.body).backgroundColor")
        assert background == ("rgb(18, 22, 28)" if dark else "rgb(255, 255, 255)")
        view.one("#tab-requests").click()
        view.open(0)
        assert view.one("#detail").rect["width"] == 400
        assert view.run("return document.documentElement.scrollWidth") == 400
        view.one("#theme").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_the_file(tmp_path: Path) -> None:
    html(tmp_path, talk(100))
    document = (tmp_path / "a.html").read_text()
    assert "http://" not in document and "https://" not in document
    again = invoke(tmp_path / "a.tap", "--html", tmp_path / "a.html", "--api", "produce")
    assert again == (0, f"wrote {tmp_path / 'a.html'}: 1 request\n")
    code, output = invoke(tmp_path / "a.tap", "--html", tmp_path / "a.tap")
    assert code == 2
    assert "a.tap is not a page of krammar tap, so it is not overwritten" in output


def test_a_file_has_no_more_rows_than_the_page_shows(tmp_path: Path) -> None:
    html(tmp_path, talk(100), max_rows=1)
    assert '"omitted": 1' in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize("secrets", [False, True])
def test_passwords_in_a_file(tmp_path: Path, secrets: bool) -> None:
    seen = inspector()
    frames = [
        seen.request(request(SaslAuthenticateRequest(auth_bytes=b"\0me\0hunter2"), 2), START),
        seen.response(response(SaslAuthenticateResponse(), 2), START + 1),
    ]
    html(tmp_path, frames, secrets=secrets)
    assert _contains(tmp_path / "a.html", b"hunter2") == secrets


def _contains(path: Path, secret: bytes) -> bool:
    """Return whether the unpacked data of a page contains some bytes, in a tree or in a frame."""
    import base64
    import gzip
    import re

    blocks = re.findall(r'id="data-[a-z0-9-]+">([^<]*)<', path.read_text())
    texts = [gzip.decompress(base64.b64decode(each)).decode() for each in blocks]
    data = b"".join(
        base64.b64decode(each) for text in texts for each in re.findall(r'"data":"([^"]*)"', text)
    )
    assert b"\x00\x24" in data  # SaslAuthenticate has key 36
    return secret in data or any(secret.decode() in text for text in texts)


def test_a_folder_is_no_target(tmp_path: Path) -> None:
    html(tmp_path, talk(100))
    with pytest.raises(CaptureError, match="is not a capture"):
        write_html(kafka_wire, tmp_path / "a.html", tmp_path / "b.html", ExchangeSelection())
    assert not (tmp_path / "b.html").exists()
