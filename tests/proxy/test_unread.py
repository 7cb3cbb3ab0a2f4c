"""Protocols whose frames pass unread: what would have to read them is refused, instead of doing nothing."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from krammar.cli import main
from krammar.faults import FaultError, Faults
from krammar.proxy import Filter, Proxy, on

HEADERS = """RequestHeader => not top level
  CorrelationId: int32
  RequestApiKey: int16
  RequestApiVersion: int16

ResponseHeader => not top level
  CorrelationId: int32

"""
ECHO = """EchoRequest => key 0, max version 0{}
  Text: string

"""
RESPONSE = """EchoResponse =>
  Text: string
"""
PROTOCOLS = {
    "unread_headers": HEADERS + ECHO.format("") + RESPONSE,
    "unread_one_way": ECHO.format(", one way").rstrip() + "\n",
}


@pytest.fixture(params=PROTOCOLS)
def protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> ModuleType:
    (tmp_path / "definitions").mkdir()
    (tmp_path / "definitions" / f"{request.param}.krm").write_text(PROTOCOLS[request.param])
    command = ["gen", str(tmp_path / "definitions"), "-o", str(tmp_path / request.param)]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    importlib.invalidate_caches()
    return importlib.import_module(request.param)


def test_filters_of_messages_are_refused(protocol: ModuleType) -> None:
    class Reads(Filter):
        @on(protocol.EchoRequest)
        def read(self, request: object, exchange: object) -> None: ...

    expected = f"read would see no message: the frames of {protocol.__name__} pass unread"
    with pytest.raises(ValueError, match=expected):
        Proxy("localhost:1", [Reads()], protocol=protocol)


def test_requests_cannot_be_refused(protocol: ModuleType) -> None:
    with pytest.raises(ValueError, match="refuse_unknown would refuse nothing: the frames of"):
        Proxy("localhost:1", protocol=protocol, refuse_unknown=True)


def test_filters_of_bytes_and_none_are_fine(protocol: ModuleType) -> None:
    Proxy("localhost:1", [Filter()], protocol=protocol)


def test_rules_of_faults_are_refused(protocol: ModuleType) -> None:
    with pytest.raises(FaultError, match=f"rules cannot apply to {protocol.__name__}, which has"):
        Faults(protocol).on("Echo")


def test_files_of_rules_are_refused(protocol: ModuleType) -> None:
    Path("faults.toml").write_text('[[fault]]\napi = "Echo"\ndrop = "request"\n')
    given = ["--faults", "faults.toml", "--listen", "127.0.0.1:0", "--upstream", "127.0.0.1:1"]
    result = CliRunner().invoke(main, ["tap", "--package", protocol.__name__, *given])
    assert result.exit_code == 1
    assert "faults.toml:1" in result.output and "rules cannot apply" in result.output
    assert "Traceback" not in result.output
