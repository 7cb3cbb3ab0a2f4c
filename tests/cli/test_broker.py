"""``krammar broker`` as a process."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from kafka_wire import DescribeClusterRequest, MetadataRequest

from krammar.cli import main
from tests.broker.requests import batch, create_topic, fetch, produce
from tests.broker.support import BrokerProcess, RawClient
from tests.support.waiting import PATIENCE


def test_it_serves_says_where_and_stops_in_order(tmp_path: Path) -> None:
    with BrokerProcess(["--data-dir", tmp_path / "data", "--port", "0"]) as process:
        said = "\n".join(process.lines)
        assert "node 1 of cluster " in said
        assert f"0 topics with 0 partitions in {tmp_path / 'data'}" in said
        assert f"PLAINTEXT listening on 127.0.0.1:{process.port}" in said
        with RawClient(process.port) as client:
            create_topic(client, "t", 2)
            assert produce(client, "t", batch(b"kept")).base_offset == 0
            code, rest = process.stop()
    assert (code, rest) == (0, "stopping\nstopped: logs are closed\n")
    with BrokerProcess(["--data-dir", tmp_path / "data", "--port", "0"]) as process:
        assert any("1 topic with 2 partitions" in line for line in process.lines)
        with RawClient(process.port) as client:
            assert fetch(client, "t").high_watermark == 1
        process.process.send_signal(signal.SIGINT)
        assert process._end()[0] == 0


def test_it_serves_as_several_nodes(tmp_path: Path) -> None:
    arguments = ["--data-dir", tmp_path / "data", "--port", "0", "--nodes", "3"]
    with BrokerProcess(arguments) as process:
        said = "\n".join(process.lines)
        assert "nodes 1, 2, 3 of cluster " in said
        ports = set(re.findall(r"node \d: PLAINTEXT listening on 127.0.0.1:(\d+)", said))
        assert len(ports) == 3
        with RawClient(process.port) as client:
            response = client.call(MetadataRequest(topics=None), 12)
            assert {str(each.port) for each in response.brokers} == ports
            topic = MetadataRequest.Topic(name="t")  # created by the request
            response = client.call(MetadataRequest(topics=[topic]), 12)
            assert sorted(response.topics[0].partitions[0].replica_nodes) == [1, 2, 3]
        assert process.stop()[0] == 0


def test_server_properties_as_kafkas_own_script_takes_them(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        f"process.roles=broker,controller\nnode.id=7\nlisteners=PLAINTEXT://127.0.0.1:0\n"
        f"log.dirs={tmp_path}/logs\nnum.partitions=3\nnum.partition=4\n"
        f"auto.create.topics.enable=true\n"
    )
    with BrokerProcess([file]) as process:
        said = "\n".join(process.lines)
        assert "node 7 of cluster" in said
        assert "warning" in said and "num.partition" in said
        with RawClient(process.port) as client:
            client.call(MetadataRequest(topics=[MetadataRequest.Topic(name="new")]), 12)
            response = client.call(MetadataRequest(topics=None), 12)
            assert [len(topic.partitions) for topic in response.topics] == [3]
    with BrokerProcess(["--config", file, "--override", "node.id=8"]) as process:
        assert "node 8 of cluster" in "\n".join(process.lines)


def random_uuid() -> str:
    result = CliRunner().invoke(main, ["random-uuid"])
    assert result.exit_code == 0
    return result.output.removesuffix("\n")


def test_a_new_folder_is_given_the_cluster_id_that_was_printed_before(tmp_path: Path) -> None:
    first, second = random_uuid(), random_uuid()
    assert first != second
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", first)
    arguments = ["--data-dir", tmp_path / "data", "--port", "0"]
    # An existing empty folder, then one of the same cluster, with and without the option.
    (tmp_path / "data").mkdir()
    for more in (["--cluster-id", first], ["--cluster-id", f"{first}=="], []):
        with BrokerProcess([*arguments, *more]) as process:
            assert f"node 1 of cluster {first}" in process.lines[0]
            with RawClient(process.port) as client:
                assert client.call(DescribeClusterRequest()).cluster_id == first
    said = (tmp_path / "data" / "meta.properties").read_text()
    assert f"cluster.id={first}\n" in said

    code, error = run(*arguments, "--cluster-id", second)
    assert code == 1
    assert f"{tmp_path / 'data'} belongs to cluster {first}, not to {second}" in error
    assert (tmp_path / "data" / "meta.properties").read_text() == said


def run(*arguments: str | Path) -> tuple[int, str]:
    process = subprocess.run(
        [sys.executable, "-m", "krammar", "broker", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert "Traceback" not in process.stderr
    return process.returncode, process.stderr


def test_a_bad_value_is_named(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path}/logs\n\nlog.segment.bytes=lots\n")
    code, said = run(file)
    assert code == 2
    assert "log.segment.bytes" in said and "lots" in said and "line 3" in said
    assert not (tmp_path / "logs").exists()


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with BrokerProcess(["--data-dir", tmp_path / "a", "--port", "0"]) as process:
        code, said = run("--data-dir", tmp_path / "b", "--port", str(process.port))
        assert code == 1
        assert f"cannot listen on 127.0.0.1:{process.port}: address already in use" in said
        code, said = run("--data-dir", tmp_path / "a", "--port", "0")
        assert code == 1
        assert "in use" in said


def test_a_host_name_that_cannot_be_one(tmp_path: Path) -> None:
    code, said = run("--data-dir", tmp_path, "--override", "listeners=PLAINTEXT://a..b:0")
    assert code == 1
    assert "cannot listen on a..b:0: the host name cannot be resolved" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--data-dir"),
        (["--data-dir", "x", "--override", "num.partitions"], "KEY=VALUE"),
        (["missing.properties"], "does not exist"),
        ([__file__, "--config", __file__], "give PROPERTIES or --config, not both"),
        (["--data-dir", "x", "--faults", "."], "--faults"),
        (["--data-dir", "x", "--port", "70000"], "70000"),
        (
            ["--data-dir", "x", "--nodes", "3", "--port", "65534"],
            "need ports up to 65536, but 65535 is the highest",
        ),
        (["--data-dir", "x", "--override", "num.partitions=0"], "num.partitions"),
        (["--data-dir", "x", "--cluster-id", "orders"], "krammar random-uuid prints one"),
        (["--data-dir", "x", "--override", "listeners=HTTP://:1"], "listeners"),
    ],
)
def test_misuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["broker", *arguments])
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert not Path("x").exists()


def test_help_has_examples() -> None:
    result = CliRunner().invoke(main, ["broker", "--help"])
    assert result.exit_code == 0
    assert "Examples:" in result.output and "server.properties" in result.output


def test_metrics_and_lines_as_json(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "krammar", "broker", "--data-dir", str(tmp_path)]
    options = ["--port", "0", "--metrics", "0", "--log-format", "json"]
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            page, port = "", 0
            for line in process.stdout:
                entry = json.loads(line)
                assert (entry["level"], entry["logger"]) == ("INFO", "krammar.broker")
                if found := re.search("metrics on (http://127.0.0.1:.*)", entry["message"]):
                    page = found[1]
                if found := re.search(r"listening on .*:(\d+)$", entry["message"]):
                    port = int(found[1])
                if entry["message"].startswith("ready "):
                    break
            with urlopen(page, timeout=PATIENCE) as response:
                assert b"kafka_log_log_size" in response.read()
            with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
                client.sendall(b"\xff" * 8)
                assert client.recv(1) == b""
            entry = json.loads(process.stderr.readline())
            assert entry["level"] == "WARNING"
            assert entry["message"].endswith("; connection closed")
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE)


def test_an_address_for_metrics_that_is_none(tmp_path: Path) -> None:
    arguments = ["broker", "--data-dir", str(tmp_path), "--metrics", "nowhere"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "krammar.metrics: 'nowhere' must be a port, or a host and a port" in result.output
