"""Errors in a broker's settings."""

from __future__ import annotations

import pytest

from krammar.broker.config import BrokerConfig, ConfigError


def refusal(text: str) -> str:
    """Return the error message for a properties file with a text."""
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_properties(text)
    return str(caught.value)
