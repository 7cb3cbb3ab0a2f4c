"""The mechanism of settings: tables, errors, and the parsers of single values."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from krammar.util.settings import (
    Parser,
    Setting,
    SettingError,
    SettingTable,
    boolean,
    choice,
    integer,
    number,
    split_list,
    split_names,
    text,
    trimmed,
)

TABLE = SettingTable(
    [
        Setting("workers", integer(1), 1, aliases=("processes",)),
        Setting("password", integer(), secret=True),
        Setting("group.id", text, refused="there are no groups"),
    ]
)


class OwnError(SettingError):
    """An error with a constructor and a text of its own."""

    between = ": "

    def __init__(self, reason: str, *, name: str = "own", value: object = None) -> None:
        super().__init__(name, reason, value)

    @property
    def label(self) -> str:
        return f"option {self.name}"


def test_settings_are_found_by_name_and_alias() -> None:
    assert TABLE.find("workers") is TABLE.find("processes") is TABLE["workers"]
    assert TABLE.lookup("worker") is None
    assert TABLE.read(TABLE.find("workers"), "4") == 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("worker", 'worker: unknown setting; did you mean "workers"?'),
        ("proceses", 'proceses: unknown setting; did you mean "processes"?'),
        ("zzz", "zzz: unknown setting (the settings are workers, password, group.id)"),
        ("group.id", "group.id: is not supported: there are no groups"),
    ],
)
def test_names_that_are_errors(name: str, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        TABLE.find(name)
    assert str(caught.value) == message
    assert caught.value.name == name


def test_a_long_table_is_not_listed() -> None:
    table = SettingTable(Setting(f"setting.{number}", text) for number in range(21))
    assert table.unknown("zzz") == "unknown setting"


def test_an_error_shows_the_value_unless_it_is_secret() -> None:
    for name, message in (
        ("workers", "workers: '-1' needs at least 1"),
        ("password", "password: needs at least 0"),
    ):
        with pytest.raises(SettingError) as caught:
            TABLE.read(TABLE[name], "-1")
        assert str(caught.value) == message
        assert caught.value.value == (None if TABLE[name].secret else "-1")


def test_a_table_with_names_and_errors_of_its_own() -> None:
    table = SettingTable(
        [Setting("minPartitions", integer(1))],
        OwnError,
        fold=str.lower,
        unknown="is unknown",
        others=lambda: ["kafka.acks"],
    )
    assert table.find("MINPARTITIONS") is table["minpartitions"]
    with pytest.raises(OwnError, match=r"^option minPartitions: 0: needs at least 1$"):
        table.read(table["minpartitions"], 0)
    with pytest.raises(OwnError, match=r'^option MinPartition: is unknown; .* "minPartitions"\?$'):
        table.find("MinPartition")
    with pytest.raises(OwnError, match=r'is unknown; did you mean "kafka\.acks"\?$'):
        table.find("Kafka.ack")


@pytest.mark.parametrize(
    "error",
    [
        SettingError("a", "is required"),
        SettingError("a", "needs b", "c", "line 3 of d"),
        OwnError("needs b", value=5),
    ],
)
def test_errors_cross_processes(error: SettingError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), vars(copy)) == (str(error), vars(error))


def test_an_error_says_where_the_value_was_given() -> None:
    error = SettingError("workers", "needs at least 1", "0", "line 3 of proxy.toml")
    assert str(error) == "workers: '0' needs at least 1 (line 3 of proxy.toml)"


def test_the_search_for_a_similar_name_is_imported_late() -> None:
    code = "import sys, krammar.util.settings; sys.exit('difflib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("parse", "value", "expected"),
    [
        (text, " a ", " a "),
        (trimmed, " a ", "a"),
        (boolean, " TRUE ", True),
        (boolean, False, False),
        (integer(-1, 9), " +9 ", 9),
        (number, " 1.5e1 ", 15.0),
        (choice("None", "All"), "ALL", "All"),
        (split_list, " a, ,b ", ["a", "", "b"]),
        (split_list, " ", []),
        (split_names, " a, ,b ", ["a", "b"]),
        (split_names, None, []),
    ],
)
def test_values(parse: Parser, value: object, expected: object) -> None:
    assert parse(value) == expected


@pytest.mark.parametrize(
    ("parse", "value", "reason"),
    [
        (text, 5, "needs text, not int"),
        (boolean, "yes", "needs true or false"),
        (integer(), True, "needs a whole number"),
        (integer(), "1_000", "needs a whole number"),
        (integer(2), 1, "needs at least 2"),
        (integer(2, 3), "4", "needs at most 3"),
        (number, "nan", "needs a number"),
        (number, "1" * 401, "needs a number"),
        (choice("a", "b", ""), "c", "needs one of a, b"),
    ],
)
def test_values_that_are_errors(parse: Parser, value: object, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        parse(value)
