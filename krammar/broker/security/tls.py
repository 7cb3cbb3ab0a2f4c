"""TLS for listeners, configured by Kafka's ``ssl.*`` settings.

``listener.name.<name>.ssl.*`` applies to one listener. Certificates and keys are PEM (KIP-651), in files or in the
settings. Java's key stores are not supported; the error explains how to convert them to PEM.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import tempfile
from pathlib import Path
from typing import Any

from krammar.broker.config import BrokerConfig, ConfigError, Listener
from krammar.broker.security import pem
from krammar.broker.security.mapping import MappingError, Rule, map_name, parse_rules
from krammar.broker.security.names import CertificateError, subject_of
from krammar.broker.security.settings import listed, own_name, setting
from krammar.broker.session import ANONYMOUS

log = logging.getLogger("krammar.broker")

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_TLS13_SUITES = frozenset(
    {
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_CCM_SHA256",
        "TLS_AES_128_CCM_8_SHA256",
    }
)


# How often a client may send after a failed handshake before the connection is closed.
_CALLS_AFTER_FAILURE = 16


class Context(ssl.SSLContext):
    """The TLS context of a listener.

    ``listener``  the listener's name
    ``rules``     the mapping from certificates to user names
    """

    listener = ""
    rules: tuple[Rule, ...] = (Rule(),)

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
            log.warning(
                "listener %s: TLS handshake failed: %s; connection closed",
                self.context.listener,
                _handshake_failure(error),
            )
            if not self.outgoing.pending:
                # OpenSSL sends no alert to a client that does not speak TLS, which would wait for one.
                raise
            self._failure, self._calls_left = error, _CALLS_AFTER_FAILURE
            # asyncio sends pending bytes before it waits for the client to close.
            raise ssl.SSLWantReadError from None


def server_context(config: BrokerConfig, listener: Listener) -> Context:
    """Build the context of a listener with protocol SSL or SASL_SSL. Raises ConfigError."""
    context = Context(ssl.PROTOCOL_TLS_SERVER)
    context.listener = listener.name
    context.sslobject_class = _Logged
    # As in Java, a client cannot make the server renegotiate forever.
    context.options |= ssl.OP_NO_RENEGOTIATION
    # As in Java, certificates of clients may lack extensions that strict verification requires.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    _set_versions(context, config, listener)
    _set_ciphers(context, config, listener)
    _load_key(context, config, listener)
    name, client_auth = _client_auth(config, listener)
    if client_auth not in _CLIENT_AUTH:
        raise ConfigError(name, client_auth, f"is not one of {', '.join(_CLIENT_AUTH)}")
    context.verify_mode = _CLIENT_AUTH[client_auth]
    if context.verify_mode != ssl.CERT_NONE:
        _load_trust(context, config, listener)
    rules = setting(config, listener, "ssl.principal.mapping.rules") or ""
    try:
        context.rules = parse_rules(rules)
    except MappingError as error:
        raise ConfigError("ssl.principal.mapping.rules", rules, str(error)) from None
    return context


def principal_of(transport: asyncio.BaseTransport) -> str:
    """Return the principal of a TLS connection.

    It is ``User:`` with the name that the listener's rules derive from the client's certificate, or
    ``User:ANONYMOUS`` without a certificate. As in Kafka, the connection is closed if no rule matches.
    """
    connection = transport.get_extra_info("ssl_object")
    certificate = None if connection is None else connection.getpeercert(binary_form=True)
    if certificate is None:
        return ANONYMOUS
    peer = transport.get_extra_info("peername")
    try:
        subject = subject_of(certificate)
    except CertificateError as error:
        log.warning("%s: the certificate is invalid: %s; connection closed", peer, error)
    else:
        context = transport.get_extra_info("sslcontext")
        name = map_name(context.rules, subject)
        if name is not None:
            return f"User:{name}"
        log.warning("%s: no mapping rule matches %s; connection closed", peer, subject)
    transport.close()
    return ANONYMOUS


def _client_auth(config: BrokerConfig, listener: Listener) -> tuple[str, str]:
    """Return the name and value of the setting.

    With SASL_SSL, whose clients authenticate by SASL, only the listener's own setting applies (KIP-684).
    """
    name = "ssl.client.auth"
    if listener.protocol == "SASL_SSL":
        name = own_name(listener, name)
        return name, (config.get(name) or "none").strip()
    return name, setting(config, listener, name) or "none"


def _set_versions(context: ssl.SSLContext, config: BrokerConfig, listener: Listener) -> None:
    name = "ssl.enabled.protocols"
    enabled = listed(setting(config, listener, name)) or list(_VERSIONS)
    for version in enabled:
        if version not in _VERSIONS:
            raise ConfigError(name, version, f"is not one of {', '.join(_VERSIONS)}")
    context.minimum_version = min(_VERSIONS[version] for version in enabled)
    context.maximum_version = max(_VERSIONS[version] for version in enabled)


def _set_ciphers(context: ssl.SSLContext, config: BrokerConfig, listener: Listener) -> None:
    name = "ssl.cipher.suites"
    suites = listed(setting(config, listener, name))
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
        raise ConfigError(name, ",".join(missing or suites), reason)


def _openssl_name(suite: str) -> str:
    """Convert Java's (IANA's) name of a TLS 1.2 suite to OpenSSL's name."""
    if not suite.startswith("TLS_"):
        return suite
    exchange, _, rest = suite.removeprefix("TLS_").partition("_WITH_")
    rest = rest.replace("AES_", "AES").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    rest = rest.replace("_CBC_", "_").replace("_", "-")
    prefix = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    return prefix + rest


