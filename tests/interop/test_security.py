"""Logins, users and TLS: the same said to Apache Kafka and to our broker has the same answer; Kafka's
own clients come in; users move with a folder."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from kafka_wire import (
    AlterUserScramCredentialsRequest,
    ApiVersionsRequest,
    DescribeClusterRequest,
    DescribeUserScramCredentialsRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)

from krammar.cli.users import add_user, list_users
from krammar.client import Client
from krammar.client.errors import AuthenticationError
from tests.broker.security.certificates import Authority
from tests.broker.security.support import ScramClient, deletion, plain, upsertion
from tests.broker.support import RawClient
from tests.interop import content
from tests.interop.apache import ApacheKafka, tool
from tests.interop.conftest import AGAINST_APACHE
from tests.interop.dump import dump
from tests.interop.processes import Krammar, Server
from tests.ports import free_port

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SECURED = ("SASL_PLAINTEXT", "SASL_SSL", "SSL")


def properties(server: Server, authority: Authority) -> dict[str, str]:
    """The same for both brokers, except for ports."""
    pair = authority.issue(f"server-{server.port}")
    listeners = {"PLAINTEXT": server.port} | {name: free_port() for name in SECURED}
    if isinstance(server, ApacheKafka):
        listeners["CONTROLLER"] = server.controller_port
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "inter.broker.listener.name": "PLAINTEXT",
        "connections.max.reauth.ms": "60000",
        "connection.failed.authentication.delay.ms": "20",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pair.store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "ssl.client.auth": "required",
        "listener.security.protocol.map": ",".join(
            f"{name}:{'PLAINTEXT' if name == 'CONTROLLER' else name}" for name in listeners
        ),
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        own = f"listener.name.{listener}"
        settings[f"{own}.plain.sasl.jaas.config"] = (
            f'{PLAIN_MODULE} required user_alice="alice-secret" user_bob="bob-secret";'
        )
        for mechanism in MECHANISMS[1:]:
            settings[f"{own}.{mechanism.lower()}.sasl.jaas.config"] = f"{SCRAM_MODULE} required;"
    return settings


def port_of(server: Krammar | ApacheKafka, listener: str) -> int:
    for entry in server.properties["listeners"].split(","):
        name, _, address = entry.partition("://")
        if name == listener:
            return int(address.rpartition(":")[2])
    raise KeyError(listener)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def add_users(server: Server) -> None:
    with RawClient(server.port) as client:
        for mechanism in (1, 2):
            users = [upsertion(name, f"{name}-secret", mechanism) for name in ("alice", "bob")]
            client.call(AlterUserScramCredentialsRequest(upsertions=users))
        settle(client, lambda: len(describe(client, None)["results"]) == 2)


def settle(client: RawClient, reached: Callable[[], bool]) -> None:
    """Kafka's broker sees what its controller has written a little later."""
    for _ in range(2000):
        if reached():
            return
        client.call(DescribeClusterRequest(), 0)
    raise AssertionError("a change does not arrive")


@pytest.fixture(scope="module")
def ours(
    kafka_jars: str, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Krammar | ApacheKafka]:
    folder = tmp_path_factory.mktemp("ours") / "data"
    server = ApacheKafka(folder) if AGAINST_APACHE else Krammar(folder)
    server.properties |= properties(server, authority)
    with server:
        add_users(server)
        yield server


@pytest.fixture(scope="module")
def theirs(
    kafka_jars: str, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApacheKafka]:
    server = ApacheKafka(tmp_path_factory.mktemp("theirs") / "data")
    server.properties |= properties(server, authority)
    with server:
        add_users(server)
        yield server


# The same said to both.


