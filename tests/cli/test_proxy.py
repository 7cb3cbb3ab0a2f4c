"""``krammar proxy``: its options, its file, its life."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient

from krammar.cli import main
from krammar.testing import KafkaBroker
from tests.support.waiting import PATIENCE

FILTERS = """\
from kafka_wire import MetadataResponse
from krammar.proxy import Exchange, Filter, on

class Hide(Filter):
    def __init__(self, prefix: str = "secret-") -> None:
        self.prefix = prefix

    @on(MetadataResponse)
    def hide(self, response: MetadataResponse, exchange: Exchange) -> None:
        response.topics = [each for each in response.topics if not each.name.startswith(self.prefix)]

no_filter = 5
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_filters.py").write_text(FILTERS)
    return tmp_path


@pytest.mark.parametrize("form", ["options", "file"])
def test_a_proxy_serves_and_stops(folder: Path, form: str) -> None:
    with KafkaBroker.start(topics=["orders", "secret-orders"]) as broker:
        if form == "file":
            (folder / "proxy.toml").write_text(
                f'upstream = ["127.0.0.1:1", "{broker.bootstrap_servers}"]\nlisten = "127.0.0.1:0"\ndrain_timeout = 1\n'
                '[[filter]]\nclass = "my_filters:Hide"\nprefix = "ord"\n'
            )
            arguments, hidden = ["proxy.toml"], "orders"
        else:
            arguments, hidden = [
                "--filter",
                "my_filters:Hide",
                "--listen",
                "127.0.0.1:0",
            ], "secret-orders"
            arguments += ["--upstream", f"127.0.0.1:1,{broker.bootstrap_servers}"]
        process = subprocess.Popen(
            [sys.executable, "-m", "krammar.cli", "proxy", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            assert line.startswith("listening on 127.0.0.1:"), line
            admin = AdminClient({"bootstrap.servers": line.split()[2]})
            assert set(admin.list_topics(timeout=PATIENCE).topics) == (
                {"orders", "secret-orders"} - {hidden}
            )
            process.send_signal(signal.SIGTERM)
            *refused, last = process.stderr.read().splitlines()
            assert any("cannot reach 127.0.0.1:1: connection refused" in each for each in refused)
            assert last == "stopping"
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "give --upstream HOST:PORT, or a FILE with upstream"),
        (["--upstream", "x"], "'x' is not host:port"),
        (["--upstream", "x:1", "--filter", "my_filters"], "'my_filters' is not \"module:name\""),
        (
            ["--upstream", "x:1", "--filter", "no_such_module:X"],
            "module 'no_such_module' is not found (it must be installed, in the current folder, or on PYTHONPATH)",
        ),
        (["--upstream", "x:1", "--filter", "my_filters:X"], "module 'my_filters' has no 'X'"),
        (
            ["--upstream", "x:1", "--filter", "my_filters:no_filter"],
            "my_filters:no_filter is not a subclass of krammar.proxy.Filter",
        ),
    ],
)
def test_options_that_cannot_be_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], error: str
) -> None:
    monkeypatch.syspath_prepend(str(folder))
    result = CliRunner().invoke(main, ["proxy", *arguments])
    assert result.exit_code == 2
    assert f"Error: {error}" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("upstream =", "Invalid value"),
        ("upstrem = 'x:1'", 'upstrem: unknown setting; did you mean "upstream"?'),
        ("upstream = 'x:1'\nlisten = { a = 1 }", 'needs "host:port" or { name = "host:port" }'),
        ("upstream = 'x:1'\nlisten = {}", 'needs "host:port" or { name = "host:port" }'),
        ("upstream = 5", 'upstream: 5 needs "host:port" or'),
        ("upstream = []", 'or ["host:port", "host:port"]'),
        ("upstream = ['x:1', 2]", 'or ["host:port", "host:port"]'),
        ("filter = 'x'", "filter: 'x' needs [[filter]] for each filter, in their order"),
        ("filters = []", 'filters: unknown setting; did you mean "filter"?'),
        ("[[filter]]", '[[filter]] 1: needs class = "module:Class"'),
        (
            "[[filter]]\nclass = 'my_filters:Hide'\nsize = 1",
            "my_filters:Hide: Hide.__init__() got an unexpected keyword argument 'size'",
        ),
    ],
)
def test_files_that_cannot_be_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, error: str
) -> None:
    monkeypatch.syspath_prepend(str(folder))
    file = folder / "proxy.toml"
    file.write_text(text)
    result = CliRunner().invoke(main, ["proxy", str(file)])
    assert result.exit_code == 2
    assert str(file) in result.output
    assert error in " ".join(result.output.split())
