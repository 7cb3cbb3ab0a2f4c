"""The response that refuses a request of any API with one error."""

from __future__ import annotations

from functools import cache
from typing import Any

import kafka_wire
from kafka_wire import ErrorCode

from krammar.faults.answers import build, elements_at, subjects
from krammar.faults.shape import Schema, error_places
from krammar.wire.package import package_of


@cache
def _schema() -> Schema:
    return Schema(package_of(kafka_wire))


def refusal(request: Any, version: int, code: ErrorCode, message: str) -> Any:
    """Build the response with an error for the whole request, or for each of its parts if it has no other place."""
    schema, key = _schema(), request.api_key
    cls, shape = schema.class_of("response", key), schema.response(key, version)
    places = [] if shape is None else error_places(shape)
    if not places:
        return cls()
    assert shape is not None
    about = list(subjects(request, schema.request(key, version))) if places[0].branches else []
    response = build(cls, shape, about, places[0], code)
    for struct, _ in elements_at(response, shape, places[0], lambda subject: True):
        if hasattr(struct, "error_message"):
            struct.error_message = message
    return response
