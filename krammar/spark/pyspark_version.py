"""The installed version of PySpark, for code that depends on what PySpark does not document."""

from __future__ import annotations

import pyspark

# As in (4, 3).
PYSPARK: tuple[int, ...] = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
