"""Control over HTTP: rules, nodes and the clock, from any language."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_wire import (
    GetTelemetrySubscriptionsRequest,
    HeartbeatRequest,
    MetadataRequest,
    OffsetCommitRequest,
    PushTelemetryRequest,
)

from krammar.broker import Broker
from krammar.client import Client
from krammar.util.http_server import MAX_BODY, TOKEN_VARIABLE
from tests.broker.support import BrokerProcess, RawClient
from tests.cli.test_tap import started
from tests.support.waiting import PATIENCE
from tests.tap.support import Address

RULE = """
[[fault]]
name = "a beat"
api = "Heartbeat"
answer = "REBALANCE_IN_PROGRESS"
times = 1
"""


class Control:
    """A client of the commands, from the line that names them."""

    def __init__(self, lines: list[str]) -> None:
        found = re.search(r"control on http://(\S+) with the token (\S+)", "\n".join(lines))
        assert found, lines
        self.place, self.token = found[1], found[2]

    def ask(self, method: str, path: str, body: str = "", **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self.place, timeout=PATIENCE)
        headers = {"Authorization": f"Bearer {self.token}", **headers}
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        status, value = response.status, json.loads(response.read())
        connection.close()
        return status, value


def broker(folder: Path, *arguments: str) -> BrokerProcess:
    return BrokerProcess(["--data-dir", folder, "--port", "0", "--control", "0", *arguments])


def test_rules_of_a_broker(tmp_path: Path) -> None:
    with broker(tmp_path) as process, RawClient(process.port) as client:
        control = Control(process.lines)
        rule = {"name": "a beat", "matched": 0, "fired": 0}
        assert control.ask("POST", "/rules", RULE) == (200, [rule])
        beat = HeartbeatRequest(group_id="g")
        assert [client.call(beat, 4).error_code for _ in range(2)] == [27, 25]
        assert control.ask("GET", "/rules") == (200, [{**rule, "matched": 2, "fired": 1}])
        status, (event,) = control.ask("GET", "/history")
        assert status == 200
        assert (event["rule"], event["api"], event["client_id"]) == ("a beat", "Heartbeat", "test")
        assert event["action"] == "answered REBALANCE_IN_PROGRESS"
        assert control.ask("DELETE", "/rules/a%20beat")[0] == 200
        assert control.ask("DELETE", "/rules/a%20beat") == (
            404,
            {"error": 'no rule has the name "a beat"'},
        )
        assert control.ask("POST", "/rules", RULE)[0] == 200
        assert control.ask("DELETE", "/rules") == (200, [])
        assert control.ask("GET", "/history") == (200, [])


def test_the_clock_and_mistakes(tmp_path: Path) -> None:
    with broker(tmp_path) as process:
        control = Control(process.lines)
        before = control.ask("POST", "/clock/0")[1]["now_ms"]
        assert control.ask("POST", "/clock/3600000")[1]["now_ms"] >= before + 3_600_000
        assert control.ask("POST", "/clock/x") == (
            400,
            {"error": "x is not a number of milliseconds"},
        )
        assert control.ask("POST", "/nodes/1/stop") == (
            400,
            {"error": "a broker with one node has no nodes to stop (start it with --nodes)"},
        )
        status, value = control.ask("POST", "/rules", RULE.replace("Heartbeat", "Heartbeet"))
        assert status == 400
        assert value["error"].startswith('request:4:8: error F201: the API "Heartbeet" does not')
        assert control.ask("GET", "/rules") == (200, [])
        assert control.ask("GET", "/x") == (404, {"error": "GET /x does not exist"})


def test_nodes_of_a_cluster(tmp_path: Path) -> None:
    with BrokerProcess(
        ["--data-dir", tmp_path, "--port", "0", "--nodes", "2", "--control", "0"]
    ) as process:
        control = Control(process.lines)
        both = [{"node": n, "runs": True, "accepts": True} for n in (1, 2)]
        assert control.ask("GET", "/nodes") == (200, both)
        stopped = {"node": 2, "runs": False, "accepts": False}
        assert control.ask("POST", "/nodes/2/stop") == (200, [both[0], stopped])
        assert control.ask("POST", "/nodes/2/start") == (200, both)
        killed = {"node": 2, "runs": True, "accepts": False}
        assert control.ask("POST", "/nodes/2/kill") == (200, [both[0], killed])
        assert control.ask("POST", "/nodes/2/start") == (200, both)
        assert control.ask("POST", "/nodes/2/refuse") == (200, [both[0], killed])
        assert control.ask("POST", "/heal") == (200, both)
        third = {"node": 3, "runs": True, "accepts": True}
        assert control.ask("POST", "/nodes") == (200, [*both, third])
        assert control.ask("DELETE", "/nodes/3") == (200, both)
        assert control.ask("DELETE", "/nodes/1")[0] == 400
        status, value = control.ask("POST", "/nodes/9/stop")
        assert (status, value["error"]) == (400, "the cluster has no node 9, only 1, 2")
        assert control.ask("POST", "/nodes/x/stop") == (
            400,
            {"error": "x is not the id of a node"},
        )
        shared = control.ask("POST", "/clock/0")[1]["now_ms"]
        assert control.ask("POST", "/nodes/2/clock/3600000")[1]["now_ms"] >= shared + 3_600_000
        assert control.ask("POST", "/nodes/1/clock/0")[1]["now_ms"] < shared + 3_600_000
        assert control.ask("POST", "/nodes/9/clock/0") == (400, {"error": "there is no node 9"})
        with Client(f"127.0.0.1:{process.port}") as client:
            client.admin.create_topic("orders", 1)
            with client.producer() as producer:
                for number in range(3):
                    producer.send("orders", b"%d" % number)
                    producer.flush()
        election = "/partitions/orders/0/unclean-election"
        assert control.ask("POST", f"{election}/2") == (200, {"end_offset": 1})
        status, value = control.ask("POST", f"{election}/0")
        assert (status, value["error"]) == (400, "lose is a number of records from 1 on, not 0")
        status, value = control.ask("POST", "/partitions/none/0/unclean-election/1")
        assert (status, value["error"]) == (400, "No such topic as none")


def test_leaders_and_coordinators(tmp_path: Path) -> None:
    with BrokerProcess(
        ["--data-dir", tmp_path, "--port", "0", "--nodes", "2", "--control", "0"]
    ) as process:
        control = Control(process.lines)
        with Client(f"127.0.0.1:{process.port}") as client:
            client.admin.create_topic("orders", 1)
        status, before = control.ask("GET", "/partitions/orders/0")
        assert (status, before["replicas"], before["isr"]) == (200, [1, 2], [1, 2])
        other = 3 - before["leader"]
        status, after = control.ask("POST", f"/partitions/orders/0/leader/{other}")
        assert (status, after["leader"]) == (200, other)
        assert after["leader_epoch"] == before["leader_epoch"] + 1
        assert control.ask("GET", "/partitions/orders/7")[0] == 400
        assert control.ask("POST", "/partitions/orders/0/leader/9") == (
            400,
            {"error": "the cluster has no node 9, only 1, 2"},
        )
        records = control.ask("POST", "/records/orders", '["one"]')[1]
        assert [record["value"] for record in records] == ["one"]
        assert control.ask("POST", "/records/orders?transaction=open&transactional_id=t", "[]")
        status, found = control.ask("GET", "/coordinators/transaction/t")
        assert (status, found["node"] in (1, 2)) == (200, True)
        other = 3 - found["node"]
        moved = {"node": other}
        assert control.ask("POST", f"/coordinators/transaction/t/{other}") == (200, moved)
        assert control.ask("GET", "/coordinators/share/t") == (
            400,
            {"error": "nodes coordinate a group or a transaction, not a 'share'"},
        )
        assert control.ask("POST", "/nodes/2/stop")[0] == 200
        assert [each["runs"] for each in control.ask("POST", "/restart")[1]] == [True, True]
        assert len(control.ask("GET", "/records/orders")[1]) == 1


def test_records_and_groups(tmp_path: Path) -> None:
    with broker(tmp_path) as process, RawClient(process.port) as client:
        control = Control(process.lines)
        body = json.dumps(
            ["one", None, {"key": "k", "value": "ü", "headers": {"trace": "1"}, "timestamp": 5}]
        )
        status, stored = control.ask("POST", "/records/orders", body)
        assert (status, [record["value"] for record in stored]) == (200, ["one", None, "ü"])
        assert stored[2] == {
            "topic": "orders",
            "partition": 0,
            "offset": 2,
            "timestamp": 5,
            "key": "k",
            "key_base64": "aw==",
            "value": "ü",
            "value_base64": "w7w=",
            "headers": [{"name": "trace", "value": "1", "value_base64": "MQ=="}],
        }
        assert control.ask("GET", "/records/orders") == (200, stored)
        assert control.ask("GET", "/records/orders?partition=1") == (200, [])
        assert control.ask("GET", "/records/orders?count=3") == (200, stored)
        assert control.ask("GET", "/topics") == (200, {"orders": 1})
        status, found = control.ask("GET", "/records/orders?count=4&timeout=0.01")
        assert (status, found["error"]) == (408, "topic 'orders' has 3 of 4 records after 0.01 s")
        assert control.ask("POST", "/records/orders?transaction=open", '["open"]')[0] == 200
        assert control.ask("GET", "/records/orders") == (200, stored)
        status, found = control.ask("GET", "/records/orders?isolation_level=read_uncommitted")
        assert len(found) == 4

        commit = OffsetCommitRequest(
            group_id="billing",
            topics=[
                OffsetCommitRequest.Topic(
                    name="orders",
                    partitions=[
                        OffsetCommitRequest.Partition(partition_index=0, committed_offset=3)
                    ],
                )
            ],
        )
        client.call(commit, 8)
        offsets = [{"topic": "orders", "partition": 0, "offset": 3, "lag": 1}]
        status, group = control.ask("GET", "/groups/billing")
        assert (status, group["state"], group["offsets"]) == (200, "Empty", offsets)
        assert control.ask("GET", "/groups") == (200, {"billing": group})
        assert control.ask("GET", "/groups/billing/lag/1") == (200, group)
        status, found = control.ask("GET", "/groups/billing/consumes?timeout=0")
        assert (status, found["error"]) == (
            408,
            "group 'billing' is in the state Empty after 0 s",
        )
        assert any(" OffsetCommit v8 " in line for line in control.ask("GET", "/requests")[1])


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "error"),
    [
        ("GET", "/groups/none", "", 404, "group 'none' does not exist"),
        ("GET", "/records/orders?count=x", "", 400, "count: 'x' is not a number"),
        ("GET", "/records/orders?count=0", "", 400, "count: 0 records are there at once; wait"),
        ("GET", "/records/orders?counts=1", "", 400, "'counts' is not one of partition, isol"),
        ("GET", "/records/orders?count=1&timeout=1e9", "", 400, "timeout: '1e9' is not a number"),
        ("GET", "/records/orders?isolation_level=x", "", 400, "isolation_level: 'x' is neither"),
        ("POST", "/records/orders", "{", 400, "the body is not JSON: "),
        ("POST", "/records/orders", "{}", 400, "records are a list, such as"),
        ("POST", "/records/orders", "[1]", 400, "1 is neither bytes nor text nor None"),
        ("POST", "/records/a%2Fb", "[]", 400, "topics: "),
        ("POST", "/records/orders?transaction=x", "[]", 400, "transaction: 'x' is not one of"),
        ("POST", "/topics/none/compact", "", 400, "topic 'none' does not exist"),
        ("GET", "/partitions/orders/0", "", 400, "a broker with one node has no nodes to choose"),
        ("PUT", "/records/orders", "", 404, "PUT /records/orders does not exist"),
    ],
)
def test_mistakes_in_commands(
    one: Control, method: str, path: str, body: str, status: int, error: str
) -> None:
    found, value = one.ask(method, path, body)
    assert (found, value["error"][: len(error)]) == (status, error)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Control]:
    with broker(tmp_path_factory.mktemp("data")) as process:
        yield Control(process.lines)


def test_who_may_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    with broker(tmp_path) as process:
        control = Control(process.lines)
        assert control.token == "secret"
        assert control.ask("GET", "/rules")[0] == 200
        wrong = {"error": "send the header Authorization: Bearer TOKEN"}
        assert control.ask("GET", "/rules", Authorization="Bearer secre") == (401, wrong)
        assert control.ask("GET", "/rules", Authorization="Bearer \xff") == (401, wrong)
        assert control.ask("GET", "/rules", Host="evil.example")[0] == 403
        too_much = str(MAX_BODY + 1)
        assert control.ask("POST", "/rules", **{"Content-Length": too_much})[0] == 413


def test_rules_of_the_tap() -> None:
    with (
        Broker.start() as upstream,
        started([Address("127.0.0.1", upstream.port)], "--control", "0", first="control on") as tap,
    ):
        control = Control(tap.before)
        assert control.ask("POST", "/rules", RULE)[0] == 200
        with RawClient(tap.address.port) as client:
            assert client.call(HeartbeatRequest(group_id="g"), 4).error_code == 27
            assert client.call(MetadataRequest(), 9).brokers
        assert control.ask("GET", "/nodes")[0] == 404
        code, _, err = tap.end(signal.SIGTERM)
    assert code == 0, err
    assert 'fault "a beat": matched 1, fired 1' in err


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
def test_from_javascript(tmp_path: Path) -> None:
    script = """
        const [url, token, rule] = process.argv.slice(1);
        const headers = { Authorization: `Bearer ${token}` };
        const ask = async (method, path, body) =>
          (await fetch(url + path, { method, headers, body })).json();
        await ask("POST", "/rules", rule);
        await ask("POST", "/records/orders", JSON.stringify([{ key: "k", value: "one" }]));
        const records = await ask("GET", "/records/orders?count=1");
        const rules = await ask("GET", "/rules");
        console.log(JSON.stringify([records.map(({ value }) => value), rules]));
    """
    with broker(tmp_path) as process:
        control = Control(process.lines)
        done = subprocess.run(
            [
                "node",
                "--input-type=module",
                "-e",
                script,
                "http://" + control.place,
                control.token,
                RULE,
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    rule = {"name": "a beat", "matched": 0, "fired": 0}
    assert json.loads(done.stdout) == [["one"], [rule]], done.stderr


def test_metrics_of_clients(tmp_path: Path) -> None:
    with (
        broker(tmp_path, "--override", "krammar.client.telemetry=true") as process,
        RawClient(process.port) as client,
    ):
        control = Control(process.lines)
        assert control.ask("GET", "/client-metrics") == (200, [])
        asked = client.call(GetTelemetrySubscriptionsRequest())
        # A gauge of OpenTelemetry, g, with the value 0.5.
        gauge = bytes.fromhex("0a14 1212 1210 0a0167 2a0b 0a09 21 000000000000e03f")
        pushes = {"client_instance_id": asked.client_instance_id, "terminating": True}
        request = PushTelemetryRequest(
            **pushes, subscription_id=asked.subscription_id, metrics=gauge
        )
        assert client.call(request).error_code == 0
        status, (push,) = control.ask("GET", "/client-metrics")
        assert status == 200
        assert push.pop("time_ms") > 0
        assert len(push.pop("client_instance_id")) == 22
        metric = {"name": "g", "kind": "gauge", "value": 0.5, "labels": {}, "time_ns": 0}
        assert push == {
            "client_id": "test",
            "software_name": "unknown",
            "software_version": "unknown",
            "is_last": True,
            "labels": {},
            "metrics": [metric],
        }
