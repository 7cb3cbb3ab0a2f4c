"""Whole frames: headers, bodies, and the errors of invalid frames."""

from __future__ import annotations

import pickle
from typing import Any

import kafka_wire
import pytest
import wafka_wire
from kafka_wire import (
    ApiKey,
    ApiVersionsRequest,
    ApiVersionsResponse,
    ErrorCode,
    MetadataRequest,
    RequestHeader,
    ResponseHeader,
)

from krammar.wire.errors import (
    DecodeError,
    HeaderError,
    UnknownApiKeyError,
    UnsupportedVersionError,
    WireError,
)
from krammar.wire.message import Request, Response
from krammar.wire.package import RequestInfo
from tests.generated.catalogue import Message, messages
from tests.generated.oracles import kafka_python, kio
from tests.generated.strategies import samples
from tests.generated.values import build
from tests.support.groups import in_groups

requests = [m for m in messages() if issubclass(m.cls, Request)]
responses = [m for m in messages() if issubclass(m.cls, Response)]
FRAME = bytes.fromhex("0003 000c 00000007 0006 636c69656e74 00")  # Metadata v12, id 7, "client"
BODY = bytes.fromhex("00 01 00 00")  # no topics, may create them


def frame_of(message: Message, version: int, value: Any) -> bytes:
    """Encode a request with its header."""
    package: Any = message.package
    header = package.RequestHeader(
        request_api_key=message.key,
        request_api_version=version,
        correlation_id=-7,
        client_id="clié" if version % 2 else None,
    )
    if (message.key, version) == (7, 0) and package is kafka_wire:
        header.client_id = ""  # the header of ControlledShutdown v0 has no place for it
    versions = package.header_versions(message.key, version)
    return bytes(header.encode(versions.request) + value.encode(version))


@in_groups("message", requests)
def test_every_request_is_parsed(message: Message) -> None:
    assert message.versions
    package: Any = message.package
    for version in message.versions:
        layout = message.layout(version)
        for plain in samples(message, version, seed=9)[1::2]:
            value = build(message, layout, plain)
            frame = frame_of(message, version, value)
            for data in (frame, bytearray(frame), memoryview(frame)):
                header, request = package.parse_request(data)
                assert request == value
                assert (header.request_api_key, header.request_api_version) == (
                    message.key,
                    version,
                )
                assert header.correlation_id == -7
            with pytest.raises(DecodeError, match="1 bytes left over") as caught:
                package.parse_request(frame + b"\0")
            assert caught.value.offset == len(frame)
            assert caught.value.header == header


@in_groups("message", responses)
def test_every_response_is_parsed(message: Message) -> None:
    assert message.versions
    package: Any = message.package
    for version in message.versions:
        layout = message.layout(version)
        versions = package.header_versions(message.key, version)
        header = package.ResponseHeader(correlation_id=1 << 30).encode(versions.response)
        for plain in samples(message, version, seed=10)[1::2]:
            value = build(message, layout, plain)
            data = value.encode(version)
            assert package.parse_response(header + data, message.key, version) == (
                package.ResponseHeader(correlation_id=1 << 30),
                value,
            )
            with pytest.raises(DecodeError, match="1 bytes left over") as caught:
                package.parse_response(header + data + b"\0", message.key, version)
            assert caught.value.offset == len(header) + len(data)
            assert caught.value.header.correlation_id == 1 << 30


def test_frames_of_kafka_python() -> None:
    """Its own headers in front of its own bodies."""
    seen = 0
    for (name, version), known in kafka_python().items():
        key = known.message.key
        if key is None:
            continue
        plain = known.fit(samples(known.message, version, seed=11)[2])
        plain.pop("unknown_tags", None)
        theirs = known.build(plain)
        if name.endswith("Request"):
            theirs.with_header(correlation_id=5, client_id="client")
            header, request = kafka_wire.parse_request(theirs.encode(header=True))
            assert header == RequestHeader(
                request_api_key=key,
                request_api_version=version,
                correlation_id=5,
                client_id="client",
            )
            assert known.encode(known.build(plain)) == request.encode(version)
        else:
            theirs.with_header(correlation_id=5)
            frame = theirs.encode(header=True)
            header, response = kafka_wire.parse_response(frame, key, version)
            assert header == ResponseHeader(correlation_id=5)
            assert known.encode(known.build(plain)) == response.encode(version)
        seen += 1
    assert seen > 450


# ---- header versions ----------------------------------------------------------------------------


def test_header_versions() -> None:
    """Flexible versions have request header 2 and response header 1, with two exceptions."""
    assert len(requests) > 90
    for message in requests:
        if message.package is wafka_wire:
            assert wafka_wire.header_versions(0, 3) == (1, 0)
            continue
        for version in message.versions:
            flexible = message.layout(version).flexible
            expected = (2 if flexible else 1, 1 if flexible else 0)
            if message.key == ApiKey.API_VERSIONS:
                expected = (expected[0], 0)  # KIP-511: a client that knows no version reads it
            if (message.key, version) == (ApiKey.CONTROLLED_SHUTDOWN, 0):
                expected = (0, 0)
            found = kafka_wire.header_versions(message.cls.api_key, version)
            assert found == expected
            assert (found.request, found.response) == expected


