"""docs/gallery.md."""

from __future__ import annotations

import re
from pathlib import Path

from tests import samples

_PAGE = "docs/gallery.md"
# The bug at the beginning of a test's docstring: a project, "PR" for pull requests, and a number.
_BUG = re.compile(
    r'^    """((?:[\w-]+ (?:PR )?\d+|(?:KAFKA|SPARK)-\d+))(?:, open)?: ', re.MULTILINE
)


def test_the_page_lists_the_bugs_of_the_tests() -> None:
    folders = ("tests/gallery", "tests/interop/gallery")
    files = [file for folder in folders for file in (samples.ROOT / folder).glob("test_*.py")]
    files.append(Path(samples.ROOT / "tests/interop/spark/test_gallery.py"))
    tested = {bug for file in files for bug in _BUG.findall(file.read_text("utf-8"))}
    page = (samples.ROOT / _PAGE).read_text("utf-8")
    assert set(re.findall(r"^\| \[(.+?)\]", page, re.MULTILINE)) == tested
    assert len(tested) >= 15


def test_the_sample_runs_as_printed(tmp_path: Path) -> None:
    (sample,) = samples.blocks(_PAGE)
    printed = samples.run_python(tmp_path, sample)
    assert f"`{printed.strip()}`" in (samples.ROOT / _PAGE).read_text("utf-8")
