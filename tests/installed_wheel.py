"""Check an installed wheel with compiled packages.

    python tests/installed_wheel.py             fails unless the wheel's messages and loops run compiled
    python tests/installed_wheel.py --names     the messages that wheels contain compiled, for krammar compile

The check fails on every warning too. ``make test-wheel`` runs it, and cibuildwheel runs it after each build.
"""

from __future__ import annotations

import sys
import tomllib
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[1]


def names() -> list[str]:
    """Return the names of the messages that wheels contain compiled."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: list[str] = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"][
        "native"
    ]
    return found


def main() -> None:
    warnings.simplefilter("error")
    import kafka_wire

    import krammar
    from krammar.wire import native
    from krammar.wire.batches import Record, encode_batch, read_batches

    assert krammar.__file__ is not None
    assert (
        ROOT not in Path(krammar.__file__).parents or sys.prefix in krammar.__file__
    ), f"{krammar.__file__} is not the installed krammar"
    pure = []
    for name in names():
        classes = ["RequestHeader"] if name == "Headers" else [f"{name}Request", f"{name}Response"]
        for each in classes:
            cls = getattr(kafka_wire, each)
            data = cls().encode(cls.max_version)
            assert cls.decode(data, cls.max_version).encode(cls.max_version) == data
            if not hasattr(cls, "_stands_for"):
                pure.append(each)
    assert not pure, f"not compiled: {', '.join(pure)}"
    assert native.records() is not None, "the loops of record batches are not compiled"
    batch = next(iter(read_batches(encode_batch([Record(value=b"v")]))))
    assert [record.value for record in batch.records()] == [b"v"]
    print(f"{krammar.__file__}\n{native.status('kafka_wire')}, and the loops of record batches")


if __name__ == "__main__":
    if sys.argv[1:] == ["--names"]:
        print(",".join(names()))
    else:
        main()
