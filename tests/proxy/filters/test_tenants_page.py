"""The settings of docs/tenants.md."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from krammar.proxy.filters.tenants import Tenants
from krammar.proxy.settings import SettingsError, read_settings

PAGE = Path(__file__).parents[3] / "docs" / "tenants.md"
SETTINGS = [
    textwrap.dedent(text)
    for _, text in re.findall(r"^( *)```toml\n(.*?)^ *```$", PAGE.read_text(), re.M | re.S)
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_settings(settings: str, tmp_path: Path) -> None:
    (tmp_path / "proxy.toml").write_text(settings)
    (found,) = read_settings(tmp_path / "proxy.toml").filters
    assert isinstance(found, Tenants)


def test_settings_of_a_name_that_cannot_be_a_prefix(tmp_path: Path) -> None:
    (tmp_path / "proxy.toml").write_text(SETTINGS[0].replace('"blue"', '"blue."', 1))
    with pytest.raises(SettingsError, match=r"\[\[filter\]\] 1: .*tenant 'blue.': a name consists"):
        read_settings(tmp_path / "proxy.toml")
