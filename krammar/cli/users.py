"""``krammar broker-user`` manages the users in a broker's folder while no broker runs on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from krammar.cli.options import FOLDER, examples, standard_input
from krammar.cli.output import echo

_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
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
    from krammar.cli.offline_users import UserError

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
    type=click.IntRange(4096, 16384),
    default=4096,
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
    from krammar.cli.offline_users import add_user

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
    from krammar.cli.offline_users import list_users

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
    from krammar.cli.offline_users import remove_user

    with _errors():
        removed = remove_user(data_dir, name, mechanism)
    for each in removed:
        echo(f"{name}: {each} password removed")
