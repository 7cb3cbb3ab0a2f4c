"""PEM: certificates and keys as text, in files and in settings."""

from __future__ import annotations

import re

_BLOCK = re.compile(
    r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----(?P<body>[^-]*(?:-[^-]+)*)-----END (?P=label)-----"
)


def blocks(text: str) -> list[tuple[str, str]]:
    """Return the label and text of each block, for example ``("CERTIFICATE", "-----BEGIN …")``.

    Text around the blocks is skipped. Blocks on a single line, as in settings, are split into lines.
    """
    found = []
    for match in _BLOCK.finditer(text):
        label, body = match["label"], match["body"]
        # Keys in the old form have headers (RFC 1421), whose lines must not change.
        if ":" in body:
            lines = body.strip("\n").splitlines()
        else:
            joined = "".join(body.split())
            lines = [joined[at : at + 64] for at in range(0, len(joined), 64)]
        lines = [f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""]
        found.append((label, "\n".join(lines)))
    return found


def certificates(text: str) -> list[str]:
    """Return the certificates in a text, in order."""
    return [block for label, block in blocks(text) if label.endswith("CERTIFICATE")]


def private_keys(text: str) -> list[str]:
    """Return the private keys in a text, in order."""
    return [block for label, block in blocks(text) if label.endswith("PRIVATE KEY")]