def test_the_table_of_requests_says_what_the_classes_say() -> None:
    for package in (kafka_wire, wafka_wire):
        table = package.requests()
        assert [info.key for info in table] == sorted(info.key for info in table)
        assert {info.name for info in table} == {
            message.name for message in requests if message.package is package
        }
        for info in table:
            cls = package.request_class(info.key)
            assert info == RequestInfo(
                cls.api_key,
                cls.__name__,
                cls.min_version,
                cls.max_version,
                cls.flexible_from,
                cls.routing,
                info.is_cluster_action,
                info.endpoints_from,
            )
    by_name = {info.name: info for info in kafka_wire.requests()}
    assert by_name["MetadataRequest"] == (3, "MetadataRequest", 0, 13, 9, "", False, 0)
    assert by_name["JoinGroupRequest"].routing == "group coordinator"
    assert by_name["SaslHandshakeRequest"].flexible_from is None
    assert len(by_name) == len(ApiKey)
    # The marks of Kafka's ApiKeys.
    marked = [*range(4, 8), 27, *range(52, 59), 62, 63, 67, *range(83, 88)]
    assert [info.key for info in kafka_wire.requests() if info.is_cluster_action] == marked


def test_header_versions_of_what_is_unknown() -> None:
    with pytest.raises(UnsupportedVersionError) as caught:
        kafka_wire.header_versions(3, 14)
    assert (caught.value.min_version, caught.value.max_version) == (0, 13)
    for key in (-1, 9999):
        for call in (
            lambda key: kafka_wire.header_versions(key, 0),
            kafka_wire.request_class,
            kafka_wire.response_class,
            lambda key: kafka_wire.parse_response(b"", key, 0),
        ):
            with pytest.raises(UnknownApiKeyError) as unknown:
                call(key)
            assert (unknown.value.api_key, unknown.value.min_key) == (key, 0)
            assert str(unknown.value) == (
                f"unknown api key {key}: keys 0 to {unknown.value.max_key} are known"
            )


def test_registries() -> None:
    for message in requests:
        package: Any = message.package
        assert package.request_class(message.key) is message.cls
        assert package.response_class(message.key) is message.cls.response_class
        assert message.cls.response_class.request_class is message.cls
        assert message.cls.response_class.api_key == message.key
        assert package.ApiKey(message.key) == message.key
    assert {m.key for m in requests if m.package is kafka_wire} == set(ApiKey)


# ---- broken headers -------------------------------------------------------------------------------


def broken(frame: bytes, package: Any = kafka_wire) -> WireError:
    with pytest.raises(WireError) as caught:
        package.parse_request(frame)
    error = caught.value
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
    return error


@pytest.mark.parametrize("size", [0, 1])
def test_no_api_key(size: int) -> None:
    error = broken(FRAME[:size])
    assert isinstance(error, HeaderError)
    assert error.api_key is None
    assert str(error) == f"request header: needs 4 bytes for api key and version, {size} there"


@pytest.mark.parametrize("size", [2, 3])
def test_an_api_key_and_no_version(size: int) -> None:
    error = broken(FRAME[:size])
    assert isinstance(error, HeaderError)
    assert error.api_key == 3
    assert "best guess of the api key: 3" in str(error)


@pytest.mark.parametrize("size", range(4, len(FRAME)))
def test_a_header_that_ends_too_early(size: int) -> None:
    error = broken(FRAME[:size])
    assert isinstance(error, HeaderError)
    assert error.api_key == 3
    assert error.offset <= size
    assert error.path == (
        "correlation_id" if size < 8 else "client_id" if size < 16 else "unknown_tags"
    )
    assert f"RequestHeader v2: {error.path}: " in str(error)
    assert "(best guess of the api key: 3, MetadataRequest)" in str(error)


@pytest.mark.parametrize(
    ("client_id", "said"),
    [
        ("7fff", "client_id: needs 32767 bytes at offset 10, 11 left"),
        ("0002 c328", "client_id: byte 0xc3 at offset 10 is not UTF-8"),
    ],
)
def test_a_header_with_a_broken_client_id(client_id: str, said: str) -> None:
    frame = FRAME[:8] + bytes.fromhex(client_id) + FRAME[10:] + BODY
    error = broken(frame)
    assert isinstance(error, HeaderError)
    assert error.api_key == 3
    assert said in str(error)
    assert error.path == "client_id"


# ---- keys and versions that are not known ----------------------------------------------------------


