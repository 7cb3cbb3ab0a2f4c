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


class Authority:
    """A certificate authority in a folder. Without openssl the test is skipped."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("certificates are made with openssl, which is not installed")
        self.folder = folder
        self.key = folder / f"{name}.key"
        self.certificate = folder / f"{name}.pem"
        self._run(
            *(
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
            ),
            *("-keyout", self.key, "-out", self.certificate, "-days", "2", "-subj", f"/CN={name}"),
        )

    def issue(self, name: str, subject: str | None = None, *arguments: str) -> Pair:
        """A certificate for loopback. ``subject`` as openssl takes it, such as ``/O=x/CN=y``."""
        key, request = self.folder / f"{name}.key", self.folder / f"{name}.csr"
        certificate, store = self.folder / f"{name}.pem", self.folder / f"{name}.store.pem"
        self._run(
            *(
                "req",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-utf8",
            ),
            *("-keyout", key, "-out", request, "-subj", subject or f"/CN={name}", *arguments),
        )
        extensions = self.folder / f"{name}.ext"
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
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
