"""Signed tokens for tests of OAUTHBEARER, and the JWKS that verifies them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from krammar.util.clock import time_seconds
from krammar.util.extras import require

try:
    from joserfc import jwt
    from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey
except ImportError:
    require("krammar.testing.tokens", "oauth")
    raise

_RSA_BITS = 2048


class TokenIssuer:
    """An issuer of JSON web tokens with its own keys.

    ```python
    issuer = TokenIssuer(tmp_path / "jwks.json")
    with Broker.start(properties={"listeners": "SASL_PLAINTEXT://127.0.0.1:0", **issuer.properties}) as broker:
        token = issuer.token("alice")
    ```

    Args:
        file: the file of the JWKS, which is written at once and after each ``rotate``; None for no
        file
        issuer: the claim ``iss``
        audience: the claim ``aud``
        algorithm: RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512 or Ed25519
    """

    def __init__(
        self,
        file: Path | None = None,
        *,
        issuer: str = "https://issuer.example",
        audience: str = "kafka",
        algorithm: str = "ES256",
    ) -> None:
        self.file = file
        self.issuer = issuer
        self.audience = audience
        self.algorithm = algorithm
        self._number = 0
        self.rotate()

    def rotate(self) -> None:
        """Replace the key. The JWKS then has only the new one."""
        self._number += 1
        self.key = self._new_key(f"key-{self._number}")
        if self.file is not None:
            self.file.write_text(json.dumps(self.jwks), "utf-8")

    def _new_key(self, kid: str) -> RSAKey | ECKey | OKPKey:
        parameters: Any = {"kid": kid, "use": "sig"}
        match self.algorithm[:2]:
            case "ES":
                curve = {"256": "P-256", "384": "P-384", "512": "P-521"}[self.algorithm[2:]]
                return ECKey.generate_key(curve, parameters)
            case "RS" | "PS":
                return RSAKey.generate_key(_RSA_BITS, parameters)
            case _:
                return OKPKey.generate_key(self.algorithm, parameters)  # type: ignore[arg-type]

    @property
    def jwks(self) -> dict[str, Any]:
        """The public key as a JSON web key set (RFC 7517)."""
        return dict(KeySet([self.key]).as_dict(private=False))

    @property
    def properties(self) -> dict[str, str]:
        """The broker's settings that accept the tokens. They need a file."""
        if self.file is None:
            raise ValueError("TokenIssuer has no file; pass one, or serve jwks yourself")
        return {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": self.file.absolute().as_uri(),
            "sasl.oauthbearer.expected.issuer": self.issuer,
            "sasl.oauthbearer.expected.audience": self.audience,
        }

    def token(self, subject: str = "alice", *, lifetime: float = 3600, **claims: Any) -> str:
        """Sign a token.

        Args:
            subject: the claim ``sub``, the name of the user
            lifetime: seconds until the token expires; negative for an expired one
            claims: more claims, or other values; None leaves a claim out
        """
        now = time_seconds()
        body = {
            "iss": self.issuer,
            "aud": self.audience,
            "sub": subject,
            "iat": int(now),
            "exp": int(now + lifetime),
            **claims,
        }
        return jwt.encode(
            {"alg": self.algorithm, "kid": self.key.kid, "typ": "JWT"},
            {name: value for name, value in body.items() if value is not None},
            self.key,
            algorithms=[self.algorithm],
        )