@dataclass
class Talk:
    """A connection, and the result of each request on it."""

    client: RawClient
    heard: list[Any] = field(default_factory=list)
    over: bool = False

    def call(self, request: Any, version: int | None = None) -> Any:
        if self.over:
            return None
        try:
            response = self.client.call(request, version)
        except ConnectionError:
            self.over = True
            self.heard.append("closed")
            return None
        self.heard.append(shown(response))
        return response

    def handshake(self, mechanism: str, version: int = 1) -> None:
        self.call(SaslHandshakeRequest(mechanism=mechanism), version)

    def say(self, message: bytes, version: int = 2) -> bytes:
        response = self.call(SaslAuthenticateRequest(auth_bytes=message), version)
        return b"" if response is None else response.auth_bytes

    def token(self, message: bytes) -> bytes:
        if self.over:
            return b""
        plain = self.client.socket
        try:
            plain.sendall(struct.pack(">i", len(message)) + message)
            head = self._exactly(4)
            answer = self._exactly(struct.unpack(">i", head)[0])
        except ConnectionError:
            self.over = True
            self.heard.append("closed")
            return b""
        self.heard.append(len(answer) > 0)
        return answer

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.client.socket.recv(size - len(data))
            if not piece:
                raise ConnectionError
            data += piece
        return data

    def log_in(self, mechanism: str, user: str, password: str, version: int = 2) -> None:
        self.handshake(mechanism)
        if mechanism == "PLAIN":
            self.say(plain(user, password), version)
        else:
            messages = ScramClient(mechanism, user, password)
            if challenge := self.say(messages.first, version):
                self.say(messages.final(challenge), version)

    def is_served(self) -> None:
        self.call(DescribeClusterRequest(), 0)


def shown(response: Any) -> Any:
    """What is to be the same: not random bytes, and not the order of what has none."""
    found = {
        name: getattr(response, name)
        for name in ("error_code", "error_message", "session_lifetime_ms")
        if hasattr(response, name)
    }
    if hasattr(response, "mechanisms"):
        found["mechanisms"] = sorted(response.mechanisms)
    if hasattr(response, "auth_bytes"):
        found["auth_bytes"] = len(response.auth_bytes) > 0
    if hasattr(response, "results"):
        found["results"] = sorted(
            (
                result.user,
                result.error_code,
                result.error_message,
                *sorted(
                    (i.mechanism, i.iterations) for i in getattr(result, "credential_infos", ())
                ),
            )
            for result in response.results
        )
    return found


TALKS: dict[str, Callable[[Talk], Any]] = {
    "metadata first": lambda talk: talk.call(MetadataRequest(topics=[])),
    "handshake twice": lambda talk: (talk.handshake("PLAIN"), talk.handshake("PLAIN")),
    "versions, then login": lambda talk: (
        talk.call(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3),
        talk.log_in("PLAIN", "alice", "alice-secret"),
        talk.is_served(),
    ),
    "message behind the login": lambda talk: (
        talk.log_in("PLAIN", "alice", "alice-secret"),
        talk.say(plain("alice", "alice-secret")),
        talk.is_served(),
    ),
    "renewal": lambda talk: (
        talk.log_in("SCRAM-SHA-512", "alice", "alice-secret"),
        talk.log_in("SCRAM-SHA-512", "alice", "alice-secret"),
        talk.is_served(),
    ),
    "renewal twice at once": lambda talk: (
        talk.log_in("PLAIN", "alice", "alice-secret"),
        talk.log_in("PLAIN", "alice", "alice-secret"),
        talk.handshake("PLAIN"),
        talk.is_served(),
    ),
    "renewal by another": lambda talk: (
        talk.log_in("PLAIN", "alice", "alice-secret"),
        talk.log_in("PLAIN", "bob", "bob-secret"),
    ),
    "renewal with a wrong password": lambda talk: (
        talk.log_in("SCRAM-SHA-256", "alice", "alice-secret"),
        talk.log_in("SCRAM-SHA-256", "alice", "wrong"),
    ),
}


def _add(name: str, talk: Callable[[Talk], Any]) -> None:
    TALKS[name] = talk


