"""Check an installed wheel with the engine: ``python tests/installed_wheel.py``.

Fails on every warning too. ``make test-wheel`` runs it, and cibuildwheel runs it after each build.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    warnings.simplefilter("error")
    import kafka_wire

    import krammar
    from krammar.wire import engine_loading
    from krammar.wire.batches import Record, encode_batch, read_batches

    assert krammar.__file__ is not None
    assert (
        ROOT not in Path(krammar.__file__).parents or sys.prefix in krammar.__file__
    ), f"{krammar.__file__} is not the installed krammar"
    assert engine_loading.ENGINE is not None, engine_loading.status()
    for cls in (kafka_wire.MetadataRequest, kafka_wire.FetchResponse):
        for version in range(cls.min_version, cls.max_version + 1):
            assert cls._load_program(version) is not None
            assert cls.decode(cls().encode(version), version) == cls()
    assert not [name for name in sys.modules if "._codecs" in name], "pure Python was needed"
    batch = next(iter(read_batches(encode_batch([Record(value=b"v")]))))
    assert [record.value for record in batch.records()] == [b"v"]
    print(f"{krammar.__file__}\n{engine_loading.status()}")


if __name__ == "__main__":
    main()
