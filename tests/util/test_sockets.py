"""Addresses as text: krammar.util.sockets."""

from __future__ import annotations

from typing import Any

import pytest

from krammar.util.sockets import address_text, parse_address


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("localhost:9092", {}, ("localhost", 9092)),
        ("[::1]:9092", {}, ("::1", 9092)),
        ("::1:9092", {"bare_ipv6": True}, ("::1", 9092)),
        (":9092", {"default_host": "127.0.0.1"}, ("127.0.0.1", 9092)),
        ("9092", {"default_host": "127.0.0.1"}, ("127.0.0.1", 9092)),
        ("localhost:0", {}, ("localhost", 0)),
        ("localhost:65535", {}, ("localhost", 65535)),
    ],
)
def test_addresses(text: str, options: dict[str, Any], expected: tuple[str, int]) -> None:
    assert parse_address(text, **options) == expected


@pytest.mark.parametrize("expected", [("localhost", 9092), ("::1", 9092)])
def test_the_text_of_an_address_is_parsed_back(expected: tuple[str, int]) -> None:
    assert parse_address(address_text(expected)) == expected


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("", {}),
        ("localhost", {}),
        ("localhost:", {}),
        (":9092", {}),
        ("9092", {}),
        ("localhost:65536", {}),
        ("localhost:-1", {}),
        ("localhost:٣", {}),
        ("localhost:0", {"lowest": 1}),
        ("::1:9092", {}),
        ("[::1:9092", {}),
        ("[]:9092", {"default_host": "127.0.0.1"}),
        ("a b:9092", {}),
        ("localhost:9092\n", {}),
    ],
)
def test_other_text_is_refused(text: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        parse_address(text, **options)
