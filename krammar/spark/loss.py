"""What to do about records that should be there and are not, or cannot be read."""

from __future__ import annotations

import logging

from krammar.spark.errors import DataLossError

_log = logging.getLogger(__name__)


def lost(text: str, fail: bool) -> None:
    """Raises DataLossError if ``fail``, the option ``failOnDataLoss``; else there is a warning."""
    if fail:
        raise DataLossError(f"{text}; failOnDataLoss=false goes on with what is there") from None
    _log.warning("%s; going on with what is there", text)
