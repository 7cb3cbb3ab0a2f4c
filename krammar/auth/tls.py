"""Certificates and private keys in PEM (KIP-651), as text in files and in settings, for TLS contexts."""

from __future__ import annotations

import os
import re
import ssl
import tempfile

_BLOCK = re.compile(
    r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----(?P<body>[^-]*(?:-[^-]+)*)-----END (?P=label)-----"
)


class PemError(ValueError):
    """Certificates or a key cannot be used. The text is a phrase that follows the name of their setting.

    Attributes:
        encrypted: whether the key is encrypted, so that the cause may be its password
    """

    def __init__(self, reason: str, encrypted: bool = False) -> None:
        super().__init__(reason)
        self.encrypted = encrypted


def _blocks(text: str, kind: str) -> list[str]:
    """Return the blocks whose labels end with ``kind``, in order.

    Text around the blocks is skipped. Blocks on a single line, as in settings, are split into lines.
    """
    found = []
    for match in _BLOCK.finditer(text):
        label, body = match["label"], match["body"]
        if not label.endswith(kind):
            continue
        # Keys in the old form have headers (RFC 1421), whose lines must not change.
        if ":" in body:
            lines = body.strip("\n").splitlines()
        else:
            joined = "".join(body.split())
            lines = [joined[at : at + 64] for at in range(0, len(joined), 64)]
        found.append("\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""]))
    return found


def certificates(text: str) -> list[str]:
    """Return the certificates in a text."""
    return _blocks(text, "CERTIFICATE")


def private_keys(text: str) -> list[str]:
    """Return the private keys in a text."""
    return _blocks(text, "PRIVATE KEY")


def load_key(context: ssl.SSLContext, text: str, password: str | None) -> None:
    """Load the private key in a text and its chain of certificates, the key's own certificate first.

    Raises PemError.
    """
    keys, chain = private_keys(text), certificates(text)
    if len(keys) != 1:
        raise PemError(f"has {len(keys)} private keys, not one")
    if not chain:
        raise PemError("has no certificate")
    # Python reads certificates only from files. Only the owner can read this file, and it is deleted at once.
    descriptor, path = tempfile.mkstemp(prefix="krammar-", suffix=".pem")
    try:
        with open(descriptor, "w") as file:
            file.write(keys[0] + "".join(chain))
        # Without a password, OpenSSL would prompt on the terminal.
        context.load_cert_chain(path, password=password or "")
    except (ssl.SSLError, ValueError) as error:
        encrypted = "ENCRYPTED" in keys[0]
        hint = "; ssl.key.password may be wrong" if encrypted else ""
        raise PemError(
            f"key and certificate cannot be used: {reason(error)}{hint}", encrypted
        ) from None
    finally:
        os.unlink(path)


def load_authorities(context: ssl.SSLContext, text: str) -> None:
    """Trust the certificates in a text. Raises PemError."""
    found = certificates(text)
    if not found:
        raise PemError("has no certificate")
    try:
        context.load_verify_locations(cadata="".join(found))
    except (ssl.SSLError, ValueError) as error:
        raise PemError(f"certificates cannot be used: {reason(error)}") from None


def conversion(store: str, kind: str, location: str) -> str:
    """Explain how to convert one of Java's key stores to PEM.

    Args:
        store: keystore or truststore
        kind: the type of the store, as in ``ssl.keystore.type``
        location: its file
    """
    source, steps = location, ""
    if kind.upper() != "PKCS12":
        source = "store.p12"
        steps = (
            f"keytool -importkeystore -srckeystore {location} "
            f"-destkeystore {source} -deststoretype PKCS12 && "
        )
    options = "-nodes" if store == "keystore" else "-nokeys"
    steps += f"openssl pkcs12 -in {source} {options} -out {store}.pem"
    return (
        f"is not supported, only PEM is. Convert {location} with `{steps}`, then set "
        f"ssl.{store}.location={store}.pem and ssl.{store}.type=PEM"
    )


def reason(error: Exception) -> str:
    """Return OpenSSL's reason of an error in words."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error)
