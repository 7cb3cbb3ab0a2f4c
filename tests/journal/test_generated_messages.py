"""What the generator gives to classes with a field ``UUID: uuid``, and to no other."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from krammar.journal import NULL_UUID
from tests.journal.conftest import generate

SOME = UUID("89abcdef-4567-1123-a802-010203040506")


def test_a_message_keeps_its_uuid(shop: Any) -> None:
    order = shop.Order(customer="a")
    assert order.get_uuid() == NULL_UUID
    order.set_uuid(SOME)
    assert order.get_uuid() == order.uuid == SOME
    assert shop.Order.decode(order.encode()).get_uuid() == SOME


def test_an_acknowledgement_is_an_empty_message_of_the_same_version(shop: Any) -> None:
    order = shop.Order(version=1, customer="a", amount=5)
    assert order.new_acknowledgement("orders/0") == shop.Order(version=1)
    assert shop.Payment(amount=3).new_acknowledgement("payments/0") == shop.Payment()


def test_other_classes_are_no_messages(shop: Any) -> None:
    assert not hasattr(shop.Plain, "get_uuid")


def test_what_makes_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """\
Outer => not top level
  UUID: string
  GetUUID: int32
  Inner: [=>]
    UUID: uuid
    SetUUID: int32
    NewAcknowledgement: bool
    GetUUID: string

Listed => not top level
  UUID: [uuid]
"""
    monkeypatch.syspath_prepend(generate(tmp_path, "journal_test_names", text))
    importlib.invalidate_caches()
    made = importlib.import_module("journal_test_names")
    # Name and type must both match; nested structs are messages too.
    assert made.Outer._fields == ("uuid", "get_uuid", "inner")
    assert made.Outer(get_uuid=5).get_uuid == 5
    assert not hasattr(made.Listed, "set_uuid")
    inner = made.Outer.Inner(set_uuid_=4, get_uuid_="x", new_acknowledgement_=True)
    inner.set_uuid(SOME)
    assert inner.get_uuid() == SOME
    outer = made.Outer(uuid="u", inner=[inner])
    assert made.Outer.decode(outer.encode(0), 0) == outer
