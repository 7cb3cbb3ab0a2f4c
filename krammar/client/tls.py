"""Builds TLS contexts from settings. Keys and certificates are PEM, in files or as text."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from krammar.auth.tls import PemError, certificates, load_authorities, load_key, private_keys
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
    except (OSError, ValueError) as error:
        raise SettingsError("ssl.ca.location", f"{location} cannot be used: {error}") from None
    if pem:
        try:
            load_authorities(context, pem)
        except PemError as error:
            raise SettingsError("ssl.ca.pem", str(error)) from None
    if not location and not pem:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)


def _load_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    location, pem = settings.ssl_certificate_location, settings.ssl_certificate_pem
    key_location, key_pem = settings.ssl_key_location, settings.ssl_key_pem
    if location is None and pem is None:
        if key_location or key_pem:
            raise SettingsError("ssl.certificate.location", "is required with a key")
        return
    password = settings.ssl_key_password
    where = location or "the text"
    try:
        if location is not None and pem is None and key_pem is None:
            # With None, OpenSSL would ask for the password on the terminal.
            context.load_cert_chain(location, key_location, password=password or "")
            return
        chain = _text(location, pem)
        key = _text(key_location, key_pem) if key_location or key_pem else chain
        load_key(context, "".join([*private_keys(key)[:1], *certificates(chain)]), password)
    except PemError as error:
        raise SettingsError("ssl.certificate.location", f"{where}: {error}") from None
    except (OSError, ValueError) as error:
        raise SettingsError(
            "ssl.certificate.location", f"{where} or its key cannot be used: {error}"
        ) from None


def _text(location: str | None, pem: str | None) -> str:
    """Return the text of a setting, else the text of a file."""
    return Path(location or "").read_text() if pem is None else pem


# A server's alerts about the client's certificate, by OpenSSL's names.
_ALERTS = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the broker requires a client certificate: set "
    "ssl.certificate.location and ssl.key.location, or ssl.keystore.location",
    "TLSV1_ALERT_UNKNOWN_CA": "the broker does not trust the client's certificate: its authority is "
    "not in the broker's trust store",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the broker refuses the client's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client's certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the broker does not accept the client's certificate",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the broker ended the handshake: it may require a client "
    "certificate (ssl.certificate.location), or other versions or cipher suites",
}


def handshake_failure(error: ssl.SSLError) -> str:
    """Describe why a handshake with a broker has failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is refused: {error.verify_message}"
    return _ALERTS.get(error.reason, error.reason or str(error))
