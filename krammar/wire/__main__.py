"""``python -m krammar.wire`` prints whether the engine encodes and decodes messages, or pure Python."""

from krammar.wire.engine_loading import status

print(status())
