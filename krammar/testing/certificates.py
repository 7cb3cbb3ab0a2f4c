"""Certificates for listeners with TLS, made by trustme for one broker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from krammar.util.extras import require


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files for clients, as paths. They exist as long as the broker.

    Attributes:
        ca: the certificate authority that signed the broker's certificate
        certificate: the certificate of a client, for ``ssl_client_auth="required"``
        key: its key, without a password
    """

    ca: str
    certificate: str
    key: str


def make_certificates(folder: Path) -> tuple[TlsFiles, dict[str, str]]:
    """Make an authority, the broker's certificate for loopback, and one for clients.

    Returns:
        The files for clients, which are written to ``folder``, and the settings of the broker.

    Raises:
        MissingExtra: trustme is not installed.
    """
    require("tls=True", "testing")
    import trustme

    authority = trustme.CA()
    server = authority.issue_cert("localhost", "127.0.0.1", "::1")
    client = authority.issue_cert("client@example.org", common_name="client")
    files = TlsFiles(*(str(folder / name) for name in ("ca.pem", "client.pem", "client.key")))
    authority.cert_pem.write_to_path(files.ca)
    client.cert_chain_pems[0].write_to_path(files.certificate)
    client.private_key_pem.write_to_path(files.key)
    return files, {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": server.private_key_pem.bytes().decode(),
        "ssl.keystore.certificate.chain": server.cert_chain_pems[0].bytes().decode(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.cert_pem.bytes().decode(),
    }
