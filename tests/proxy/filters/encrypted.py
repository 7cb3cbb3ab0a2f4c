"""Keys for the tests of Encrypt, and the values that the broker stores."""

from __future__ import annotations

import base64
import os

from krammar.proxy import Proxy
from krammar.proxy.filters.envelope import unpack_sealed
from krammar.testing import KafkaBroker
from krammar.wire.batches import Record, read_batches
from tests.proxy.filters.support import fetch


def line(key_id: str) -> str:
    """Return the line of a file of keys for a new key."""
    return f"{key_id} {base64.b64encode(os.urandom(32)).decode()}\n"


def decoded(data: bytes | None) -> list[Record]:
    """Return all records of encoded batches."""
    return [record for batch in read_batches(data) for record in batch]


def stored(broker: KafkaBroker, topic: str = "orders") -> list[bytes]:
    """Return the values that the broker stores, without the proxy."""
    return [record.value or b"" for record in broker.records(topic)]


def key_of(envelope: bytes) -> bytes:
    """Return the wrapped key of an envelope."""
    return unpack_sealed(envelope, 0).wrapped


def fetch_direct(broker: KafkaBroker, version: int = 12, topic: str = "orders") -> bytes | None:
    """Fetch through a proxy without filters, so that nothing is decrypted."""
    with Proxy.start(broker.bootstrap_servers) as direct:
        return fetch(direct, version, topic).records


__all__ = ["decoded", "fetch_direct", "key_of", "line", "stored"]
