"""The keys of signed tokens on listeners with OAUTHBEARER: read at the start, and again in time."""

from __future__ import annotations

import logging
from asyncio import Future
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from krammar.auth.jwt import KeysError, UnknownKeyError, read_keys, verify
from krammar.auth.oauth import JwtSettings, OAuthError
from krammar.broker.timers import Timers
from krammar.util.turns import WorkerThread, in_thread

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

log = logging.getLogger("krammar.broker")


class SignedTokens:
    """Checks tokens with the keys of a JWKS, which a token with an unknown key lets it read again.

    Attributes:
        read_seconds: for the whole answer of a server; it could send a byte every few seconds
            forever
    """

    read_seconds = 10.0

    def __init__(self, settings: JwtSettings, timers: Timers) -> None:
        """Read the keys. Raises KeysError if a file cannot be read; a server may be down for now."""
        self._settings = settings
        self._timers = timers
        self._failures = 0
        self._wanted_at: int | None = None
        self._reading: Future[KeySet] | None = None
        self._worker = WorkerThread()
        self._keys: KeySet | None = None
        try:
            self._keys = read_keys(settings.url, self.read_seconds)
        except KeysError as error:
            if urlsplit(settings.url).scheme not in ("http", "https"):
                raise
            self._failed(error)
        self._timer = timers.call_later(self._pause_ms / 1000, self._read)

    @property
    def _pause_ms(self) -> int:
        if not self._failures:
            return self._settings.refresh_ms
        doubled = self._settings.backoff_ms << min(self._failures - 1, 20)
        return min(doubled, self._settings.backoff_max_ms)

    def _failed(self, error: KeysError) -> None:
        self._failures += 1
        log.warning("the JWKS %s %s; it will be retried", self._settings.url, error)

    def _read(self) -> None:
        if self._reading is None:
            self._timer.cancel()
            # A daemon thread: the end of the process does not wait for a slow server.
            reading = in_thread(
                read_keys, self._settings.url, self.read_seconds, worker=self._worker
            )
            self._reading = self._timers.loop.create_task(reading)
            self._reading.add_done_callback(self._finish)

    def _finish(self, reading: Future[KeySet]) -> None:
        self._reading = None
        if reading.cancelled():
            return
        try:
            self._keys, self._failures = reading.result(), 0
        except KeysError as error:
            self._failed(error)
        self._timer = self._timers.call_later(self._pause_ms / 1000, self._read)

    def validate(self, token: str, now_ms: int) -> tuple[str, int]:
        """Return the user and the expiry of a token. Raises OAuthError."""
        if self._keys is None:
            raise OAuthError("the broker has no keys to verify tokens with yet")
        try:
            return verify(token, self._keys, self._settings, now_ms)
        except UnknownKeyError:
            # Tokens cannot cause this often.
            last = self._wanted_at
            if last is None or now_ms - last >= self._settings.backoff_max_ms:
                self._wanted_at = now_ms
                self._read()
            raise
