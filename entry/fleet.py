"""Other deployments at a glance: each is asked with a limit of its own, and none of them can hold up the rest."""

import asyncio
from datetime import datetime
from typing import NamedTuple

import aiohttp
import msgspec
from msgspec import Struct

from cuscuta.clock import Clock

LIMIT_S = 1.0  # for one deployment's answer
_FRESH_S = 1.0  # answers are asked for at most so often, however many look
_ANSWER_BYTES = 1 << 20


class Figures(Struct):
    """What is shown of a deployment: part of the answer to its `GET /deployment`, any further fields are ignored."""

    api: int
    name: str
    version: str
    parts: dict[str, str]
    running_total: int
    waiting_total: int
    oldest_waiting_s: float
    workers: int
    seats: int
    items_per_s: float
    accounts: dict[str, int]


class Sighting(Struct):
    """One deployment. With a `cause` it did not answer now, and the figures are those of `seen_at`, if any."""

    name: str
    url: str
    seen_at: datetime | None = None
    figures: Figures | None = None
    cause: str | None = None


class _Neighbour(NamedTuple):
    name: str
    url: str
    token: str


class Fleet:
    """The deployments of `CUSCUTA_FLEET`."""

    def __init__(self, entries: list[str], clock: Clock) -> None:
        self._clock = clock
        self._all = [_parse(entry) for entry in entries]
        self._seen = {one.name: Sighting(one.name, one.url) for one in self._all}
        self._looking: asyncio.Task[None] | None = None
        self._looked_at = -_FRESH_S

    async def look(self) -> list[Sighting]:
        """All of them as they are now, within LIMIT_S; whoever asks meanwhile gets the same answer."""
        now = self._clock.monotonic()
        if self._looking is None or (self._looking.done() and now - self._looked_at >= _FRESH_S):
            self._looked_at = now
            self._looking = asyncio.ensure_future(self._ask_all())
        await asyncio.shield(self._looking)
        return [self._seen[one.name] for one in self._all]

    async def _ask_all(self) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=LIMIT_S)) as http:
            await asyncio.gather(*(self._ask(http, one) for one in self._all))

    async def _ask(self, http: aiohttp.ClientSession, one: _Neighbour) -> None:
        last, headers = self._seen[one.name], {"Authorization": f"Bearer {one.token}"}
        try:
            async with http.get(f"{one.url}/deployment", headers=headers, allow_redirects=False) as answer:
                if answer.status != 200:
                    raise ValueError(f"answered {answer.status}")
                figures = msgspec.json.decode(await _body(answer), type=Figures)
        except TimeoutError:
            cause = f"no answer within {LIMIT_S:g} s"
        except (msgspec.DecodeError, RecursionError):
            cause = "answered something else than the dashboard's API"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            cause = str(error).replace(one.token, "***") or type(error).__name__
        else:
            self._seen[one.name] = Sighting(one.name, one.url, self._clock.wall(), figures)
            return
        self._seen[one.name] = msgspec.structs.replace(last, cause=cause)


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for part in answer.content.iter_chunked(1 << 16):
        body += part
        if len(body) > _ANSWER_BYTES:
            raise ValueError("the answer is too long")
    return bytes(body)


def _parse(entry: str) -> _Neighbour:
    """`name=url token`, as `cuscuta.relations` has checked it."""
    name, _, rest = entry.partition("=")
    url, token = rest.split(None, 1)
    return _Neighbour(name.strip(), url.rstrip("/"), token.strip())
