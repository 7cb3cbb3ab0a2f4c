"""The samples of README.md, and of the guides on messages and on the client, run as pasted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from krammar.broker import Broker
from tests.samples import ROOT, SERVERS, blocks, run, run_python

README = "README.md"


def test_no_sample_of_the_readme_is_forgotten() -> None:
    sections = {
        "Kafka messages in Python": 1,
        "A Kafka broker in your tests": 2,
        "Kafka data in Spark": 1,
        "A protocol of your own": 1,
    }
    assert {name: len(blocks(README, section=name)) for name in sections} == sections
    assert len(blocks(README)) == sum(sections.values())
    assert (ROOT / "docs/images/pipeline.png").read_bytes().startswith(b"\x89PNG")


def test_the_first_page_of_the_site(tmp_path: Path) -> None:
    """Its Spark sample is like that of the README."""
    page = "docs/index.md"
    (fixture,) = blocks(page, section="Test a Kafka program")
    (tmp_path / "test_orders.py").write_text(fixture)
    assert "1 passed" in run(tmp_path, sys.executable, "-m", "pytest", "-q", "test_orders.py")
    run_python(tmp_path, *blocks(page, section="Read and write messages"))


def test_messages_in_the_readme(tmp_path: Path) -> None:
    output = run_python(tmp_path, *blocks(README, section="Kafka messages in Python"))
    assert output == "NOT_LEADER_OR_FOLLOWER True\n"


def test_the_broker_in_the_readme(tmp_path: Path) -> None:
    fixture, program = blocks(README, section="A Kafka broker in your tests")
    (tmp_path / "test_orders.py").write_text(fixture)
    assert "1 passed" in run(tmp_path, sys.executable, "-m", "pytest", "-q", "test_orders.py")
    assert run_python(tmp_path, program) == "orders-0 0 b'value'\n"


@pytest.mark.sweep  # starts Java, for half a minute
def test_spark_in_the_readme(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    if not _java():
        pytest.skip("Java is not installed")
    output = run_python(tmp_path, *blocks(README, section="Kafka data in Spark"), timeout=300)
    assert "|        0| 1000|" in output


def _java() -> bool:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    try:
        return subprocess.run([java, "-version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def test_a_protocol_in_the_readme(tmp_path: Path) -> None:
    section = "A protocol of your own"
    definitions, command = blocks(README, language="", section=section)
    (tmp_path / "protocol").mkdir()
    (tmp_path / "protocol" / "sensors.krm").write_text(definitions)
    run(tmp_path, "krammar", "check", "protocol/", "--strict")
    run(tmp_path, *command.split())
    run_python(tmp_path, *blocks(README, section=section))


def test_the_guide_on_messages(capsys: pytest.CaptureFixture[str]) -> None:
    samples = blocks("docs/messages.md")
    namespaces: list[dict[str, Any]] = [{} for _ in samples]
    printed = []
    for sample, names in zip(samples, namespaces, strict=True):
        exec(compile(sample, "docs/messages.md", "exec"), names)
        printed.append(capsys.readouterr().out)
    _, refusal, _, layout, fields, walk = printed
    assert refusal.startswith(samples[1].partition("    # ")[2].partition(" …")[0])
    assert layout == blocks("docs/messages.md", "", "Layouts")[-1]
    assert fields.startswith("throttle_time_ms int32 range(3, 14) range(0, 0) 0\n")
    assert walk == "['orders'] test-orders\n"
    assert namespaces[0]["again"] == namespaces[0]["request"]
    assert namespaces[0]["end"] == len(namespaces[0]["data"])
    names = namespaces[3]
    assert len(names["data"]) == names["layout"].size_of(names["request"])


def test_the_guide_on_the_client(tmp_path: Path) -> None:
    sample, *_ = blocks("docs/client.md")  # the others need a login
    with Broker.start() as broker:
        output = run_python(tmp_path, sample.replace(SERVERS, broker.bootstrap_servers))
    assert output == "orders-0 0 b'value'\n"


def test_the_guide_on_the_broker(tmp_path: Path) -> None:
    program, loop, fixture, *others = blocks("docs/broker.md")
    assert len(others) == 8
    for sample in (program, *others):
        run_python(tmp_path, sample)
    assert run_python(tmp_path, loop).startswith("127.0.0.1:")
    (tmp_path / "test_orders.py").write_text(fixture)
    assert "1 passed" in run(tmp_path, sys.executable, "-m", "pytest", "-q", "test_orders.py")


def test_the_readme_works_on_a_package_index() -> None:
    """Its links are absolute, and their targets exist in the repository."""
    text = (ROOT / README).read_text("utf-8")
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
    assert len(links) > 15
    for link in links:
        _, found, path = re.sub("/raw.githubusercontent.com/", "/github.com/", link).partition(
            "/main/"
        )
        assert link.startswith("https://") and found, link
        assert (ROOT / path).exists(), link


def test_the_readme_is_short() -> None:
    assert len((ROOT / README).read_text("utf-8").split()) <= 1_000
