"""Builds TLS contexts from settings. Keys and certificates are PEM, in files or as text."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from krammar.client.errors import SettingsError
from krammar.client.settings import Settings


def client_context(settings: Settings) -> ssl.SSLContext:
    """Return the context for connections to the cluster.

    Without ``ssl.ca.location`` and ``ssl.ca.pem``, the system's certificate authorities are trusted.

    Raises:
        SettingsError: a file cannot be read, or key and certificate do not match.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Python 3.13 sets this flag by default. Java's clients and librdkafka accept certificates without the
    # extensions that it requires.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = settings.ssl_endpoint_identification_algorithm == "https"
    if not settings.enable_ssl_certificate_verification:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _load_authorities(context, settings)
    _load_certificate(context, settings)
    return context


def _load_authorities(context: ssl.SSLContext, settings: Settings) -> None:
    location, pem = settings.ssl_ca_location, settings.ssl_ca_pem
    try:
        if location:
            if os.path.isdir(location):
                context.load_verify_locations(capath=location)
            else:
                context.load_verify_locations(cafile=location)
        if pem:
            context.load_verify_locations(cadata=pem)
    except (OSError, ValueError) as error:
        name = "ssl.ca.location" if location else "ssl.ca.pem"
        raise SettingsError(name, f"{location or 'the text'} cannot be used: {error}") from None
    if not location and not pem:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)


def _load_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    pem = settings.ssl_certificate_pem
    if pem is None and settings.ssl_certificate_location is None:
        if settings.ssl_key_location or settings.ssl_key_pem:
            raise SettingsError("ssl.certificate.location", "is required with a key")
        return
    # With None, OpenSSL would ask for the password on the terminal.
    password = settings.ssl_key_password or ""
    try:
        with (
            _as_file(settings.ssl_certificate_location, pem) as certificate,
            _as_file(settings.ssl_key_location, settings.ssl_key_pem) as key,
        ):
            assert certificate is not None
            context.load_cert_chain(certificate, key, password=password)
    except (OSError, ValueError) as error:
        where = settings.ssl_certificate_location or "the text"
        raise SettingsError(
            "ssl.certificate.location", f"{where} or its key cannot be used: {error}"
        ) from None


@contextmanager
def _as_file(location: str | None, text: str | None) -> Iterator[str | None]:
    """Yield the path of a file; text is written to a temporary one, because Python's ssl accepts only files."""
    if text is None:
        yield location
        return
    descriptor, path = tempfile.mkstemp(suffix=".pem")  # readable by its owner alone
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        yield path
    finally:
        os.unlink(path)
