"""Checks the credentials of SCRAM users: of requests, and of the metadata log."""

from __future__ import annotations

from kafka_wire import ErrorCode

from krammar.auth.scram import MIN_ITERATIONS, Mechanism
from krammar.auth.scram_server import BY_NUMBER, MAX_ITERATIONS
from krammar.broker.errors import ApiError


def mechanism_of(name: str, mechanism: int) -> Mechanism:
    """Return the mechanism of a user's credential. Raises ApiError if no user or no mechanism can have them."""
    if not name:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    found = BY_NUMBER.get(mechanism)
    if found is None:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return found


def check_iterations(iterations: int) -> None:
    """Raise ApiError if a credential cannot have this number of iterations."""
    if iterations < MIN_ITERATIONS:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if iterations > MAX_ITERATIONS:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
