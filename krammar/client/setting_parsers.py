"""Parsers of the settings that only clients have; ``krammar.util.settings`` has those for all programs."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from krammar.auth.oauth import MECHANISM as OAUTHBEARER
from krammar.auth.oauth import OAuthError, check_extensions
from krammar.auth.scram import BY_NAME as SCRAM
from krammar.util.settings import Parser, choice, split_list, text, trimmed
from krammar.util.sockets import parse_address

_MECHANISMS = ("PLAIN", *SCRAM, OAUTHBEARER)


def mechanism(value: Any) -> str:
    name = trimmed(value).upper()
    if name in _MECHANISMS:
        return name
    supported = f"use one of {', '.join(_MECHANISMS)}"
    if name == "AWS_MSK_IAM":
        supported = f"use {OAUTHBEARER} with krammar.oauthbearer.token.provider"
    raise ValueError(f"is not supported; {supported}")


def function(value: Any) -> str:
    name = trimmed(value)
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", name):
        raise ValueError("needs module:function")
    return name


def endpoint(value: Any) -> str:
    url = trimmed(value)
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http", "file") or not (parts.netloc or parts.path):
        raise ValueError("needs a URL that begins with https:, http: or file:")
    return url


def extensions(value: Any) -> tuple[tuple[str, str], ...]:
    pairs = [part.partition("=") for part in split_list(text(value)) if part]
    found = {key.strip(): extension.strip() for key, _, extension in pairs}
    try:
        check_extensions(found)
    except OAuthError as error:
        raise ValueError(f"{error}; needs name=value,name=value") from None
    return tuple(found.items())


def _java_class(kind: str, *names: str) -> Parser:
    """A class of Kafka's that does what krammar does without it."""

    def parse(value: Any) -> str:
        name = trimmed(value)
        if name.rpartition(".")[2] not in names:
            raise ValueError(
                f"is a Java class; krammar.oauthbearer.token.provider names a {kind} in Python"
            )
        return name

    return parse


def parse_acks(value: Any) -> int:
    word = choice("all", "-1", "0", "1")(value)
    return -1 if word == "all" else int(word)


def servers(value: Any) -> tuple[tuple[str, int], ...]:
    parts = split_list(value) if isinstance(value, str) else [part.strip() for part in value]
    servers = [_server(part) for part in parts if part]
    if not servers:
        raise ValueError("names no server")
    return tuple(dict.fromkeys(servers))


def _server(address: str) -> tuple[str, int]:
    """Parse ``host:port``, ``[ipv6]:port`` or ``PROTOCOL://host:port``."""
    try:
        return parse_address(address.rpartition("://")[2], lowest=1, bare_ipv6=True)
    except ValueError:
        raise ValueError(f"{address!r} is not host:port") from None


# What they do in Java follows here from the other settings.
LOGIN_HANDLER = _java_class("function that returns tokens", "OAuthBearerLoginCallbackHandler")
RETRIEVER = _java_class(
    "function that returns tokens",
    "DefaultJwtRetriever",
    "ClientCredentialsJwtRetriever",
    "FileJwtRetriever",
)
