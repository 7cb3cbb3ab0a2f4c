"""Faults that random definitions have found, with the smallest definition of each."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from krammar.cli import main
from tests.compiler.conftest import write_files
from tests.random_definitions.packages import check, generated


def request(fields: str, header: str = "key 0, max version 1") -> dict[str, str]:
    return {"p/a.krm": f"PingRequest => {header}\n{fields}\nPingResponse =>\n  Ok: bool\n"}


@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_the_repr_of_infinities_can_be_pasted(value: str, tmp_path: Path) -> None:
    source = write_files(tmp_path / "d", request("  A: float64\n  B: [float64]\n"))
    with generated(source, tmp_path / "out") as built:
        cls = built.modules["p"].PingRequest
        again = eval(repr(cls(a=float(value), b=[1.0, float(value)])), {"PingRequest": cls})

    assert [str(again.a), *map(str, again.b)] == [value, "1.0", value]
    assert not math.isfinite(again.a)


def test_the_default_of_a_struct_with_its_own_version(tmp_path: Path) -> None:
    files = request("  Home: => // tag 0\n    Own: Own\n", "key 0, max version 0, flexible v0+")
    files["p/own.krm"] = (
        "Own => not top level, with version field, max version 3, min version 1\n"
        "  Version: int16{}\n  Text: string\n"
    )
    for default, expected in (("", {"version": 0}), ("(2)", {"version": 2, "text": ""})):
        place = tmp_path / f"default{default}"
        filled = {name: text.replace("{}", default) for name, text in files.items()}
        with generated(write_files(place / "d", filled), place / "out") as built:
            package = built.modules["p"]
            layout = package.layout(package.PingRequest, 0)
            read = layout.read(b"\0")

            assert read == {"home": {"own": expected}}
            assert layout.write(read) == b"\0"


def test_a_struct_with_tags_that_another_package_uses_where_nothing_is_flexible(
    tmp_path: Path,
) -> None:
    files = {
        "one/a.krm": "Part => not top level, no encoding\n  A: int8 // tag 0\n\n"
        "AskRequest => key 0, max version 0, flexible v0+\n  Part: Part\n\nAskResponse =>\n  Ok: bool\n",
        "two/a.krm": "use one: Part\n\nPutRequest => key 1, max version 0\n  Part: Part\n\nPutResponse =>\n  Ok: bool\n",
    }
    folders, protocols = check(write_files(tmp_path, files))

    assert len(folders) == len(protocols) == 2


def test_the_sign_of_a_tagged_zero_is_a_default_that_peers_read(tmp_path: Path) -> None:
    header = "key 0, max version 0, flexible v0+"
    old = write_files(tmp_path / "old", request("  A: float64(-0.0) // tag 0\n", header))
    new = write_files(tmp_path / "new", request("  A: float64 // tag 0\n", header))
    output = CliRunner().invoke(main, ["diff", str(old), str(new)]).output

    assert "B105" in output
