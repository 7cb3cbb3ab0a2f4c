"""Reports records that are missing or cannot be read, as the option ``failOnDataLoss`` asks for."""

from __future__ import annotations

import logging

from krammar.spark.errors import DataLossError

_log = logging.getLogger(__name__)


def report_loss(text: str, fail: bool) -> None:
    """Raise DataLossError if ``fail`` (the option ``failOnDataLoss``) is true; log a warning otherwise."""
    if fail:
        raise DataLossError(f"{text}; failOnDataLoss=false reads what exists") from None
    _log.warning("%s; reading what exists", text)


def check_offset(name: str, offset: int, earliest: int, latest: int, fail: bool) -> None:
    """Report a requested offset outside of a partition's offsets; ``name`` is the partition's."""
    if not earliest <= offset <= latest:
        report_loss(
            f"{name}: offset {offset} was requested, but the partition has offsets {earliest} to"
            f" {latest}",
            fail,
        )
