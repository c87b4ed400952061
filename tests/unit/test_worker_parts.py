"""The worker's small parts with a clock that stands still: holds, pieces, the window, the account, failures."""

import asyncio
import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuscuta import errors, spans
from cuscuta.broker import Delivery
from cuscuta.db import Lease
from cuscuta.errors import BrokerUnavailable
from cuscuta.model import ChunkBody, Item
from cuscuta.settings import Settings
from cuscuta.spans import Span
from cuscuta.subjects import ChunkName
from cuscuta.uids import new_uid
from tests.support.clock import HandClock
from worker import pieces, window
from worker.account import Account, Cut, LeaseLost
from worker.holds import Hold, Holds
from worker.leaser import Leaser
from worker.pieces import Piece
from worker.upstream import Capacity, Session, Target, Upstream

UIDS = [new_uid(datetime(2026, 1, 1, tzinfo=UTC)) for _ in range(3)]


@dataclass
class Message:
    """Stands for a delivery: counts touches, and fails them while `deaf`."""

    delivered: int = 1
    sequence: int = 1
    touches: int = 0
    deaf: bool = False
    headers: dict[str, str] = field(default_factory=dict)

    async def touch(self) -> None:
        if self.deaf:
            raise BrokerUnavailable("deaf")
        self.touches += 1


def hold(message: Message, clock: HandClock) -> Hold:
    return Hold(cast(Delivery, message), clock, clock.seconds, clock.seconds + 9)


async def test_a_hold_is_touched_at_a_third_of_ack_wait_and_trusted_from_the_last_answer() -> None:
    clock, message = HandClock(), Message()
    holds = Holds(clock, ack_wait_s=9.0)
    held = holds.take(cast(Delivery, message), clock.seconds)
    ticking = asyncio.ensure_future(holds.tick())
    for _ in range(30):
        await clock.move(1.0)
    assert 9 <= message.touches <= 15  # every 2 to 3 s
    assert held.trusted()
    message.deaf = True
    await clock.move(1.0)
    heard = message.touches
    for _ in range(9):
        await clock.move(1.0)
    assert message.touches == heard
    assert not held.trusted()  # before ack-wait ran out at the server
    message.deaf = False
    for _ in range(9):
        await clock.move(1.0)
    assert not held.trusted()  # a lost hold is never won back
    assert message.touches == heard
    holds.drop(held)
    assert len(holds) == 0
    ticking.cancel()


def piece(start: int, size: int, sequence: int = 1, delivered: int = 1, n: int = 1, uid: str = UIDS[0]) -> Piece:
    message = Message(delivered, sequence)
    name = ChunkName(uid, Span(start, start + size), n)
    return Piece(hold(message, HandClock()), name, ChunkBody(uid, "c", "t", 0, fresh=n == 1 and sequence < 5))


made = st.lists(
    st.builds(piece, st.integers(0, 30), st.integers(1, 5), st.integers(1, 9), st.integers(1, 2), st.integers(1, 2),
              st.sampled_from(UIDS)),
    max_size=15,
)  # fmt: skip


@given(made)
def test_only_fresh_neighbours_of_one_job_become_a_stretch(held: list[Piece]) -> None:
    found = pieces.stretches(held, lambda p: p.fresh)
    assert [p for stretch in found for p in stretch] == held  # nothing lost, nothing swapped
    for stretch in found:
        whole = pieces.whole(stretch)
        assert whole.size == sum(p.name.span.size for p in stretch)
        assert len({p.name.uid for p in stretch}) == 1
        assert len(stretch) == 1 or all(p.fresh for p in stretch)


@given(st.integers(0, 20), st.integers(1, 10), st.integers(0, 40))
def test_where_the_cursor_is(start: int, size: int, cursor: int) -> None:
    one = piece(start, size)
    given = max(start, start + size - 2)
    assert pieces.rest(one, cursor, 100) == spans.clip(one.name.span, Span(cursor, 100))
    assert pieces.rest(one, cursor, given).size == max(0, given - max(cursor, start))
    assert pieces.rest(one, 0, 100) == one.name.span


def test_deaths_of_holders_count_as_attempts() -> None:
    one = piece(0, 1, delivered=3)
    assert one._replace(body=ChunkBody(UIDS[0], "c", "t", 2)).attempts == 4


