"""An HTTP listener with one page."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from weakref import WeakSet

from krammar.util.http_server import HttpRequest, HttpResponse, HttpServer

# The most pages in memory. While slow clients read so many, others get the newest of them.
MAX_PAGES = 2


class HttpPage:
    """A listener that answers GET and HEAD for one path.

    Args:
        path: the path of the page
        content_type: its content type
        page: returns the text
    """

    def __init__(self, path: str, content_type: str, page: Callable[[], Awaitable[str]]) -> None:
        self._path = path
        self._type = content_type
        self._page = page
        self._building: asyncio.Future[HttpResponse] | None = None
        self._pages: WeakSet[HttpResponse] = WeakSet()  # that are being sent
        self._newest: weakref.ref[HttpResponse] | None = None
        self._server = HttpServer(self._answer, _refusal)
        self.listen = self._server.listen
        self.close = self._server.close

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            refused = _refusal(405, "use GET")
            refused.headers["Allow"] = "GET, HEAD"
            return refused
        if request.path != self._path:
            return _refusal(404, f"the only page is {self._path}")
        return await self._shared()

    async def _shared(self) -> HttpResponse:
        """Return the page. Clients that ask at the same time share it, and slow ones use few pages up."""
        if self._newest is not None and len(self._pages) >= MAX_PAGES:
            newest = self._newest()
            if newest is not None:
                return newest
        if self._building is None:
            self._building = asyncio.ensure_future(self._build())
        return await asyncio.shield(self._building)

    async def _build(self) -> HttpResponse:
        try:
            page = HttpResponse(200, self._type, (await self._page()).encode())
        finally:
            self._building = None
        self._pages.add(page)
        self._newest = weakref.ref(page)
        return page


def _refusal(status: int, reason: str) -> HttpResponse:
    return HttpResponse(status, "text/plain; charset=utf-8", f"{reason}\n".encode())
