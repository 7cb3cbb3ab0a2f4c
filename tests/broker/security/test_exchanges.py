"""OAUTHBEARER's exchange with unsecured tokens, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from krammar.auth.exchanges import OAuthExchange, validate_unsecured
from krammar.auth.oauth import ERROR_ANSWER, FirstMessage, OAuthError
from tests.support.unsecured import unsecured_token

NOW = 1_700_000_000_000
CLAIMS = {"sub": "alice", "exp": NOW // 1000 + 60}


def exchange() -> OAuthExchange:
    return OAuthExchange(validate_unsecured, lambda: NOW)


def first(claims: dict[str, Any], identity: str = "") -> bytes:
    return FirstMessage(unsecured_token(claims), {}, identity).encode()


@pytest.mark.parametrize("identity", ["", "alice"])
def test_a_login(identity: str) -> None:
    login = exchange()
    assert login.step(first(CLAIMS, identity)) == b""
    assert (login.user, login.done) == ("alice", True)
    assert login.expires_at_ms == NOW + 60_000


def test_the_identity_of_another_user_is_refused() -> None:
    with pytest.raises(OAuthError, match="the identity of another user"):
        exchange().step(first(CLAIMS, "bob"))


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (unsecured_token({"exp": CLAIMS["exp"]}), "no claim 'sub'"),
        (unsecured_token({"sub": "alice"}), "no claim 'exp'"),
        (unsecured_token({**CLAIMS, "exp": NOW // 1000}), "has expired"),
        (unsecured_token(CLAIMS) + "c2lnbmVk", "only unsecured tokens"),
    ],
)
def test_a_refusal_has_its_reason_after_the_clients_answer(token: str, reason: str) -> None:
    login = exchange()
    assert b"invalid_token" in login.step(FirstMessage(token, {}, "").encode())
    with pytest.raises(OAuthError, match=reason):
        login.step(ERROR_ANSWER)
    assert not login.done


def test_another_answer_to_a_refusal() -> None:
    login = exchange()
    login.step(first({"sub": "alice"}))
    with pytest.raises(OAuthError, match="answer to an error is malformed"):
        login.step(b"again")


@pytest.mark.parametrize(
    ("token", "extensions", "reason"),
    [
        ("", {}, "the token is empty"),
        ("é", {}, "characters other than visible ASCII"),
        ("t", {"auth": "x"}, "'auth' needs a name of letters other than 'auth'"),
        ("t", {"a1": "x"}, "'a1' needs a name of letters"),
        ("t", {"tenant": ""}, "'tenant' has an empty value"),
        ("t", {"tenant": "é"}, "'tenant' has an empty value, or one that is not ASCII"),
    ],
)
def test_messages_that_cannot_be_sent(token: str, extensions: dict[str, str], reason: str) -> None:
    with pytest.raises(OAuthError, match=reason):
        FirstMessage(token, extensions, "").encode()


@pytest.mark.parametrize("exp", [10**30, 10**400, 1e300, float("inf")])
def test_unsecured_tokens_that_expire_too_late_for_a_response(exp: float) -> None:
    token = unsecured_token({"sub": "alice", "exp": exp})
    assert validate_unsecured(token, 1000) == ("alice", 253_402_300_799_000)


def test_unsecured_tokens_that_expire_at_no_time() -> None:
    for exp in (float("nan"), -(10**400)):
        with pytest.raises(OAuthError, match=r"'exp' is not a number|has expired"):
            validate_unsecured(unsecured_token({"sub": "alice", "exp": exp}), 1000)
