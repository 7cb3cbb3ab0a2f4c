"""SCRAM: the examples of the RFCs, and messages that must be refused."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from krammar.auth.exchanges import IdentityError
from krammar.auth.scram import SHA_256, SHA_512, Mechanism, ScramError
from krammar.auth.scram_server import (
    Credential,
    ScramServer,
    credential_of,
    decoy,
    new_credential,
)

KINDS = [(32, 4096)]
# RFC 5802, section 5; RFC 7677, section 3.
SHA_1 = Mechanism("SCRAM-SHA-1", 0, "sha1")
VECTORS = [
    pytest.param(
        SHA_1,
        "QSXCR+Q6sek8bf92",
        "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
        "3rfcNHYJY1ZVvWVs7j",
        "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
        "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
        id="RFC 5802",
    ),
    pytest.param(
        SHA_256,
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        id="RFC 7677",
    ),
]


@pytest.mark.parametrize(
    ("mechanism", "salt", "first", "nonce", "challenge", "final", "verdict"), VECTORS
)
def test_exchanges_of_the_rfcs(
    mechanism: Mechanism,
    salt: str,
    first: str,
    nonce: str,
    challenge: str,
    final: str,
    verdict: str,
) -> None:
    raw_salt = base64.b64decode(salt)
    salted = mechanism.salted_password("pencil", raw_salt, 4096)
    credential = credential_of(mechanism, salted, raw_salt, 4096)
    server = ScramServer(mechanism, lambda user: (credential, True), nonce=nonce)

    assert server.step(first.encode()) == challenge.encode()
    assert not server.done
    assert server.step(final.encode()) == verdict.encode()
    assert server.done
    assert server.user == "user"
    with pytest.raises(ScramError):
        server.step(final.encode())


class Client:
    """A separate client, so that a test can change each message."""

    def __init__(self, mechanism: Mechanism, user: str, password: str, gs2: str = "n,,") -> None:
        self.mechanism = mechanism
        self.password = password
        self.gs2 = gs2
        name = user.replace("=", "=3D").replace(",", "=2C")
        self.bare = f"n={name},r=clientnonce"

    def first(self) -> bytes:
        return (self.gs2 + self.bare).encode()

    def final(self, challenge: bytes, *, nonce: str | None = None, gs2: str | None = None) -> bytes:
        values = dict(part.split("=", 1) for part in challenge.decode().split(","))
        nonce = values["r"] if nonce is None else nonce
        binding = base64.b64encode((self.gs2 if gs2 is None else gs2).encode()).decode()
        unproven = f"c={binding},r={nonce}"
        said = ",".join([self.bare, challenge.decode(), unproven]).encode()
        name = self.mechanism.hash
        salted = hashlib.pbkdf2_hmac(
            name, self.password.encode(), base64.b64decode(values["s"]), int(values["i"])
        )
        key = hmac.digest(salted, b"Client Key", name)
        signature = hmac.digest(hashlib.new(name, key).digest(), said, name)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return f"{unproven},p={base64.b64encode(proof).decode()}".encode()


def server_for(mechanism: Mechanism, user: str = "alice", password: str = "secret") -> ScramServer:
    credential = new_credential(mechanism, password)

    def find(name: str) -> tuple[Credential, bool]:
        if name == user:
            return credential, True
        return decoy(mechanism, b"key", name, KINDS), False

    return ScramServer(mechanism, find)


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512], ids=lambda each: str(each.name))
@pytest.mark.parametrize("user", ["alice", "a,b=c", "=2C", "Zoë", "with space"])
@pytest.mark.parametrize("gs2", ["n,,", "n,a=NAME,"])
def test_right_password(mechanism: Mechanism, user: str, gs2: str) -> None:
    escaped = user.replace("=", "=3D").replace(",", "=2C")
    client = Client(mechanism, user, "pässword", gs2.replace("NAME", escaped))
    server = server_for(mechanism, user, "pässword")

    server.step(client.final(server.step(client.first())))
    assert server.done
    assert server.user == user


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512], ids=lambda each: str(each.name))
@pytest.mark.parametrize(
    ("user", "password"), [("alice", "Secret"), ("alice", ""), ("bob", "secret")]
)
def test_wrong_password_and_unknown_user_fail_alike(
    mechanism: Mechanism, user: str, password: str
) -> None:
    client = Client(mechanism, user, password)
    server = server_for(mechanism)
    challenge = server.step(client.first())
    assert len(base64.b64decode(challenge.split(b",")[1][2:])) == 32
    with pytest.raises(ScramError, match="unknown user or wrong password"):
        server.step(client.final(challenge))
    assert not server.done


def test_unknown_users_keep_their_salt() -> None:
    first, again = (decoy(SHA_512, b"key", "bob", KINDS) for _ in range(2))
    assert first == again
    assert first.salt != decoy(SHA_512, b"key", "carol", KINDS).salt
    assert first.salt != decoy(SHA_512, b"other key", "bob", KINDS).salt


@pytest.mark.parametrize("size", [1, 16, 32, 33, 64, 100])
def test_decoys_have_the_form_of_real_credentials(size: int) -> None:
    one = decoy(SHA_256, b"key", "bob", [(size, 5000)])
    assert (len(one.salt), one.iterations) == (size, 5000)
    # Of several kinds, each user has one. The users of other kinds keep theirs when one is added.
    kinds = [(size, 4096), (size, 8192)]
    names = [f"user-{number}" for number in range(50)]
    found = {name: decoy(SHA_256, b"key", name, kinds) for name in names}
    assert {each.iterations for each in found.values()} == {4096, 8192}
    for name in names:
        again = decoy(SHA_256, b"key", name, [*kinds, (20, 9000)])
        assert again == found[name] or (len(again.salt), again.iterations) == (20, 9000)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\0",
        b"n,,",
        b"n,,n=alice",
        b"n,,n=,r=nonce",
        b"n,,n=alice,r=",
        b"n,,n=al=ice,r=nonce",
        b"n,,n=al=2cice,r=nonce",
        b"n,,n=al\0ice,r=nonce",
        b"n,,m=must,n=alice,r=nonce",
        b"n,n=alice,r=nonce",
        b"y,,n=alice,r=nonce",
        b"p=tls-unique,,n=alice,r=nonce",
        b"n,,n=alice,r=non\x7fce",
        b"n,,n=alice,r=nonce,",
        b"n,,n=alice,r=nonce,x",
        b"n,,n=alice,r=nonce,tokenauth=true",
        b"n,,n=ali\xffce,r=nonce",
        b"n,a=alice,n=alice,r=nonce\n",
    ],
)
def test_refuses_first_message(message: bytes) -> None:
    with pytest.raises(ScramError):
        server_for(SHA_256).step(message)


def test_ignores_extensions() -> None:
    client = Client(SHA_256, "alice", "secret")
    client.bare += ",x=what,tokenauth=false"
    server = server_for(SHA_256)
    server.step(client.final(server.step(client.first())))
    assert server.done


def test_refuses_another_identity() -> None:
    with pytest.raises(IdentityError):
        server_for(SHA_256).step(b"n,a=bob,n=alice,r=nonce")


@pytest.mark.parametrize(
    "bend",
    [
        lambda final, nonce: b"",
        lambda final, nonce: final[:-4],
        lambda final, nonce: final.replace(b",p=", b",p=!"),
        lambda final, nonce: final.replace(b",p=", b",p=A"),
        lambda final, nonce: final.replace(b"c=biws", b"c=eSws"),
        lambda final, nonce: final.replace(nonce, nonce[:-1]),
        lambda final, nonce: final.replace(nonce, b"clientnonce"),
        lambda final, nonce: final.replace(nonce, nonce + b",x=y"),
        lambda final, nonce: final + b",x=y",
        lambda final, nonce: final + b"\xff",
    ],
)
def test_refuses_final_message(bend: object) -> None:
    assert callable(bend)
    client = Client(SHA_256, "alice", "secret")
    server = server_for(SHA_256)
    challenge = server.step(client.first())
    nonce = challenge.split(b",")[0][2:]
    with pytest.raises(ScramError):
        server.step(bend(client.final(challenge), nonce))
    assert not server.done


@pytest.mark.parametrize("gs2", ["y,,", "n,a=alice,"])
def test_refuses_binding_that_was_not_agreed_on(gs2: str) -> None:
    client = Client(SHA_256, "alice", "secret")
    server = server_for(SHA_256)
    with pytest.raises(ScramError, match="channel binding"):
        server.step(client.final(server.step(client.first()), gs2=gs2))


def test_refuses_nonce_of_another_exchange() -> None:
    client = Client(SHA_256, "alice", "secret")
    server = server_for(SHA_256)
    challenge = server.step(client.first())
    with pytest.raises(ScramError, match="nonce"):
        server.step(client.final(challenge, nonce="clientnonceother"))


def test_fresh_salts_and_no_secrets_in_repr() -> None:
    one, two = (new_credential(SHA_256, "secret") for _ in range(2))
    assert one.salt != two.salt
    assert one.stored_key != two.stored_key
    assert str(one.stored_key) not in repr(one)
    assert str(one.server_key) not in repr(one)
