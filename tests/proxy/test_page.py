"""The examples of docs/proxy.md."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

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
    (settings,) = blocks("toml")
    (tmp_path / "proxy.toml").write_text(settings)
    read = "from pathlib import Path; from krammar.proxy.settings import read_settings; "
    read += "print(read_settings(Path('proxy.toml')).filters[0].prefix)"
    run = subprocess.run([sys.executable, "-c", read], cwd=tmp_path, capture_output=True, text=True)
    assert run.stdout == "blue-\n", run.stderr
