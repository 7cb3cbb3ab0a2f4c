"""``krammar broker-user`` manages the users in a broker's folder while no broker runs on it.

The commands come first, then the functions that they call, which tests and scripts can call too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from krammar.auth.scram import BY_NAME, MIN_ITERATIONS, SHA_512, Mechanism
from krammar.cli.options import FOLDER, examples, standard_input
from krammar.cli.output import echo

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata

_MECHANISMS = tuple(BY_NAME)
_PASSWORD_VARIABLE = "KRAMMAR_PASSWORD"

_data_dir = click.option(
    "--data-dir",
    required=True,
    type=FOLDER,
    metavar="DIR",
    help="The broker's folder (metadata.log.dir, or the first of log.dirs).",
)


@contextmanager
def _errors() -> Iterator[None]:
    from krammar.broker.errors import BrokerError

    try:
        yield
    except UserError as error:
        raise click.UsageError(str(error)) from error
    except BrokerError as error:
        raise click.ClickException(str(error)) from error


@click.group(
    epilog=examples(
        "krammar broker-user add alice --data-dir data",
        "echo secret | krammar broker-user add alice --data-dir data --password-stdin",
        "krammar broker-user list --data-dir data",
    )
)
def users() -> None:
    """Add, list and remove users of a stopped broker.

    Users log in with SCRAM on SASL_PLAINTEXT or SASL_SSL listeners. On a running broker, add users with
    any client that can send AlterUserScramCredentials, such as kafka-configs.
    """


@users.command()
@click.argument("name")
@_data_dir
@click.option(
    "--mechanism",
    type=click.Choice(_MECHANISMS),
    default="SCRAM-SHA-512",
    show_default=True,
    help="SCRAM mechanism. A user can have one password per mechanism.",
)
@click.option(
    "--iterations",
    type=click.IntRange(MIN_ITERATIONS, 16384),
    default=MIN_ITERATIONS,
    show_default=True,
    help="Number of hash iterations. More iterations make guessing passwords slower.",
)
@click.option(
    "--password-stdin",
    is_flag=True,
    help="Read the password from the first line of standard input.",
)
def add(name: str, data_dir: Path, mechanism: str, iterations: int, password_stdin: bool) -> None:
    """Add the user NAME, or replace the user's password.

    krammar reads the password from the environment variable KRAMMAR_PASSWORD, or else prompts for it.
    """
    with _errors():
        replaced = add_user(data_dir, name, _password(password_stdin), mechanism, iterations)
    echo(f"{name}: {mechanism} password {'replaced' if replaced else 'added'}")


def _password(from_stdin: bool) -> str:
    given = None
    if from_stdin:
        given = standard_input().readline().rstrip(b"\r\n")
    elif _PASSWORD_VARIABLE in os.environ:
        given = os.fsencode(os.environ[_PASSWORD_VARIABLE])
    if given is not None:
        try:
            return given.decode()
        except UnicodeDecodeError:
            raise click.UsageError("the password is not UTF-8") from None
    asked: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return asked


@users.command(name="list")
@_data_dir
def list_(data_dir: Path) -> None:
    """List the users and their mechanisms."""
    with _errors():
        found = list_users(data_dir)
    for user in found:
        echo(f"{user.name}\t{user.mechanism}\t{user.iterations} iterations")


@users.command()
@click.argument("name")
@_data_dir
@click.option(
    "--mechanism",
    type=click.Choice(_MECHANISMS),
    help="Remove only the password of this mechanism.  [default: all passwords]",
)
def remove(name: str, data_dir: Path, mechanism: str | None) -> None:
    """Remove the user NAME."""
    with _errors():
        removed = remove_user(data_dir, name, mechanism)
    for each in removed:
        echo(f"{name}: {each} password removed")


# What the commands do.


class UserError(ValueError):
    """A user cannot be added or removed."""


class User(NamedTuple):
    """A stored SCRAM credential without its secrets."""

    name: str
    mechanism: str
    iterations: int


def add_user(
    data_dir: Path,
    name: str,
    password: str,
    mechanism: str = SHA_512.name,
    iterations: int = MIN_ITERATIONS,
) -> bool:
    """Add a user, or replace the user's password.

    Returns:
        Whether an old password was replaced.

    Raises:
        UserError: an argument is invalid.
        BrokerError: a broker is using the folder.
    """
    from krammar.auth import scram_server
    from krammar.broker.security.users import record_of

    kind = _mechanism(mechanism)
    if not name:
        raise UserError("a user needs a name")
    if not password:
        raise UserError("a user needs a password")
    if not MIN_ITERATIONS <= iterations <= scram_server.MAX_ITERATIONS:
        raise UserError(
            f"{iterations} iterations are not possible: Kafka accepts {MIN_ITERATIONS} to "
            f"{scram_server.MAX_ITERATIONS}"
        )
    with _metadata(data_dir, create=True) as cluster:
        replaced = (kind.number, name) in cluster.scram
        cluster.append(
            [record_of(name, kind, scram_server.new_credential(kind, password, iterations))]
        )
    return replaced


def remove_user(data_dir: Path, name: str, mechanism: str | None = None) -> list[str]:
    """Remove a user's credential for a mechanism, or all of the user's credentials.

    Returns:
        The mechanisms of the removed credentials.

    Raises:
        UserError: the user or the folder does not exist.
        BrokerError: a broker is using the folder.
    """
    from kafka_wire import RemoveUserScramCredentialRecord

    from krammar.auth import scram_server

    kinds = list(scram_server.BY_NUMBER.values()) if mechanism is None else [_mechanism(mechanism)]
    with _metadata(data_dir) as cluster:
        found = [kind for kind in kinds if (kind.number, name) in cluster.scram]
        if not found:
            suffix = "" if mechanism is None else f" with {mechanism}"
            raise UserError(f"no user {name!r}{suffix} exists")
        cluster.append(
            [RemoveUserScramCredentialRecord(name=name, mechanism=kind.number) for kind in found]
        )
    return [kind.name for kind in found]


def list_users(data_dir: Path) -> list[User]:
    """Return all stored users, sorted by name.

    Raises:
        UserError: the folder does not exist.
        BrokerError: a broker is using the folder.
    """
    from krammar.auth import scram_server

    with _metadata(data_dir) as cluster:
        return sorted(
            User(name, scram_server.BY_NUMBER[number].name, record.iterations)
            for (number, name), record in cluster.scram.items()
            if number in scram_server.BY_NUMBER
        )


def _mechanism(name: str) -> Mechanism:
    if name not in BY_NAME:
        raise UserError(f"{name!r} is not a SCRAM mechanism; choose one of {', '.join(BY_NAME)}")
    return BY_NAME[name]


@contextmanager
def _metadata(data_dir: Path, create: bool = False) -> Iterator[ClusterMetadata]:
    """Open the metadata of a folder that no broker is using.

    ``create`` creates a missing folder, so that users can be added before the broker's first start.
    """
    import logging

    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.config import BrokerConfig
    from krammar.broker.errors import ApiError, BrokerError
    from krammar.broker.log.files import lock
    from krammar.broker.meta_properties import read_meta_properties
    from krammar.broker.timers import system_ms

    warn = logging.getLogger("krammar.broker").warning
    if not create and not (data_dir / "meta.properties").exists():
        raise UserError(f"{data_dir} is not the folder of a broker: it has no meta.properties")
    if "," in str(data_dir):
        raise UserError(f"{data_dir} cannot be the folder of a broker: its name has a comma")
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        fd = lock(data_dir)
    except BlockingIOError:
        raise BrokerError(
            f"a broker has {data_dir} open: stop it, or change users with a client "
            "(AlterUserScramCredentials)"
        ) from None
    except OSError as error:
        raise BrokerError(f"{data_dir}: {error.strerror}") from None
    try:
        known = read_meta_properties(data_dir)
        node_id = 1 if known.node_id is None else known.node_id
        config = BrokerConfig.defaults(**{"log.dirs": str(data_dir), "node.id": str(node_id)})
        with closing(ClusterMetadata(config, now_ms=system_ms, warn=warn)) as cluster:
            yield cluster
    except ApiError as error:
        raise BrokerError(f"{data_dir}: {error.code.name}: {error.message}") from None
    finally:
        os.close(fd)
