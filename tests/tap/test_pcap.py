"""Captures as pcapng, read by tshark, Wireshark's command line."""

from __future__ import annotations

import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import kafka_wire
import pytest
from kafka_wire import (
    HeartbeatRequest,
    ProduceRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)

from krammar.tap.capture import CaptureError, CaptureWriter
from krammar.tap.frame import Frame
from krammar.tap.inspector import Inspector
from krammar.tap.pcap import PcapWriter, write_pcap
from krammar.wire.batches import Record, encode_batch
from krammar.wire.package import package_of
from tests.support.waiting import PATIENCE
from tests.tap.support import inspector, invoke
from tests.tap.test_capture import write
from tests.tap.test_inspector import request, response

PACKAGE = package_of(kafka_wire)
SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND + 123_456_789


def tshark(path: Path, *fields: str, show: str = "", port: int = 9092) -> list[list[str]]:
    """The fields of all packets, checked by Wireshark's own expert information too."""
    program = shutil.which("tshark")
    if program is None:
        pytest.skip("needs tshark")
    command = [program, "-n", "-r", str(path), "-T", "fields", "-E", "separator=|"]
    command += ["-d", f"tcp.port=={port},kafka", "-o", "tcp.desegment_tcp_streams:TRUE"]
    command += ["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]
    command += ["-Y", show] if show else []
    for field in fields:
        command += ["-e", field]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert "damaged" not in done.stderr, done.stderr
    return [line.split("|") for line in done.stdout.splitlines()]


def exported(folder: Path, frames: list[Frame], client: str, broker: str, **options: Any) -> Path:
    """A capture of one connection with the frames, as pcapng."""
    writer = CaptureWriter(folder / "a.tap")
    writer.opened(START, 1, client, broker)
    for frame in frames:
        writer.frame(frame)
    writer.closed(START + 9 * SECOND, 1, "by the broker")
    writer.close()
    write_pcap(kafka_wire, folder / "a.tap", folder / "a.pcapng", **options)
    return folder / "a.pcapng"


def talk(size: int) -> list[Frame]:
    """Return the frames of a Produce request with records of some size, and its response."""
    seen = inspector()
    message = ProduceRequest(
        acks=1,
        timeout_ms=5,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="orders",
                partition_data=[
                    ProduceRequest.PartitionProduceData(
                        index=2, records=encode_batch([Record(value=bytes(size))])
                    )
                ],
            )
        ],
    )
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    return [
        seen.request(request(message, 7), START + SECOND),
        seen.response(response(kafka_wire.ProduceResponse(), 7), START + 2 * SECOND),
        seen.request(request(beat, 4, 2), START + 3 * SECOND),
        seen.response(
            response(kafka_wire.HeartbeatResponse(error_code=27), 4, 2), START + 4 * SECOND
        ),
    ]


