"""What the process of a ``KafkaBroker`` with ``process=True`` runs: a broker, and the probe that tests ask."""

from __future__ import annotations

import sys

from krammar.broker.process_main import serve_broker
from krammar.testing.probe import BrokerProbe

if __name__ == "__main__":
    serve_broker(sys.argv[1], lambda broker: {"probe": BrokerProbe(broker)})
