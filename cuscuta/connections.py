"""HTTP connections of a server that nobody can hold open for nothing, or fill with headers without end.

uvicorn waits for the head and the body of a request for as long as it takes, and the parser takes headers of any size.
"""

import asyncio
import resource

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cuscuta import limits


class Impatient(HttpToolsProtocol):
    """uvicorn's protocol with an end to waiting: for the head of a request, and for its body."""

    _late: asyncio.TimerHandle | None = None
    _head_bytes = _lines_bytes = 0
    _in_head = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody connects, and should say what he wants."""
        super().connection_made(transport)
        self._wait_for(limits.HEAD_S)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._wait_for(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A head that does not end is refused before it fills the memory."""
        if self._in_head:
            self._head_bytes += min(len(data), limits.HEAD_BYTES + 1)
        super().data_received(data)
        answering = self.cycle is not None and not self.cycle.response_complete
        if self._in_head and self._late is None and not answering and not self.transport.is_closing():
            self._wait_for(limits.HEAD_S)  # something came that begins no request
        if self._in_head and self._head_bytes > limits.HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\r\n")
            self.transport.close()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head, self._lines_bytes = True, 0
        self._wait_for(limits.HEAD_S)
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One line of a head, or of what may follow a body in pieces."""
        self._lines_bytes += len(name) + len(value)
        if self._lines_bytes > limits.HEAD_BYTES:
            self.transport.close()
            return
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Its head is there; its body may follow."""
        self._in_head, self._head_bytes = False, 0
        self._wait_for(limits.BODY_S)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """All of it is there; the answer may take as long as it takes."""
        self._in_head = True
        self._wait_for(None)
        super().on_message_complete()

    def _wait_for(self, seconds: float | None) -> None:
        if self._late is not None:
            self._late.cancel()
        self._late = self.loop.call_later(seconds, self.transport.close) if seconds is not None else None


def raise_limit() -> None:
    """Let this process have as many open files as it may have: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = limits.OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, limits.OPEN_FILES)
    if soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
