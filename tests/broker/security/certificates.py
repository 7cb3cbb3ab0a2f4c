"""Keys and certificates for tests, made by the openssl command line."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Pair:
    """The files of a key, of its certificate, and of both in one as Kafka's PEM stores have them."""

    key: Path
    certificate: Path
    store: Path


# Strict verification (RFC 5280, Python's default since 3.13) requires these in an authority's certificate.
_STRICT_AUTHORITY = """
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
"""


class Authority:
    """A certificate authority in a folder. Without openssl the test is skipped.

    Strict verification accepts its certificates, unless ``strict`` is false: then they lack the
    extensions that many older authorities leave out.
    """

    def __init__(self, folder: Path, name: str = "authority", *, strict: bool = True) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("certificates are made with openssl, which is not installed")
        self.folder = folder
        self.strict = strict
        self.key = folder / f"{name}.key"
        self.certificate = folder / f"{name}.pem"
        # A separate configuration, because the system's differs between versions of OpenSSL.
        configuration = folder / f"{name}.cnf"
        extensions = _STRICT_AUTHORITY if strict else "basicConstraints = critical, CA:TRUE\n"
        configuration.write_text(
            "[req]\ndistinguished_name = subject\nx509_extensions = extensions\n"
            f"[subject]\n[extensions]\n{extensions}"
        )
        self._run(
            *("req", "-x509", "-config", configuration, "-nodes"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", self.key, "-out", self.certificate, "-days", "2", "-subj", f"/CN={name}"),
        )

    def issue(
        self,
        name: str,
        subject: str | None = None,
        *arguments: str,
        names: str = "DNS:localhost,IP:127.0.0.1",
    ) -> Pair:
        """A certificate for loopback, or for other ``names``. ``subject`` and ``arguments`` as openssl
        takes them, such as ``/O=x/CN=y``."""
        key, request = self.folder / f"{name}.key", self.folder / f"{name}.csr"
        certificate, store = self.folder / f"{name}.pem", self.folder / f"{name}.store.pem"
        self._run(
            *("req", "-nodes", "-utf8"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", key, "-out", request, "-subj", subject or f"/CN={name}", *arguments),
        )
        extensions = self.folder / f"{name}.ext"
        identifier = "authorityKeyIdentifier=keyid\n" if self.strict else ""
        extensions.write_text(f"subjectAltName={names}\n{identifier}")
        self._run(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.key),
            *("-CAcreateserial", "-days", "2", "-out", certificate, "-extfile", extensions),
        )
        store.write_text(key.read_text() + certificate.read_text())
        return Pair(key, certificate, store)

    def encrypt(self, pair: Pair, password: str) -> Path:
        """The pair's store with its key under a password."""
        key = pair.key.with_suffix(".encrypted.key")
        self._run("pkcs8", "-topk8", "-in", pair.key, "-out", key, "-passout", f"pass:{password}")
        store = pair.store.with_suffix(".encrypted.pem")
        store.write_text(key.read_text() + pair.certificate.read_text())
        return store

    @staticmethod
    def _run(*arguments: str | Path) -> None:
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