for _version in (0, 1):
    for _mechanism in ("GSSAPI", "", "plain", "PLAIN", "SCRAM-SHA-512"):
        _add(
            f"handshake v{_version} {_mechanism!r}",
            lambda talk, m=_mechanism, v=_version: talk.handshake(m, v),
        )
for _version in (0, 1, 2):
    for _mechanism in MECHANISMS:
        for _password in ("alice-secret", "wrong"):
            _add(
                f"login v{_version} {_mechanism} {_password}",
                lambda talk, m=_mechanism, p=_password, v=_version: (
                    talk.log_in(m, "alice", p, v),
                    talk.is_served(),
                ),
            )
for _mechanism in MECHANISMS:
    for _password in ("alice-secret", "wrong"):

        def _bare(talk: Talk, mechanism: str = _mechanism, password: str = _password) -> None:
            talk.handshake(mechanism, 0)
            if mechanism == "PLAIN":
                talk.token(plain("alice", password))
            else:
                messages = ScramClient(mechanism, "alice", password)
                talk.token(messages.final(talk.token(messages.first)))
            talk.is_served()

        _add(f"bare {_mechanism} {_password}", _bare)
for _message in (
    plain("", "x"),
    plain("alice", ""),
    plain("nobody", "x"),
    plain("alice", "alice-secret\0"),
    b"",
    b"alice\0x",
    b"\0\xff\0x",
    plain("alice", "alice-secret", "bob"),
    plain("alice", "alice-secret", "alice"),
    plain("alice", "wrong", "bob"),
):
    _add(f"PLAIN {_message!r}", lambda talk, m=_message: (talk.handshake("PLAIN"), talk.say(m)))
for _message in (
    b"",
    b"\0",
    b"n,,",
    b"n,,n=alice",
    b"n,,n=,r=nonce",
    b"n,,n=al=ice,r=nonce",
    b"n,,n=al=2cice,r=nonce",
    b"y,,n=alice,r=nonce",
    b"p=tls-unique,,n=alice,r=nonce",
    b"n,,n=alice,r=nonce,",
    b"n,,n=alice,r=nonce,x",
    b"n,,n=alice,r=nonce,x=y",
    b"n,,n=alice,r=nonce,xyz=y=z",
    b"n,,n=alice,r=nonce,tokenauth=true",
    b"n,,n=alice,r=nonce,tokenauth=false",
    b"n,a=bob,n=alice,r=nonce",
    b"n,a=alice,n=alice,r=nonce",
    b"n,,n=alice,r=nonce\n",
):
    _add(
        f"SCRAM {_message!r}",
        lambda talk, m=_message: (talk.handshake("SCRAM-SHA-256"), talk.say(m)),
    )


@pytest.mark.parametrize("name", TALKS)
def test_logins_alike(ours: Krammar, theirs: ApacheKafka, name: str) -> None:
    heard = []
    for server in (theirs, ours):
        with RawClient(port_of(server, "SASL_PLAINTEXT")) as client:
            talk = Talk(client)
            TALKS[name](talk)
            heard.append(talk.heard)
    assert heard[1] == heard[0]


def describe(client: RawClient, names: list[str] | None) -> Any:
    users = names and [DescribeUserScramCredentialsRequest.UserName(name=name) for name in names]
    return shown(client.call(DescribeUserScramCredentialsRequest(users=users)))


