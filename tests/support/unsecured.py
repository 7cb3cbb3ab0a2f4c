"""Tokens without signatures, which anyone can create."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any


def unsecured_token(claims: Mapping[str, Any]) -> str:
    """Return a JSON web token without a signature (KIP-255)."""
    parts = ({"alg": "none"}, claims)
    texts = (json.dumps(part, separators=(",", ":")).encode() for part in parts)
    encoded = (base64.urlsafe_b64encode(text).rstrip(b"=").decode() for text in texts)
    return f"{'.'.join(encoded)}."
