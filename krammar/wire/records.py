"""An alias of ``krammar.wire.batches``, for code that uses the old name."""

from krammar.wire.batches import *  # noqa: F403
from krammar.wire.batches import __all__ as __all__
