"""Properties of Kafka's JSON schemas: the known ones are accepted, and every other one is an error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from krammar.compiler.importer import import_schemas
from krammar.compiler.schemas import ImportSchemaError

# Every property of Kafka's generator, at each place where it can be.
INNER = {"name": "Host", "type": "string", "versions": "0+", "about": "Where."}
REQUEST: dict[str, Any] = {
    "apiKey": 47,
    "type": "request",
    "listeners": ["broker"],
    "name": "NoteRequest",
    "validVersions": "0-2",
    "deprecatedVersions": "0",
    "flexibleVersions": "1+",
    "latestVersionUnstable": False,
    "headerVersions": {"0": "1", "1+": "2"},
    "fields": [
        {
            "name": "Text",
            "type": "string",
            "versions": "0+",
            "nullableVersions": "0+",
            "default": "null",
            "flexibleVersions": "none",
            "ignorable": True,
            "mapKey": True,
            "entityType": "topicName",
        },
        {"name": "Data", "type": "bytes", "versions": "1+", "zeroCopy": True},
        {"name": "Hops", "type": "int8", "versions": "1+", "tag": 0, "taggedVersions": "1+"},
        {"name": "Ends", "type": "[]End", "versions": "0+", "fields": [INNER]},
        {"name": "Peer", "type": "Peer", "versions": "0+"},
    ],
    "commonStructs": [
        {"name": "Peer", "versions": "0+", "deprecatedVersions": "0", "fields": [INNER]}
    ],
}
RESPONSE = {
    "apiKey": 47,
    "type": "response",
    "name": "NoteResponse",
    "validVersions": "0-2",
    "flexibleVersions": "1+",
    "headerVersions": {"0": 0, "1-2": 1},
    "fields": [],
}


def _import(folder: Path, request: dict[str, Any], response: dict[str, Any] = RESPONSE) -> str:
    for schema in (request, response):
        (folder / f"{schema['name']}.json").write_text(json.dumps(schema, indent=1))
    return import_schemas([folder]).files["note.krm"]


def _objects(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all objects with properties: the schema, its structs and fields."""
    if isinstance(value, dict):
        yield path
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in items:
            if key in ("fields", "commonStructs") or isinstance(key, int):
                yield from _objects(each, (*path, key))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _typos(word: str) -> Iterator[str]:
    """The word without a letter, and with two neighbours swapped."""
    for at in range(len(word)):
        yield word[:at] + word[at + 1 :]
        yield word[:at] + word[at + 1 : at + 2] + word[at] + word[at + 2 :]


def test_all_properties_of_kafkas_generator_are_accepted(tmp_path: Path) -> None:
    text = _import(tmp_path, REQUEST)
    assert "Text: nullable-string(null) // not flexible, ignorable, entity topicName" in text


# A typo of `name` or `fields` is another error, because schemas need these.
PLACES = [
    (path, key)
    for path in _objects(REQUEST)
    for key in _at(REQUEST, path)
    if key not in ("name", "fields", "type", "apiKey")
]


@pytest.mark.parametrize(("path", "key"), PLACES)
def test_every_typo_is_an_error_with_a_hint(
    tmp_path: Path, path: tuple[Any, ...], key: str
) -> None:
    known = {key for place in _objects(REQUEST) for key in _at(REQUEST, place)}
    tried = 0
    for typo in {*_typos(key)} - known:
        schema = deepcopy(REQUEST)
        place = _at(schema, path)
        place[typo] = place.pop(key)
        with pytest.raises(ImportSchemaError) as caught:
            _import(tmp_path, schema)
        text = (tmp_path / "NoteRequest.json").read_text().split("\n")
        pattern = re.compile(r":(\d+): .* has the unknown property " + re.escape(json.dumps(typo)))
        line = next(filter(None, map(pattern.search, str(caught.value).split("\n"))))
        assert f'"{typo}"' in text[int(line[1]) - 1]
        if len(typo) > 4:
            assert f'{json.dumps(typo)}; did you mean "' in str(caught.value)
        tried += 1
    assert tried


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ([1], '"headerVersions" is not an object: [1]'),
        ({"x": "1"}, '"x" is not a range of versions'),
        ({"0": "1"}, '"headerVersions" does not contain version 1'),
        ({"0-1": "1", "1+": "2"}, '"headerVersions" contains version 1 twice'),
        ({"0": "one", "1+": "2"}, '"headerVersions" is not a number from 0 to 32767: "one"'),
        (
            {"0": "1", "1": "2", "2+": "3"},
            'NoteRequest has header 3 in version 2 ("headerVersions", KIP-1313), but RequestHeader has the versions '
            "0 to 2 (import a RequestHeader.json with that version)",
        ),
    ],
)
def test_headers_that_do_not_exist(tmp_path: Path, headers: Any, message: str) -> None:
    with pytest.raises(ImportSchemaError) as caught:
        _import(tmp_path, {**REQUEST, "headerVersions": headers})
    assert message in str(caught.value)


