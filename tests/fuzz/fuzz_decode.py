"""Coverage-guided fuzzing of everything that reads bytes, with atheris.

    python -m tests.fuzz.fuzz_decode --seconds 300

Ends early at the first input that breaks a promise, writes it to ``--artifacts`` and shows the
traceback; ``python -m tests.fuzz.fuzz_decode FILE`` runs that input again. No input may take longer
than 10 seconds or, with the interpreter, more than 1 GB.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=300, help="how long to fuzz (300)")
    parser.add_argument("--corpus", type=Path, help="a folder that keeps the inputs found")
    parser.add_argument("--artifacts", type=Path, default=Path("build/fuzz"))
    parser.add_argument("input", nargs="*", type=Path, help="run these inputs instead")
    options = parser.parse_args()

    if options.input:
        from tests.fuzz.targets import check

        for path in options.input:
            check(path.read_bytes())
        return

    import atheris

    with atheris.instrument_imports(include=["krammar.wire", "kafka_wire", "wafka_wire"]):
        from tests.fuzz import targets

        targets.versions()  # loads every module of the packages
        for message, version in targets.versions():
            message.layout(version)

    with tempfile.TemporaryDirectory() as folder:
        corpus = options.corpus or Path(folder)
        corpus.mkdir(parents=True, exist_ok=True)
        for seed in targets.seeds():
            (corpus / hashlib.sha256(seed).hexdigest()[:20]).write_bytes(seed)
        options.artifacts.mkdir(parents=True, exist_ok=True)
        atheris.Setup(
            [
                sys.argv[0],
                f"-max_total_time={options.seconds}",
                "-max_len=2048",
                "-timeout=10",
                "-rss_limit_mb=1024",
                "-print_final_stats=1",
                f"-artifact_prefix={options.artifacts}/",
                str(corpus),
            ],
            targets.check,
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main()