@pytest.mark.parametrize(
    ("client", "broker", "shown"),
    [
        ("127.0.0.1:51000", "10.1.2.3:9092", ["127.0.0.1", "10.1.2.3", "", ""]),
        ("[::1]:51000", "[2001:db8::7]:9092", ["", "", "::1", "2001:db8::7"]),
        ("[fe80::1%eth0]:51000", "10.1.2.3:9092", ["", "", "fe80::1", "::ffff:10.1.2.3"]),
        ("127.0.0.1:51000", "broker.example:9092", ["127.0.0.1", "198.18.0.1", "", ""]),
        ("[::1]:51000", "broker.example:9092", ["", "", "::1", "2001:db8::1"]),
    ],
)
def test_tshark_reassembles_and_dissects(
    tmp_path: Path, client: str, broker: str, shown: list[str]
) -> None:
    frames = talk(100_000)
    path = exported(tmp_path, frames, client, broker)
    rows = tshark(
        path,
        *("ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "tcp.srcport", "tcp.dstport", "tcp.flags"),
        *("frame.time_epoch", "kafka.len", "kafka.request_key", "kafka.response_key"),
        *("kafka.correlation_id", "tcp.checksum.status", "tcp.analysis.flags", "_ws.malformed"),
    )
    assert rows[0][:7] == [*shown, "51000", "9092", "0x0002"]
    assert rows[1][4:7] == ["9092", "51000", "0x0012"]
    assert [row[6] for row in rows[-3:]] == ["0x0011", "0x0011", "0x0010"]
    assert [row[12:] for row in rows] == [["1", "", ""]] * len(rows)
    # 100,000 bytes do not fit into a packet: Wireshark's TCP assembles them.
    assert [row[7:12] for row in rows if row[8]] == [
        ["1700000001.123456789", str(frames[0].size), "0", "", "1"],
        ["1700000002.123456789", str(frames[1].size), "", "0", "1"],
        ["1700000003.123456789", str(frames[2].size), "12", "", "2"],
        ["1700000004.123456789", str(frames[3].size), "", "12", "2"],
    ]


def test_names_are_in_the_file(tmp_path: Path) -> None:
    path = exported(tmp_path, talk(10), "127.0.0.1:51000", "broker.example:9092")
    program = shutil.which("tshark")
    if program is None:
        pytest.skip("needs tshark")
    done = subprocess.run(
        [program, "-r", str(path), "-q", "-z", "hosts"], capture_output=True, text=True, check=True
    )
    assert "198.18.0.1\tbroker.example" in done.stdout


def test_problems_are_comments_and_missing_bytes_are_a_gap(tmp_path: Path) -> None:
    write(tmp_path / "a.tap")
    write_pcap(kafka_wire, tmp_path / "a.tap", tmp_path / "a.pcapng")
    rows = tshark(tmp_path / "a.pcapng", "frame.comment", show="frame.comment")
    assert any("no request with correlation id" in row[0] for row in rows)
    assert any("changed by the tap" in row[0] for row in rows)
    assert any("--max-frame raises the limit" in row[0] for row in rows)
    sizes = tshark(tmp_path / "a.pcapng", "tcp.seq", "tcp.len", show="tcp.len == 7")
    # Length prefix and 16 bytes were stored of 300,000,000; the next packet begins after all of them.
    before = tshark(tmp_path / "a.pcapng", "tcp.seq", show="tcp.len == 20")
    assert int(sizes[0][0]) == int(before[0][0]) + 300_000_004


@pytest.mark.parametrize("secrets", [False, True])
def test_passwords_are_masked_unless_asked_for(tmp_path: Path, secrets: bool) -> None:
    seen = inspector()
    frames = [
        seen.request(request(SaslAuthenticateRequest(auth_bytes=b"\0me\0hunter2"), 2), START),
        seen.response(response(SaslAuthenticateResponse(auth_bytes=b"proof"), 2), START),
        # A frame that does not match its layout may have a password anywhere.
        seen.request(request(SaslAuthenticateRequest(auth_bytes=b"swordfish"), 2)[:-3], START),
        seen.raw(
            True, b"\0\0\0\x80" + request(SaslAuthenticateRequest(auth_bytes=b"xyzzy"), 2), START
        ),
        *talk(10),
    ]
    path = exported(tmp_path, frames, "127.0.0.1:51000", "10.1.2.3:9092", secrets=secrets)
    data = path.read_bytes()
    for secret in (b"hunter2", b"proof", b"swordf", b"xyzzy"):
        assert (secret in data) == secrets
    assert b"orders" in data
    rows = tshark(path, "kafka.request_key", show="kafka.request_key")
    assert rows[0] == ["36"]


def test_bare_tokens_are_masked(tmp_path: Path) -> None:
    seen = Inspector(PACKAGE, 1)
    frames = [
        seen.request(request(kafka_wire.SaslHandshakeRequest(mechanism="PLAIN"), 0), START),
        seen.response(response(kafka_wire.SaslHandshakeResponse(mechanisms=["PLAIN"]), 0), START),
        seen.request(b"\0me\0hunter2", START),
    ]
    path = exported(tmp_path, frames, "127.0.0.1:51000", "10.1.2.3:9092")
    assert b"hunter2" not in path.read_bytes()
    assert b"***********" in path.read_bytes()


def test_the_command(tmp_path: Path) -> None:
    write(tmp_path / "a.tap")
    out = tmp_path / "out.pcapng"
    code, output = invoke(tmp_path / "a.tap", "--pcap", out)
    assert (code, output[: len(f"wrote {out}: ")]) == (0, f"wrote {out}: ")
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert invoke(tmp_path / "a.tap", "--pcap", out)[0] == 0  # it replaces its own kind
    code, output = invoke(tmp_path / "a.tap", "--pcap", tmp_path / "a.tap")
    assert code == 2
    assert "a.tap is not a pcapng file, so it is not overwritten" in output
    code, output = invoke("--upstream", "127.0.0.1:1", "--pcap", out)
    assert code == 2
    assert "--pcap needs the FILE of a capture" in output
    torn = tmp_path / "torn.tap"
    torn.write_bytes((tmp_path / "a.tap").read_bytes()[:-2])
    assert "is incomplete" in invoke(torn, "--pcap", out)[1]


def test_no_partial_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.tap")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PcapWriter, "opened", fail)
    with pytest.raises(OSError, match="No space left"):
        write_pcap(kafka_wire, tmp_path / "a.tap", tmp_path / "b.pcapng")
    assert [path.name for path in tmp_path.iterdir()] == ["a.tap"]
    with pytest.raises(CaptureError, match="is not a capture"):
        write_pcap(kafka_wire, Path(__file__), tmp_path / "b.pcapng")