def test_headers_of_other_schemas(tmp_path: Path) -> None:
    with pytest.raises(ImportSchemaError, match="NoteResponse has header 2 in version 1"):
        _import(tmp_path, REQUEST, {**RESPONSE, "headerVersions": {"0": "0", "1+": "2"}})
    data = {**REQUEST, "type": "data"}
    with pytest.raises(ImportSchemaError, match='type data cannot have "headerVersions"'):
        _import(tmp_path, data)


@pytest.mark.parametrize(
    ("request_headers", "response_headers", "modifiers"),
    [
        ({"0": "1", "1+": "2"}, {"0": "0", "1+": "1"}, ""),
        ({"0+": "2"}, {"0+": "1"}, ", header 2, response header 1"),
        ({"0+": "1"}, {"0-2": "0"}, ", header 1, response header 0"),
        (
            {"0-1": "1", "2+": "2"},
            {"0-1": "0", "2": "1"},
            ", header 1, header 2 v2+, response header 0, response header 1 v2+",
        ),
        ({"0": "1", "1": "2", "2+": "0"}, {"0": "0", "1+": "1"}, ", header 0 v2+"),
        ({"0": "0", "1+": "2"}, {"0": "0", "1+": "1"}, ", header 0, header 2 v1+"),
    ],
)
def test_headers_become_modifiers(
    tmp_path: Path, request_headers: Any, response_headers: Any, modifiers: str
) -> None:
    text = _import(
        tmp_path,
        {**REQUEST, "headerVersions": request_headers},
        {**RESPONSE, "headerVersions": response_headers},
    )
    assert text.startswith(f"NoteRequest => key 47, max version 2, flexible v1+{modifiers}\n")


def test_headers_of_several_releases(tmp_path: Path) -> None:
    """An older schema adds the headers of its versions."""
    for folder, versions, headers in (("new", "2", {"2+": "1"}), ("old", "0-1", {"0+": "2"})):
        (tmp_path / folder).mkdir()
        for schema in (REQUEST, RESPONSE):
            schema = {**schema, "validVersions": versions, "fields": [], "commonStructs": []}
            schema.pop("headerVersions")
            if schema["type"] == "request":
                schema |= {"headerVersions": headers}
            schema["flexibleVersions"] = "none"
            (tmp_path / folder / f"{schema['name']}.json").write_text(json.dumps(schema))
    text = import_schemas([tmp_path / "new", tmp_path / "old"]).files["note.krm"]
    assert text.startswith("NoteRequest => key 47, max version 2, header 2, header 1 v2+\n")


@pytest.mark.parametrize(
    ("message", "versions", "flexible", "headers"),
    [
        ("ApiVersions", "0-4", "3+", ({"0-2": 1, "3+": 2}, {"0+": 0})),
        ("ControlledShutdown", "0-3", "3+", ({"0": 0, "1-2": 1, "3+": 2}, {"0-2": 0, "3+": 1})),
    ],
)
def test_headers_of_kafkas_exceptions(
    tmp_path: Path, message: str, versions: str, flexible: str, headers: tuple[Any, Any]
) -> None:
    for kind, given in zip(("request", "response"), headers, strict=True):
        schema = {
            "apiKey": 18,
            "type": kind,
            "name": f"{message}{kind.capitalize()}",
            "validVersions": versions,
            "flexibleVersions": flexible,
            "headerVersions": given,
            "fields": [],
        }
        (tmp_path / f"{schema['name']}.json").write_text(json.dumps(schema))
    assert import_schemas([tmp_path]).messages == (f"{message}Request", f"{message}Response")
