"""TLS contexts from Kafka's settings, and the names in certificates."""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
import tempfile
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.name import _ASN1Type

from krammar.auth.names import CertificateError, subject_of
from krammar.auth.server_tls import Context
from krammar.broker import Broker
from krammar.broker.config import BrokerConfig, ConfigError
from krammar.broker.security.tls import listener_context, principal_of
from tests.broker.security.certificates import Authority, Pair


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Pair:
    return authority.issue("server")


@pytest.fixture(scope="module")
def client(authority: Authority) -> Pair:
    return authority.issue("client", "/C=DE/O=Example/CN=alice")


def context(listeners: str = "SSL://127.0.0.1:0", **values: object) -> Context:
    names = {key.replace("_", "."): value for key, value in values.items()}
    return context_of(listeners, {key: str(value) for key, value in names.items()})


def context_of(listeners: str, values: dict[str, str]) -> Context:
    config = BrokerConfig.defaults(**{"listeners": listeners, **values})
    return listener_context(config, config.listeners[0])


def with_store(pair: Pair) -> dict[str, object]:
    return {"ssl_keystore_type": "PEM", "ssl_keystore_location": pair.store}


class Peers:
    """Do a handshake in memory. Returns the transport's information about the server's side."""

    def __init__(self, server: ssl.SSLContext, client: ssl.SSLContext) -> None:
        self.context = server
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(to_client, to_server, server_hostname="localhost")
        self.server = server.wrap_bio(to_server, to_client, server_side=True)
        waiting = [self.client, self.server]
        for _ in range(40):  # a server that refuses sends an alert, then waits for a while
            for side in list(waiting):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
                waiting.remove(side)
        assert not waiting
        self.closed = False

    def get_extra_info(self, name: str) -> object:
        return {"ssl_object": self.server, "sslcontext": self.context}.get(name)

    def close(self) -> None:
        self.closed = True

    @property
    def principal(self) -> str:
        return principal_of(self)  # type: ignore[arg-type]


def client_context(authority: Authority, pair: Pair | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=authority.certificate)
    made.verify_flags |= ssl.VERIFY_X509_STRICT  # Python's default since 3.13
    if pair is not None:
        made.load_cert_chain(pair.store)
    return made


def test_key_store_in_a_file(authority: Authority, server: Pair) -> None:
    peers = Peers(context(**with_store(server)), client_context(authority))
    assert peers.server.version() == "TLSv1.3"
    assert peers.principal == "User:ANONYMOUS"


@pytest.mark.parametrize("one_line", [False, True])
def test_key_store_in_the_settings(authority: Authority, server: Pair, one_line: bool) -> None:
    chain, key = server.certificate.read_text(), server.key.read_text()
    if one_line:
        chain, key = chain.replace("\n", " "), key.replace("\n", " ")
    made = context_of(
        "SSL://127.0.0.1:0",
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": chain,
            "ssl.keystore.key": key,
        },
    )
    Peers(made, client_context(authority))


def test_settings_of_the_listener_go_first(authority: Authority, server: Pair) -> None:
    made = context_of(
        "OUTSIDE://127.0.0.1:0",
        {
            "listener.security.protocol.map": "OUTSIDE:SSL",
            "inter.broker.listener.name": "OUTSIDE",
            "ssl.keystore.location": "missing.jks",
            "ssl.client.auth": "required",
            "listener.name.outside.ssl.keystore.type": "PEM",
            "listener.name.outside.ssl.keystore.location": str(server.store),
            "listener.name.outside.ssl.client.auth": "none",
        },
    )
    Peers(made, client_context(authority))


def test_encrypted_key(authority: Authority, server: Pair) -> None:
    store = authority.encrypt(server, "key-secret")
    values = {"ssl_keystore_type": "PEM", "ssl_keystore_location": store}
    Peers(context(**values, ssl_key_password="key-secret"), client_context(authority))

    with pytest.raises(ConfigError, match=r"ssl\.key\.password: is missing") as caught:
        context(**values)
    with pytest.raises(ConfigError, match=r"ssl\.key\.password may be wrong") as caught:
        context(**values, ssl_key_password="other-secret")
    assert "secret" not in str(caught.value)


