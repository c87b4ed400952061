"""The REST API from the command line's side: one place that turns its answers into values or clear errors."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import rich_click as click

DEFAULT_URL = "http://127.0.0.1:8000"


class Client:
    """A client of one deployment."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._http = httpx.Client(base_url=self.url, timeout=60)

    def close(self) -> None:
        """Close the connections."""
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

    @contextmanager
    def lines(self, path: str) -> Iterator[Iterator[str]]:
        """A streamed answer, line by line."""
        headers = {"accept": "application/x-ndjson"}
        with self._translated(), self._http.stream("GET", path, headers=headers) as response:
            if response.is_error:
                response.read()
                raise click.ClickException(_problem(response))
            yield response.iter_lines()

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


def _problem(response: httpx.Response) -> str:
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