def test_users_alike(ours: Krammar, theirs: ApacheKafka) -> None:
    heard: list[list[Any]] = []
    for server in (theirs, ours):
        said: list[Any] = []
        with RawClient(server.port) as client:

            def alter(deletions: list[Any], upsertions: list[Any]) -> None:
                request = AlterUserScramCredentialsRequest(
                    deletions=deletions, upsertions=upsertions
                )
                said.append(shown(client.call(request)))  # noqa: B023

            alter([], [upsertion("carol", "one"), upsertion("dave", "two", 2, 16384)])
            settle(client, lambda: len(describe(client, None)["results"]) == 4)
            said.append(describe(client, None))
            said.append(describe(client, []))
            said.append(describe(client, ["carol", "nobody", "alice", "alice"]))
            alter(
                [deletion("noone", 9), deletion("nobody"), deletion("carol", 2), deletion("x", 0)],
                [
                    upsertion("", "x"),
                    upsertion("few", "x", iterations=4095),
                    upsertion("many", "x", iterations=16385),
                    upsertion("negative", "x", iterations=-1),
                    upsertion("unknown", "x", 0),
                    upsertion("unknown too", "x", 3),
                ],
            )
            alter(
                [deletion("carol"), deletion("carol"), deletion("dave", 2), deletion("nobody")],
                [
                    upsertion("dave", "two", 1),
                    upsertion("frank", "2"),
                    upsertion("frank", "3"),
                    upsertion("frank", "3"),
                    upsertion("nobody", "4"),
                ],
            )
            alter([deletion("carol"), deletion("dave", 2)], [upsertion("Zoë,=", "x")])
            settle(client, lambda: len(describe(client, None)["results"]) == 3)
            said.append(describe(client, None))
            alter([deletion("Zoë,=")], [])
            settle(client, lambda: len(describe(client, None)["results"]) == 2)
        heard.append(said)
    assert heard[1] == heard[0]


# Kafka's own clients.


def client_properties(authority: Authority, mechanism: str | None, password: str) -> str:
    lines = {
        "security.protocol": "SSL" if mechanism is None else "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "request.timeout.ms": "20000",
    }
    if mechanism is None:
        lines["ssl.keystore.type"] = "PEM"
        lines["ssl.keystore.location"] = str(authority.issue("java", "/O=Example/CN=java").store)
    else:
        module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
        lines["sasl.mechanism"] = mechanism
        lines["sasl.jaas.config"] = f'{module} required username="alice" password="{password}";'
    return "".join(f"{name}={value}\n" for name, value in lines.items())


@pytest.mark.parametrize("mechanism", [None, *MECHANISMS])
def test_kafkas_own_clients(
    ours: Krammar, authority: Authority, tmp_path: Path, mechanism: str | None
) -> None:
    listener = "SSL" if mechanism is None else "SASL_SSL"
    topic = f"from-java-{(mechanism or 'tls').lower()}"
    content.create(content.admin(ours.bootstrap), topic, 1)
    config = tmp_path / "client.properties"
    config.write_text(client_properties(authority, mechanism, "alice-secret"))
    bootstrap = ("--bootstrap-server", f"localhost:{port_of(ours, listener)}")
    with_config = ("--command-config", str(config))
    tool(
        "org.apache.kafka.tools.ConsoleProducer",
        *(*bootstrap, *with_config, "--topic", topic),
        text="one\ntwo\n",
    )
    read = tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *(*bootstrap, *with_config, "--topic", topic),
        *("--partition", "0", "--offset", "earliest", "--max-messages", "2"),
    )
    assert read.stdout.splitlines() == ["one", "two"]


def test_kafkas_own_client_with_a_wrong_password(
    ours: Krammar, authority: Authority, tmp_path: Path
) -> None:
    config = tmp_path / "client.properties"
    config.write_text(client_properties(authority, "SCRAM-SHA-512", "wrong"))
    done = tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", f"localhost:{port_of(ours, 'SASL_SSL')}"),
        *("--command-config", str(config), "--list"),
        check=False,
    )
    assert done.returncode != 0
    assert (
        "due to invalid credentials with SASL mechanism SCRAM-SHA-512" in done.stdout + done.stderr
    )


