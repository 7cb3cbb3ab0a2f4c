"""The samples of docs/fixtures.md and docs/recipes.md, as pasted into test files."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from tests.samples import blocks, run

PAGE = "docs/fixtures.md"


def test_the_samples_pass(tmp_path: Path) -> None:
    samples = [sample for sample in blocks(PAGE) if "testcontainers" not in sample]
    conftests = [sample for sample in samples if sample.startswith("# conftest.py")]
    tests = [sample for sample in samples if sample not in conftests]
    (tmp_path / "conftest.py").write_text("".join(conftests), "utf-8")
    for at, sample in enumerate(tests):
        (tmp_path / f"test_{at}.py").write_text(sample, "utf-8")
    options = ("--strict-markers", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    output = run(tmp_path, sys.executable, "-m", "pytest", *options)
    assert f"collected {sum(sample.count('def test_') for sample in tests) + 1} items" in output
    assert len(conftests) == 1
    (tests_of_unittest,) = (sample for sample in tests if "import unittest" in sample)
    (tmp_path / "sample.py").write_text(tests_of_unittest, "utf-8")
    run(tmp_path, sys.executable, "sample.py")


def test_the_recipes_pass(tmp_path: Path) -> None:
    samples = blocks("docs/recipes.md")
    for at, sample in enumerate(samples):
        (tmp_path / f"test_{at}.py").write_text(sample, "utf-8")
    options = ("--strict-markers", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    output = run(tmp_path, sys.executable, "-m", "pytest", *options)
    assert f"{sum(sample.count('def test_') for sample in samples)} passed" in output


def test_nothing_needs_pytest(tmp_path: Path) -> None:
    code = "import sys, krammar.testing as t; t.KafkaBroker.start().close(); print(*sys.modules)"
    assert "pytest" not in run(tmp_path, sys.executable, "-c", code).split()


def test_the_test_is_the_same_with_testcontainers() -> None:
    theirs, ours = (
        ast.parse(sample) for sample in blocks(PAGE, section="Coming from testcontainers")
    )

    def body(module: ast.Module) -> str:
        return next(
            ast.dump(each)
            for each in module.body
            if isinstance(each, ast.FunctionDef) and each.name == "test_orders"
        )

    assert body(theirs) == body(ours)
