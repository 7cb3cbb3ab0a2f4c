"""``krammar lsp`` as a process. tests/lsp/test_server.py tests its responses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import PATIENCE


def message(method: str, params: object, number: int | None = None) -> bytes:
    content: dict[str, object] = {"jsonrpc": "2.0", "method": method, "params": params}
    if number is not None:
        content["id"] = number
    data = json.dumps(content).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(data), data)


def test_a_log_contains_defects_and_no_refusals(tmp_path: Path) -> None:
    """Invalid input does not end the server, and neither does the end of its input."""
    log = tmp_path / "server.log"
    unknown = {"command": "krammar.showBytes", "arguments": ["file:///nowhere/a.krm", "A"]}
    talk = [
        message("initialize", {"capabilities": {}, "processId": None, "rootUri": None}, 1),
        message("initialized", {}),
        b"Content-Length: 5\r\n\r\nhello",
        message("workspace/executeCommand", unknown, 2),
        message("shutdown", None, 3),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "krammar", "lsp", "--log-file", str(log)],
        input=b"".join(talk),
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b'"id": 3' in done.stdout or b'"id":3' in done.stdout
    assert b"does not compile; correct its errors first" in done.stdout
    text = log.read_text()
    assert "JSONDecodeError" in text
    assert "does not compile" not in text