def test_versions(authority: Authority, server: Pair) -> None:
    made = context(**with_store(server), ssl_enabled_protocols="TLSv1.2")
    assert Peers(made, client_context(authority)).server.version() == "TLSv1.2"

    made = context(**with_store(server), ssl_enabled_protocols="TLSv1.3")
    older = client_context(authority)
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        Peers(made, older)

    with pytest.raises(ConfigError, match=r"ssl\.enabled\.protocols.*SSLv3"):
        context(**with_store(server), ssl_enabled_protocols="TLSv1.2,SSLv3")


@pytest.mark.parametrize(
    ("suites", "version", "cipher"),
    [
        (
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            "TLSv1.2",
            "ECDHE-ECDSA-AES128-GCM-SHA256",
        ),
        (
            "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA,TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384",
            "TLSv1.2",
            "ECDHE-ECDSA-AES256-SHA384",
        ),
        (
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            "TLSv1.2",
            "ECDHE-ECDSA-CHACHA20-POLY1305",
        ),
        ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_AES_256_GCM_SHA384", "TLSv1.3", "TLS_AES_256_GCM_SHA384"),
        (
            "TLS_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            "TLSv1.3",
            "TLS_AES_256_GCM_SHA384",
        ),
    ],
)
def test_cipher_suites(
    authority: Authority, server: Pair, suites: str, version: str, cipher: str
) -> None:
    made = context(**with_store(server), ssl_cipher_suites=suites)
    peers = Peers(made, client_context(authority))
    chosen = peers.server.cipher()
    assert chosen is not None
    assert (peers.server.version(), chosen[0]) == (version, cipher)


