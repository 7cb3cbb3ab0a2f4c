"""The files and folders that the demo writes."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

DEFINITIONS = Path(__file__).resolve().parent / "definitions"
REPOSITORY = DEFINITIONS.parents[2]


@dataclass(frozen=True)
class Places:
    """The paths, all below ``root``."""

    root: Path = REPOSITORY / "build" / "demo"

    @property
    def generated(self) -> Path:
        """The package ``shop``."""
        return self.root / "generated"

    @property
    def broker(self) -> Path:
        return self.root / "broker"

    @property
    def revenue(self) -> Path:
        """The stream's Parquet files."""
        return self.root / "revenue.parquet"

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def chart(self) -> Path:
        return self.root / "pipeline.png"

    @property
    def log(self) -> Path:
        """The output of Spark's JVM."""
        return self.root / "spark.log"

    def clear(self) -> None:
        """Remove the files of an earlier run, except for the generated package, which is updated."""
        self.root.mkdir(parents=True, exist_ok=True)
        for folder in (self.broker, self.revenue, self.checkpoint):
            if folder.exists():
                shutil.rmtree(folder)
        for file in (self.chart, self.log):
            file.unlink(missing_ok=True)


def shown(path: Path) -> str:
    """Return the path relative to the current folder, if it is below it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
