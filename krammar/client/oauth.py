"""Tokens for OAUTHBEARER logins: from an OIDC provider (KIP-768, KIP-1139), a file, or a function."""

from __future__ import annotations

import base64
import http.client
import json
import logging
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from krammar.auth.oauth import Jwt, OAuthError, check_token
from krammar.client.deadline import Backoff, Deadline
from krammar.client.errors import AuthenticationError
from krammar.client.settings import Settings

# A token is replaced after this part of its lifetime, as by Java's clients.
_REFRESH = 0.8
# How long, in milliseconds, a token that is still valid may take to be refreshed; and when that is tried again.
_REFRESH_MS = 10_000

_log = logging.getLogger("krammar.client")
# Tokens have a few kilobytes; an endpoint could send without end.
_MOST_BYTES = 1 << 20
_NOT_NOW = (408, 425, 429, 500, 502, 503, 504)
_SHOWN = 300


class Token(NamedTuple):
    """A token; ``expires_at`` is in seconds since 1970, None if it is not known."""

    value: str
    expires_at: float | None = None

    def __repr__(self) -> str:
        return f"Token(expires_at={self.expires_at})"


class Tokens:
    """The tokens of this process by the settings that obtain them, so that connections share them.

    A token file is read for each login: whoever maintains it decides when to replace the token.

    Args:
        now: Returns the time in seconds since 1970.
    """

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._known: dict[tuple[Any, ...], tuple[Token, float]] = {}
        self._lock = threading.Lock()

    def get(self, settings: Settings, deadline: Deadline) -> Token:
        """Return a token, a new one if 80 % of the lifetime of the last one have passed.

        If there is no new one, the last one is returned until it expires.

        Raises:
            AuthenticationError: There is no token.
        """
        key = _key(settings)
        with self._lock:
            found = self._known.get(key)
        if found is not None and self._now() < found[1]:
            return found[0]
        fetched = self._now()
        last = None
        if found is not None and found[0].expires_at is not None and fetched < found[0].expires_at:
            last = found[0]
            deadline = Deadline(min(deadline.left_ms / 2, _REFRESH_MS), deadline.doing)
        try:
            token = _fetch(settings, deadline)
        except AuthenticationError as error:
            if last is None:
                raise
            _log.warning("the last token is used until it expires: %s", error)
            with self._lock:
                self._known[key] = last, min(fetched + _REFRESH_MS / 1000, last.expires_at or 0)
            return last
        if token.expires_at is not None and not _is_file(settings):
            refresh_at = fetched + _REFRESH * (token.expires_at - fetched)
            with self._lock:
                self._known = {k: v for k, v in self._known.items() if fetched < v[1]}
                self._known[key] = (token, refresh_at)
        return token

    def forget(self, settings: Settings) -> None:
        """Forget a token that a broker has refused."""
        with self._lock:
            self._known.pop(_key(settings), None)


TOKENS = Tokens()


def _key(settings: Settings) -> tuple[Any, ...]:
    return (
        settings.krammar_oauthbearer_token_provider,
        settings.sasl_oauthbearer_token_endpoint_url,
        settings.sasl_oauthbearer_client_credentials_client_id,
        settings.sasl_oauthbearer_client_credentials_client_secret,
        settings.sasl_oauthbearer_scope,
        settings.https_ca_location,
    )


def _is_file(settings: Settings) -> bool:
    return (settings.sasl_oauthbearer_token_endpoint_url or "").startswith("file:")


def _fetch(settings: Settings, deadline: Deadline) -> Token:
    provider = settings.krammar_oauthbearer_token_provider
    url = settings.sasl_oauthbearer_token_endpoint_url or ""
    if provider is not None:
        where, token = f"token provider {provider}", _call(provider)
    elif _is_file(settings):
        where, token = f"token file {url}", _read(url)
    else:
        where, token = f"token endpoint {url}", _request(settings, url, deadline)
    try:
        check_token(token.value)
        if token.expires_at is None:
            token = Token(token.value, _expiry(token.value))
    except OAuthError as error:
        raise AuthenticationError(where, str(error)) from None
    return token


def _expiry(token: str) -> float | None:
    """The expiry in a JSON web token; None for a token of another kind, which only the broker reads."""
    try:
        return Jwt.decode(token).expires_at
    except OAuthError:
        return None


def _read(url: str) -> Token:
    path = Path(unquote(urlsplit(url).path))
    try:
        return Token(path.read_text().strip())
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise AuthenticationError(f"token file {url}", f"it cannot be read: {why}") from None


