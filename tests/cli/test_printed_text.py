"""What verbs print of files, clients and brokers cannot control a terminal, and cannot reverse the text around it."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from kafka_wire import (
    CreateTopicsResponse,
    MetadataRequest,
    MetadataResponse,
    RequestHeader,
    ResponseHeader,
)

import krammar
from krammar.cli import main
from krammar.cli.output import echo, print_json, print_table
from krammar.tap.capture import CaptureWriter
from krammar.tap.frame import Frame
from krammar.wire.batches import Record as BatchRecord
from krammar.wire.batches import encode_batch

# A title, a cleared screen, the clipboard, C1's form of the same, a bell, a return, marks that reverse text, a line
# separator.
HOSTILE = "a\x1b]0;owned\x07\x1b[2J\x1b]52;c;aGk=\x07\x9b2J\r\u202eb\u2066c\u2028d\x7f\u200e"
KRAMMAR = Path(krammar.__file__).parent


def printable(text: str) -> bool:
    return all(line.isprintable() for line in text.replace("\t", "").split("\n"))


def run(*arguments: str) -> str:
    """Run a verb. Returns what it prints, which must be printable."""
    result = CliRunner().invoke(main, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    shown = result.stdout + result.stderr
    assert printable(shown), ascii(shown)
    return shown


def frame(is_request: bool, data: bytes, note: str = "") -> Frame:
    return Frame(2, 1, is_request, data, len(data), note=note)


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """A capture that a stranger has written."""
    path = tmp_path / "hostile.tap"
    writer = CaptureWriter(path)
    writer.opened(1, 1, HOSTILE, HOSTILE)
    header = RequestHeader(
        request_api_key=3, request_api_version=12, correlation_id=1, client_id=HOSTILE
    )
    topics = [MetadataRequest.Topic(name=HOSTILE)]
    writer.frame(frame(True, header.encode(2) + MetadataRequest(topics=topics).encode(12)))
    response = MetadataResponse(
        cluster_id=HOSTILE,
        brokers=[MetadataResponse.Broker(node_id=1, host=HOSTILE, port=9, rack=HOSTILE)],
        topics=[MetadataResponse.Topic(name=HOSTILE, error_code=3)],
    )
    writer.frame(frame(False, ResponseHeader(correlation_id=1).encode(1) + response.encode(12)))
    header = RequestHeader(
        request_api_key=19, request_api_version=7, correlation_id=2, client_id=HOSTILE
    )
    writer.frame(frame(True, header.encode(2) + HOSTILE.encode()))
    refused = CreateTopicsResponse.CreatableTopicResult(
        name=HOSTILE, error_code=17, error_message=HOSTILE
    )
    body = CreateTopicsResponse(topics=[refused]).encode(7)
    writer.frame(frame(False, ResponseHeader(correlation_id=2).encode(1) + body))
    writer.closed(9, 1, HOSTILE)
    writer.close()
    return path


@pytest.mark.parametrize(
    "options",
    [[], ["--frames"], ["--summary"], ["--json"], ["--quiet"], ["--errors"], ["--client", "x"]],
    ids=" ".join,
)
def test_captures(capture: Path, options: list[str]) -> None:
    shown = run("tap", str(capture), *options)
    if options == ["--json"]:
        found = [json.loads(line) for line in shown.split("\n") if line.startswith("{")]
        assert found[0]["client"] == HOSTILE
        assert found[0]["message"]["topics"][0]["name"] == HOSTILE
    elif options in ([], ["--frames"]):
        assert "\\x1b]0;owned" in shown


def test_a_capture_with_another_package(tmp_path: Path) -> None:
    path = tmp_path / "hostile.tap"
    CaptureWriter(path, HOSTILE).start()
    assert "owned" in run("tap", str(path))


def test_log_folders(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    text = HOSTILE.encode()
    records = [BatchRecord(-1, 5, text, text, [(HOSTILE, text)])]
    (folder / f"{0:020}.log").write_bytes(encode_batch(records, base_offset=0))
    (folder / "partition.metadata").write_text(HOSTILE)
    (folder / "leader-epoch-checkpoint").write_text(HOSTILE)
    assert "owned" in run("inspect", str(folder), "--records")
    items = run("inspect", str(folder), "--records", "--json").splitlines()
    found = [json.loads(line) for line in items]
    assert any(HOSTILE in str(item.values()) or item.get("value") == HOSTILE for item in found)


def test_messages() -> None:
    data = MetadataRequest(topics=[MetadataRequest.Topic(name=HOSTILE)]).encode(12)
    assert "owned" in run("inspect", "kafka_wire", "MetadataRequest", "12", "--hex", data.hex())


@pytest.mark.parametrize(
    "verb", ["check", "fmt", "gen", "docs", "export", "import", "diff", "tap", "inspect"]
)
def test_names_of_files(tmp_path: Path, verb: str) -> None:
    """Also of files that are broken."""
    name = HOSTILE.replace("/", "") + ".krm"
    folder = tmp_path / "definitions"
    folder.mkdir()
    (folder / name).write_text(f"PingRequest => key {HOSTILE}\n")
    (folder / f"{name}.json").write_text(f'{{"{HOSTILE}')
    out = ["-o", str(tmp_path / HOSTILE)] if verb in ("gen", "docs", "export", "import") else []
    for source in (folder, folder / name, folder / f"{name}.json"):
        other = [str(source)] if verb == "diff" else []
        run(verb, str(source), *other, *out)


def test_errors_and_tables(capsys: pytest.CaptureFixture[str]) -> None:
    echo(HOSTILE)
    echo(HOSTILE, err=True)
    print_table(["name"], [[HOSTILE]])
    print_json({"name": HOSTILE})
    out, err = capsys.readouterr()
    assert printable(out) and printable(err)
    assert json.loads(out[out.index("{") :]) == {"name": HOSTILE}


def calls(tree: ast.AST) -> list[str]:
    return [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]


def test_nothing_is_printed_otherwise() -> None:
    """Ruff refuses ``click.echo``. Records are written as bytes, and escaped for terminals."""
    allowed = {"wire/__main__.py": {"print"}}  # for developers
    found = {}
    for path in KRAMMAR.rglob("*.py"):
        name = path.relative_to(KRAMMAR).as_posix()
        wrong = {
            each
            for each in calls(ast.parse(path.read_text()))
            if each in ("print", "click.secho", "sys.stdout.write", "sys.stderr.write")
            or (each == "click.echo" and name != "cli/output.py")
        } - allowed.get(name, set())
        if wrong:
            found[name] = wrong
    assert not found, "use krammar.cli.output.echo"


def test_every_handler_of_logs_escapes() -> None:
    raw = []
    for path in KRAMMAR.rglob("*.py"):
        text = path.read_text()
        handles = "logging.StreamHandler(" in text or "logging.FileHandler(" in text
        if handles and not re.search(r"(setFormatter\(|or )TextFormatter\(\)", text):
            raw.append(path)
    assert raw == []
