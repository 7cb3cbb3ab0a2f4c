"""SCRAM, the client's side: RFC 7677's example, the broker's own server, and servers that lie."""

from __future__ import annotations

import base64

import pytest

from krammar.auth.scram import BY_NAME, ScramError
from krammar.auth.scram_server import ScramServer, new_credential
from krammar.client.scram import ScramClient

NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"


def example() -> ScramClient:
    return ScramClient("SCRAM-SHA-256", "user", "pencil", nonce=NONCE)


def test_the_example_of_rfc_7677() -> None:
    client = example()
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.answer(FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    client.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("mechanism", sorted(BY_NAME))
@pytest.mark.parametrize(("user", "password"), [("alice", "secret"), ("a=b,c", "pä,ss=ß")])
def test_the_brokers_server(mechanism: str, user: str, password: str) -> None:
    known = new_credential(BY_NAME[mechanism], password)
    server = ScramServer(BY_NAME[mechanism], lambda name: (known, True))
    client = ScramClient(mechanism, user, password)
    client.verify(server.step(client.answer(server.step(client.first()))))
    assert server.done
    assert server.user == user


def test_a_wrong_password() -> None:
    known = new_credential(BY_NAME["SCRAM-SHA-256"], "right")
    server = ScramServer(BY_NAME["SCRAM-SHA-256"], lambda name: (known, True))
    client = ScramClient("SCRAM-SHA-256", "u", "wrong")
    answer = client.answer(server.step(client.first()))
    with pytest.raises(ScramError):
        server.step(answer)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        b"r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode(),
        FIRST.replace(b"4096", b"4095"),
        FIRST.replace(b"4096", b"100001"),
        FIRST.replace(b"4096", b"999999999"),
        FIRST.replace(b"s=W", b"s=!"),
        b"m=x," + FIRST,
    ],
)
def test_a_first_message_that_is_refused(message: bytes) -> None:
    with pytest.raises(ScramError):
        example().answer(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        b"e=other-error",
        b"v=!",
        b"v=" + base64.b64encode(bytes(32)),
        b"x=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ],
)
def test_a_server_that_does_not_know_the_password(message: bytes) -> None:
    client = example()
    client.answer(FIRST)
    with pytest.raises(ScramError):
        client.verify(message)
