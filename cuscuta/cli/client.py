"""The REST API from the command line's side: one place that turns its answers into values or clear errors."""

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import platformdirs
import rich_click as click
from httpx_sse import connect_sse

from cuscuta.cli import show
from cuscuta.relations import LOOPBACK

_PART = 64 << 10
DEFAULT_URL = "http://127.0.0.1:8000"


class Client:
    """A client of one deployment."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url, self._token = url.rstrip("/"), token

    @cached_property
    def _http(self) -> httpx.Client:
        token = self._token or find_token(self.url)  # at the first call: some commands make none
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.url, timeout=60, headers=headers)

    def close(self) -> None:
        """Close the connections."""
        if "_http" in self.__dict__:
            self._http.close()

    def call(self, method: str, path: str, **options: Any) -> Any:
        """A request; its decoded answer. Raises ClickException with what the problem document says."""
        with self._translated():
            response = self._http.request(method, path, **options)
        if response.is_error:
            raise click.ClickException(_problem(response))
        try:
            return response.json() if response.content else None
        except ValueError:
            raise click.ClickException(f"{self.url} answered something that is not JSON: is it Cuscuta?") from None

    def upload(self, method: str, path: str, body: bytes, kind: str) -> Any:
        """`call` with a body that may be large: with a bar on a terminal."""

        def parts() -> Iterator[bytes]:
            for start in range(0, len(body), _PART):
                yield body[start : start + _PART]
                move(min(_PART, len(body) - start))

        headers = {"content-type": kind, "content-length": str(len(body))}
        with show.bytes_bar("sending", len(body)) as move:
            return self.call(method, path, content=parts(), headers=headers)

    @contextmanager
    def _stream(self, path: str, accept: str, **options: Any) -> Iterator[httpx.Response]:
        with self._translated(), self._http.stream("GET", path, headers={"accept": accept}, **options) as response:
            if response.is_error:
                response.read()
                raise click.ClickException(_problem(response))
            yield response

    @contextmanager
    def lines(self, path: str, *, follow: bool = False) -> Iterator[Iterator[str]]:
        """A streamed answer, line by line; with `follow` nothing may come for long."""
        options: dict[str, Any] = {"params": {"follow": True}, "timeout": None} if follow else {}
        with self._stream(path, "application/x-ndjson", **options) as response:
            yield response.iter_lines()

    @contextmanager
    def download(self, path: str, accept: str) -> Iterator[httpx.Response]:
        """An answer to be read piece by piece."""
        with self._stream(path, accept) as response:
            yield response

    def events(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Server-sent events with their kinds, through lost connections, until the server ends them."""
        last, retry_s, connected = "", 0.0, False
        while True:
            time.sleep(retry_s)
            headers = {"last-event-id": last} if last else {}
            try:
                with connect_sse(self._http, "GET", path, headers=headers) as source:
                    if source.response.status_code == httpx.codes.SERVICE_UNAVAILABLE and connected:
                        raise httpx.RemoteProtocolError("it is still starting")
                    if source.response.is_error:
                        source.response.read()
                        raise click.ClickException(_problem(source.response))
                    if source.response.status_code == httpx.codes.NO_CONTENT:
                        return
                    connected = True
                    for event in source.iter_sse():
                        last, retry_s = event.id or last, 0.0
                        if event.data:
                            yield event.event, json.loads(event.data)
                retry_s = min(5.0, retry_s + 0.2)  # it stops, or the job is over, which it says next time
            except httpx.TransportError as error:
                if not connected:
                    with self._translated():
                        raise
                retry_s = min(5.0, retry_s + 0.5)
                show.messages.print(f"lost the connection ({type(error).__name__}); going on", markup=False)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except httpx.ConnectError:
            raise click.ClickException(
                f"nothing answers at {self.url}. Start it with `cuscuta up`, or set --url or CUSCUTA_URL."
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise click.ClickException(f"{self.url}: {type(error).__name__}: {error}") from None


def token_file(folder: Path) -> Path:
    """Where `cuscuta up` keeps the token that it made."""
    return folder / "api-token"


def url_file(folder: Path) -> Path:
    """Where `cuscuta up` says which address that token is for."""
    return folder / "api-url"


def find_token(url: str) -> str | None:
    """The token to send: CUSCUTA_TOKEN, the file of CUSCUTA_TOKEN_FILE, or what `cuscuta up` has made for this address.

    Raises ClickException for a file that cannot be read and for what is no token; it is not shown.
    """
    if token := os.environ.get("CUSCUTA_TOKEN"):
        return checked_token("CUSCUTA_TOKEN", token)
    if path := os.environ.get("CUSCUTA_TOKEN_FILE"):
        try:
            return checked_token("CUSCUTA_TOKEN_FILE", Path(path).read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise click.ClickException(f"CUSCUTA_TOKEN_FILE: {error}") from None
    folder = Path(platformdirs.user_data_path("cuscuta"))
    with suppress(OSError, ValueError):
        if _same(url_file(folder).read_text("utf-8").strip(), url):
            return checked_token(str(token_file(folder)), token_file(folder).read_text("utf-8"))
    return None


def _same(made_for: str, url: str) -> bool:
    """Whether two addresses are one; this box has several names."""
    parts = [urlsplit(address) for address in (made_for, url)]
    hosts = ["127.0.0.1" if part.hostname in LOOPBACK else part.hostname for part in parts]
    return hosts[0] == hosts[1] and parts[0].port == parts[1].port and parts[0].scheme == parts[1].scheme


def checked_token(where: str, token: str) -> str:
    """A token without spaces around it. Raises ClickException if it cannot be one."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", token.strip()):
        raise click.ClickException(f"{where} holds something that is no token. It looks like cus_7_….")
    return token.strip()


def _problem(response: httpx.Response) -> str:
    if response.status_code == httpx.codes.UNAUTHORIZED:
        return "the API wants a valid token. Set CUSCUTA_TOKEN or CUSCUTA_TOKEN_FILE; docs/security.md says more."
    try:
        body = response.json()
    except ValueError:
        return f"the server answered {response.status_code}"
    lines = []
    for error in body.get("errors", []):
        lines.append(
            " ".join(part for part in (f"{error['field']}:", error["message"] + ".", error.get("fix")) if part)
        )
    return "\n".join(lines) or body.get("detail") or f"the server answered {response.status_code}"


def default_url() -> str:
    """Where the API is, unless told otherwise."""
    return os.environ.get("CUSCUTA_URL", DEFAULT_URL)
