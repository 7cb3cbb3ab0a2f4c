"""Who a client is, from the logins that pass through the proxy."""

from __future__ import annotations

from typing import Any

import kafka_wire as kw
import pytest

from krammar.auth.oauth import FirstMessage
from krammar.proxy import Close, Connection, Exchange
from krammar.proxy.chain import Chain
from krammar.proxy.exchange import run_at_once, run_request, run_response
from krammar.proxy.filters.logins import SeesLogins, claimed
from tests.support.unsecured import unsecured_token

FIRST = FirstMessage(unsecured_token({"sub": "alice"}), {}, "").encode()


@pytest.mark.parametrize(
    ("mechanism", "message", "expected"),
    [
        ("PLAIN", b"\0alice\0secret", "alice"),
        ("PLAIN", b"alice\0alice\0secret", "alice"),
        ("PLAIN", b"\0\0secret", None),
        ("PLAIN", b"\0alice\0secret\0more", None),
        ("PLAIN", b"\0\xff\0secret", None),
        ("SCRAM-SHA-256", b"n,,n=alice,r=abc", "alice"),
        ("SCRAM-SHA-512", b"n,a=alice,n=al=2Cice=3D,r=abc,x=1", "al,ice="),
        ("SCRAM-SHA-512", b"n,,n=alice,r=abc,tokenauth=true", None),
        ("SCRAM-SHA-512", b"y,,n=alice,r=abc", None),
        ("SCRAM-SHA-512", b"n,,n=,r=abc", None),
        ("OAUTHBEARER", FIRST, "alice"),
        ("OAUTHBEARER", FIRST[:-2] + b"\1auth=Bearer x.y.z\1\1", None),
        ("OAUTHBEARER", b"n,a=alice,\1auth=Bearer x\1\1", None),
        ("GSSAPI", b"alice", None),
    ],
)
def test_the_claimed_a_first_message(mechanism: str, message: bytes, expected: str | None) -> None:
    assert claimed(mechanism, message) == expected


class Talk:
    """A connection through the filter; the broker answers as the test says."""

    def __init__(self) -> None:
        self.chain = Chain(kw, [SeesLogins()])
        self.connection = Connection(1, "client", "broker")

    def pass_on(self, request: Any, response: Any, version: int = 1) -> str | None:
        found = self.send(request, version)
        self.receive(found, response)
        return self.connection.principal

    def send(self, request: Any, version: int = 1) -> Exchange:
        async def nothing(_: Exchange, asked: Any, version: int | None) -> Any:
            raise AssertionError

        found = Exchange(self.connection, request.api_key, version, 1, None, nothing)
        _, settled = run_at_once(run_request(self._route(found), request, found))
        assert settled is not None
        assert settled.answer is None
        return found

    def receive(self, found: Exchange, response: Any) -> None:
        rest, _ = run_at_once(run_response(self._route(found).responses, response, found))
        assert rest is None

    def _route(self, found: Exchange) -> Any:
        return self.chain.routes[found.api_key << 16 | found.version]

    def log_in(self, mechanism: str, *steps: tuple[bytes, int, bytes], code: int = 0) -> str | None:
        handshake = kw.SaslHandshakeRequest(mechanism=mechanism)
        self.pass_on(handshake, kw.SaslHandshakeResponse(error_code=code))
        for sent, error, answer in steps:
            self.pass_on(
                kw.SaslAuthenticateRequest(auth_bytes=sent),
                kw.SaslAuthenticateResponse(error_code=error, auth_bytes=answer),
            )
        return self.connection.principal


def test_a_login_counts_after_the_broker_has_accepted_it() -> None:
    plain = b"\0alice\0secret"
    assert Talk().log_in("PLAIN", (plain, 0, b"")) == "alice"
    assert Talk().log_in("PLAIN", (plain, 58, b"")) is None
    assert Talk().log_in("PLAIN", (plain, 0, b""), code=33) is None
    talk = Talk()
    talk.pass_on(kw.SaslHandshakeRequest(mechanism="PLAIN"), kw.SaslHandshakeResponse())
    sent = talk.send(kw.SaslAuthenticateRequest(auth_bytes=plain))
    assert talk.connection.principal is None
    talk.receive(sent, kw.SaslAuthenticateResponse())
    assert talk.connection.principal == "alice"


def test_scram_ends_with_the_signature_of_the_server() -> None:
    first = (b"n,,n=alice,r=abc", 0, b"r=abcdef,s=xx,i=4096")
    assert Talk().log_in("SCRAM-SHA-512", first) is None
    assert Talk().log_in("SCRAM-SHA-512", first, (b"c=biws", 58, b"e=no")) is None
    assert Talk().log_in("SCRAM-SHA-512", first, (b"c=biws", 0, b"e=no")) is None
    assert Talk().log_in("SCRAM-SHA-512", first, (b"c=biws", 0, b"v=xx")) == "alice"


def test_an_answer_to_oauthbearer_is_an_error() -> None:
    assert Talk().log_in("OAUTHBEARER", (FIRST, 0, b'{"status":"invalid_token"}')) is None
    assert Talk().log_in("OAUTHBEARER", (FIRST, 0, b"")) == "alice"


def test_the_name_is_that_of_the_first_message() -> None:
    talk = Talk()
    steps = (b"n,,n=alice,r=abc", 0, b"r=abc"), (b"n,,n=bob,r=abc", 0, b"v=xx")
    assert talk.log_in("SCRAM-SHA-512", *steps) == "alice"


def test_the_claimed_a_connection_does_not_change() -> None:
    talk = Talk()
    assert talk.log_in("PLAIN", (b"\0alice\0secret", 0, b"")) == "alice"
    assert talk.log_in("PLAIN", (b"\0alice\0secret", 0, b"")) == "alice"
    with pytest.raises(Close, match="logged in as 'alice', and now logs in as 'bob'"):
        talk.log_in("PLAIN", (b"\0bob\0secret", 0, b""))


def test_logins_without_headers_are_refused() -> None:
    with pytest.raises(Close, match="v0 is refused"):
        Talk().send(kw.SaslHandshakeRequest(mechanism="PLAIN"), 0)


def test_a_login_begins_with_a_handshake() -> None:
    with pytest.raises(Close, match="without SaslHandshake"):
        Talk().send(kw.SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"))
