"""The settings of Encrypt, and files of keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from krammar.proxy.filters.encrypt import Encrypt
from krammar.proxy.filters.keys import KeyFile


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, "keys, kms: give one of them"),
        ({"plaintext": "no"}, "plaintext = 'no': write 'refuse' or 'pass'"),
        ({"max_age": 0}, "max_age = 0: write seconds, more than 0"),
        ({"max_records": 1 << 32}, r"max_records = 4294967296: write a number from 1 to 2\*\*31"),
        ({"keys": None, "kms": "nowhere:X"}, "kms = 'nowhere:X': module 'nowhere' is not found"),
    ],
)
def test_wrong_settings(keys: Path, arguments: dict[str, Any], error: str) -> None:
    if arguments:
        arguments = {"keys": keys, **arguments}
    with pytest.raises(ValueError, match=error):
        Encrypt(**arguments)


# Fixed, because the values of parameters name the tests, which all processes have to know by the same names.
_KEY = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVpbXF1eX2A="


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "it has no key"),
        ("a b c\n", "keys.txt:1: write an id and 32 bytes in base64"),
        ("# x\na AAAA\n", "keys.txt:2: write an id and 32 bytes in base64"),
        ("a !!\n", "keys.txt:1: write an id and 32 bytes in base64"),
        (f"a {_KEY}\na {_KEY}\n", "keys.txt:2: the id 'a' occurs twice"),
        (f"{'a' * 256} {_KEY}\n", "keys.txt:1: the id has more than 255 bytes"),
    ],
)
def test_a_file_of_keys_that_cannot_be_used(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "keys.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=error):
        KeyFile(path)
    with pytest.raises(ValueError, match=r"^keys: "):
        Encrypt(keys=path)
