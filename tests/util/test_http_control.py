"""The HTTP listener of commands, and clients that try to use it up or to get in."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import astuple
from typing import Any

import pytest

from krammar.util.http_server import (
    MAX_BODY,
    MAX_CONNECTIONS,
    Command,
    HttpControl,
    HttpServer,
    Reply,
    Runner,
)
from tests.support.waiting import PATIENCE
from tests.util.test_http_page import Address, ask


def serve(
    test: Callable[[Address, str], Awaitable[None]],
    command: Runner = lambda given: Reply(200, [*astuple(given)]),
) -> None:
    async def run() -> None:
        control = HttpControl(command)
        await control.listen(0)
        try:
            await test(
                ("127.0.0.1", int(control.url.rpartition(":")[2])),
                f"Authorization: Bearer {control.token}\r\n",
            )
        finally:
            await asyncio.wait_for(control.close(), PATIENCE)

    asyncio.run(run())


def parsed(answer: str) -> tuple[int, Any]:
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


@pytest.mark.parametrize(
    ("headers", "status", "error"),
    [
        ("Content-Length: " + "9" * 5000, 413, f"the body has more than {MAX_BODY} bytes"),
        ("Content-Length: " + str(MAX_BODY + 1), 413, f"the body has more than {MAX_BODY} bytes"),
        ("Content-Length: -1", 400, "Content-Length is not a number of bytes"),
        ("Content-Length: ten", 400, "Content-Length is not a number of bytes"),
        ("Content-Length: \xb2", 400, "Content-Length is not a number of bytes"),
        (
            "Transfer-Encoding: chunked",
            411,
            "send the body with a Content-Length, not in chunks",
        ),
    ],
)
def test_bodies_that_are_refused(
    headers: str, status: int, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(address: Address, login: str) -> None:
        answer = await ask(address, f"POST / HTTP/1.1\r\n{login}{headers}\r\n\r\n")
        assert parsed(answer) == (status, {"error": error})
        answer = await ask(address, f"POST / HTTP/1.1\r\n{headers}\r\n\r\n")
        assert parsed(answer)[0] == 401

    with caplog.at_level(logging.ERROR):
        serve(test)
    assert not caplog.records


def test_the_body_and_the_path_reach_the_command() -> None:
    async def test(address: Address, login: str) -> None:
        request = f"POST /rules/a%2Fb?c=d%20e&f HTTP/1.1\r\n{login}Content-Length: 4\r\n\r\nbody"
        given = ["POST", ["rules", "a/b"], {"c": "d e", "f": ""}, "body"]
        assert parsed(await ask(address, request)) == (200, given)

    serve(test)


def test_the_first_runner_that_knows_a_command() -> None:
    def refuse(command: Command) -> Reply | None:
        if command.parts == ("wrong",):
            raise ValueError("wrong is wrong")
        return None

    def answer(command: Command) -> Reply | None:
        return Reply(200, "second") if command.parts == ("right",) else None

    async def test() -> None:
        control = HttpControl(refuse, answer)
        await control.listen(0)
        address = "127.0.0.1", int(control.url.rpartition(":")[2])
        login = f"Authorization: Bearer {control.token}\r\n"
        for path, answered in [
            ("right", (200, "second")),
            ("wrong", (400, {"error": "wrong is wrong"})),
            ("a/b", (404, {"error": "GET /a/b does not exist"})),
        ]:
            given = await ask(address, f"GET /{path} HTTP/1.1\r\n{login}\r\n")
            assert parsed(given) == answered
        await asyncio.wait_for(control.close(), PATIENCE)

    asyncio.run(test())


def test_a_refusal_reaches_a_client_that_sends_a_large_body() -> None:
    async def test(address: Address, login: str) -> None:
        body = "x" * 4 * MAX_BODY
        answer = await ask(address, f"POST / HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n{body}")
        assert parsed(answer)[0] == 401

    serve(test)


def test_a_body_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpServer, "timeout_seconds", 0.05)

    async def test(address: Address, login: str) -> None:
        assert await ask(address, f"POST / HTTP/1.1\r\n{login}Content-Length: 4\r\n\r\nbod") == ""

    serve(test)


def test_clients_without_the_token_cut_no_command_off() -> None:
    """The command continues while more connections arrive than the server accepts."""
    started, go_on = threading.Event(), threading.Event()

    def command(_: Command) -> Reply:
        started.set()
        return Reply(200, go_on.wait(PATIENCE))

    async def test(address: Address, login: str) -> None:
        answer = asyncio.ensure_future(ask(address, f"POST / HTTP/1.1\r\n{login}\r\n"))
        assert await asyncio.to_thread(started.wait, PATIENCE)
        others = [await asyncio.open_connection(*address) for _ in range(2 * MAX_CONNECTIONS)]
        assert await asyncio.wait_for(others[0][0].read(), PATIENCE) == b""
        go_on.set()
        assert parsed(await answer) == (200, True)
        for _, writer in others:
            writer.close()

    serve(test, command)
