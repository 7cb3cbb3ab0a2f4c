"""Signed tokens (RFC 7519, RFC 9068) on listeners with OAUTHBEARER, checked with the keys of a JWKS (RFC 7517)."""

from __future__ import annotations

import json
import logging
import urllib.request
from asyncio import Future
from urllib.parse import urlsplit

from krammar.util.extras import require

try:
    from joserfc import jwt
    from joserfc.errors import (
        BadSignatureError,
        ExpiredTokenError,
        InvalidClaimError,
        InvalidKeyIdError,
        JoseError,
        MissingClaimError,
    )
    from joserfc.jwk import JWKRegistry, KeySet
except ImportError:
    require("sasl.oauthbearer.jwks.endpoint.url", "oauth")
    raise

from krammar.auth.oauth import OAuthError
from krammar.broker.security.oauth import Accepted
from krammar.broker.security.settings import JwtSettings
from krammar.broker.timers import Timers

log = logging.getLogger("krammar.broker")

# Only signatures with public keys: with a shared secret, the public key of a JWKS would be the secret.
ALGORITHMS = [f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)]
ALGORITHMS += ["EdDSA", "Ed25519"]
_PUBLIC = ("RSA", "EC", "OKP")
_MOST_BYTES = 1 << 20
_TIMEOUT_SECONDS = 10


class KeysError(ValueError):
    """A JWKS cannot be read."""


def read_keys(url: str) -> KeySet:
    """Read the public keys of a JWKS; keys of other kinds are ignored. Raises KeysError."""
    try:
        if urlsplit(url).scheme not in ("file", "http", "https"):
            raise KeysError("is not a URL of the kinds https, http and file")
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as response:
            text = response.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise KeysError(f"has more than {_MOST_BYTES} bytes")
        found = [key for key in json.loads(text)["keys"] if key.get("kty") in _PUBLIC]
        keys = [JWKRegistry.import_key(key) for key in found]
    except KeysError:
        raise
    except OSError as error:
        raise KeysError(f"cannot be read: {getattr(error, 'reason', None) or error}") from None
    except (ValueError, LookupError, TypeError, AttributeError, JoseError) as error:
        raise KeysError(f"is not a JWKS: {error or type(error).__name__}") from None
    if not keys:
        raise KeysError("has no public keys")
    return KeySet(keys)


class Keys:
    """The keys of a JWKS. They are read at once, again after ``refresh_ms``, and when a token names an unknown key."""

    def __init__(self, settings: JwtSettings, timers: Timers) -> None:
        """Read the keys. Raises KeysError if a file cannot be read; a server may be down for now."""
        self._settings = settings
        self._timers = timers
        self._failures = 0
        self._wanted_at: int | None = None
        self._reading: Future[KeySet] | None = None
        self.current: KeySet | None = None
        try:
            self.current = read_keys(settings.url)
        except KeysError as error:
            if urlsplit(settings.url).scheme not in ("http", "https"):
                raise
            self._failed(error)
        self._timer = timers.call_later(self._pause_ms / 1000, self._read)

    @property
    def _pause_ms(self) -> int:
        if not self._failures:
            return self._settings.refresh_ms
        doubled = self._settings.backoff_ms << min(self._failures - 1, 20)
        return min(doubled, self._settings.backoff_max_ms)

    def _failed(self, error: KeysError) -> None:
        self._failures += 1
        log.warning("the JWKS %s %s; it will be retried", self._settings.url, error)

    def _read(self) -> None:
        if self._reading is None:
            self._timer.cancel()
            self._reading = self._timers.loop.run_in_executor(None, read_keys, self._settings.url)
            self._reading.add_done_callback(self._finish)

    def _finish(self, reading: Future[KeySet]) -> None:
        self._reading = None
        if reading.cancelled():
            return
        error = reading.exception()
        if error is None:
            self.current, self._failures = reading.result(), 0
        elif isinstance(error, KeysError):
            self._failed(error)
        else:
            raise error
        self._timer = self._timers.call_later(self._pause_ms / 1000, self._read)

    def want(self) -> None:
        """Read the keys again, because a token names an unknown one. Tokens cannot cause this often."""
        now = self._timers.now_ms()
        if self._wanted_at is None or now - self._wanted_at >= self._settings.backoff_max_ms:
            self._wanted_at = now
            self._read()


class JwtValidator:
    """Checks signed tokens."""

    def __init__(self, settings: JwtSettings, keys: Keys) -> None:
        self._settings = settings
        self._keys = keys

    def __call__(self, token: str, now_ms: int) -> Accepted:
        """Return the user and the expiry of a token.

        Raises:
            OAuthError: The token is not accepted.
        """
        keys = self._keys.current
        if keys is None:
            raise OAuthError("the broker has no keys to verify tokens with yet")
        try:
            claims = jwt.decode(token, keys, algorithms=ALGORITHMS).claims
            self._check(claims, now_ms)
            return Accepted(claims[self._settings.sub_claim], int(claims["exp"] * 1000))
        except InvalidKeyIdError:
            self._keys.want()
            raise OAuthError("the token's key is not in the JWKS") from None
        except BadSignatureError:
            raise OAuthError("the token's signature is wrong") from None
        except ExpiredTokenError:
            raise OAuthError("the token has expired") from None
        except (MissingClaimError, InvalidClaimError) as error:
            raise OAuthError(
                f"the token's claim {error.claim!r} is missing or not accepted"
            ) from None
        except (JoseError, ValueError, OverflowError) as error:
            raise OAuthError(f"the token is not accepted: {error}") from None

    def _check(self, claims: dict[str, object], now_ms: int) -> None:
        settings = self._settings
        expected: dict[str, jwt.ClaimsOption] = {
            name: {"essential": True} for name in ("exp", "iat", settings.sub_claim)
        }
        if settings.issuer is not None:
            expected["iss"] = {"essential": True, "value": settings.issuer}
        if settings.audience:
            expected["aud"] = {"essential": True, "values": settings.audience}
        leeway = settings.clock_skew_s
        jwt.JWTClaimsRegistry(now=now_ms // 1000, leeway=leeway, **expected).validate(claims)
        if not isinstance(claims[settings.sub_claim], str):
            raise InvalidClaimError(settings.sub_claim)
        scope = claims.get(settings.scope_claim, [])
        scopes = scope.split() if isinstance(scope, str) else scope
        if not isinstance(scopes, list) or not set(settings.required_scope) <= set(scopes):
            raise InvalidClaimError(settings.scope_claim)
