"""TLS for servers, configured by the ``ssl.*`` settings of Kafka's brokers.

Certificates and keys are PEM (KIP-651), in files or in the settings. Java's key stores are not supported; the error
explains how to convert them to PEM.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Any, Protocol

from krammar.auth import names, tls
from krammar.util.logs import Seldom
from krammar.util.settings import SettingError, split_names


class Texts(Protocol):
    """The texts of the settings."""

    def get(self, name: str) -> str | None:
        """Return a setting without surrounding white space; None if it is not set."""


_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_TLS13_SUITES = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_CCM_SHA256",
    "TLS_AES_128_CCM_8_SHA256",
)
# The setting of the key, which is required.
KEY = "ssl.keystore.location"
# How often a client may send after a failed handshake before the connection is closed.
_CALLS_AFTER_FAILURE = 16


class Context(ssl.SSLContext):
    """The TLS context of a listener.

    Attributes:
        listener: the listener's name
        failed: reports failed handshakes, at most once a second: clients try again for as long as they run
        rules: the mapping from certificates to user names
    """

    listener = ""
    failed = Seldom(logging.getLogger("krammar.auth").warning, seconds=1.0)
    rules: tuple[names.Rule, ...] = ()

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **more: Any
    ) -> ssl.SSLObject:
        """Build the TLS side of a connection, as asyncio and uvloop do."""
        wrapped = super().wrap_bio(incoming, outgoing, *args, **more)
        if isinstance(wrapped, _Logged):
            wrapped.outgoing = outgoing
        return wrapped


class _Logged(ssl.SSLObject):
    """Logs failed handshakes, and sends OpenSSL's alert to the client, which asyncio would drop."""

    outgoing: ssl.MemoryBIO
    _failure: ssl.SSLError | None = None
    _calls_left = 0

    def do_handshake(self) -> None:
        if self._failure is not None:
            # The client may have sent more before it reads the alert. Closing a connection with unread
            # bytes resets it and loses the alert, so the bytes are read, but not forever.
            self._calls_left -= 1
            if self._calls_left <= 0:
                raise self._failure
            raise ssl.SSLWantReadError
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            assert isinstance(self.context, Context)
            self.context.failed(
                f"listener {self.context.listener}: TLS handshake failed: {_handshake_failure(error)};"
                " connection closed"
            )
            if not self.outgoing.pending:
                # OpenSSL sends no alert to a client that does not speak TLS, which would wait for one.
                raise
            self._failure, self._calls_left = error, _CALLS_AFTER_FAILURE
            # asyncio sends pending bytes before it waits for the client to close.
            raise ssl.SSLWantReadError from None


def server_context(settings: Texts, client_auth: str, name: str, log: logging.Logger) -> Context:
    """Build the context of a listener.

    Args:
        client_auth: ``none``, ``requested`` or ``required``
        name: the listener's name for the log
        log: where failed handshakes are reported

    Raises:
        SettingError: a setting is invalid, or a file cannot be read.
    """
    context = Context(ssl.PROTOCOL_TLS_SERVER)
    context.listener = name
    context.failed = Seldom(log.warning, seconds=1.0)
    context.sslobject_class = _Logged
    # As in Java, a client cannot make the server renegotiate forever.
    context.options |= ssl.OP_NO_RENEGOTIATION
    # As in Java, certificates of clients may lack extensions that strict verification requires.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    _set_versions(context, settings)
    _set_ciphers(context, settings)
    _load_key(context, settings)
    if client_auth not in CLIENT_AUTH:
        raise SettingError(
            "ssl.client.auth", f"is not one of {', '.join(CLIENT_AUTH)}", client_auth
        )
    context.verify_mode = CLIENT_AUTH[client_auth]
    if context.verify_mode != ssl.CERT_NONE:
        _load_trust(context, settings)
    rules = settings.get("ssl.principal.mapping.rules") or ""
    try:
        context.rules = names.parse_rules(rules)
    except names.MappingError as error:
        raise SettingError("ssl.principal.mapping.rules", str(error), rules) from None
    return context


def name_of_peer(transport: asyncio.BaseTransport) -> str | None:
    """Return the name that the context's rules derive from the client's certificate; None without a certificate.

    Raises:
        CertificateError: the certificate is invalid, or no rule matches its subject.
    """
    connection = transport.get_extra_info("ssl_object")
    certificate = None if connection is None else connection.getpeercert(binary_form=True)
    if certificate is None:
        return None
    try:
        subject = names.subject_of(certificate)
    except names.CertificateError as error:
        raise names.CertificateError(f"the certificate is invalid: {error}") from None
    name = names.map_name(transport.get_extra_info("sslcontext").rules, subject)
    if name is None:
        raise names.CertificateError(f"no mapping rule matches {subject}")
    return name