def test_users_by_kafkas_own_tool(ours: Krammar) -> None:
    def configs(*arguments: str) -> str:
        done = tool(
            "kafka.admin.ConfigCommand",
            *("--bootstrap-server", ours.bootstrap, "--entity-type", "users"),
            *("--entity-name", "tooled", "--alter", *arguments),
        )
        return done.stdout

    def known() -> list[Any]:
        with RawClient(ours.port) as client:
            result: list[Any] = describe(client, ["tooled"])["results"]
            return result

    assert "Completed" in configs("--add-config", "SCRAM-SHA-256=[iterations=8192,password=p]")
    with RawClient(ours.port) as client:
        settle(client, lambda: known() == [("tooled", 0, "", (1, 8192))])
    with RawClient(port_of(ours, "SASL_PLAINTEXT")) as client:
        talk = Talk(client)
        talk.log_in("SCRAM-SHA-256", "tooled", "p")
        assert talk.heard[-1]["error_code"] == 0
    assert "Completed" in configs("--delete-config", "SCRAM-SHA-256")
    with RawClient(ours.port) as client:
        settle(client, lambda: known()[0][1] != 0)


# Folders.


def test_users_of_a_folder_that_kafka_has_left(
    kafka_jars: str, tmp_path: Path, authority: Authority
) -> None:
    users = (
        "SCRAM-SHA-256=[name=alice,password=one]",
        "SCRAM-SHA-512=[name=alice,iterations=8192,password=two]",
    )
    kafka = ApacheKafka(tmp_path / "theirs", scram=users)
    with kafka:
        pass
    shutil.copytree(kafka.folder, tmp_path / "copy")
    assert list_users(tmp_path / "copy") == [
        ("alice", "SCRAM-SHA-256", 4096),
        ("alice", "SCRAM-SHA-512", 8192),
    ]
    add_user(tmp_path / "copy", "bob", "three", "SCRAM-SHA-256")
    server = Krammar(tmp_path / "copy")
    server.properties |= properties(server, authority)
    with server:
        for name, password, mechanism in (
            ("alice", "one", "SCRAM-SHA-256"),
            ("alice", "two", "SCRAM-SHA-512"),
            ("bob", "three", "SCRAM-SHA-256"),
        ):
            with RawClient(port_of(server, "SASL_PLAINTEXT")) as client:
                talk = Talk(client)
                talk.log_in(mechanism, name, password)
                assert talk.heard[-1]["error_code"] == 0


def test_kafka_reads_users_that_our_command_has_added(kafka_jars: str, tmp_path: Path) -> None:
    add_user(tmp_path, "alice", "secret", "SCRAM-SHA-256")
    add_user(tmp_path, "alice", "secret", "SCRAM-SHA-512", 8192)
    found = dump(
        tmp_path,
        (tmp_path / "__cluster_metadata-0").glob("*.log"),
        "--cluster-metadata-decoder",
    )
    assert found.complaints == []
    assert found.output.count('"type":"USER_SCRAM_CREDENTIAL_RECORD"') == 2
    assert '"name":"alice","mechanism":2' in found.output
    assert '"iterations":8192' in found.output


@pytest.mark.parametrize("listener", ["PLAINTEXT", *SECURED])
def test_a_wrong_security_protocol_is_found_at_once(
    ours: Krammar, theirs: ApacheKafka, authority: Authority, listener: str
) -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "wrong"}
    store = str(authority.issue("client").store)
    tls = {"ssl.ca.location": str(authority.certificate), "ssl.certificate.location": store}
    for server in (theirs, ours):
        for protocol in ("PLAINTEXT", *SECURED):
            settings = {
                "security.protocol": protocol,
                "default.api.timeout.ms": "600000",
                **(tls if "SSL" in protocol else {}),
                **(login if "SASL" in protocol else {}),
            }
            if protocol == listener:
                continue
            with (
                Client(f"127.0.0.1:{port_of(server, listener)}", settings) as client,
                pytest.raises(AuthenticationError, match=r"set security\.protocol to "),
            ):
                client.topics()
