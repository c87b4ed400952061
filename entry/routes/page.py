"""The dashboard's page: files of `entry/page`, as they are, for everybody; what they show wants a token."""

from functools import cache
from hashlib import sha256
from pathlib import Path

from litestar import Request, Response, get
from litestar.exceptions import NotFoundException

from entry import access

_FOLDER = Path(__file__).parents[1] / "page"
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
# Nothing from elsewhere, nothing inline, in nobody's frame: a target's name that is markup stays a name.
_POLICY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@cache
def _files() -> dict[str, tuple[bytes, str, str]]:
    """(content, type, tag) by name; there are few, and they do not change while the process runs."""
    files = ((path, path.read_bytes()) for path in _FOLDER.iterdir() if path.suffix in _TYPES)
    return {p.name: (data, _TYPES[p.suffix], f'"{sha256(data).hexdigest()[:32]}"') for p, data in files}


def _answer(request: Request, name: str) -> Response[bytes]:  # type: ignore[type-arg]
    if name not in _files():
        raise NotFoundException(f"There is no {name[:60]!r} here.")
    data, media_type, tag = _files()[name]
    headers = {**_POLICY, "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(b"", status_code=304, headers=headers)
    return Response(data, media_type=media_type, headers=headers)


@get("/", opt=access.OPEN, include_in_schema=False, sync_to_thread=False)
def show_page(request: Request) -> Response[bytes]:  # type: ignore[type-arg]
    """The dashboard."""
    return _answer(request, "index.html")


@get("/page/{name:str}", opt=access.OPEN, include_in_schema=False, sync_to_thread=False)
def show_file(request: Request, name: str) -> Response[bytes]:  # type: ignore[type-arg]
    """A file of the page."""
    return _answer(request, name)