@pytest.mark.parametrize("key", [-32768, -1, 9999, 32767])
def test_an_unknown_api_key(key: int) -> None:
    error = broken(key.to_bytes(2, "big", signed=True) + FRAME[2:])
    assert isinstance(error, UnknownApiKeyError)
    assert (error.api_key, error.min_key, error.max_key) == (key, min(ApiKey), max(ApiKey))
    assert str(error) == f"unknown api key {key}: keys 0 to {max(ApiKey)} are known"
    # The header is read as version 1, which every version of Kafka's begins with.
    assert error.header.correlation_id == 7
    assert broken(key.to_bytes(2, "big", signed=True) + bytes(2)).header is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", [-32768, -1, 14, 32767])
def test_an_unknown_version(version: int) -> None:
    number = version.to_bytes(2, "big", signed=True)
    error = broken(FRAME[:2] + number + FRAME[4:] + BODY)
    assert isinstance(error, UnsupportedVersionError)
    assert (error.name, error.api_key, error.version) == ("MetadataRequest", 3, version)
    assert (error.min_version, error.max_version) == (0, 13)
    assert str(error) == (
        f"MetadataRequest (api key 3) has no version {version}: versions 0 to 13 are known"
    )
    assert error.header.correlation_id == 7
    assert error.header.client_id == "client"


def test_wafka_has_one_version() -> None:
    request = wafka_wire.ProduceRequest()
    header = wafka_wire.RequestHeader(request_api_key=0, request_api_version=3)
    frame = header.encode(1) + request.encode(3)
    assert wafka_wire.parse_request(frame) == (header, request)
    for version in (2, 4):
        error = broken(frame[:2] + bytes([0, version]) + frame[4:], wafka_wire)
        assert isinstance(error, UnsupportedVersionError)
        assert (error.min_version, error.max_version) == (3, 3)
    error = broken(b"\0\1" + frame[2:], wafka_wire)
    assert isinstance(error, UnknownApiKeyError)
    assert str(error) == "unknown api key 1: keys 0 to 0 are known"


@pytest.mark.parametrize("version", [6, 99])
def test_api_versions_of_an_unknown_version_is_answered(version: int) -> None:
    """KIP-511: with a response of version 0 that says UNSUPPORTED_VERSION and lists the keys. What
    resulting frame is read by clients that asked for a version of theirs, here kafka-python and kio.
    """
    asked = RequestHeader(
        request_api_key=18, request_api_version=version, correlation_id=77, client_id="newer"
    )
    body = b"\x08software\x04\x311.0\x00 and what no one knows"
    error = broken(asked.encode(2) + body)
    assert isinstance(error, UnsupportedVersionError)
    assert error.header == asked
    assert (error.min_version, error.max_version) == (0, 5)

    keys = [
        kafka_wire.ApiVersionsResponse.ApiVersion(
            api_key=m.cls.api_key, min_version=m.cls.min_version, max_version=m.cls.max_version
        )
        for m in requests
        if m.package is kafka_wire
    ]
    answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=keys)
    frame = ResponseHeader(correlation_id=error.header.correlation_id).encode(0) + answer.encode(0)

    theirs = kafka_python()["ApiVersionsResponse", 4].decode(frame[4:])
    assert theirs.error_code == 35
    assert [(k.api_key, k.min_version, k.max_version) for k in theirs.api_keys] == [
        (k.api_key, k.min_version, k.max_version) for k in keys
    ]
    assert len(kio()["ApiVersionsResponse", 0].decode(frame[4:]).api_keys) == len(keys)


# ---- broken bodies ---------------------------------------------------------------------------------


def test_a_broken_body_has_its_header() -> None:
    request = MetadataRequest(topics=[kafka_wire.MetadataRequest.Topic(name="orders")])
    body = request.encode(12)
    assert kafka_wire.parse_request(FRAME + body).request == request
    for size in range(len(body)):
        error = broken(FRAME + body[:size])
        assert type(error) is DecodeError
        assert error.header.client_id == "client"
        assert len(FRAME) <= error.offset <= len(FRAME) + size
        assert str(error).startswith("MetadataRequest v12: ")
        assert error.path
    error = broken(FRAME + body[:20])
    assert str(error) == ("MetadataRequest v12: topics[0].name: needs 6 bytes at offset 35, 2 left")


def test_a_broken_response() -> None:
    with pytest.raises(DecodeError) as caught:
        kafka_wire.parse_response(b"\0\0\0", 3, 12)
    assert str(caught.value) == (
        "ResponseHeader v1: correlation_id: needs 4 bytes at offset 0, 3 left"
    )
    with pytest.raises(DecodeError) as caught:
        kafka_wire.parse_response(bytes(4) + b"\0" + bytes(2), 3, 12)
    assert caught.value.header == ResponseHeader()
    assert str(caught.value) == (
        "MetadataResponse v12: throttle_time_ms: needs 4 bytes at offset 5, 2 left"
    )
    with pytest.raises(UnsupportedVersionError):
        kafka_wire.parse_response(bytes(20), 3, 14)


def test_an_empty_body_is_a_body() -> None:
    header = RequestHeader(request_api_key=18, request_api_version=0, client_id=None)
    assert kafka_wire.parse_request(header.encode(1)).request == ApiVersionsRequest()
