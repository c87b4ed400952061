"""One seat: lease an account, find chunks, work them off, give the account back, over and over."""

import asyncio
import contextlib

from cuscuta import spans, subjects
from cuscuta.broker import Delivery, Puller
from cuscuta.clock import wait_for_event
from cuscuta.db import Lease
from cuscuta.db.leases import Return
from cuscuta.errors import BrokerUnavailable
from cuscuta.model import ChunkBody, DeadChunk, RecordError, decode
from cuscuta.spans import Span
from cuscuta.subjects import ChunkName
from worker import choice
from worker.account import HALT_GRACE_S, Account
from worker.chunk import ChunkRun, publish_rest
from worker.ending import settle_if_done
from worker.holds import Hold
from worker.jobs import DRY_S, Job
from worker.kit import Kit

LONG_PULL_S = 2.0  # how long an idle seat waits at one job before it looks at all of them again
GONE_S = 0.5  # how long a job whose consumer did not answer is left alone


class Seat:
    """One account at work. `doing` says what, for presence; `account` is None while it waits for one."""

    def __init__(self, kit: Kit, index: int) -> None:
        self._kit, self._index = kit, index
        self._puller = Puller(kit.bus.broker, self._stray)
        self.account: Account | None = None
        self.doing = "idle"

    async def run(self) -> None:
        """Until the process halts. The account is given back whatever happens."""
        kit = self._kit
        await self._puller.start()
        try:
            while not kit.halt.is_set():
                lease = await self._lease()
                if lease is None:
                    break
                how = Return(lease.rate)
                account = self.account = Account(lease, kit.upstream, kit.leaser, kit.settings, kit.bus.clock)
                try:
                    how = await self._serve(account)
                finally:
                    self.account, self.doing = None, "idle"
                    await asyncio.shield(self._leave(account, how))
        finally:
            await self._puller.stop()

    async def _lease(self) -> Lease | None:
        """A lease, or None once the process halts."""
        acquiring = asyncio.ensure_future(self._kit.leaser.acquire())
        halting = asyncio.ensure_future(self._kit.halt.wait())
        try:
            await asyncio.wait({acquiring, halting}, return_when=asyncio.FIRST_COMPLETED)
            return acquiring.result() if acquiring.done() else None
        finally:
            for future in (acquiring, halting):
                if not future.done():
                    future.cancel()
                    await asyncio.wait({future})

    async def _leave(self, account: Account, how: Return) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HALT_GRACE_S if self._kit.halt.is_set() else 5):
                await account.forget(lambda uid: False)
        await self._kit.leaser.give_back(account.lease, how)

    def halting(self) -> None:
        """The process halts: the item in hand gets a short grace."""
        if self.account:
            self.account.cut(HALT_GRACE_S)

    def ended(self, uid: str) -> None:
        """A job ended: if it is the one in hand, stop at once."""
        if self.account and self.doing.startswith(uid):
            self.account.cut(0.0)

    async def _serve(self, account: Account) -> Return:
        """Work with an account until it must be given back."""
        kit = self._kit
        while not kit.halt.is_set() and account.trust_s > 0:
            deliveries = await self._find(account)
            received = kit.bus.clock.monotonic()
            held = [kit.holds.take(delivery, received) for delivery in deliveries]
            begun = await self._begun(deliveries)
            while held:
                hold = held.pop(0)
                how = await self._work(account, hold, begun)
                if how is None and not kit.halt.is_set():
                    continue
                for unstarted in held:
                    await self._put_back(unstarted.delivery)
                    kit.holds.drop(unstarted)
                held = []
                if how is not None:
                    return how
        return Return(account.rate)

    # --- finding -------------------------------------------------------------------------------------------------

    async def _find(self, account: Account) -> list[Delivery]:
        """Chunks to work on; an empty list when it is time to look around again."""
        kit, clock = self._kit, self._kit.bus.clock
        if not kit.bus.broker.connected.is_set():
            await wait_for_event(kit.bus.broker.connected, 0.5)
            return []
        changed = kit.jobs.changed
        for job in choice.worth_asking(kit.jobs.in_order(), clock.monotonic()):
            pulled = await self._puller.take(kit.bus.work.stream, _consumer(job), choice.credit(job.chunk_s))
            if pulled.deliveries:
                return pulled.deliveries
            job.dry_until = clock.monotonic() + (GONE_S if pulled.gone else DRY_S)
            if pulled.gone:
                kit.jobs.doubt()
            if kit.halt.is_set():
                return []
        waiting = kit.jobs.in_order()
        for job in waiting:  # also those that another seat has just found empty
            await settle_if_done(kit, job)
        await account.forget(lambda uid: kit.jobs.get(uid) is not None)
        if not waiting or kit.halt.is_set() or changed.is_set():
            await wait_for_event(changed, LONG_PULL_S)
            return []
        job = waiting[self._index % len(waiting)]
        pulled = await self._puller.wait(kit.bus.work.stream, _consumer(job), LONG_PULL_S, changed)
        if pulled.gone:
            kit.jobs.doubt()
            await clock.sleep(0.1)
        return pulled.deliveries

    # --- working -------------------------------------------------------------------------------------------------

    async def _work(self, account: Account, hold: Hold, begun: set[tuple[str, int]]) -> Return | None:
        kit, clock, delivery = self._kit, self._kit.bus.clock, hold.delivery
        try:
            name, body = subjects.parse_chunk(delivery.subject), decode(delivery.data, ChunkBody)
        except (ValueError, RecordError) as error:
            await self._bury_malformed(delivery, hold, str(error))
            return None
        job = kit.jobs.get(name.uid)
        if job is None:
            kit.jobs.doubt()
            await self._put_back(delivery)
            kit.holds.drop(hold)
            await clock.sleep(0.05)
            return None
        self.doing = f"{name.uid} {name.span}"
        began = clock.monotonic()
        try:
            todo = await self._todo(name, delivery, begun)
            how = await ChunkRun(kit, account, job, hold, name, body, todo).run()
        except BaseException:
            kit.holds.drop(hold)  # cancelled, or a fault of ours: redelivered after ack-wait
            raise
        finally:
            self.doing = "idle"
        job.chunk_s = choice.smooth(job.chunk_s, clock.monotonic() - began)
        return how

    async def _begun(self, deliveries: list[Delivery]) -> set[tuple[str, int]]:
        """Which of the chunks just pulled have a stored result at their first item: one cheap read for all of them.

        Every chunk that anybody finished or flushed has one. If the read fails, all of them count as begun.
        """
        places: dict[str, list[int]] = {}
        for delivery in deliveries:
            with contextlib.suppress(ValueError):
                name = subjects.parse_chunk(delivery.subject)
                places.setdefault(name.uid, []).append(name.span.start)
        found: set[tuple[str, int]] = set()
        for uid, starts in places.items():
            try:
                found.update((uid, span.start) for span in await self._kit.bus.results.starts(uid, starts))
            except BrokerUnavailable:
                found.update((uid, start) for start in starts)
        return found

    async def _todo(self, name: ChunkName, delivery: Delivery, begun: set[tuple[str, int]]) -> list[Span]:
        """What of a chunk is not stored yet; only what looks begun, or comes again, has its job's results listed."""
        if delivery.delivered == 1 and name.n == 1 and (name.uid, name.span.start) not in begun:
            return [name.span]
        stored = await self._kit.bus.broker.insist(lambda: self._kit.bus.results.stored(name.uid))
        return spans.gaps(name.span, stored)

    async def _bury_malformed(self, delivery: Delivery, hold: Hold, reason: str) -> None:
        kit = self._kit
        uid = subjects.parse_uid(delivery.subject)
        kit.log.error("a message in the work queue is no chunk", subject=delivery.subject, cause=reason)
        dead = DeadChunk(uid, None, f"malformed: {reason}", delivery.delivered, kit.bus.clock.wall(), kit.name)
        await kit.bus.broker.insist(lambda: kit.bus.bury(dead, delivery.sequence))
        with contextlib.suppress(BrokerUnavailable):
            await delivery.term("malformed")
        kit.holds.drop(hold)
        if job := kit.jobs.get(uid):
            job.unsettled = delivery

    async def _put_back(self, delivery: Delivery) -> None:
        """A chunk that was not begun goes back with its attempts as they were."""
        try:
            name, body = subjects.parse_chunk(delivery.subject), decode(delivery.data, ChunkBody)
        except (ValueError, RecordError):
            await delivery.nak(0)
            return
        await publish_rest(self._kit, delivery, name, body, body.attempts + delivery.delivered - 1)

    def _stray(self, delivery: Delivery) -> None:
        """A message for a pull that was left: back with it, somebody idle is quicker."""
        self._kit.finisher.soon(subjects.parse_uid(delivery.subject), self._put_back(delivery))


def _consumer(job: Job) -> str:
    return subjects.job_consumer(job.uid)