@pytest.mark.parametrize(
    "suites", ["TLS_NULL", "rubbish", "TLS_RSA_WITH_RC4_128_MD5,TLS_AES_128_GCM_SHA256"]
)
def test_refuses_cipher_suites(server: Pair, suites: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.cipher\.suites"):
        context(**with_store(server), ssl_cipher_suites=suites)


def test_suites_without_a_version_for_them(server: Pair) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.cipher\.suites"):
        context(
            **with_store(server),
            ssl_cipher_suites="TLS_AES_256_GCM_SHA384",
            ssl_enabled_protocols="TLSv1.2",
        )


def test_client_certificates(authority: Authority, server: Pair, client: Pair) -> None:
    trust: dict[str, object] = {
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": authority.certificate,
    }
    required = context(**with_store(server), **trust, ssl_client_auth="required")
    with_certificate = client_context(authority, client)
    assert Peers(required, with_certificate).principal == "User:CN=alice,O=Example,C=DE"
    with pytest.raises(ssl.SSLError):
        Peers(required, client_context(authority))

    requested = context(**with_store(server), **trust, ssl_client_auth="requested")
    assert Peers(requested, with_certificate).principal == "User:CN=alice,O=Example,C=DE"
    assert Peers(requested, client_context(authority)).principal == "User:ANONYMOUS"

    stranger = Authority(authority.folder, "stranger").issue("unknown-client")
    for made in (required, requested):
        with pytest.raises(ssl.SSLError):
            Peers(made, client_context(authority, stranger))


def test_client_certificates_need_no_extensions(authority: Authority, server: Pair) -> None:
    """Kafka's broker accepts it too, because Java does not verify strictly."""
    older = Authority(authority.folder, "older", strict=False)
    made = context(
        **with_store(server),
        ssl_client_auth="required",
        ssl_truststore_type="PEM",
        ssl_truststore_location=older.certificate,
    )
    pair = older.issue("older-client", "/CN=alice")
    assert Peers(made, client_context(authority, pair)).principal == "User:CN=alice"


def test_trust_in_the_settings(authority: Authority, server: Pair, client: Pair) -> None:
    made = context(
        **with_store(server),
        ssl_client_auth="required",
        ssl_truststore_type="PEM",
        ssl_truststore_certificates=authority.certificate.read_text(),
    )
    assert Peers(made, client_context(authority, client)).principal != "User:ANONYMOUS"


def test_sasl_ssl_asks_for_certificates_only_by_its_own_setting(
    authority: Authority, server: Pair
) -> None:
    trust: dict[str, object] = {
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": authority.certificate,
    }
    sasl = "SASL_SSL://127.0.0.1:0"
    made = context(sasl, **with_store(server), **trust, ssl_client_auth="required")
    Peers(made, client_context(authority))

    values = {
        key.replace("_", "."): str(value) for key, value in (with_store(server) | trust).items()
    }
    made = context_of(sasl, values | {"listener.name.sasl_ssl.ssl.client.auth": "required"})
    with pytest.raises(ssl.SSLError):
        Peers(made, client_context(authority))


def test_mapping_rules(authority: Authority, server: Pair, client: Pair) -> None:
    values = {
        **with_store(server),
        "ssl_client_auth": "required",
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": authority.certificate,
    }
    made = context(**values, ssl_principal_mapping_rules="RULE:^CN=([^,]*),.*$/$1/U, DEFAULT")
    assert Peers(made, client_context(authority, client)).principal == "User:ALICE"

    made = context(**values, ssl_principal_mapping_rules="RULE:^OU=(.*)$/$1/")
    peers = Peers(made, client_context(authority, client))
    assert peers.principal == "User:ANONYMOUS"
    assert peers.closed

    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        context(**values, ssl_principal_mapping_rules="RULE:(/x/")


def test_java_key_stores(tmp_path: Path, server: Pair) -> None:
    store = tmp_path / "server.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    with pytest.raises(ConfigError, match=r"keytool -importkeystore .*openssl pkcs12"):
        context(ssl_keystore_location=store)
    with pytest.raises(ConfigError, match=r"`openssl pkcs12 -in .*server\.jks -nodes -out"):
        context(ssl_keystore_type="PKCS12", ssl_keystore_location=store)
    with pytest.raises(ConfigError, match=r"pkcs12 -in store\.p12 -nokeys"):
        context(**with_store(server), ssl_client_auth="required", ssl_truststore_location=store)
    with pytest.raises(ConfigError, match=r"set ssl\.keystore\.type=PEM"):
        context(ssl_keystore_location=server.store)


def test_says_what_is_wrong_with_stores(tmp_path: Path, authority: Authority, server: Pair) -> None:
    with pytest.raises(ConfigError, match="needs a key and its certificate"):
        context()
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location.*No such file"):
        context(ssl_keystore_type="PEM", ssl_keystore_location=tmp_path / "none.pem")
    with pytest.raises(ConfigError, match="0 private keys"):
        context(ssl_keystore_type="PEM", ssl_keystore_location=server.certificate)
    with pytest.raises(ConfigError, match="no certificate"):
        context(ssl_keystore_type="PEM", ssl_keystore_location=server.key)
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.key: is missing"):
        context(
            ssl_keystore_type="PEM", ssl_keystore_certificate_chain=server.certificate.read_text()
        )
    with pytest.raises(ConfigError, match="cannot be combined with"):
        context(**with_store(server), ssl_keystore_key=server.key.read_text())

    other = authority.issue("other")
    mixed = tmp_path / "mixed.pem"
    mixed.write_text(other.key.read_text() + server.certificate.read_text())
    with pytest.raises(ConfigError, match="key values mismatch"):
        context(ssl_keystore_type="PEM", ssl_keystore_location=mixed)
    broken = tmp_path / "broken.pem"
    broken.write_text(server.store.read_text().replace("MI", "!!", 1))
    with pytest.raises(ConfigError, match="cannot be used"):
        context(ssl_keystore_type="PEM", ssl_keystore_location=broken)
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location.*no certificate"):
        context(
            **with_store(server),
            ssl_client_auth="required",
            ssl_truststore_type="PEM",
            ssl_truststore_location=server.key,
        )


@pytest.mark.parametrize(
    ("subject", "arguments", "expected"),
    [
        ("/CN=alice", (), "CN=alice"),
        (
            "/C=DE/ST=Berlin/L=Mitte/O=Example/OU=Data/OU=Core/CN=alice",
            (),
            "CN=alice,OU=Core,OU=Data,O=Example,L=Mitte,ST=Berlin,C=DE",
        ),
        ("/DC=org/DC=example/UID=u1/street=Way 1", (), "STREET=Way 1,UID=u1,DC=example,DC=org"),
        ('/O=A\\+B, Inc./CN=a=b<c>d;"e"#', (), 'CN=a\\=b\\<c\\>d\\;\\"e\\"\\#,O=A\\+B\\, Inc.'),
        ("/CN= alice  ", (), "CN=\\ alice\\ \\ "),
        ("/CN=Zoë 漢", (), "CN=Zoë 漢"),
        ("/O=x/CN=a+UID=b", ("-multivalue-rdn",), "CN=a+UID=b,O=x"),
        (
            "/CN=alice/emailAddress=a@b.c",
            (),
            "1.2.840.113549.1.9.1=#16056140622e63,CN=alice",
        ),
        (f"/CN=alice/description={'x' * 200}", (), f"2.5.4.13=#0c81c8{'78' * 200},CN=alice"),
    ],
)
def test_names(
    authority: Authority, tmp_path: Path, subject: str, arguments: tuple[str, ...], expected: str
) -> None:
    pair = authority.issue("named", subject, *arguments)
    certificate = ssl.PEM_cert_to_DER_cert(pair.certificate.read_text())
    assert subject_of(certificate) == expected


def test_getpeercert_hides_encodings() -> None:
    """The reason why krammar.auth.names reads the bytes: Java shows both names differently."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    described, names = [], []
    for kind in _ASN1Type.IA5String, _ASN1Type.UTF8String:
        name = x509.Name([x509.NameAttribute(x509.NameOID.EMAIL_ADDRESS, "a@b", _type=kind)])
        builder = x509.CertificateBuilder(name, name, key.public_key(), 1).not_valid_before(now)
        built = builder.not_valid_after(now + datetime.timedelta(1)).sign(key, hashes.SHA256())
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile("wb") as file:
            file.write(
                key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
                + built.public_bytes(Encoding.PEM)
            )
            file.flush()
            server.load_cert_chain(file.name)
        client.check_hostname = False
        client.load_verify_locations(cadata=built.public_bytes(Encoding.PEM).decode())
        connection = handshake(client, server)
        described.append(connection.getpeercert()["subject"])
        names.append(subject_of(connection.getpeercert(binary_form=True)))
    assert described[0] == described[1] == ((("emailAddress", "a@b"),),)
    assert names == ["1.2.840.113549.1.9.1=#1603614062", "1.2.840.113549.1.9.1=#0c03614062"]


def handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> ssl.SSLObject:
    """Return the client's side of a connection in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for end in ends * 2:
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    return ends[0]


def test_certificates_cut_anywhere(server: Pair) -> None:
    certificate = ssl.PEM_cert_to_DER_cert(server.certificate.read_text())
    for size in range(len(certificate)):
        with pytest.raises(CertificateError):
            subject_of(certificate[:size])


def test_a_connection_that_is_closed_twice(authority: Authority, server: Pair) -> None:
    """asyncio's TLS transports cannot be used after a second close, and the sweep of idle connections asks them."""
    properties = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server.store),
    }
    with (
        Broker.start(properties=properties) as broker,
        socket.create_connection(("127.0.0.1", broker.port)) as plain,
        client_context(authority).wrap_socket(plain, server_hostname="localhost") as client,
    ):
        while not broker.call(lambda: broker.connections.open):
            pass
        (connection,) = broker.call(lambda: set(broker.connections.open))
        for _ in range(2):
            broker.call(connection.close)
        assert broker.call(lambda: connection.unread) == 0
        assert client.version()
