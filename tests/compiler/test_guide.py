"""Importing messages in the notation of protocol guides: texts in, definitions and packages out."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from uuid import UUID

import kafka_wire
import pytest
import wafka_wire
from click.testing import CliRunner, Result

from krammar.cli import main

# How exercises describe messages: code blocks in any order, some versions only, facts in prose.
EXERCISE = """\
# A broker as an exercise

Each frame begins with its size:

```
Frame => Size (Request | Response)
  Size => int32
APIKey: ApiVersions =\t18
APIKey: DescribeTopicPartitions = 75
```
```
Request Header v2 => request_api_key request_api_version correlation_id client_id TAG_BUFFER \n\
  request_api_key => INT16
  request_api_version => INT16
  correlation_id => INT32
  client_id => NULLABLE_STRING
```
```
Response Header v1 => correlation_id TAG_BUFFER \n\
  correlation_id => INT32
```

```
ApiVersions Request (Version: 2) => \n\
```
ApiVersions Request (Version: 3) => client_software_name client_software_version TAG_BUFFER \n\
  client_software_name => COMPACT_STRING
  client_software_version => COMPACT_STRING

```
ApiVersions Response (Version: 3) => error_code [api_keys] throttle_time_ms TAG_BUFFER \n\
  error_code => INT16
  api_keys => api_key min_version max_version TAG_BUFFER \n\
    api_key => INT16
    min_version => INT16
    max_version => INT16
  throttle_time_ms => INT32
```

```
ApiVersions Response (Version: 2) => error_code [api_keys] throttle_time_ms \n\
  error_code => INT16
  api_keys => api_key min_version max_version \n\
    api_key => INT16
    min_version => INT16
    max_version => INT16
  throttle_time_ms => INT32
```

```
ApiVersions Response (Version: 0) => error_code [api_keys] \n\
  error_code => INT16
  api_keys => api_key min_version max_version \n\
    api_key => INT16
    min_version => INT16
    max_version => INT16
```

- Consumers get this:

  ```
  Fetch Response (Version: 10) => throttle_time_ms error_code session_id [responses] \n\
    throttle_time_ms => INT32
    error_code => INT16
    session_id => INT32
    responses => topic [partitions] \n\
      topic => STRING
      partitions => partition_index error_code high_watermark last_stable_offset log_start_offset [aborted_transactions] records \n\
        partition_index => INT32
        error_code => INT16
        high_watermark => INT64
        last_stable_offset => INT64
        log_start_offset => INT64
        aborted_transactions => producer_id first_offset \n\
          producer_id => INT64
          first_offset => INT64
        records => RECORDS
  ```

```
Fetch Response (Version: 16) => throttle_time_ms error_code session_id [responses] TAG_BUFFER \n\
  throttle_time_ms => INT32
  error_code => INT16
  session_id => INT32
  responses => topic_id [partitions] TAG_BUFFER \n\
    topic_id => UUID
    partitions => partition_index error_code high_watermark last_stable_offset log_start_offset [aborted_transactions] preferred_read_replica records TAG_BUFFER \n\
      partition_index => INT32
      error_code => INT16
      high_watermark => INT64
      last_stable_offset => INT64
      log_start_offset => INT64
      aborted_transactions => producer_id first_offset TAG_BUFFER \n\
        producer_id => INT64
        first_offset => INT64
      preferred_read_replica => INT32
      records => COMPACT_RECORDS
```

DescribeTopicPartitions Request (Version: 0) => [topics] response_partition_limit cursor TAG_BUFFER \n\
  topics => name TAG_BUFFER \n\
    name => COMPACT_STRING
  response_partition_limit => INT32
  cursor => topic_name partition_index TAG_BUFFER \n\
    topic_name => COMPACT_STRING
    partition_index => INT32
  \n\
cursor field is nullable.
"""

# A protocol of one message, without tagged fields. The key is in a sentence, and the fields follow an empty line.
SMALL = """\
A Produce request will have api key of 0. Requests have this header:

```Text
Request Header v1 => request_api_key request_api_version correlation_id client_id \n\
  request_api_key => INT16
  request_api_version => INT16
  correlation_id => INT32
  client_id => NULLABLE_STRING
```

correlation_id: the client finds the response with it.

```Text
Response Header v0 => correlation_id \n\
  correlation_id => INT32
```