@pytest.mark.parametrize("width", [1, 3, 50])
async def test_a_window_keeps_the_order_and_the_bound(width: int) -> None:
    running = most = 0

    async def ask(n: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(n * 7 % 5):
            await asyncio.sleep(0)
        running -= 1
        return n * n

    assert [v async for v in window.in_order(range(20), ask, width)] == [n * n for n in range(20)]
    assert most <= width


async def test_a_window_raises_the_first_error_and_leaves_nothing_running() -> None:
    async def ask(n: int) -> int:
        if n == 3:
            await asyncio.sleep(0)
            raise ValueError(n)
        if n > 3:
            await asyncio.Event().wait()
        return n

    before = asyncio.all_tasks()
    seen = []

    async def everything() -> None:
        async for value in window.in_order(range(20), ask, 4):
            seen.append(value)

    with pytest.raises(ValueError, match="3"):
        await everything()
    assert seen == [0, 1, 2]
    assert asyncio.all_tasks() == before


class Fake(Upstream):
    """Counts logins, and accepts the tokens it gave last."""

    needs_login = True
    needs_follow = True
    capacity = Capacity(rate_per_s=math.inf, follow_slots=2)

    def __init__(self) -> None:
        self.logins = 0
        self.follows: list[str] = []
        self.valid = ""
        self.refuse = False

    async def log_in(self, session: Session) -> None:
        if self.refuse:
            raise errors.AuthenticationFailed("wrong password")
        self.logins += 1
        self.valid = session.token = f"token-{self.logins}"

    async def poll(self, session: Session, target: Target, item: Item) -> Any:
        if item.id == "hang":
            await asyncio.Event().wait()
        if session.token != self.valid:
            raise errors.AuthenticationFailed("stale")
        return item.id

    async def follow(self, session: Session, target: str) -> str | None:
        self.follows.append(target)
        return f"id of {target}"

    async def unfollow(self, session: Session, target: Target) -> None:
        self.follows.remove(target.name)


class NoLeaser:
    """Keeps the tokens that are saved."""

    def __init__(self) -> None:
        self.tokens: list[str] = []

    async def save_token(self, lease: Lease, token: str, user_id: str | None) -> None:
        self.tokens.append(token)


def account(upstream: Upstream, leaser: NoLeaser | None = None, **lease: Any) -> Account:
    clock = HandClock()
    held = Lease(account=1, email="a@x", password="p", user_id=None, token=lease.get("token"), rate=0.5, term=1,
                 trusted_until=clock.seconds + lease.get("trust_s", 20.0))  # fmt: skip
    settings = Settings(item_timeout_s=lease.get("timeout_s", 5.0))
    return Account(held, upstream, cast(Leaser, leaser or NoLeaser()), settings, clock)


ITEM = Item("song")


async def test_a_session_is_made_once_saved_and_renewed_once_when_stale() -> None:
    upstream, leaser = Fake(), NoLeaser()
    mine = account(upstream, leaser)
    assert [await mine.poll(Target("t"), ITEM) for _ in range(3)] == ["song"] * 3
    assert leaser.tokens == ["token-1"]
    upstream.valid = "another"
    answers = await asyncio.gather(*(mine.poll(Target("t"), ITEM) for _ in range(5)))
    assert answers == ["song"] * 5
    assert upstream.logins == 2  # five stale polls, one login


async def test_a_saved_token_is_used() -> None:
    upstream = Fake()
    upstream.valid = "saved"
    assert await account(upstream, token="saved").poll(Target("t"), ITEM) == "song"
    assert upstream.logins == 0


async def test_refused_even_after_a_new_login_blames_the_account() -> None:
    upstream = Fake()
    mine = account(upstream, token="old")
    upstream.refuse = True
    with pytest.raises(errors.AccountForbidden, match="login refused"):
        await mine.poll(Target("t"), ITEM)
    back = mine.blamed("x")
    assert (back.rate, back.disable) == (0.16, False)
    assert mine.blamed("x").disable


async def test_no_call_begins_without_a_trusted_lease_nor_outlives_it() -> None:
    upstream = Fake()
    mine = account(upstream, token="t", trust_s=-0.1)
    with pytest.raises(LeaseLost):
        await mine.poll(Target("t"), ITEM)
    mine = account(upstream, token="t", trust_s=0.05)
    polling = asyncio.ensure_future(mine.poll(Target("t"), Item("hang")))
    await asyncio.sleep(0)
    mine.lease.trusted_until = 0.0
    with pytest.raises(LeaseLost):
        await polling


async def test_a_hanging_call_is_a_timeout_and_a_cut_is_a_cut() -> None:
    upstream = Fake()
    with pytest.raises(errors.UpstreamTimeout):
        await account(upstream, token="t", timeout_s=0.05).poll(Target("t"), Item("hang"))
    mine = account(upstream, token="t")
    polling = asyncio.ensure_future(mine.poll(Target("t"), Item("hang")))
    resting = asyncio.ensure_future(mine.pause(100))
    await asyncio.sleep(0)
    mine.cut(0.0)
    for waiting in (polling, resting):
        with pytest.raises(Cut):
            await waiting


async def test_follows_are_kept_within_the_slots() -> None:
    upstream = Fake()
    mine = account(upstream)
    for n in range(4):
        target = await mine.target(UIDS[0] + str(n), f"player {n}")
        assert target == Target(f"player {n}", f"id of player {n}")
    assert upstream.follows == ["player 2", "player 3"]
    await mine.target(UIDS[0] + "3", "player 3")
    assert upstream.follows == ["player 2", "player 3"]  # once is enough
    await mine.forget(lambda uid: uid.endswith("3"))
    assert upstream.follows == ["player 3"]


async def test_rests_are_what_was_asked_for_else_grow() -> None:
    mine = account(Fake())
    assert mine.rest_s(errors.Throttled("x", 7.5)) == 7.5
    rests = []
    for mine.lease.throttled in range(1, 101):
        rests.append(mine.rest_s(errors.Throttled("x")))
    assert rests[0] < rests[5] < rests[40]
    assert max(rests) <= 60 * 1.25
    assert mine.rate == 0.5  # 429 is no fault of the account
