"""Writes a capture as pcapng, with packets around its frames, so that Wireshark reads it.

The tap sees streams, not packets. The packets are made up: Ethernet, IP and TCP headers with a handshake, sequence
numbers, checksums and the close of each connection. Their payload and their times are the capture's. The conversation
is shown between client and broker, as if there were no tap.

Sources: pcapng (draft-ietf-opsawg-pcapng), RFC 791, RFC 8200, RFC 9293.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from struct import pack
from types import ModuleType

from krammar.tap.capture import Capture, new_file, replay
from krammar.tap.fields import masked
from krammar.tap.frame import Frame, Observer
from krammar.util.sockets import parse_address
from krammar.wire.framing import PREFIX
from krammar.wire.package import Package, package_of

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

SECTION = b"\x0a\x0d\x0d\x0a"

_ETHERNET = 1  # link type
_NANOSECONDS = 9  # the resolution of times, as a negative power of ten
_INTERFACE, _NAMES, _PACKET = 1, 4, 6  # types of blocks
_COMMENT, _RESOLUTION, _APPLICATION = 1, 9, 4  # options

_FIN, _SYN, _PUSH, _ACK = 1, 2, 8, 16
# Bytes per packet, as on a loopback device; below what the length fields of IP can express.
_SEGMENT = 32_768
_MODULO = 1 << 32
# Distance between the first sequence numbers of connections, so that a reused port is another stream.
_DISTANCE = 64_000

# Addresses for names, which a capture does not resolve: for benchmarks (RFC 2544) and documentation (RFC 3849).
_FIRST_4 = ipaddress.IPv4Address("198.18.0.1")
_FIRST_6 = ipaddress.IPv6Address("2001:db8::1")
_ADDRESSES = 131_000
_DEFAULT_PORT = 9092
_COMMENT_LENGTH = 2_000  # characters
_NAME_LENGTH = 255  # bytes


def write_pcap(protocol: ModuleType, source: Path, target: Path, *, secrets: bool = False) -> str:
    """Write a capture as pcapng, for Wireshark.

    Args:
        target: an older pcapng file is replaced.
        secrets: whether to write passwords and tokens; otherwise their bytes are masked.

    Returns:
        What was written.

    Raises:
        CaptureError: ``source`` is not a capture, or ``target`` exists and is not a pcapng file.
        OSError: a file cannot be read or written.
    """
    capture = Capture(source)
    package = package_of(protocol)
    with new_file(target, SECTION, "pcapng file") as file:
        writer = PcapWriter(package, file.write, secrets)
        replay(capture, package, [writer])
    torn = f"\n{source}: {capture.torn}" if capture.torn else ""
    return f"wrote {target}: {writer.packets:,} packets{torn}"


@dataclass(slots=True)
class _Side:
    """One end of a connection, and the next sequence number that it sends."""

    address: IPAddress
    port: int
    mac: bytes
    sequence: int


@dataclass(slots=True)
class _Stream:
    client: _Side
    broker: _Side


@dataclass(slots=True)
class PcapWriter(Observer):
    """Writes the events of a capture as packets.

    Attributes:
        write: receives the bytes of the file
        secrets: whether passwords and tokens are written; otherwise each of their bytes is ``*``
        packets: the number of packets that were written
    """

    package: Package
    write: Callable[[bytes], object]
    secrets: bool = False
    packets: int = 0
    _streams: dict[int, _Stream] = field(default_factory=dict)
    _names: dict[tuple[str, int], IPAddress] = field(default_factory=dict)

    def __post_init__(self) -> None:
        options = _option(_APPLICATION, b"krammar tap") + _option(0, b"")
        self._block(int.from_bytes(SECTION, "big"), pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + options)
        options = _option(_RESOLUTION, bytes([_NANOSECONDS])) + _option(0, b"")
        self._block(_INTERFACE, pack("<HHI", _ETHERNET, 0, 0) + options)

    def opened(self, time_ns: int, connection: int, client: str, upstream: str) -> None:
        self._open(time_ns, connection, client, upstream)

    def frame(self, frame: Frame) -> None:
        stream = self._streams.get(frame.connection) or self._open(
            frame.time_ns, frame.connection, "", ""
        )
        data = frame.data if self.secrets else masked(self.package, frame)
        if not frame.raw:
            data = frame.size.to_bytes(PREFIX, "big") + data
        sender, receiver = _ends(stream, frame.is_request)
        comment = "; ".join(part for part in (frame.error, frame.note) if part)
        for begin in range(0, len(data), _SEGMENT):
            piece = data[begin : begin + _SEGMENT]
            last = begin + len(piece) == len(data)
            flags = _ACK | _PUSH if last else _ACK
            self._segment(frame.time_ns, sender, receiver, flags, piece, comment if last else "")
        if not frame.raw:
            # The capture has only the first bytes of a very large frame. The rest is a gap in the stream.
            sender.sequence += max(0, frame.size - len(frame.data))

    def closed(self, time_ns: int, connection: int, reason: str) -> None:
        stream = self._streams.pop(connection, None)
        if stream is None:
            return
        first, second = _ends(stream, "client" in reason)
        self._segment(time_ns, first, second, _FIN | _ACK, b"", f"closed: {reason}")
        self._segment(time_ns, second, first, _FIN | _ACK)
        self._segment(time_ns, first, second, _ACK)

    # -- packets

    def _open(self, time_ns: int, connection: int, client: str, upstream: str) -> _Stream:
        hosts = [
            _split(text, connection % 50_000 + 10_000)
            for text in (client or "client", upstream or "broker")
        ]
        six = any(":" in host for host, _ in hosts)
        sides = [
            _Side(
                self._address(host, six),
                port,
                bytes([2, 0, 0, 0, 0, number]),
                connection * _DISTANCE,
            )
            for number, (host, port) in enumerate(hosts, 1)
        ]
        if not upstream:
            sides[1].port = _DEFAULT_PORT
        stream = self._streams[connection] = _Stream(sides[0], sides[1])
        self._segment(time_ns, stream.client, stream.broker, _SYN)
        self._segment(time_ns, stream.broker, stream.client, _SYN | _ACK)
        self._segment(time_ns, stream.client, stream.broker, _ACK)
        return stream

    def _segment(
        self,
        time_ns: int,
        sender: _Side,
        receiver: _Side,
        flags: int,
        data: bytes = b"",
        comment: str = "",
    ) -> None:
        """Write a packet, and advance the sender's sequence number."""
        acknowledged = receiver.sequence % _MODULO if flags & _ACK else 0
        tcp = pack(
            ">HHIIBBHHH",
            sender.port,
            receiver.port,
            sender.sequence % _MODULO,
            acknowledged,
            5 << 4,
            flags,
            0xFFFF,
            0,
            0,
        )
        ends = sender.address.packed + receiver.address.packed
        length = len(tcp) + len(data)
        # RFC 9293, 3.1: the checksum includes addresses, protocol number and length.
        checksum = _checksum(ends + pack(">II", 6, length) + tcp + data)
        tcp = tcp[:16] + checksum.to_bytes(2, "big") + tcp[18:]
        if sender.address.version == 4:
            kind = 0x0800
            ip = pack(">BBHHHBBH", 0x45, 0, 20 + length, 0, 0x4000, 64, 6, 0) + ends
            ip = ip[:10] + _checksum(ip).to_bytes(2, "big") + ip[12:]
        else:
            kind = 0x86DD
            ip = pack(">IHBB", 6 << 28, length, 6, 64) + ends
        packet = receiver.mac + sender.mac + kind.to_bytes(2, "big") + ip + tcp + data
        options = b""
        if comment:
            options = _option(_COMMENT, comment[:_COMMENT_LENGTH].encode()) + _option(0, b"")
        time = time_ns % (1 << 64)
        self._block(
            _PACKET,
            pack("<IIIII", 0, time >> 32, time & 0xFFFFFFFF, len(packet), len(packet))
            + _padded(packet)
            + options,
        )
        self.packets += 1
        sender.sequence += len(data) + (1 if flags & (_SYN | _FIN) else 0)

    def _address(self, host: str, six: bool) -> IPAddress:
        """Return the address of a host in one version of IP, the same one each time."""
        try:
            address: IPAddress = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return self._named(host, 6 if six else 4)
        if six and address.version == 4:
            return ipaddress.IPv6Address(f"::ffff:{address}")
        return address

    def _named(self, host: str, version: int) -> IPAddress:
        known = self._names.get((host, version))
        if known is not None:
            return known
        number = len(self._names)
        address: IPAddress = (_FIRST_4 if version == 4 else _FIRST_6) + number % _ADDRESSES
        self._names[host, version] = address
        # Wireshark shows the name for the address.
        name = host.encode().replace(b"\0", b"?")[:_NAME_LENGTH]
        record = address.packed + name + b"\0"
        self._block(
            _NAMES, pack("<HH", 1 if version == 4 else 2, len(record)) + _padded(record) + bytes(4)
        )
        return address

    def _block(self, kind: int, body: bytes) -> None:
        size = (12 + len(body)).to_bytes(4, "little")
        self.write(kind.to_bytes(4, "little") + size + body + size)


def _ends(stream: _Stream, from_client: bool) -> tuple[_Side, _Side]:
    if from_client:
        return stream.client, stream.broker
    return stream.broker, stream.client


def _split(text: str, port: int) -> tuple[str, int]:
    """Split ``host:port`` as a capture has it; ``port`` is for text without one."""
    try:
        return parse_address(text)
    except ValueError:
        return text, port


def _checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071). The sum of 16-bit words with end-around carry is a remainder."""
    total = int.from_bytes(data + bytes(len(data) % 2), "big")
    rest = total % 0xFFFF
    return 0xFFFF - (rest or (0xFFFF if total else 0))


def _option(code: int, value: bytes) -> bytes:
    return pack("<HH", code, len(value)) + _padded(value)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