```Text
Produce Request (Version: 3) => transactional_id acks timeout_ms [topic_data]

  transactional_id => NULLABLE_STRING
  acks => INT16
  timeout_ms => INT32
  topic_data => name [partition_data] \n\
    name => STRING
    partition_data => index records \n\
      index => INT32
      records => RECORDS
```
"""

PING = "Ping API (Key: 7)\n\nPing Request (Version: 0) => text\n  text => STRING\n"

# The smallest text of each diagnostic; docs/diagnostics.md shows them.
CASES = {
    "E601": PING + "\nPing Response (Version: 0) => text?\n",
    "E602": PING + "\nPing Response (Version: 0) => text sender\n  text => STRING\n",
    "E603": "Ping Request (Version: 0) => text\n  text => STRING\n",
    "E604": PING + "\nPing Request (Version: 0) => text\n  text => BYTES\n",
    "E605": PING + "\nPing Request (Version: 1) => text\n  text => INT32\n",
    "E606": PING.replace("STRING", "STRNG"),
    "E607": PING
    + "\nPing Request (Version: 1) => [texts] TAG_BUFFER\n  texts => text\n    text => COMPACT_STRING\n",
    "W601": PING + "\nPing Request (Version: 2) => text to\n  text => STRING\n  to => STRING\n",
    "W602": PING + "\nPing Request (Version: 1) => text TAG_BUFFER\n"
    "  text => COMPACT_STRING\n  <tag 0> hops => INT32\n",
    "W603": PING + "\nFrame => Size (Request | Response)\n  Size => int32\n",
    "W604": "Ping Response (Version: 0) => text\n  text => STRING\n",
    "W605": PING.replace("STRING", "NULLABLE_STRING")
    + "\nPing Request (Version: 1) => text\n  text => STRING\n"
    + "\nPing Request (Version: 2) => text\n  text => NULLABLE_STRING\n",
    "W606": "Ping API (Key: 7)\n\nPing Request (Version: 0) => { hosts<tag: 0> }\n"
    "  hosts<tag: 0> => { name }\n    name => COMPACT_STRING\n\nRequest header version: 2\n",
    "W607": "Ping API (Key: 7)\n\nPing Request (Version: 0) => text _tagged_fields\n"
    "  text => COMPACT_STRING\n\n| Tag | Tagged field | Description |\n|---|---|---|\n"
    "| 0 | hops | How far to go. |\n",
}


def run(text: str, folder: Path, *options: str) -> Result:
    """Run `krammar import` on a text."""
    guide = folder / "guide.md"
    guide.write_text(text)
    return CliRunner().invoke(main, ["import", str(guide), "-o", str(folder / "made"), *options])


def imported(text: str, folder: Path, *options: str) -> dict[str, str]:
    """The definition files of a text, by name."""
    result = run(text, folder, *options)
    assert result.exit_code == 0, result.output
    return {path.name: path.read_text() for path in sorted((folder / "made").iterdir())}


def refused(text: str, folder: Path, *options: str) -> str:
    result = run(text, folder, *options)
    assert result.exit_code == 1, result.output
    assert "nothing was written" in result.output
    assert not (folder / "made").exists()
    return result.output


def ping(folder: Path, *versions: str) -> list[str]:
    """The definition of a request, from the lines below ``Ping Request (Version: N) =>`` of each version."""
    text = "Ping API (Key: 7)\n"
    for number, version in enumerate(versions):
        text += f"\nPing Request (Version: {number}) => {version}\n"
    return imported(text, folder)["ping.krm"].splitlines()


def package(text: str, folder: Path, name: str, *options: str) -> ModuleType:
    imported(text, folder, *options)
    (folder / "made").rename(folder / name)
    out = folder / "packages"
    result = CliRunner().invoke(main, ["gen", str(folder / name), "-o", str(out / name)])
    assert result.exit_code == 0, result.output
    importlib.invalidate_caches()
    return importlib.import_module(name)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path / "packages")
    return tmp_path


# -- complete texts --------------------------------------------------------------------------------


def test_the_bytes_of_an_exercise_are_those_of_kafka(packages: Path) -> None:
    made = package(EXERCISE, packages, "made_exercise")

    def same(name: str, version: int, value: object) -> None:
        data = getattr(kafka_wire, name).from_dict(value).encode(version)
        assert getattr(made, name).from_dict(value).encode(version) == data
        assert getattr(made, name).decode(data, version).encode(version) == data
        again = made.layout(getattr(made, name), version).read(data)
        assert kafka_wire.layout(getattr(kafka_wire, name), version).write(again) == data

    same("ApiVersionsRequest", 2, {})
    same("ApiVersionsRequest", 3, {"client_software_name": "me", "client_software_version": "0.1"})
    keys = [{"api_key": 18, "min_version": 0, "max_version": 4}, {"api_key": 1, "max_version": 16}]
    same("ApiVersionsResponse", 0, {"error_code": 35, "api_keys": keys})
    for version in (2, 3):
        same("ApiVersionsResponse", version, {"api_keys": keys, "throttle_time_ms": 9})
    aborted = [{"producer_id": 1 << 40, "first_offset": 3}]
    part = {
        "partition_index": 2,
        "error_code": 3,
        "high_watermark": 1 << 33,
        "last_stable_offset": 7,
        "log_start_offset": 1,
        "aborted_transactions": aborted,
        "records": "AAEC",
    }
    other = part | {"records": None, "aborted_transactions": []}
    for version, topic in ((10, {"topic": "a"}), (16, {"topic_id": str(UUID(int=5))})):
        if version == 16:
            part["preferred_read_replica"] = other["preferred_read_replica"] = 4
        responses = [topic | {"partitions": [part, other]}]
        same("FetchResponse", version, {"session_id": 1, "responses": responses})
    for cursor in (None, {"topic_name": "a", "partition_index": 1}):
        value = {"topics": [{"name": "é"}], "response_partition_limit": 5, "cursor": cursor}
        same("DescribeTopicPartitionsRequest", 0, value)
    header = {"request_api_key": 18, "request_api_version": 3, "correlation_id": 7}
    for client in (None, "me"):
        for version in (1, 2):
            same("RequestHeader", version, header | {"client_id": client})
    for version in (0, 1):
        same("ResponseHeader", version, {"correlation_id": 7})
    assert made.ApiVersionsRequest.api_key == 18
    assert made.ApiVersionsRequest.flexible_from == 3
    assert made.DescribeTopicPartitionsRequest.api_key == 75


def test_a_frame_of_an_exercise_is_parsed(packages: Path) -> None:
    made = package(EXERCISE, packages, "made_exercise_frames")
    for version in (2, 3):
        request = kafka_wire.ApiVersionsRequest(client_software_name="me")
        header = kafka_wire.RequestHeader(
            request_api_key=18, request_api_version=version, correlation_id=4, client_id="x"
        )
        frame = header.encode(1 if version == 2 else 2) + request.encode(version)
        parsed = made.parse_request(frame)
        assert (parsed.header.client_id, parsed.header.correlation_id) == ("x", 4)
        assert parsed.request.client_software_name == ("me" if version == 3 else "")


def test_a_word_can_mean_another_type(packages: Path) -> None:
    made = package(SMALL, packages, "made_small", "--type", "RECORDS=[string]")
    value = {
        "transactional_id": None,
        "acks": -1,
        "timeout_ms": 500,
        "topic_data": [{"name": "a", "partition_data": [{"index": 1, "records": ["x", "é", ""]}]}],
    }
    data = wafka_wire.ProduceRequest.from_dict(value).encode(3)
    assert made.ProduceRequest.from_dict(value).encode(3) == data
    assert (
        made.ProduceRequest.decode(data, 3).to_dict()
        == wafka_wire.ProduceRequest.decode(data, 3).to_dict()
    )
    frame = wafka_wire.RequestHeader(request_api_version=3).encode(1) + data
    assert made.parse_request(frame).request.topic_data[0].partition_data[0].records[1] == "é"
    assert (made.ProduceRequest.min_version, made.ProduceRequest.api_key) == (3, 0)


def test_without_an_answer_records_are_bytes(tmp_path: Path) -> None:
    assert imported(SMALL, tmp_path)["produce.krm"].endswith(
        "      Records: nullable-bytes(null)\n"
    )


# -- types and versions ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "type"),
    [
        ("BOOLEAN", "bool"),
        ("BOOL", "bool"),
        ("INT8", "int8"),
        ("UINT16", "uint16"),
        ("UINT32", "uint32"),
        ("FLOAT64", "float64"),
        ("UUID", "uuid"),
        ("VARINT", "varint"),
        ("VARLONG", "varlong"),
        ("STRING", "string"),
        ("NULLABLE_STRING", "nullable-string"),
        ("BYTES", "bytes"),
        ("NULLABLE_BYTES", "nullable-bytes"),
        ("RECORDS", "nullable-bytes(null)"),
        ("VARINT_NULLABLE_STRING", "varint-string"),
        ("VARINT_BYTES", "varint-bytes"),
        ("int32", "int32"),
    ],
)
def test_types(tmp_path: Path, word: str, type: str) -> None:
    assert ping(tmp_path, f"a\n  a => {word}")[1:] == [f"  A: {type}"]


@pytest.mark.parametrize(
    ("words", "below", "type"),
    [
        ("[a]", "a => INT32", "[int32]"),
        ("[[a]]", "a => INT32", "[[int32]]"),
        ("[a]", "a => ARRAY(INT32)", "[[int32]]"),
        ("nullable[a]", "a => STRING", "nullable[string]"),
        ("varint[a]", "a => STRING", "varint[string]"),
        ("[a]", "a => b\n    b => INT8", "[=>]"),
        ("a", "a => b\n    b => INT8", "=>"),
        ("{ ?[a] }", "a => INT32", "nullable[int32]"),
        ("{ ?[a] }", "a => { b }\n    b => INT8", "nullable[=>]"),
        ("{ a }", "a => ?{ b }\n    b => INT8", "nullable=>"),
        ("{ a }", "a => RECORDS", "bytes"),
        ("{ a }", "a => NULLABLE_RECORDS", "nullable-bytes(null)"),
        ("nullable(a)", "a => b\n    b => INT8", "nullable=>"),
    ],
)
def test_arrays_and_structs(tmp_path: Path, words: str, below: str, type: str) -> None:
    assert ping(tmp_path, f"{words}\n  {below}")[1] == f"  A: {type}"


def test_versions_become_ranges(tmp_path: Path) -> None:
    assert ping(
        tmp_path,
        "old [items]\n  old => INT8\n  items => a\n    a => INT8",
        "mid old [items]\n  mid => INT8\n  old => INT8\n  items => a b\n    a => INT8\n    b => INT8",
        "[items] new\n  items => b\n    b => INT8\n  new => NULLABLE_STRING",
        "new\n  new => NULLABLE_STRING",
    ) == [
        "PingRequest => key 7, max version 3",
        "  Mid: int8 // v1-v1",
        "  Old: int8 // v0-v1",
        "  Items: [=>] // v0-v2",
        "    A: int8 // v0-v1",
        "    B: int8 // v1-v2",
        "  New: nullable-string // v2+",
    ]


def test_null_from_a_version_on(tmp_path: Path) -> None:
    assert ping(
        tmp_path,
        "a [b]\n  a => STRING\n  b => INT8",
        "a nullable[b]\n  a => NULLABLE_STRING\n  b => INT8",
    )[1:] == ["  A: nullable-string-v1+", "  B: nullable-v1+[int8]"]


@pytest.mark.parametrize(
    ("words", "type"),
    [
        (["STRING", "NULLABLE_STRING", "STRING"], "nullable-string-v1-v1"),
        (["NULLABLE_STRING", "NULLABLE_STRING", "STRING"], "nullable-string-v0-v1"),
        # A version that the text omits is like the one below it.
        (["NULLABLE_STRING", "", "STRING"], "nullable-string-v0-v1"),
        (["STRING", "NULLABLE_STRING", ""], "nullable-string-v1+ // v0-v1"),
    ],
)
def test_null_in_some_versions(tmp_path: Path, words: list[str], type: str) -> None:
    texts = [
        f"Ping Request (Version: {version}) => text\n  text => {word}\n"
        for version, word in enumerate(words)
        if word
    ]
    if not words[-1]:
        texts.append("Ping Request (Version: 2) =>\n")
    files = imported("Ping API (Key: 7)\n\n" + "\n".join(texts), tmp_path)
    assert f"  Text: {type}\n" in files["ping.krm"]


def test_null_elements_in_some_versions(tmp_path: Path) -> None:
    text = PING.replace("=> text", "=> [text]").replace("STRING", "NULLABLE_STRING")
    text += "\nPing Request (Version: 1) => [text]\n  text => STRING\n"
    assert "  Text: [nullable-string-v0-v0]\n" in imported(text, tmp_path)["ping.krm"]


def test_compact_types_tell_flexible_versions(tmp_path: Path) -> None:
    assert ping(
        tmp_path,
        "a b c\n  a => STRING\n  b => INT8\n  c => STRING",
        "a b c d<tag: 0> [e]<tag: 1>\n  a => COMPACT_STRING\n  b => INT8\n  c => STRING\n"
        "  d<tag: 0> => INT8\n  e<tag: 1> => COMPACT_STRING",
    ) == [
        "PingRequest => key 7, max version 1, flexible v1+",
        "  A: string",
        "  B: int8",
        "  C: string // not flexible",
        "  D: int8 // v1+, tag 0",
        "  E: [string] // v1+, tag 1",
    ]


def test_braces_tell_which_arrays_are_compact(tmp_path: Path) -> None:
    assert ping(
        tmp_path,
        "{ [a] [b] ?[c] }\n  a => INT32\n  b => { d }\n    d => INT8\n  c => STRING",
        "{ [a] (b) ?(c) }\n  a => INT32\n  b => { d }\n    d => INT8\n  c => COMPACT_STRING",
    ) == [
        "PingRequest => key 7, max version 1, flexible v1+",
        "  A: [int32] // not flexible",
        "  B: [=>]",
        "    D: int8",
        "  C: nullable[string]",
    ]


@pytest.mark.parametrize(
    ("options", "codes", "type"),
    [
        ([], {"W606"}, "[=>]"),
        (["--array", "PingRequest.hosts=yes"], set(), "[=>]"),
        (["--array", "PingRequest.hosts=no"], {"W602"}, "=>Hosts"),
    ],
)
def test_tagged_arrays(tmp_path: Path, options: list[str], codes: set[str], type: str) -> None:
    result = run(CASES["W606"], tmp_path, *options)
    assert {code for code in ("W602", "W606") if code in result.output} == codes
    made = (tmp_path / "made" / "ping.krm").read_text().splitlines()
    assert made[1:] == [f"  Hosts: {type.removesuffix('Hosts')} // tag 0", "    Name: string"]


def test_another_version_tells_whether_a_tagged_field_is_an_array(tmp_path: Path) -> None:
    text = CASES["W606"] + (
        "\nPing Request (Version: 1) => [hosts]<tag: 0>\n  [hosts]<tag: 0> => name\n    name => COMPACT_STRING\n"
    )
    result = run(text, tmp_path)
    assert "W606" not in result.output
    assert "  Hosts: [=>] // tag 0\n" in (tmp_path / "made" / "ping.krm").read_text()


def test_an_answer_about_an_array_that_is_known(tmp_path: Path) -> None:
    result = run(PING, tmp_path, "--array", "PingRequest.text=no")
    assert result.exit_code == 1
    assert result.output.strip().endswith(
        "--array PingRequest.text: unknown field (the texts say whether it is an array)"
    )


def test_headers_without_marks_are_flexible_as_in_kafka(tmp_path: Path) -> None:
    numbers = "request_api_key request_api_version correlation_id"
    types = (
        "  request_api_key => INT16\n  request_api_version => INT16\n  correlation_id => INT32\n"
    )
    headers = "".join(
        f"Request Header v{n} => {numbers} id\n{types}  id => NULLABLE_STRING\n\n" for n in (1, 2)
    )
    headers += "Response Header v0 => correlation_id\n  correlation_id => INT32\n\n"
    assert imported(headers + CASES["W606"], tmp_path)["headers.krm"].startswith(
        "RequestHeader => not top level, max version 2, min version 1, flexible v2+\n"
        "  RequestApiKey: int16\n"
        "  RequestApiVersion: int16\n"
        "  CorrelationId: int32\n"
        "  Id: nullable-string // not flexible\n"
    )


def test_the_version_of_the_header_tells_flexible_versions(tmp_path: Path) -> None:
    assert (
        ping(
            tmp_path,
            "a\n  a => INT8\nRequest header version: 1",
            "a\n  a => INT8\nRequest header version: 2",
        )[0]
        == "PingRequest => key 7, max version 1, flexible v1+"
    )


def test_a_response_has_the_versions_of_its_request(tmp_path: Path) -> None:
    text = PING + "\nPing Response (Version: 1) => text TAG_BUFFER\n  text => COMPACT_STRING\n"
    assert imported(text, tmp_path)["ping.krm"] == (
        "PingRequest => key 7, max version 1, flexible v1+\n  Text: string\n\n"
        "PingResponse =>\n  Text: string\n"
    )


def test_other_structs_and_their_names_as_types(tmp_path: Path) -> None:
    text = (
        "Note (Version: 1) => version text\n  version => INT16\n  text => STRING\n\n"
        "Pair => left [rights]\n  left => Note\n  rights => INT8\n"
    )
    assert imported(text, tmp_path) == {
        "note.krm": "Note => not top level, with version field, max version 1, min version 1\n"
        "  Version: int16(1)\n  Text: string\n",
        "pair.krm": "Pair => not top level\n  Left: Note\n  Rights: [int8]\n",
    }


def test_lengths_before_their_bytes(tmp_path: Path) -> None:
    text = "Blob => length data\n  length => INT32\n  data => BYTES[length - 4]\n"
    assert imported(text, tmp_path)["blob.krm"].endswith(
        "  Length: int32\n  Data: length-field-minus => Length - 4\n"
    )


def test_html(tmp_path: Path) -> None:
    text = (
        '<h5><a name="The_Messages_Ping">Ping API (Key: 7):</a></h5>\n'
        "<pre>Ping Request (Version: 0) =&gt; text TAG_BUFFER \n"
        "  text =&gt; COMPACT_STRING\n  &lt;tag 0&gt; hops =&gt; INT8\n</pre>\n<table><tbody>\n"
    )
    assert imported(text, tmp_path)["ping.krm"].splitlines() == [
        "PingRequest => key 7, max version 0, flexible v0+",
        "  Text: string",
        "  Hops: int8 // tag 0",
    ]


def test_names_keep_their_attributes(tmp_path: Path) -> None:
    lines = ping(
        tmp_path,
        "topic_id a_1 lastOffset from_\n"
        + "\n".join(f"  {name} => INT8" for name in ("topic_id", "a_1", "lastOffset", "from_")),
    )
    assert lines[1:] == ["  TopicId: int8", "  A_1: int8", "  LastOffset: int8", "  From: int8"]


# -- what a text does not contain ------------------------------------------------------------------


def test_answers(tmp_path: Path) -> None:
    text = (
        "Ping Request (Version: 0) => [texts] TAG_BUFFER\n  texts => COMPACT_STRING\n"
        "  <tag 0> hops => INT32\n"
    )
    made = imported(
        text, tmp_path,
        "--key", "Ping=7", "--nullable", "PingRequest.texts", "--default", "PingRequest.hops=-1",
    )  # fmt: skip
    assert made["ping.krm"] == (
        "PingRequest => key 7, max version 0, flexible v0+\n"
        "  Texts: nullable[string]\n"
        "  Hops: int32(-1) // tag 0\n"
    )


def test_an_answer_overrides_the_text(tmp_path: Path) -> None:
    assert "key 9" in imported(PING, tmp_path, "--key", "Ping=9")["ping.krm"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--key", "Pin=7"], '--key Pin: unknown request (did you mean "Ping"?)'),
        (["--nullable", "X.y"], "--nullable X.y: unknown field (the texts contain no such field)"),
        (
            ["--default", "PingRequest.txt=a"],
            '--default PingRequest.txt: unknown field (did you mean "PingRequest.text"?)',
        ),
    ],
)
def test_answers_about_nothing(tmp_path: Path, options: list[str], message: str) -> None:
    result = run(PING, tmp_path, *options)
    assert result.exit_code == 1
    assert result.output.strip().endswith(message)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--key", "Ping"], "--key Ping: needs KEY=VALUE"),
        (["--array", "PingRequest.text=1"], "--array PingRequest.text=1: needs yes or no"),
        (["--key", "Ping=x"], "--key Ping=x: needs a number from 0 to 32767"),
        (["--docs"], "--docs, --enums and --release need folders of JSON schemas"),
    ],
)
def test_misuse(tmp_path: Path, options: list[str], message: str) -> None:
    result = run(PING, tmp_path, *options)
    assert result.exit_code == 2
    assert message in result.output


def test_answers_need_texts(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["import", str(tmp_path), "-o", "x", "--key", "Ping=7"])
    assert (result.exit_code, "need texts, not folders" in result.output) == (2, True)
    (tmp_path / "a.md").write_text(PING)
    both = ["import", str(tmp_path), str(tmp_path / "a.md"), "-o", "x"]
    result = CliRunner().invoke(main, both)
    assert (result.exit_code, "give files or folders, not both" in result.output) == (2, True)


# -- diagnostics -----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", CASES)
def test_each_text_has_its_diagnostic(tmp_path: Path, code: str) -> None:
    result = run(CASES[code], tmp_path, "--format", "json")
    found = json.loads(result.output[: result.output.index("\n]") + 2])
    codes = [each["code"] for each in found if not each["code"].startswith("W5")]
    assert codes == [code]
    assert result.exit_code == (1 if code.startswith("E") else 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            PING + "\nPing Request (Version: 1) => a\n    a => INT8\n  b => INT8\n",
            "this line is indented more than the first line of its struct",
        ),
        (
            PING + "\nPing Request (Version: 1) => { (text) }\n  text => STRING\n",
            "the array text is compact, but its elements are classic",
        ),
        (
            PING + "\nPing Request (Version: 1) => { (text) }\n  text => ?{ a }\n    a => INT8\n",
            "the elements of text cannot be null",
        ),
        (PING + "\nPing Request (Version: 1) => ?{ }\n", "the message cannot be null"),
        (PING + "\nPing Request (Version: 1) => { text\n", "{ is not a field"),
        (PING + "\nPing Request (Version: 1) => { (text] }\n", "(text] is not a field"),
        (PING + "  text is => STRING\n", "this line is not a field and its type"),
        (PING + "\nPing Request (Version: 40000) => \n", "version 40000 is higher than 32767"),
        (PING.replace("text\n", "text text\n", 1), "the field text appears twice"),
        (PING + "  text => INT8\n", "the field text has two lines"),
        (PING + "  txt => INT8\n", "txt is not a field of the struct above"),
        ("Ping API (Key: 1)\n" + PING, "the text contains several API keys of Ping: 1, 7"),
        (
            PING + "\nPing Request (Version: 1) => \n\nPing Request (Version: 2) => text\n"
            "  text => STRING\n",
            "PingRequest.text is missing in version 1, but not after it",
        ),
        (
            PING + "\nPing Request (Version: 1) => a b\n  a => INT8\n  b => INT8\n"
            "\nPing Request (Version: 2) => b a\n  a => INT8\n  b => INT8\n",
            "PingRequest: the fields have another order in version 2",
        ),
        (
            PING.replace("STRING", "COMPACT_STRING")
            + "\nPing Request (Version: 1) => text\n  text => STRING\n",
            "version 1 is not flexible, but version 0 is",
        ),
        (
            PING.replace("=> text", "=> text b").replace("STRING", "COMPACT_STRING\n  b => STRING")
            + "\nPing Request (Version: 1) => text b\n  text => COMPACT_STRING\n"
            "  b => COMPACT_STRING\n",
            "PingRequest.b is compact in some flexible versions only",
        ),
        (
            PING.replace("=> text", "=> nullable(text)").replace("STRING", "a\n    a => INT8")
            + "\nPing Request (Version: 1) => text\n  text => a\n    a => INT8\n",
            "PingRequest.text is nullable in some of its versions only",
        ),
        (
            PING.replace("=> text", "=> [nullable(text)]").replace("STRING", "a\n    a => INT8")
            + "\nPing Request (Version: 1) => [text]\n  text => a\n    a => INT8\n",
            "the elements of PingRequest.text can be null in some versions only",
        ),
        (
            PING.replace("(Key: 7)", "(Key: 7, one wey)"),
            "one wey is not a modifier of an API",
        ),
        (
            PING.replace("(Key: 7)", "(Key: 7, with version field)"),
            "the modifiers are those of definitions",
        ),
        (
            "Ping API (Key: 7)\nPing Request (Version: 0) => <tag: 0>\n",
            "<tag: 0> is not a field",
        ),
        (
            PING + "\nPing Request => text\n  text => STRING\n",
            "PingRequest appears without a version too",
        ),
        (
            "Ping API (Key: 7)\nPing Request (Version: 0) => items [items2] TAG_BUFFER\n"
            "  items => a\n    a => INT8\n  items2 => INT8\n",
            "items does not end with TAG_BUFFER",
        ),
    ],
)
def test_texts_that_cannot_be(tmp_path: Path, text: str, message: str) -> None:
    assert message in refused(text, tmp_path)


@pytest.mark.parametrize(
    ("type", "hint"),
    [
        ("INT46", 'did you mean "INT64"?'),
        (
            "UINT24",
            "no type has this size; the integers are `int8` to `int64` and `uint8` to `uint64`",
        ),
        ("FLOAT16", "no type is a float of 16 bits; `float32` has 32"),
        ("INT48", "no type has this name; give it with --type INT48=TYPE"),
    ],
)
def test_hints_for_types(tmp_path: Path, type: str, hint: str) -> None:
    assert f"hint: {hint}" in refused(PING.replace("STRING", type), tmp_path)


def test_what_definitions_cannot_express_is_reported(tmp_path: Path) -> None:
    # Two fields would have the same attribute in Python.
    text = "Ping API (Key: 7)\nPing Request (Version: 0) => a A\n  a => INT8\n  A => INT8\n"
    assert "error E" in refused(text, tmp_path)


def test_hostile_texts(tmp_path: Path) -> None:
    digits = "9" * 5000
    text = f"Ping API (Key: {digits})\n{PING}\n<tag {digits}> a => b\nPing v{digits} => a\n"
    text += "Deep => a\n" + "".join(f"{'  ' * n}a => a\n" for n in range(1, 3000))
    assert "structs are nested more than 16 levels deep" in refused(text, tmp_path)


def test_versions_far_apart(tmp_path: Path) -> None:
    text = PING + "\nPing Request (Version: 4000) => \n"
    result = run(text, tmp_path)
    assert "the text does not contain PingRequest v1-v3999" in result.output
    assert "max version 4000" in (tmp_path / "made" / "ping.krm").read_text()


def test_a_text_without_messages(tmp_path: Path) -> None:
    result = run("# Nothing\n\nconst f = x => y\n", tmp_path)
    assert result.exit_code == 1
    assert "contains no message in the notation of Kafka's protocol guide" in result.output


def test_a_text_that_is_not_utf_8(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_bytes(b"\xff")
    result = CliRunner().invoke(main, ["import", str(tmp_path / "a.md"), "-o", str(tmp_path / "o")])
    assert result.exit_code == 1
    assert "a.md: is not UTF-8: " in result.output


# -- files -----------------------------------------------------------------------------------------


def test_without_a_folder_definitions_are_printed(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(PING + "\nNote => a\n  a => INT8\n")
    result = CliRunner().invoke(main, ["import", str(tmp_path / "a.md")])
    assert result.exit_code == 0
    assert result.stdout == (
        "// note.krm\n\nNote => not top level\n  A: int8\n\n"
        "// ping.krm\n\nPingRequest => key 7, max version 0\n  Text: string\n"
    )
    assert "warning W501" in result.stderr


def test_files_are_replaced_only_by_force(tmp_path: Path) -> None:
    imported(PING, tmp_path)
    assert run(PING, tmp_path).exit_code == 0  # the same content
    own = tmp_path / "made" / "ping.krm"
    own.write_text("// Mine.\n")
    result = run(PING + "\nPong => a\n  a => INT8\n", tmp_path)
    assert result.exit_code == 2
    assert "ping.krm would be replaced (give another folder, or --force)" in result.output
    assert own.read_text() == "// Mine.\n"
    assert not (tmp_path / "made" / "pong.krm").exists()
    assert imported(PING, tmp_path, "--force")["ping.krm"].startswith("PingRequest")


# -- the guide of the documentation ----------------------------------------------------------------


def test_the_sample_of_the_documentation(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "definitions.md").read_text()
    section = page.split("## Import, export and show\n")[1].split("\n## ")[0]
    text = section.split("````\n")[1]
    command, made = (block.strip("\n") for block in section.split("````\n")[2].split("```")[1:4:2])
    *_, path = imported(text, tmp_path, *command.split("protocol/")[1].split())
    assert imported(text, tmp_path, *command.split("protocol/")[1].split())[path] == made + "\n"
