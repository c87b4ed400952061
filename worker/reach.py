"""Whether the upstream answers at its address at all, for `doctor`: asked now and then, with no account."""

import asyncio

from cuscuta.clock import Clock
from worker.upstream.protocol import Upstream

_EVERY_S = 20.0
_PATIENCE_S = 5.0


class Reach:
    """`cause` is empty while the upstream can be reached, None before the first look or if nobody knows."""

    def __init__(self, upstream: Upstream, clock: Clock) -> None:
        self._upstream, self._clock = upstream, clock
        self.cause: str | None = None

    async def watch(self) -> None:
        """Look for ever."""
        while True:
            self.cause = await self._look()
            await self._clock.sleep(_EVERY_S)

    async def _look(self) -> str | None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._upstream.reach()
        except NotImplementedError:
            return None
        except TimeoutError:
            return f"no answer within {_PATIENCE_S:g} s"
        except Exception as error:  # noqa: BLE001 - an adapter may raise anything; its text may be secret
            return type(error).__name__
        return ""
