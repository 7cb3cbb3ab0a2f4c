"""The tap between clients and brokers with TLS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from krammar.proxy.addresses import Address
from krammar.testing import KafkaBroker
from tests.proxy.test_tls import Certificates, confluent, to
from tests.support.waiting import PATIENCE
from tests.tap.support import TapThread


def test_tls_on_both_sides(tmp_path: Path) -> None:
    files = Certificates(tmp_path)
    with (
        KafkaBroker.start({"ssl.client.auth": "required"}, topics=["orders"], tls=True) as broker,
        TapThread(
            Address(broker.host, broker.port),
            clients=files.ask,
            brokers=to(broker),
            stay=True,
        ) as tap,
    ):
        confluent({"bootstrap.servers": str(tap.address), **files.own})
        tap.recorder.wait(lambda seen: len(seen.ended) == len(seen.connections))
    assert {"Produce", "Fetch", "Metadata"} <= {frame.api for frame in tap.recorder.frames}


def test_the_command(tmp_path: Path) -> None:
    files = Certificates(tmp_path)
    (tmp_path / "tls.toml").write_text(f"""
        [clients]
        security.protocol = "SSL"
        ssl.keystore.location = "{files.proxy}"
        """)
    with KafkaBroker.start(topics=["orders"]) as broker:
        command = [sys.executable, "-m", "krammar.cli", "tap", "--tls", "tls.toml", "--listen"]
        command += ["127.0.0.1:0", "--upstream", broker.bootstrap_servers]
        with subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr is not None
            place = process.stderr.readline().split()[2]
            admin = AdminClient({"bootstrap.servers": place, **files.own})
            assert "orders" in admin.list_topics(timeout=PATIENCE).topics
            process.terminate()
            out, _ = process.communicate(timeout=PATIENCE)
    assert "Metadata" in out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('upstream = "a:1"', "--tls does not use upstream"),
        ('[clients]\nsecurity.protocol = "SSL"', "ssl.keystore.location: is missing"),
        (
            '[brokers]\nsecurity.protocol = "SASL_PLAINTEXT"\nsasl.mechanism = "PLAIN"\n'
            'sasl.username = "a"\nsasl.password = "b"',
            "the tap does not log in; logins of clients pass through it",
        ),
    ],
)
def test_bad_settings(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "tls.toml").write_text(text)
    command = [sys.executable, "-m", "krammar.cli", "tap", "--tls", "tls.toml"]
    found = subprocess.run(
        [*command, "--upstream", "127.0.0.1:1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=os.environ | {"COLUMNS": "200"},
    )
    assert (found.returncode, message in found.stderr) == (2, True), found.stderr
