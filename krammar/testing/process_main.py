"""What the process of a ``KafkaBroker`` with ``process=True`` runs: a broker, and the observer that tests ask."""

from __future__ import annotations

import sys

from krammar.broker.process_main import run
from krammar.testing.observer import Observer

if __name__ == "__main__":
    run(sys.argv[1], lambda broker: {"observer": Observer(broker)})
