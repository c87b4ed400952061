"""The process's leases: one query acquires for all seats that wait, one renews all of them."""

import asyncio
from collections import deque

from cuscuta.clock import Clock, wait_for_event
from cuscuta.db import Lease, Leases
from cuscuta.db.leases import Return
from cuscuta.errors import DatabaseUnavailable
from cuscuta.logs import Logger

_LOOK_S = 1.0  # how often to look for a free account while seats wait


class Leaser:
    """Leases for seats."""

    def __init__(self, leases: Leases, owner: str, term_s: float, clock: Clock, log: Logger) -> None:
        self._leases, self._owner, self._renew_s, self._clock, self._log = leases, owner, term_s / 3, clock, log
        self._waiting: deque[asyncio.Future[Lease]] = deque()
        self._wanted = asyncio.Event()
        self.held: dict[int, Lease] = {}

    async def acquire(self) -> Lease:
        """A lease, waiting for a free account for as long as it takes. A lease that comes too late is given back."""
        future: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._wanted.set()
        try:
            return await future
        except asyncio.CancelledError:
            if future in self._waiting:
                self._waiting.remove(future)
            elif future.done() and not future.cancelled():
                await asyncio.shield(self.give_back(future.result(), Return(future.result().rate)))
            raise

    async def give_back(self, lease: Lease, how: Return) -> None:
        """Return a lease; tries a few times, after that the lease runs out by itself."""
        self.held.pop(lease.account, None)
        for _ in range(3):
            try:
                if not await self._leases.give_back(lease, how):
                    self._log.warning("a lease was lost before it was given back", account=lease.account)
                self._wanted.set()
                return
            except DatabaseUnavailable as error:
                self._log.debug("giving an account back", account=lease.account, cause=str(error))
                await self._clock.sleep(0.2)

    async def save_token(self, lease: Lease, token: str, user_id: str | None) -> None:
        """Keep a session for the next holder; if that fails the next one logs in again."""
        try:
            await self._leases.save_token(lease, token, user_id)
        except DatabaseUnavailable as error:
            self._log.debug("a token was not saved", account=lease.account, cause=str(error))

    async def hand_out(self) -> None:
        """Give waiting seats accounts, for ever."""
        said = False
        while True:
            if not self._waiting:
                self._wanted.clear()
                await self._wanted.wait()
            try:
                leases = await self._leases.acquire(self._owner, len(self._waiting))
            except DatabaseUnavailable as error:
                self._log.warning("cannot lease accounts", cause=str(error))
                leases = []
            for lease in leases:
                await self._give(lease)
            if self._waiting:
                if not said and not self.held:
                    self._log.warning("no account is free; waiting for one")
                    said = True
                self._wanted.clear()
                await wait_for_event(self._wanted, _LOOK_S)
            else:
                said = False

    async def _give(self, lease: Lease) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                self.held[lease.account] = lease
                future.set_result(lease)
                return
        await self.give_back(lease, Return(lease.rate))

    async def renew(self) -> None:
        """Renew all leases at a third of their term, for ever. A lost one loses its trust, which its seat sees."""
        while True:
            await self._clock.sleep(self._renew_s)
            while self.held:
                try:
                    for lease in await self._leases.renew(list(self.held.values())):
                        self._log.warning("a lease was lost", account=lease.account)
                    break
                except DatabaseUnavailable as error:
                    self._log.warning("cannot renew leases, trying again", cause=str(error))
                    await self._clock.sleep(0.5)
