"""The licences of what krammar installs: ``python tools/licences.py check`` (``make lint``) or ``write``.

docs/licences.md lists the packages that ``pip install 'krammar[all]'`` installs. The check fails for a package that
is not listed, whose licence has changed, or whose licence does not allow the use in any product.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PAGE = Path(__file__).parents[1] / "docs" / "licences.md"
INTRODUCTION = """\
# Licences

krammar is licensed under Apache-2.0. These packages are installed with `krammar[all]`, on at least one platform. `make lint`
fails if a package is missing here, if its licence has changed, or if its licence is not one of: {allowed}.
`krammar` alone needs click, cramjam and google-crc32c.

| Package | Licence | Installed by |
|---|---|---|
"""
ALLOWED = {"Apache-2.0", "BSD", "ISC", "MIT", "MPL-2.0", "PSF-2.0", "0BSD", "Zlib", "CC0-1.0"}
# Words in the metadata of packages, which use many spellings.
SPELLINGS = [
    (
        r"Apache(?: Software)?(?: License)?(?:[ -](?:Version )?2(?:\.0)?)?(?: License)?",
        "Apache-2.0",
    ),
    (r"(?:The )?(?:[0-3]-Clause )?BSD(?:[ -][23]-Clause)?(?: License)?", "BSD"),
    (r"(?:The )?MIT(?:-0|-CMU)?(?: License)?", "MIT"),
    (r"ISC(?: License)?.*", "ISC"),
    (r"Mozilla Public License 2\.0.*|MPL-2\.0", "MPL-2.0"),
    (r"Python Software Foundation License|PSF-2\.0", "PSF-2.0"),
]


class Licences(Exception):
    """What is wrong, one line each."""


def licence(found: Distribution) -> str:
    """Return the licence of a package, such as ``MIT``, or ``MIT or Apache-2.0``."""
    meta = found.metadata
    text = meta["License-Expression"]
    if not text:
        classifiers = [
            c.rpartition(" :: ")[2] for c in meta.get_all("Classifier") or () if "License" in c
        ]
        lines = (meta["License"] or "").strip().splitlines()
        text = " OR ".join(classifiers) if classifiers else lines[0] if lines else ""
    parts = re.split(r" (OR|AND) ", text)
    names = [part if part in ("OR", "AND") else _name(part) for part in parts]
    return " ".join(name.lower() if name in ("OR", "AND") else name for name in names)


def _name(text: str) -> str:
    text = text.strip("() ")
    for pattern, name in SPELLINGS:
        if re.fullmatch(pattern, text):
            return name
    return text


def is_allowed(text: str) -> bool:
    """Return whether one of the alternatives is allowed, with all its parts."""
    return any(set(choice.split(" and ")) <= ALLOWED for choice in text.split(" or "))


def installed(extras: frozenset[str] = frozenset({"all"})) -> dict[str, set[str]]:
    """Return the packages that krammar installs here, and the package that asks for each."""
    found: dict[str, set[str]] = {}
    waiting = [("krammar", extras)]
    seen = set()
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        for requirement in _requirements(distribution(name), wanted):
            other = canonicalize_name(requirement.name)
            try:
                distribution(other)
            except PackageNotFoundError:
                continue  # of another platform
            waiting.append((other, frozenset(requirement.extras)))
            if other != "krammar":
                found.setdefault(other, set()).add(name)
    return found


def _requirements(found: Distribution, extras: frozenset[str]) -> Iterator[Requirement]:
    for text in found.requires or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in {"", *extras}):
            yield requirement


def listed(page: str) -> dict[str, str]:
    """Return the licence of each package in the page."""
    return dict(re.findall(r"^\| ([a-z0-9-]+) \| ([^|]+) \|", page, re.MULTILINE))


def problems(page: str) -> list[str]:
    """Return a line for each package that the page lacks, or that must not be used."""
    known = listed(page)
    found = []
    for name, needed_by in sorted(installed().items()):
        text = licence(distribution(name))
        why = f"{name} (installed by {', '.join(sorted(needed_by))})"
        if not is_allowed(text):
            found.append(f"{why}: the licence {text or 'is missing and'!r} is not allowed")
        elif known.get(name) != text:
            there = f"has {known[name]}" if name in known else "does not list it"
            found.append(f"{why} has the licence {text}, but docs/licences.md {there}")
    return found


def page() -> str:
    """Return the page for the packages that are installed here."""
    rows = [
        f"| {name} | {licence(distribution(name))} | {', '.join(sorted(needed_by))} |\n"
        for name, needed_by in sorted(installed().items())
    ]
    return INTRODUCTION.format(allowed=", ".join(sorted(ALLOWED))) + "".join(rows)


def main() -> None:
    if sys.argv[1:] == ["write"]:
        PAGE.write_text(page(), encoding="utf-8")
        return
    found = problems(PAGE.read_text(encoding="utf-8"))
    for line in found:
        print(line)
    if found:
        sys.exit("write docs/licences.md again with: python tools/licences.py write")


if __name__ == "__main__":
    main()
