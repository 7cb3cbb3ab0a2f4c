"""Signed JSON web tokens (RFC 7519, RFC 9068), checked with the keys of a JWKS (RFC 7517)."""

from __future__ import annotations

import json
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from krammar.auth.oauth import LATEST_MS, JwtSettings, OAuthError
from krammar.util.extras import require
from krammar.util.fetching import fetch

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

# Only signatures with public keys: with a shared secret, the public key of a JWKS would be the secret.
ALGORITHMS = [f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)]
ALGORITHMS += ["EdDSA", "Ed25519"]
_PUBLIC = ("RSA", "EC", "OKP")
_MOST_BYTES = 1 << 20


class UnknownKeyError(OAuthError):
    """A token names a key that is not in the JWKS."""


class KeysError(ValueError):
    """A JWKS cannot be read."""


def read_keys(url: str, seconds: float = 10.0) -> KeySet:
    """Read the public keys of a JWKS; keys of other kinds are ignored. Raises KeysError.

    Args:
        seconds: for the whole answer; a server could send a byte every few seconds forever.
    """
    try:
        if urlsplit(url).scheme not in ("file", "http", "https"):
            raise KeysError("is not a URL of the kinds https, http and file")
        text = fetch(url, _MOST_BYTES + 1, seconds)
        if len(text) > _MOST_BYTES:
            raise KeysError(f"has more than {_MOST_BYTES} bytes")
        found = [key for key in json.loads(text)["keys"] if key.get("kty") in _PUBLIC]
        keys = [JWKRegistry.import_key(key) for key in found]
    except KeysError:
        raise
    except (OSError, HTTPException) as error:
        raise KeysError(f"cannot be read: {getattr(error, 'reason', None) or error}") from None
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,  # arrays that are nested too deep
        JoseError,
    ) as error:
        raise KeysError(f"is not a JWKS: {error or type(error).__name__}") from None
    if not keys:
        raise KeysError("has no public keys")
    return KeySet(keys)


def verify(token: str, keys: KeySet, settings: JwtSettings, now_ms: int) -> tuple[str, int]:
    """Return the user of a token, and its expiry in milliseconds since 1970.

    Raises:
        OAuthError: The token is not accepted.
    """
    try:
        claims = jwt.decode(token, keys, algorithms=ALGORITHMS).claims
        _check(claims, settings, now_ms)
        return claims[settings.sub_claim], min(int(claims["exp"] * 1000), LATEST_MS)
    except InvalidKeyIdError:
        raise UnknownKeyError("the token's key is not in the JWKS") from None
    except BadSignatureError:
        raise OAuthError("the token's signature is wrong") from None
    except ExpiredTokenError:
        raise OAuthError("the token has expired") from None
    except (MissingClaimError, InvalidClaimError) as error:
        raise OAuthError(f"the token's claim {error.claim!r} is missing or not accepted") from None
    except RecursionError:
        raise OAuthError("the token is not accepted: its JSON is nested too deep") from None
    except (JoseError, ValueError, OverflowError) as error:
        raise OAuthError(f"the token is not accepted: {error}") from None


def _check(claims: dict[str, Any], settings: JwtSettings, now_ms: int) -> None:
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
    if not isinstance(scopes, list) or any(each not in scopes for each in settings.required_scope):
        raise InvalidClaimError(settings.scope_claim)
