"""docs/durability.md names tests that exist, and settings that have the effect that it describes."""

from __future__ import annotations

import re
from pathlib import Path

from krammar.broker.config.tables import BROKER_CONFIGS, TOPIC_CONFIGS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/durability.md").read_text()


def test_the_tests_exist() -> None:
    named = re.findall(r"`(tests/[^`]+)`", PAGE)
    assert len(named) >= 6
    for path in named:
        assert (ROOT / path).is_file(), path


def test_every_setting_of_flushes_is_described() -> None:
    [ignored] = [item for item in PAGE.split("\n- ") if "accepted without effect" in item]
    for configs in (BROKER_CONFIGS, TOPIC_CONFIGS):
        for name, definition in configs.items():
            if "flush" in name or "fsync" in name:
                assert f"`{name}`" in PAGE, name
                assert definition.effect == (f"`{name}`" not in ignored), name
