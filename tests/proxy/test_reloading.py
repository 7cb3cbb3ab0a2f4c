"""Keys, certificates and users change without a restart."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from krammar.client.errors import AuthenticationError
from krammar.proxy import Proxy
from krammar.proxy.addresses import Address
from krammar.testing import KafkaBroker
from tests.proxy.support import address
from tests.proxy.test_logins import AT_PROXY, own
from tests.proxy.test_tls import Certificates, connect
from tests.support.waiting import PATIENCE


def served(place: Address) -> bytes:
    """The certificate that a server sends."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(place, timeout=PATIENCE) as plain,
        context.wrap_socket(plain) as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""


def test_a_changed_certificate_is_served_to_new_connections(tmp_path: Path) -> None:
    files = Certificates(tmp_path)
    with (
        KafkaBroker.start(topics=["orders"]) as broker,
        Proxy.start(broker.bootstrap_servers, clients=files.clients) as proxy,
    ):
        old = served(address(proxy))
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap_servers, **files.own})
        assert "orders" in admin.list_topics(timeout=PATIENCE).topics
        files.issue(files.proxy, "localhost", "127.0.0.1")
        while served(address(proxy)) == old:
            pass
        assert "orders" in admin.list_topics(timeout=PATIENCE).topics


def test_an_invalid_file_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = Certificates(tmp_path)
    with (
        KafkaBroker.start() as broker,
        Proxy.start(broker.bootstrap_servers, clients=files.clients) as proxy,
    ):
        old = served(address(proxy))
        Path(files.proxy).write_text("half of a file")
        proxy.reload()
        assert served(address(proxy)) == old
    assert "keys, certificates and users remain as before: ssl.keystore.location: " in caplog.text


def test_users_from_a_file(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text('carol = "one"\n')
    with (
        KafkaBroker.start(topics=["orders"]) as broker,
        Proxy.start(broker.bootstrap_servers, clients=AT_PROXY, users=str(users)) as proxy,
    ):
        for mechanism in ("PLAIN", "SCRAM-SHA-512"):
            users.write_text('carol = "one"\n')
            proxy.reload()
            before, after = (
                {"bootstrap.servers": proxy.bootstrap_servers, **own(mechanism, password=each)}
                for each in ("one", "two")
            )
            with connect(before) as client:
                assert set(client.topics()) == {"orders"}
            users.write_text('carol = "two"\n')
            proxy.reload()
            with connect(after) as client:
                assert set(client.topics()) == {"orders"}
            with pytest.raises(AuthenticationError), connect(before) as client:
                client.topics()


def test_the_command_reads_its_files_again_on_sighup(tmp_path: Path) -> None:
    files = Certificates(tmp_path)
    (tmp_path / "proxy.toml").write_text(f"""
        upstream = "127.0.0.1:1"
        listen = "127.0.0.1:0"
        [clients]
        security.protocol = "SSL"
        ssl.keystore.location = "{files.proxy}"
        """)
    command = [sys.executable, "-m", "krammar.cli", "proxy", "proxy.toml"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("listening on "), line + process.stderr.read()
            place = Address.parse(line.split()[2])
            old = served(place)
            files.issue(files.proxy, "localhost", "127.0.0.1")
            os.kill(process.pid, signal.SIGHUP)
            while "was read again" not in (line := process.stderr.readline()):
                assert line
            assert served(place) != old
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