def _set_versions(context: ssl.SSLContext, settings: Texts) -> None:
    name = "ssl.enabled.protocols"
    enabled = split_names(settings.get(name)) or list(_VERSIONS)
    for version in enabled:
        if version not in _VERSIONS:
            raise SettingError(name, f"is not one of {', '.join(_VERSIONS)}", version)
    context.minimum_version = min(_VERSIONS[version] for version in enabled)
    context.maximum_version = max(_VERSIONS[version] for version in enabled)


def _set_ciphers(context: ssl.SSLContext, settings: Texts) -> None:
    name = "ssl.cipher.suites"
    suites = split_names(settings.get(name))
    if not suites:
        return
    older = [_openssl_name(suite) for suite in suites if suite not in _TLS13_SUITES]
    # set_ciphers() only handles TLS 1.2. The suites of TLS 1.3 are enabled together with that version.
    try:
        if len(older) == len(suites):
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        elif not older:
            context.minimum_version = ssl.TLSVersion.TLSv1_3
        if older:
            context.set_ciphers(":".join(older))
        known = {cipher["name"] for cipher in context.get_ciphers()}
        missing = [suite for suite in older if suite not in known]
    except ssl.SSLError:
        missing = older
    if missing or context.minimum_version > context.maximum_version:
        reason = "is not supported by OpenSSL for the enabled protocols"
        raise SettingError(name, reason, ",".join(missing or suites))


def _openssl_name(suite: str) -> str:
    """Convert Java's (IANA's) name of a TLS 1.2 suite to OpenSSL's name."""
    if not suite.startswith("TLS_"):
        return suite
    exchange, _, rest = suite.removeprefix("TLS_").partition("_WITH_")
    rest = rest.replace("AES_", "AES").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    rest = rest.replace("_CBC_", "_").replace("_", "-")
    prefix = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    return prefix + rest


def _read_store(settings: Texts, store: str, *inline: str) -> tuple[str, str, str | None] | None:
    """Read the file of a store, or the settings with its text. Raises SettingError.

    Returns:
        The text, and for errors the setting and its value, which is None for text in the settings: it can be secret.
    """
    name = f"ssl.{store}.location"
    location = settings.get(name)
    texts = {each: text for each in inline if (text := settings.get(each)) is not None}
    if location is not None:
        if texts:
            raise SettingError(name, f"cannot be combined with {' or '.join(inline)}", location)
        try:
            data = Path(location).read_bytes()
        except OSError as error:
            raise SettingError(name, f"cannot be read: {error.strerror}", location) from None
        _check_type(settings, store, None if b"-----BEGIN" in data else location)
        return data.decode("utf-8", "replace"), name, location
    if not texts:
        return None
    missing = [each for each in inline if each not in texts]
    if missing:
        raise SettingError(missing[0], f"is missing: set both {' and '.join(inline)}")
    _check_type(settings, store, None)
    return "\n".join(texts.values()), inline[0], None


def _check_type(settings: Texts, store: str, other: str | None) -> None:
    """Raise SettingError unless the type of a store is PEM; ``other`` is its file if that is not PEM."""
    name = f"ssl.{store}.type"
    kind = settings.get(name) or "JKS"
    if kind.upper() == "PEM":
        return
    if other is None:
        raise SettingError(name, f"is wrong for PEM: set {name}=PEM", kind)
    raise SettingError(name, tls.conversion(store, kind, other), kind)


def _load_key(context: ssl.SSLContext, settings: Texts) -> None:
    store = _read_store(settings, "keystore", "ssl.keystore.certificate.chain", "ssl.keystore.key")
    if store is None:
        raise SettingError(KEY, "is missing: a listener with TLS needs a key and its certificate")
    text, name, shown = store
    password = settings.get("ssl.key.password")
    try:
        tls.load_key(context, text, password)
    except tls.PemError as error:
        if error.encrypted and password is None:
            reason = "is missing: the private key is encrypted"
            raise SettingError("ssl.key.password", reason) from None
        raise SettingError(name, str(error), shown) from None


def _load_trust(context: ssl.SSLContext, settings: Texts) -> None:
    store = _read_store(settings, "truststore", "ssl.truststore.certificates")
    if store is None:
        # As in Java, the default is the authorities that the system trusts.
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return
    text, name, shown = store
    try:
        tls.load_authorities(context, text)
    except tls.PemError as error:
        raise SettingError(name, str(error), shown) from None


def _handshake_failure(error: ssl.SSLError) -> str:
    """Describe a failed handshake, with the relevant setting if it is about the client's certificate."""
    if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "the client sent no certificate, but ssl.client.auth=required"
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the client's certificate is not trusted: {error.verify_message} "
            "(ssl.truststore.location contains the trusted authorities)"
        )
    return tls.reason(error)