def _call(name: str) -> Token:
    """Call ``module:function``. It returns a token, or a pair of a token and its expiry in milliseconds
    since 1970 (AWS's MSK signer), or an object with ``token`` and ``expires_on`` in seconds since 1970
    (azure-identity)."""
    where = f"token provider {name}"
    module, _, function = name.partition(":")
    try:
        provide = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise AuthenticationError(where, f"it cannot be imported: {error}") from None
    try:
        found = provide()
    except Exception as error:
        raise AuthenticationError(where, f"it raises {type(error).__name__}: {error}") from None
    match found:
        case str():
            return Token(found)
        # First, because azure-identity's object is also a pair.
        case object(token=str(value), expires_on=int() | float() as seconds):
            return Token(value, seconds)
        case (str(value), int() | float() as milliseconds):
            return Token(value, milliseconds / 1000)
    raise AuthenticationError(
        where,
        f"it returns {type(found).__name__}; needed is a token as str, a pair of token and expiry in "
        "milliseconds since 1970, or an object with token and expires_on",
    )


class _Later(Exception):
    """A failure of the token endpoint after which another attempt may succeed."""


def _request(settings: Settings, url: str, deadline: Deadline) -> Token:
    """Ask an OIDC provider for a token, by the client credentials grant (RFC 6749, section 4.4)."""
    where = f"token endpoint {url}"
    backoff = Backoff(
        settings.sasl_login_retry_backoff_ms, settings.sasl_login_retry_backoff_max_ms
    )
    opener = _opener(settings, where)
    while True:
        try:
            return _attempt(settings, opener, url, where, deadline)
        except _Later as error:
            pause = backoff.next()
            if pause >= deadline.left:
                raise AuthenticationError(
                    where, f"no token in {deadline.timeout_ms:.0f} ms; the last attempt: {error}"
                ) from None
            time.sleep(pause)


def _opener(settings: Settings, where: str) -> urllib.request.OpenerDirector:
    context = ssl.create_default_context()
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as for brokers
    if settings.https_ca_location is not None:
        try:
            context.load_verify_locations(settings.https_ca_location)
        except OSError as error:
            raise AuthenticationError(
                where, f"https.ca.location {settings.https_ca_location} cannot be used: {error}"
            ) from None
    return urllib.request.build_opener(_NoRedirects(), urllib.request.HTTPSHandler(context=context))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The client's secret goes to the configured address only."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _attempt(
    settings: Settings,
    opener: urllib.request.OpenerDirector,
    url: str,
    where: str,
    deadline: Deadline,
) -> Token:
    client_id = settings.sasl_oauthbearer_client_credentials_client_id or ""
    secret = settings.sasl_oauthbearer_client_credentials_client_secret or ""
    if settings.sasl_oauthbearer_header_urlencode:
        client_id, secret = quote_plus(client_id), quote_plus(secret)
    form = {"grant_type": "client_credentials"}
    if settings.sasl_oauthbearer_scope:
        form["scope"] = settings.sasl_oauthbearer_scope
    request = urllib.request.Request(
        url,
        urlencode(form).encode(),
        {
            "Accept": "application/json",
            "Authorization": "Basic " + base64.b64encode(f"{client_id}:{secret}".encode()).decode(),
        },
    )
    seconds = max(0.001, min(settings.sasl_login_read_timeout_ms / 1000, deadline.left))
    try:
        with opener.open(request, timeout=seconds) as response:
            body = response.read(_MOST_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            text = f"HTTP {error.code}: {_error_text(error.read(_MOST_BYTES)) or error.reason}"
        if error.code in _NOT_NOW:
            raise _Later(text) from None
        raise AuthenticationError(where, text) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise AuthenticationError(
                where,
                f"its certificate is refused: {reason.verify_message} (https.ca.location names "
                "the authority)",
            ) from None
        raise _Later(str(reason) or type(reason).__name__) from None
    return _token(body, where)


def _error_text(body: bytes) -> str:
    """``error`` and ``error_description`` (RFC 6749, section 5.2), or the start of another text."""
    try:
        found = json.loads(body)
        parts = (found.get("error"), found.get("error_description"))
        text = ": ".join(str(part) for part in parts if part)
    except (ValueError, AttributeError, RecursionError):
        text = body.decode("utf-8", "replace").strip()
    return text[:_SHOWN]


def _token(body: bytes, where: str) -> Token:
    try:
        found = json.loads(body)
        value = found.get("access_token") or found["id_token"]
        seconds = found.get("expires_in")
        expires_at = None if seconds is None else time.time() + float(seconds)
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        raise AuthenticationError(
            where, "its answer is not a JSON object with access_token"
        ) from None
    if not isinstance(value, str):
        raise AuthenticationError(where, "its access_token is not text")
    return Token(value, expires_at)
