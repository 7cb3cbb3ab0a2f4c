"""``python -m krammar.wire [PACKAGE ...]`` prints which modules of generated packages are compiled."""

from __future__ import annotations

import sys

from krammar.wire.native import status

for name in sys.argv[1:] or ["kafka_wire", "wafka_wire"]:
    print(status(name))
