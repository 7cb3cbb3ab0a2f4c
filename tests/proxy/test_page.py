"""The examples of docs/proxy.md."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from krammar.proxy import Proxy
from krammar.proxy.settings import read_settings
from tests.proxy.test_tls import Certificates

PAGE = Path(__file__).parents[2] / "docs" / "proxy.md"


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", PAGE.read_text(), re.M | re.S)
    return [textwrap.dedent(code) for _, code in found]


def test_the_filter_its_test_and_its_settings(tmp_path: Path) -> None:
    example, _, *tests = blocks("python")
    (tmp_path / "my_filters.py").write_text(example)
    (tmp_path / "test_my_filters.py").write_text("\n".join(tests))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_filters.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    settings = blocks("toml")[0]
    (tmp_path / "proxy.toml").write_text(settings)
    read = "from pathlib import Path; from krammar.proxy.settings import read_settings; "
    read += "print(read_settings(Path('proxy.toml')).filters[0].prefix)"
    run = subprocess.run([sys.executable, "-c", read], cwd=tmp_path, capture_output=True, text=True)
    assert run.stdout == "blue-\n", run.stderr


def test_the_settings_of_deployments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Certificates(tmp_path)
    Path(tmp_path, "clients-ca.pem").write_text(Path(files.ca).read_text())
    Path(tmp_path, "brokers-ca.pem").write_text(Path(files.ca).read_text())
    monkeypatch.chdir(tmp_path)
    deployments = blocks("toml")[1:]
    assert len(deployments) >= 2
    for text in deployments:
        Path("proxy.toml").write_text(text)
        options = read_settings(Path("proxy.toml")).options
        Proxy(**options)
