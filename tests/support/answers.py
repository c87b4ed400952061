"""A real HTTP server on loopback whose answers a function gives."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Self

from aiohttp import web


class Seen(NamedTuple):
    """A request as it came over the wire."""

    raw_path: str
    params: dict[str, str]
    headers: dict[str, str]
    content: bytes


class Answer(NamedTuple):
    status: int = 200
    content: bytes = b"{}"
    headers: tuple[tuple[str, str], ...] = ()


class Cut:
    """Instead of an answer: the connection is cut."""


Handler = Callable[[Seen], Answer | type[Cut] | None]  # None: no answer ever


class Server:
    """Enter it; `url` is its address."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.url = ""

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.shutdown()
        await self._runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        headers = {key.lower(): value for key, value in request.headers.items()}
        seen = Seen(request.raw_path, dict(request.query), headers, await request.read())
        answer = self._handler(seen)
        if answer is None:
            await asyncio.Event().wait()
        if answer is Cut and request.transport:
            request.transport.abort()
        status, content, more = answer if isinstance(answer, Answer) else Answer()
        return web.Response(status=status, body=content, headers=dict(more))
