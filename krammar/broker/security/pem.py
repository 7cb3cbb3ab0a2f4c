"""PEM: certificates and keys as text, in files and, on one line or many, in settings."""

from __future__ import annotations

import re

_BLOCK = re.compile(
    r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----(?P<body>[^-]*(?:-[^-]+)*)-----END (?P=label)-----"
)


def blocks(text: str) -> list[tuple[str, str]]:
    """The label and text of each block, such as ``("CERTIFICATE", "-----BEGIN …")``. What is around the
    blocks is left out, and a block that stands on one line, as settings may have it, gets its lines
    back."""
    found = []
    for match in _BLOCK.finditer(text):
        label, body = match["label"], match["body"]
        # A key in the old form has headers (RFC 1421), which need their lines as they are.
        if ":" in body:
            lines = body.strip("\n").splitlines()
        else:
            joined = "".join(body.split())
            lines = [joined[at : at + 64] for at in range(0, len(joined), 64)]
        lines = [f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""]
        found.append((label, "\n".join(lines)))
    return found


def certificates(text: str) -> list[str]:
    """The certificates in it, in their order."""
    return [block for label, block in blocks(text) if label.endswith("CERTIFICATE")]


def private_keys(text: str) -> list[str]:
    """The private keys in it."""
    return [block for label, block in blocks(text) if label.endswith("PRIVATE KEY")]
