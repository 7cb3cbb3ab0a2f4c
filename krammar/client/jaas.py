"""User and password in ``sasl.jaas.config``, Java's way to write a login."""

from __future__ import annotations

from typing import NamedTuple

from krammar.auth.jaas import parse

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
    module = parse(text)
    # Some hosted Spark runtimes have Kafka's classes under a prefix.
    mechanism = _MODULES.get(module.name[max(0, module.name.find("org.apache.")) :])
    if mechanism is None:
        raise ValueError(f"{module.name} is not supported; PLAIN and SCRAM are")
    if module.options.get("tokenauth", "false").lower() == "true":
        raise ValueError("delegation tokens are not supported")
    for name in ("username", "password"):
        if name not in module.options:
            raise ValueError(f"has no {name}")
    return Login(mechanism, module.options["username"], module.options["password"])
