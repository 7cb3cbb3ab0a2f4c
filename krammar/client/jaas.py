"""User and password in ``sasl.jaas.config``, Java's way to write a login."""

from __future__ import annotations

import shlex
from typing import NamedTuple

_FLAGS = ("required", "requisite", "sufficient", "optional")
_MODULES = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": "PLAIN",
    "org.apache.kafka.common.security.scram.ScramLoginModule": "SCRAM",
}


class Login(NamedTuple):
    """``mechanism`` is PLAIN or SCRAM."""

    mechanism: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"Login({self.mechanism}, {self.username!r})"


def parse_jaas(text: str) -> Login:
    """The login of ``module required username="…" password="…";``. Raises ValueError, whose text does
    not repeat the password."""
    try:
        words = shlex.split(text.strip().removesuffix(";"))
    except ValueError:
        words = []
    if len(words) < 2 or words[1].lower() not in _FLAGS or not text.strip().endswith(";"):
        raise ValueError('is not of the form: module required username="…" password="…";')
    # Some hosted Spark runtimes have Kafka's classes under a prefix.
    mechanism = _MODULES.get(words[0][max(0, words[0].find("org.apache.")) :])
    if mechanism is None:
        raise ValueError(f"{words[0]} is not supported; PLAIN and SCRAM are")
    options = dict(word.split("=", 1) for word in words[2:] if "=" in word)
    if options.get("tokenauth", "false").lower() == "true":
        raise ValueError("delegation tokens are not supported")
    for name in ("username", "password"):
        if name not in options:
            raise ValueError(f"has no {name}")
    return Login(mechanism, options["username"], options["password"])
