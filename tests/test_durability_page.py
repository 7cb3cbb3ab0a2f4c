"""docs/durability.md names tests that exist, settings that have their effect, and no cell without a test."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from krammar.broker.config.definitions import BROKER_CONFIGS, TOPIC_CONFIGS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/durability.md").read_text()


def test_the_tests_exist() -> None:
    named = re.findall(r"`(tests/[^`]+)`", PAGE)
    assert len(named) >= 6
    for path in named:
        assert (ROOT / path).is_file(), path


def test_every_setting_of_flushes_is_described() -> None:
    [ignored] = [item for item in PAGE.split("\n- ") if "accepted without effect" in item]
    described: list[str] = []
    for configs in (BROKER_CONFIGS, TOPIC_CONFIGS):
        for name, definition in configs.items():
            if "flush" in name or "fsync" in name:
                described.append(name)
                assert f"`{name}`" in PAGE, name
                assert definition.effect == (f"`{name}`" not in ignored), name
    assert {"flush.ms", "krammar.fsync"} <= set(described)


# The columns that describe other systems.
OTHERS = ("Kafka",)
POWER = [f"Power cut, `{fsync}`" for fsync in ("always", "interval", "never")]
FAILURES = ["Full disk", "Failed write (`EIO`)", "Failed fsync"]
DISK = ["Full disk, failed write", "Failed fsync"]

BROKER_KILLS = "tests/broker/test_power_cuts.py::test_some_kills"
BROKER_CUTS = "tests/broker/test_power_cuts.py::test_some_power_cuts"
BROKER_FAULTS = "tests/broker/test_disk_faults.py::test_each_place_fails"
RECORDED = "tests/powercut/test_powercut.py::test_power_cuts"
JOURNAL_CUTS = "tests/journal/test_power_cuts.py"
TOPIC_JOURNALS = "tests/journal/test_topic_disks.py"
STORED = "tests/journal/test_stored_bytes.py"
CAPTURES = "tests/tap/test_capture.py"
GENERATED = "tests/compiler/test_write.py"

# Which tests prove the cells of a row, by columns. Tests that many cells share check them one by one: `Job.check`
# knows what each row of the broker promises.
PROOFS: dict[str, list[tuple[list[str], list[str]]]] = {
    "Records": [
        (
            ["Kill (`kill -9`)"],
            [BROKER_KILLS, "tests/broker/test_crashes.py::test_killed_again_and_again"],
        ),
        (POWER, [BROKER_CUTS, RECORDED]),
    ],
    "Records of compacted topics": [
        (
            ["Kill (`kill -9`)"],
            [
                BROKER_KILLS,
                "tests/broker/log/test_compaction_crashes.py::test_a_crash_at_each_step_of_compaction",
            ],
        ),
        (POWER, [BROKER_CUTS, RECORDED]),
    ],
    "Committed offsets, consumer groups": [
        (
            ["Kill (`kill -9`)"],
            [
                BROKER_KILLS,
                "tests/broker/test_crashes.py::test_a_consumer_group_goes_on_behind_a_crash",
            ],
        ),
        (POWER, [BROKER_CUTS, RECORDED]),
    ],
    "What a share group is done with": [
        (
            ["Kill (`kill -9`)"],
            [
                "tests/broker/share/test_crashes.py::test_kills_lose_and_repeat_nothing",
                "tests/broker/test_crashes.py::test_killed_again_and_again",
            ],
        ),
        (POWER, [RECORDED]),
    ],
    "Transactions": [
        (
            ["Kill (`kill -9`)"],
            [
                "tests/broker/test_crashes.py::test_an_open_transaction_outlives_a_crash",
                "tests/broker/transactions/test_power_cuts.py::test_nobody_is_fenced_if_nothing_can_be_lost",
            ],
        ),
        (
            POWER,
            [
                "tests/broker/transactions/test_power_cuts.py"
                "::test_a_producer_that_continues_commits_a_whole_transaction_or_none",
                RECORDED,
            ],
        ),
        (
            POWER[1:],
            [
                "tests/broker/transactions/test_lost_states.py::test_every_part_of_the_states",
                "tests/broker/transactions/test_power_cuts.py"
                "::test_a_producer_cannot_commit_the_rest_of_a_transaction",
                "tests/broker/transactions/test_power_cuts.py::test_a_producer_cannot_commit_what_it_has_aborted",
            ],
        ),
    ],
    "Topics, settings, logins, features": [
        (
            ["Kill (`kill -9`)"],
            [
                BROKER_KILLS,
                "tests/broker/test_crashes.py::test_topics_and_settings_outlive_a_crash",
            ],
        ),
        (
            POWER,
            [
                BROKER_CUTS,
                "tests/broker/test_metadata_faults.py::test_each_record_is_forced_to_the_disk",
            ],
        ),
    ],
    "Deletion of a topic": [
        (["Kill (`kill -9`)"], [BROKER_KILLS]),
        (POWER, [BROKER_CUTS, RECORDED]),
    ],
    "Deletion of records (DeleteRecords)": [
        (["Kill (`kill -9`)"], [BROKER_KILLS]),
        (POWER, [BROKER_CUTS, RECORDED]),
    ],
    "Producer ids": [(["Kill (`kill -9`)"], [BROKER_KILLS]), (POWER, [BROKER_CUTS])],
    "Cluster id (`meta.properties`)": [
        (["Kill (`kill -9`)"], [BROKER_KILLS]),
        (
            POWER,
            [
                BROKER_CUTS,
                RECORDED,
                "tests/broker/test_metadata_faults.py::test_the_file_is_forced_to_the_disk",
            ],
        ),
    ],
    "Records, committed offsets, transactions": [
        (FAILURES, [BROKER_FAULTS, "tests/broker/transactions/test_disks.py::test_a_transaction"]),
        (
            ["Full disk"],
            ["tests/broker/log/test_flushing.py::test_a_full_disk_takes_nothing_offline"],
        ),
        (
            ["Failed write (`EIO`)"],
            [
                "tests/broker/log/test_flushing.py::test_a_disk_that_fails_takes_the_partition_offline"
            ],
        ),
        (
            ["Failed fsync"],
            [
                "tests/broker/log/test_flushing.py::test_a_failed_flush_takes_the_partition_offline",
                "tests/broker/test_offline_partitions.py::test_a_failed_disk",
            ],
        ),
    ],
    "Topics, settings, logins, producer ids": [
        (
            FAILURES,
            [
                BROKER_FAULTS,
                "tests/broker/test_metadata_faults.py::test_a_failed_write_changes_nothing",
            ],
        ),
        (
            ["Failed fsync"],
            [
                "tests/broker/test_metadata_faults.py::test_a_log_that_is_damaged_after_a_failed_fsync"
            ],
        ),
    ],
    "Compaction, retention": [
        (FAILURES, [BROKER_FAULTS]),
        (
            FAILURES[1:],
            [
                "tests/broker/log/test_flushing.py::test_a_replacement_that_fails_takes_the_partition_offline"
            ],
        ),
    ],
    "Checkpoints, indexes, snapshots": [
        (FAILURES, [BROKER_FAULTS]),
        (
            ["Full disk"],
            ["tests/broker/test_disk_faults.py::test_periodic_flushes_report_an_error_once"],
        ),
    ],
    "A start": [
        (FAILURES, ["tests/broker/test_disk_faults.py::test_each_place_of_a_start_fails"]),
        (
            ["Failed write (`EIO`)"],
            [
                "tests/broker/test_offline_partitions.py::test_a_log_that_cannot_be_read_at_the_start",
                "tests/broker/test_offline_partitions.py::test_the_metadata_log_is_necessary",
            ],
        ),
    ],
    "**Journals in files, `fsync=True`**": [
        (
            ["Kill of the process"],
            ["tests/journal/test_kills.py::test_killed_at_every_byte", RECORDED],
        ),
        (
            ["Power cut"],
            [
                f"{JOURNAL_CUTS}::test_with_fsync_nothing_is_skipped",
                f"{JOURNAL_CUTS}::test_readers_see_what_is_on_the_disk",
                RECORDED,
            ],
        ),
        (DISK, ["tests/journal/test_disks.py::test_appends"]),
        (DISK[1:], [f"{JOURNAL_CUTS}::test_an_append_that_was_on_the_disk_but_not_shown"]),
    ],
    "**Journals in files, without `fsync`**": [
        (
            ["Kill of the process"],
            ["tests/journal/test_kills.py::test_killed_at_every_byte", RECORDED],
        ),
        (
            ["Power cut"],
            [
                f"{JOURNAL_CUTS}::test_offsets_are_used_once",
                f"{JOURNAL_CUTS}::test_zeros_are_no_messages",
                RECORDED,
            ],
        ),
        (DISK, ["tests/journal/test_disks.py::test_appends"]),
        (DISK[1:], [f"{JOURNAL_CUTS}::test_a_failed_fsync_is_repeated_with_all_bytes"]),
    ],
    "**A journal that was closed**": [
        (["Power cut"], [f"{JOURNAL_CUTS}::test_a_closed_journal_goes_on_without_a_gap"]),
        (DISK[1:], [f"{JOURNAL_CUTS}::test_closing_a_journal_on_a_broken_disk_is_logged"]),
    ],
    "**Journals in topics**": [
        (["Kill of the process", "Power cut"], [f"{TOPIC_JOURNALS}::test_power_cuts_and_kills"]),
        (DISK, [f"{TOPIC_JOURNALS}::test_a_disk_that_fails"]),
    ],
    "**Intents and checkpoints, with `store_bytes`**": [
        (["Kill of the process", "Power cut"], [f"{STORED}::test_power_cuts_and_kills"]),
        (["Power cut"], ["tests/journal/test_checkpoints.py::test_damage_is_noticed"]),
        (DISK, [f"{STORED}::test_a_disk_that_fails"]),
        (DISK[1:], [f"{STORED}::test_a_folder_that_cannot_be_forced_to_the_disk"]),
    ],
    "**Spark's writes to journals in files**": [
        (
            ["Kill of the process"],
            ["tests/spark/test_journal_crashes.py::test_files_killed_at_every_call"],
        ),
        (
            ["Power cut"],
            [
                RECORDED,
                "tests/spark/test_journal_disks.py::test_a_commit_is_on_the_disk_before_it_is_acknowledged",
            ],
        ),
        (DISK, ["tests/spark/test_journal_disks.py::test_a_micro_batch"]),
    ],
    "**Captures**": [
        (
            ["Kill of the process", "Power cut"],
            [f"{CAPTURES}::test_a_capture_is_readable_up_to_any_cut"],
        ),
        (
            ["Power cut"],
            [
                f"{CAPTURES}::test_zeros_at_the_end_are_reported",
                f"{CAPTURES}::test_a_closed_capture_is_on_the_disk",
            ],
        ),
        (DISK[:1], [f"{CAPTURES}::test_a_disk_that_fails"]),
        (DISK[1:], [f"{CAPTURES}::test_a_closed_capture_is_on_the_disk"]),
    ],
    "**Generated files**, and sources that `krammar fmt` formats": [
        (
            ["Kill of the process", "Power cut"],
            [RECORDED, f"{GENERATED}::test_a_formatted_file_is_old_or_new"],
        ),
        (["Power cut"], [f"{GENERATED}::test_files_are_on_the_disk_before_they_replace_others"]),
        (
            DISK,
            [
                f"{GENERATED}::test_a_disk_that_fails_changes_no_file",
                f"{GENERATED}::test_a_file_that_cannot_be_formatted",
            ],
        ),
    ],
}


def cells() -> Iterator[tuple[str, str]]:
    """The row and the column of each cell of the tables that say what survives."""
    for table in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE):
        lines = [
            [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            for line in table.splitlines()
        ]
        head = lines[0]
        if not {"Kill (`kill -9`)", "Full disk", "Kill of the process"} & set(head):
            continue  # a table of settings, of other systems or of tests
        for row in lines[2:]:
            assert len(row) == len(head), row
            for column, text in zip(head[1:], row[1:], strict=True):
                if not column.startswith(OTHERS) and text != "\N{EN DASH}":
                    yield row[0], column


CELLS = list(cells())


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_the_page_has_tables() -> None:
    assert len(CELLS) > 75
    assert len(set(CELLS)) == len(CELLS)


@pytest.mark.parametrize(("row", "column"), CELLS, ids=" ".join)
def test_a_cell_has_a_test(row: str, column: str) -> None:
    proofs = [test for columns, tests in PROOFS.get(row, []) if column in columns for test in tests]
    assert proofs, f"no test in PROOFS proves {row!r} / {column!r}"
    for test in proofs:
        file, _, name = test.partition("::")
        assert name in names_in(file), test


def test_no_proof_is_of_an_old_cell() -> None:
    proved = defaultdict(set)
    for row, column in CELLS:
        proved[row].add(column)
    assert PROOFS
    for row, groups in PROOFS.items():
        for columns, _ in groups:
            assert set(columns) <= proved[row], row
