"""The bytes that the server shows are those that generated code writes."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from krammar.compiler import ir
from krammar.compiler.front.source import compile_source
from krammar.compiler.layout_table import layout_table
from krammar.lsp.layouts import default_message, field_forms, message_page, versions_text
from krammar.util.diagnostics import Diagnostics
from tests.lsp.sheets import ping

DEFINITIONS = Path(__file__).parents[2] / "definitions"


@pytest.mark.parametrize("name", ["kafka_wire", "wafka_wire", "journal_wire"])
def test_the_bytes_of_defaults_are_those_of_the_package(name: str) -> None:
    package = import_module(name)
    [protocol] = compile_source(DEFINITIONS / name, Diagnostics())
    compared = 0
    for struct in (struct for file in protocol.files for struct in file.structs if struct.encoding):
        for group in layout_table(struct).layouts:
            expected = default_message(group.layout)
            for version in group.versions:
                message = getattr(package, struct.name)()
                if struct.version_field is None:
                    assert message.encode(version) == expected, (struct.name, version)
                else:
                    setattr(message, struct.version_field, version)
                    assert message.encode()[2:] == expected[2:], (struct.name, version)
                compared += 1
    assert compared > {"kafka_wire": 800, "wafka_wire": 1, "journal_wire": 1}[name]


def test_message_page() -> None:
    page = message_page(ping().analysis.structs["PingRequest"], 2)
    assert page == """\
# PingRequest v2

Versions with this layout: v2-v3. The version is flexible.
A field has an offset if all fields before it have a fixed width.

```
offset  field       bytes
0       Text        unsigned varint of length + 1 (0 is null), then UTF-8; default 00
        Kind        int8, 1 byte; default 01
        Parts       unsigned varint of count + 1, then the elements
          Size      int32, 4 bytes; default 00 00 00 04
          Data      the bytes, size - 4
          (tags)    unsigned varint count, then the tagged fields; default 00
        (tags)      unsigned varint count, then the tagged fields; default 00
          Extra     tag 0, size, then the fields
            Number  int16, 2 bytes; default ff ff
            (tags)  unsigned varint count, then the tagged fields; default 00
```

All defaults:

```
00 01 01 00
```
"""


def test_offsets() -> None:
    page = message_page(ping().analysis.structs["PingResponse"], 0)
    assert "0       ThrottleMillis  int32, 4 bytes" in page
    assert "4       Kind            int8, 1 byte" in page


def test_versions_of_a_struct_without_a_last_version() -> None:
    outer = ping().analysis.structs["Shared"]
    [form] = field_forms(outer, outer.fields)
    assert versions_text(form.versions, open_ended=form.open_ended) == "v0+"
    assert versions_text([0, 1, 2, 4, 6, 7]) == "v0-v2, v4, v6-v7"
    assert isinstance(outer.fields[0].type, ir.Primitive)
