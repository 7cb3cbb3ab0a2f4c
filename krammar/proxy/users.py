"""The users who can log in at the proxy, and their passwords."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from krammar.auth import scram_server
from krammar.auth.exchanges import LoginExchange, PlainExchange
from krammar.auth.oauth import MECHANISM as OAUTHBEARER
from krammar.auth.scram import BY_NAME, MIN_ITERATIONS, Mechanism
from krammar.util.settings import SettingError

PLAIN = "PLAIN"
_MECHANISMS = (PLAIN, *BY_NAME)

# Passwords by user name, or the path of a TOML file with them.
Passwords = Mapping[str, str] | str


class KnownUsers:
    """The users, and the mechanisms with which they can log in.

    Args:
        mechanisms: names of SASL mechanisms. Default, if it is empty: all that the proxy has.
        users: passwords by name, or a file.
        secret: hides which users exist.

    Raises:
        SettingError: there is no such mechanism, or the file cannot be read.
    """

    def __init__(self, mechanisms: list[str], users: Passwords, secret: bytes) -> None:
        self.mechanisms = tuple(mechanisms) or _MECHANISMS
        for each in self.mechanisms:
            if each not in _MECHANISMS:
                reason = f"is not one of {', '.join(_MECHANISMS)}"
                if each == OAUTHBEARER:
                    reason += "; let such logins pass to the brokers, without SASL here"
                raise SettingError("sasl.enabled.mechanisms", reason, each)
        self._users = users
        self._secret = secret
        self._passwords: dict[str, str] = {}
        self._credentials: dict[tuple[str, str], tuple[str, scram_server.Credential]] = {}
        self.reload()

    def reload(self) -> None:
        """Read the file again, for new logins. Raises SettingError."""
        passwords = _read(self._users)
        # Before the first login: its time must not reveal which users exist.
        credentials = {}
        for mechanism in (BY_NAME[each] for each in self.mechanisms if each != PLAIN):
            for user, password in passwords.items():
                key = mechanism.name, user
                known = self._credentials.get(key)
                if known is None or known[0] != password:
                    salt = self._decoy(mechanism, user).salt
                    salted = mechanism.salted_password(password, salt, MIN_ITERATIONS)
                    credential = scram_server.credential_of(mechanism, salted, salt, MIN_ITERATIONS)
                    known = password, credential
                credentials[key] = known
        self._passwords, self._credentials = passwords, credentials

    def _decoy(self, mechanism: Mechanism, user: str) -> scram_server.Credential:
        kinds = [(scram_server.SALT_SIZE, MIN_ITERATIONS)]
        return scram_server.decoy(mechanism, self._secret, user, kinds)

    def exchange(self, mechanism: str) -> LoginExchange:
        """Begin the login of a client with one of ``mechanisms``."""
        if mechanism == PLAIN:
            return PlainExchange(self._passwords)
        kind = BY_NAME[mechanism]

        def find(user: str) -> tuple[scram_server.Stored, bool]:
            fake = self._decoy(kind, user)
            known = self._credentials.get((kind.name, user))
            return (fake, False) if known is None else (known[1], True)

        return scram_server.ScramServer(kind, find)


def _read(users: Passwords) -> dict[str, str]:
    found: Mapping[str, Any]
    if isinstance(users, str):
        try:
            found = tomllib.loads(Path(users).read_text(encoding="utf-8"))
        except OSError as error:
            raise SettingError("users", f"cannot be read: {error.strerror}", users) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingError("users", f"is not TOML: {error}", users) from None
    else:
        found = users
    for name, password in found.items():
        if not name or not isinstance(password, str) or not password:
            # The value is not shown, because it is a password.
            raise SettingError("users", f'{name!r} needs a password: name = "password"')
    if not found:
        raise SettingError("users", 'has no user: name = "password"')
    return dict(found)