def _load_key(context: ssl.SSLContext, config: BrokerConfig, listener: Listener) -> None:
    chain_name, key_name = "ssl.keystore.certificate.chain", "ssl.keystore.key"
    location_name = "ssl.keystore.location"
    location = setting(config, listener, location_name)
    chain = setting(config, listener, chain_name)
    key = setting(config, listener, key_name)
    if location is not None:
        if chain is not None or key is not None:
            raise ConfigError(
                location_name, location, f"cannot be combined with {chain_name} or {key_name}"
            )
        name, text = location_name, _read_store(config, listener, "keystore", location)
    elif chain is not None and key is not None:
        _insist_on_pem(config, listener, "keystore", None)
        name, text = chain_name, f"{key}\n{chain}"
    elif chain is not None or key is not None:
        missing = key_name if key is None else chain_name
        raise ConfigError(missing, None, f"is missing: set both {chain_name} and {key_name}")
    else:
        raise ConfigError(
            own_name(listener, location_name),
            None,
            f"a listener with {listener.protocol} needs a key and its certificate",
        )
    keys, certificates = pem.private_keys(text), pem.certificates(text)
    shown = location if name == location_name else None
    if len(keys) != 1:
        raise ConfigError(name, shown, f"has {len(keys)} private keys, not one")
    if not certificates:
        raise ConfigError(name, shown, "has no certificate")
    _load_pair(context, config, listener, keys[0] + "".join(certificates), name, shown)


def _load_pair(
    context: ssl.SSLContext,
    config: BrokerConfig,
    listener: Listener,
    text: str,
    name: str,
    shown: str | None,
) -> None:
    password = setting(config, listener, "ssl.key.password")
    # Python reads certificates only from files. Only the owner can read this file, and it is deleted at once.
    with tempfile.NamedTemporaryFile("w", prefix="krammar-", suffix=".pem") as file:
        file.write(text)
        file.flush()
        try:
            # Without a password, OpenSSL would prompt on the terminal.
            context.load_cert_chain(file.name, password=password or "")
        except (ssl.SSLError, ValueError) as error:
            encrypted = "ENCRYPTED" in text
            if encrypted and password is None:
                raise ConfigError(
                    "ssl.key.password", None, "is missing: the private key is encrypted"
                ) from None
            hint = "; ssl.key.password may be wrong" if encrypted else ""
            raise ConfigError(
                name, shown, f"key and certificate cannot be used: {_reason(error)}{hint}"
            ) from None


def _load_trust(context: ssl.SSLContext, config: BrokerConfig, listener: Listener) -> None:
    location_name, inline_name = "ssl.truststore.location", "ssl.truststore.certificates"
    location = setting(config, listener, location_name)
    text = setting(config, listener, inline_name)
    if location is None and text is None:
        # As in Java, the default is the authorities that the system trusts.
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return
    if location is not None:
        if text is not None:
            raise ConfigError(location_name, location, f"cannot be combined with {inline_name}")
        name, text = location_name, _read_store(config, listener, "truststore", location)
    else:
        assert text is not None
        _insist_on_pem(config, listener, "truststore", None)
        name = inline_name
    certificates = pem.certificates(text)
    if not certificates:
        raise ConfigError(name, location, "has no certificate")
    try:
        context.load_verify_locations(cadata="".join(certificates))
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(
            name, location, f"certificates cannot be used: {_reason(error)}"
        ) from None


def _read_store(config: BrokerConfig, listener: Listener, store: str, location: str) -> str:
    name = f"ssl.{store}.location"
    try:
        data = Path(location).read_bytes()
    except OSError as error:
        raise ConfigError(name, location, f"cannot be read: {error.strerror}") from None
    _insist_on_pem(config, listener, store, location, data)
    return data.decode("utf-8", "replace")


def _insist_on_pem(
    config: BrokerConfig, listener: Listener, store: str, location: str | None, data: bytes = b""
) -> None:
    name = f"ssl.{store}.type"
    kind = setting(config, listener, name) or "JKS"
    if kind.upper() == "PEM":
        return
    if location is None or b"-----BEGIN" in data:
        raise ConfigError(name, kind, f"is wrong for PEM: set {name}=PEM")
    source = location
    steps = ""
    if kind.upper() != "PKCS12":
        source = "store.p12"
        steps = (
            f"keytool -importkeystore -srckeystore {location} "
            f"-destkeystore {source} -deststoretype PKCS12 && "
        )
    options = "-nodes" if store == "keystore" else "-nokeys"
    steps += f"openssl pkcs12 -in {source} {options} -out {store}.pem"
    raise ConfigError(
        name,
        kind,
        f"is not supported, only PEM is. Convert {location} with `{steps}`, then set "
        f"ssl.{store}.location={store}.pem and {name}=PEM",
    )


def _handshake_failure(error: ssl.SSLError) -> str:
    """Describe a failed handshake, with the relevant setting if it is about the client's certificate."""
    if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "the client sent no certificate, but ssl.client.auth=required"
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the client's certificate is not trusted: {error.verify_message} "
            "(ssl.truststore.location contains the trusted authorities)"
        )
    return _reason(error)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error)
