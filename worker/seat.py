"""One seat: lease an account, find chunks, work them off, give the account back, over and over."""

import asyncio
import contextlib
from functools import partial

from cuscuta import subjects
from cuscuta.broker import Delivery, Puller
from cuscuta.broker.pull import Pulled
from cuscuta.clock import wait_for_event
from cuscuta.codec import RecordError
from cuscuta.db import Lease
from cuscuta.db.leases import Return
from cuscuta.errors import CuscutaError
from cuscuta.model import decode_chunk
from worker import balance, choice, gaps, pieces
from worker.account import HALT_GRACE_S, Account
from worker.chunk import ChunkRun
from worker.ending import settle_if_done
from worker.gaps import Stored
from worker.handback import bury_malformed, put_back
from worker.jobs import DRY_S, Job
from worker.kit import Kit
from worker.pieces import Piece
from worker.rides import LEFT_ALONE_S, rides_along

LONG_PULL_S = 2.0  # how long an idle seat waits at one job before it looks at all of them again
GONE_S = 0.5  # how long a job whose consumer did not answer is left alone


class Seat:
    """One account at work. `doing` says what, for presence; `account` is None while it waits for one."""

    def __init__(self, kit: Kit, index: int) -> None:
        self._kit, self._index = kit, index
        self._puller = Puller(kit.bus.broker, self._stray)
        self.account: Account | None = None
        self.doing = "idle"
        self._back: dict[str, float] = {}  # by uid, since when this seat stands back
        # A hold is trusted from the beginning of its pull on, so a pull must be short beside ack-wait.
        self._patience_s = min(LONG_PULL_S, kit.settings.ack_wait_s / 5)

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
                except CuscutaError as error:  # refused by JetStream, or a record that is not ours
                    kit.log.error("a seat begins anew", cause=str(error))
                    await kit.bus.clock.sleep(1.0)
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
        self._kit.tail.item_s.pop(account.lease.account, None)
        try:
            async with asyncio.timeout(HALT_GRACE_S if self._kit.halt.is_set() else 5):
                await account.forget(lambda uid: False)
        except TimeoutError:
            account.aborted = True  # an unfollow was cut off
        if account.aborted:  # until the upstream has surely done with the call that was cut off
            how = how._replace(rest_s=max(how.rest_s, self._kit.settings.item_timeout_s))
        await self._kit.leaser.give_back(account.lease, how)

    def halting(self) -> None:
        """The process halts: the item in hand gets a short grace."""
        if self.account:
            self.account.cut(HALT_GRACE_S)

    def ended(self, uid: str) -> None:
        """A job ended: if it is the one in hand, stop at once."""
        if self.account and self.doing.startswith(uid):
            self.account.cut_pauses()

    async def _serve(self, account: Account) -> Return:
        """Work with an account until it must be given back."""
        kit = self._kit
        while not kit.halt.is_set() and account.trust_s > 0:
            pulled = await self._find(account)
            held: list[Piece] = []
            try:
                for delivery in pulled.deliveries:
                    held += [piece] if (piece := await self._take(delivery, pulled.asked)) else []
                how = await self._work_all(account, held)
            except BaseException:
                for piece in held:  # not touched any more, they are handed on after ack-wait
                    kit.holds.drop(piece.hold)
                raise
            if how is not None:
                return how
        return Return(account.rate)

    async def _work_all(self, account: Account, held: list[Piece]) -> Return | None:
        stored = await gaps.stored(self._kit, held)
        waiting = pieces.stretches(held, partial(gaps.fresh, self._kit, stored))
        while waiting:
            how = await self._work(account, waiting.pop(0), stored)
            if how is None and not self._kit.halt.is_set():
                continue
            for piece in (piece for stretch in waiting for piece in stretch):
                await put_back(self._kit, piece, piece.name.span, piece.attempts)
            return how
        return None

    # --- finding -------------------------------------------------------------------------------------------------

    async def _find(self, account: Account) -> Pulled:
        """Chunks to work on; none when it is time to look around again."""
        kit, clock = self._kit, self._kit.bus.clock
        nothing = Pulled([], clock.monotonic())
        if not kit.bus.broker.connected.is_set():
            await wait_for_event(kit.bus.broker.connected, 0.5)
            return nothing
        changed = kit.jobs.changed
        for job in choice.worth_asking(kit.jobs.in_turn(), clock.monotonic()):
            if self._stands_back(account, job):
                continue
            if self._kit.shared and await rides_along(kit, job):
                continue
            chunk_s = job.chunk_s or choice.chunk_s(job.active, job.left, account.item_s)
            async with job.pulling:
                pulled = await self._puller.take(kit.bus.work.stream, _consumer(job), choice.credit(chunk_s))
            if pulled.deliveries:
                self._dealt(job, pulled)
                if not pulled.deliveries[-1].pending:  # the other seats need not ask; a hint would tell of more
                    job.dry_until = clock.monotonic() + DRY_S
                return pulled
            job.dry_until = clock.monotonic() + (GONE_S if pulled.gone else DRY_S)
            if pulled.gone:
                kit.jobs.doubt()
            else:
                await settle_if_done(kit, job)
            if kit.halt.is_set():
                return nothing
        waiting = kit.jobs.in_order()
        for job in waiting:  # also those that another seat has just found empty
            await settle_if_done(kit, job)
        await account.forget(lambda uid: kit.jobs.get(uid) is not None)
        if not waiting or kit.halt.is_set() or changed.is_set():
            await wait_for_event(changed, LONG_PULL_S)
            return nothing
        waiting = [
            job
            for job in waiting
            if not self._stands_back(account, job) and not (self._kit.shared and await rides_along(kit, job))
        ]
        if not waiting:
            await wait_for_event(
                changed, min(account.item_s or LONG_PULL_S, LEFT_ALONE_S if self._kit.shared else LONG_PULL_S)
            )
            return nothing
        job = waiting[self._index % len(waiting)]
        say = partial(self._idle, job)
        pulled = await self._puller.wait(kit.bus.work.stream, _consumer(job), self._patience_s, changed, say)
        self._dealt(job, pulled)
        if pulled.gone:
            kit.jobs.doubt()
            await wait_for_event(kit.jobs.changed, 0.1)
        return pulled

    async def _idle(self, job: Job) -> None:
        """Somebody waits for a share of a job's chunks."""
        self._kit.tail.idle(job.uid)

    def _dealt(self, job: Job, pulled: Pulled) -> None:
        """Notice how far the job's queue is, by the chunks that came for the first time."""
        if pulled.deliveries and (last := pulled.deliveries[-1]).delivered == 1:
            with contextlib.suppress(ValueError):
                job.dealt(subjects.parse_chunk(last.subject).span, self._kit.bus.clock.monotonic())

    def _stands_back(self, account: Account, job: Job) -> bool:
        """Whether to leave a job's last chunks to quicker seats; for as long as one answer takes, then no more."""
        tail, now = self._kit.tail, self._kit.bus.clock.monotonic()
        fleet = tail.fleet_per_s(job)
        if not tail.donates(job) or not balance.stands_back(job.left, fleet, job.active.seats, account.item_s):
            return False
        if job.uid not in self._back:
            self._back = {uid: at for uid, at in self._back.items() if self._kit.jobs.get(uid)}
        return now - self._back.setdefault(job.uid, now) < (account.item_s or 0.0)

    # --- working -------------------------------------------------------------------------------------------------

    async def _take(self, delivery: Delivery, asked: float) -> Piece | None:
        """A delivery as a piece of work, held from now on; None if it is no chunk, and then it is filed."""
        hold = self._kit.holds.take(delivery, asked)
        try:
            return Piece(hold, subjects.parse_chunk(delivery.subject), decode_chunk(delivery.data))
        except (ValueError, RecordError) as error:
            await bury_malformed(self._kit, delivery, str(error))
            self._kit.holds.drop(hold)
            return None

    async def _work(self, account: Account, stretch: list[Piece], stored: Stored) -> Return | None:
        kit, clock, uid = self._kit, self._kit.bus.clock, stretch[0].name.uid
        job = kit.jobs.get(uid)
        if job is None:
            kit.jobs.doubt()
            for piece in stretch:
                await put_back(kit, piece, piece.name.span, piece.attempts)
            await clock.sleep(0.05)
            return None
        self.doing = f"{uid} {pieces.whole(stretch)}"
        began = clock.monotonic()
        kit.jobs.shares.began(job.active.group)
        try:
            how = await ChunkRun(kit, account, job, stretch, await gaps.todo(kit, stretch, stored)).run()
        except BaseException:
            for piece in stretch:
                kit.holds.drop(piece.hold)  # cancelled, or a fault of ours: redelivered after ack-wait
            raise
        finally:
            self.doing = "idle"
            kit.jobs.shares.ended(job.active.group, clock.monotonic() - began)
        job.chunk_s = choice.smooth(job.chunk_s, (clock.monotonic() - began) / len(stretch))
        return how

    def _stray(self, delivery: Delivery) -> None:
        """A message for a pull that was left: back with it, somebody idle is quicker."""
        self._kit.finisher.soon(subjects.parse_uid(delivery.subject), self._return(delivery))

    async def _return(self, delivery: Delivery) -> None:
        # Its pull was left a moment ago, so ack-wait has just begun.
        if piece := await self._take(delivery, self._kit.bus.clock.monotonic()):
            await put_back(self._kit, piece, piece.name.span, piece.attempts)


def _consumer(job: Job) -> str:
    return subjects.job_consumer(job.uid)
