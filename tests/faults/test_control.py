"""Control over HTTP: rules, nodes and the clock, from any language."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kafka_wire import HeartbeatRequest, MetadataRequest

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
        console.log(JSON.stringify(await ask("GET", "/rules")));
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
    assert json.loads(done.stdout) == [{"name": "a beat", "matched": 0, "fired": 0}], done.stderr
