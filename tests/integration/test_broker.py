"""The broker against a real nats-server."""

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from cuscuta import errors, limits, subjects
from cuscuta.broker import Bus, Delivery, Puller
from cuscuta.broker.assets import ensure, streams
from cuscuta.broker.batch import Message, publish_batch
from cuscuta.broker.lanes import Waiting
from cuscuta.broker.submit import submit
from cuscuta.codec import encode
from cuscuta.model import ChunkBody, ChunkResult, Item, ItemError, JobStatus, JobTag, Priority
from cuscuta.spans import Span
from cuscuta.subjects import ChunkName
from cuscuta.uids import new_uid, token_from
from tests.support.tags import NOW, UID, make_tag

LANE = token_from("lane")


async def test_assets_are_made_as_declared_and_again_harmlessly(bus: Bus) -> None:
    await ensure(bus.broker, bus.settings)
    for declared in streams(bus.settings):
        standing = (await bus.broker.api(f"STREAM.INFO.{declared['name']}"))["config"]
        assert {k: standing.get(k) for k in declared if k != "metadata"} == {
            k: v for k, v in declared.items() if k != "metadata"
        }
        assert standing["description"]
        assert standing["max_consumers"] > 0 or declared["name"] in ("CUSCUTA_EVENTS", "CUSCUTA_DEAD")


async def test_assets_follow_the_settings(bus: Bus) -> None:
    await ensure(bus.broker, msgspec.structs.replace(bus.settings, max_active_jobs=7))
    config = (await bus.broker.api("STREAM.INFO.CUSCUTA_WORK"))["config"]
    assert config["max_consumers"] == 7


async def test_a_batch_is_all_or_nothing(bus: Bus) -> None:
    names = [ChunkName(UID, Span(n, n + 1), 1) for n in range(limits.BATCH_MESSAGES)]
    batch: list[Message] = [(subjects.chunk(n), b"x", {}) for n in names]
    await publish_batch(bus.broker, batch)
    assert len(await bus.work.queued(UID)) == limits.BATCH_MESSAGES
    other: list[Message] = [(subjects.chunk(ChunkName(UID, Span(5_000 + n, 5_001 + n), 1)), b"x", {}) for n in range(3)]
    with pytest.raises(errors.Standing):
        await publish_batch(bus.broker, [*other, batch[0]])
    assert len(await bus.work.queued(UID)) == limits.BATCH_MESSAGES
    with pytest.raises(ValueError, match="1 to 1000"):
        await publish_batch(bus.broker, [])


async def test_publishing_chunks_twice_changes_nothing(bus: Bus) -> None:
    names = [ChunkName(UID, Span(n, n + 1), 1) for n in range(2_500)]
    body = ChunkBody(UID, "c", "t")
    assert await bus.work.publish_chunks(names, body)
    assert not await bus.work.publish_chunks(names, body)
    assert sorted(await bus.work.queued(UID)) == names


async def enter(bus: Bus, uid: str, priority: Priority, lane: str) -> None:
    waiting = Waiting(uid, priority)
    if place := await bus.lanes.enter(waiting, lane):
        await bus.lanes.admit(replace(waiting, place=place))


async def leave(bus: Bus, lane: str) -> Waiting | None:
    """Take a lane's head out of it; the next one."""
    head = await bus.lanes.head(lane)
    assert head is not None
    assert await bus.lanes.leave(lane, head.uid, head.place)
    assert not await bus.lanes.leave(lane, head.uid, head.place)  # twice: harmless
    return await bus.lanes.head(lane)


async def test_only_the_head_of_a_lane_is_admitted(bus: Bus) -> None:
    uids = [new_uid(NOW) for _ in range(3)]
    for uid in uids:
        await enter(bus, uid, Priority.HIGH, LANE)
        await enter(bus, uid, Priority.HIGH, LANE)  # twice: harmless
    assert await bus.work.subjects(subjects.ADMITS) == [subjects.admit(Priority.HIGH, "", uids[0])]
    head = await leave(bus, LANE)
    assert head is not None
    assert (head.uid, head.priority) == (uids[1], Priority.HIGH)
    assert await leave(bus, LANE) is not None
    assert await leave(bus, LANE) is None


async def test_whose_turn_it_is_in_a_lane(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place is believed while the entry stands at it; without one, or with a wrong one, the lane is asked."""
    uids = [new_uid(NOW) for _ in range(3)]
    for uid in uids:
        await enter(bus, uid, Priority.HIGH, LANE)
    first, second, _ = (Waiting(uid, Priority.HIGH) for uid in uids)
    place = await bus.lanes.turn(LANE, first)
    assert place
    claimed = await bus.lanes.claim(Priority.HIGH, "")
    assert claimed is not None
    assert (claimed.uid, claimed.place) == (first.uid, place)
    with monkeypatch.context() as patch:
        patch.setattr(bus.lanes, "head", None)  # it is not asked
        assert await bus.lanes.turn(LANE, claimed) == place
    assert await bus.lanes.turn(LANE, second) == 0
    assert await bus.lanes.turn(LANE, replace(second, place=place)) == 0
    after = await leave(bus, LANE)
    assert after is not None
    assert await bus.lanes.turn(LANE, claimed) == 0
    assert await bus.lanes.turn(LANE, second) == await bus.lanes.turn(LANE, after) == after.place


async def test_a_job_that_waits_is_claimed_by_one_only(bus: Bus) -> None:
    """Twenty at once for ten jobs of one group: each job is given to one of them, in order; other groups are left."""
    uids = [new_uid(NOW) for _ in range(10)]
    for uid in uids:
        await bus.lanes.admit(Waiting(uid, Priority.NORMAL, "red"))
    await bus.work.put("cuscuta.admit.normal.everyone.nonsense", b"{}")  # by hand
    other = new_uid(NOW)
    await bus.lanes.admit(Waiting(other, Priority.NORMAL))
    claimed = await asyncio.gather(*(bus.lanes.claim(Priority.NORMAL, "red") for _ in range(20)))
    assert sorted(waiting.uid for waiting in claimed if waiting) == sorted(uids)
    assert await bus.lanes.claim(Priority.LOW, "red") is None
    assert await bus.lanes.claim(Priority.NORMAL, "") == Waiting(other, Priority.NORMAL)
    assert await bus.work.subjects(subjects.ADMITS) == []


async def test_a_lane_released_while_another_job_enters(bus: Bus) -> None:
    """Whatever the order of release and entry, exactly the head is admitted in the end."""
    for n in range(30):
        lane = token_from(f"lane {n}")
        first, second = new_uid(NOW), new_uid(NOW)
        await enter(bus, first, Priority.NORMAL, lane)

        async def release(lane: str = lane) -> None:
            if head := await leave(bus, lane):
                await bus.lanes.admit(head)

        await asyncio.gather(release(), enter(bus, second, Priority.NORMAL, lane))
        assert subjects.admit(Priority.NORMAL, "", second) in await bus.work.subjects(subjects.ADMITS)


async def test_no_more_consumers_than_active_jobs(bus: Bus) -> None:
    for n in range(3):
        await bus.work.make_job_consumer(new_uid(NOW), f"target {n}\n*>")
    with pytest.raises(errors.NoRoom):
        await bus.work.make_job_consumer(new_uid(NOW), "one too many")
    assert await bus.work.active_consumers() == 3
    for uid in await bus.work.job_consumers():
        await bus.work.drop_job_consumer(uid)
        await bus.work.drop_job_consumer(uid)  # twice: harmless
    assert await bus.work.active_consumers() == 0


async def test_tags_are_guarded(bus: Bus) -> None:
    assert await bus.tags.create(make_tag())
    assert not await bus.tags.create(make_tag())

    def pending(tag: JobTag) -> bool:
        tag.status = JobStatus.PENDING
        tag.queue.seats += 1
        return True

    def complete(tag: JobTag) -> bool:
        tag.status = JobStatus.COMPLETED
        return True

    await asyncio.gather(*(bus.tags.change(UID, pending) for _ in range(8)))
    tag = await bus.tags.get(UID)
    assert tag is not None
    assert tag.queue.seats == 8  # no update was lost
    await bus.tags.change(UID, complete)
    after = await bus.tags.change(UID, pending)
    assert after is not None
    assert after.status is JobStatus.COMPLETED
    assert await bus.tags.change(new_uid(NOW), pending) is None

    def back(tag: JobTag) -> bool:
        tag.status = JobStatus.QUEUEING
        return True

    other = new_uid(NOW)
    await bus.tags.create(make_tag(other))
    await bus.tags.change(other, pending)
    with pytest.raises(ValueError, match="cannot go"):
        await bus.tags.change(other, back)


def result(*values: object, **more: object) -> ChunkResult:
    return ChunkResult([msgspec.Raw(encode(v)) for v in values], NOW, **more)  # type: ignore[arg-type]


async def test_the_first_result_wins(bus: Bus) -> None:
    await bus.results.write(UID, Span(0, 2), result(1, 2))
    await bus.results.write(UID, Span(0, 2), result(3, 4))
    read = [(s, [bytes(v) for v in r.values]) async for s, r in bus.results.read(UID, Span(0, 9), [Span(0, 2)])]
    assert read == [(Span(0, 2), [b"1", b"2"])]
    assert [await bus.results.begun(UID, start) for start in (0, 1)] == [True, False]
    assert await bus.results.stored(UID) == [Span(0, 2)]


async def test_overlapping_results_are_read_once(bus: Bus) -> None:
    for span in (Span(0, 5), Span(3, 8), Span(7, 9), Span(20, 21)):
        await bus.results.write(UID, span, result(*range(span.start, span.stop)))
    stored = await bus.results.stored(UID)
    read = [int(v) async for _, r in bus.results.read(UID, Span(2, 30), stored) for v in map(bytes, r.values)]
    assert read == [2, 3, 4, 5, 6, 7, 8, 20]


async def test_too_large_results_are_split_and_one_item_is_refused(bus: Bus) -> None:
    big = "x" * 300_000
    values = [big] * 8 + ["y" * (2 << 20)]
    await bus.results.write(UID, Span(0, 9), result(*values, errors={"1": ItemError("E", "m")}))
    stored = sorted(await bus.results.stored(UID))
    assert sum(s.size for s in stored) == 9
    assert len(stored) > 3
    found = {}
    async for span, part in bus.results.read(UID, Span(0, 9), stored):
        for index, value in zip(range(*span), part.values, strict=True):
            found[index] = part.errors.get(str(index)) or len(bytes(value))
    assert found.pop(1) == ItemError("E", "m")
    refused = found.pop(8)
    assert isinstance(refused, ItemError)
    assert refused.type == "ResultTooLarge"
    assert set(found.values()) == {300_002}
    assert bus.broker.nc.is_connected


async def test_more_keys_than_one_read_takes(bus: Bus) -> None:
    count = 1_500
    await asyncio.gather(*(bus.results.write(UID, Span(n, n + 1), result(n)) for n in range(count)))
    stored = await bus.results.stored(UID)
    read = [int(v) async for _, r in bus.results.read(UID, Span(0, count), stored) for v in map(bytes, r.values)]
    assert read == list(range(count))
    assert await bus.results.forget(UID, await bus.results.revision()) == count
    assert await bus.results.stored(UID) == []


async def test_catalogue_pages_hold_the_items_in_order(bus: Bus) -> None:
    items = [Item(f"i{n}", params={"p": "x" * (n % 700)}) for n in range(9_000)]
    head = await bus.catalogues.put(items)
    assert len(head.pages) > 5
    for span in (Span(0, 9_000), Span(1_999, 2_001), Span(8_999, 9_000), Span(4_321, 4_321 + 2_500)):
        assert await bus.catalogues.items(head.hash, span) == items[span.start : span.stop]
    assert (await bus.catalogues.put(items)).hash == head.hash
    assert (await bus.catalogues.grid(head.hash)).size == 9_000


async def test_user_text_cannot_reach_another_jobs_messages(bus: Bus) -> None:
    await enter(bus, UID, Priority.NORMAL, token_from("a.*.>"))
    await enter(bus, new_uid(NOW), Priority.NORMAL, token_from("a.b.c"))
    assert len(await bus.work.subjects(subjects.ADMITS)) == 2  # two lanes, two heads


async def test_removing_a_message_keeps_what_is_to_be_delivered_again(bus: Bus) -> None:
    """A purge makes the server (2.15.1) forget the redeliveries of the whole consumer; a deletion does not."""
    await bus.work.make_job_consumer(UID, "t")
    names = [ChunkName(UID, Span(n, n + 1), 1) for n in range(4)]
    await bus.work.publish_chunks(names, ChunkBody(UID, "c", "t"))
    puller = Puller(bus.broker, lambda delivery: None)
    await puller.start()
    held = (await puller.take(bus.work.stream, subjects.job_consumer(UID), 2)).deliveries
    for delivery in held:
        await delivery.nak(0.2)
    assert await bus.work.remove(subjects.chunk(names[3]))
    assert not await bus.work.remove(subjects.chunk(names[3]))
    again: list[Delivery] = []
    while len(again) < 3:
        again += (await puller.wait(bus.work.stream, subjects.job_consumer(UID), 2.0, asyncio.Event())).deliveries
    await puller.stop()
    assert {delivery.subject for delivery in again} == {subjects.chunk(name) for name in names[:3]}


async def test_a_clean_up_that_comes_late_takes_nothing_of_the_job_that_has_begun_since(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An Idempotency-Key that was an older job's: what that one left goes, whenever it goes; what is newer stays."""
    await bus.results.write(UID, Span(0, 4), result(*range(4)))  # left by the older one
    forget, late = bus.results.forget, asyncio.Event()

    async def slowly(uid: str, until: int) -> int:
        await late.wait()
        return await forget(uid, until)

    monkeypatch.setattr(bus.results, "forget", slowly)
    submitting = asyncio.create_task(submit(bus, UID, make_tag().essential, named=True))
    while await bus.tags.get(UID) is None:
        await bus.ping()
    await bus.results.write(UID, Span(4, 10), result(*range(6)))  # by the new one, which another request has let begin
    late.set()
    await submitting
    assert await bus.results.stored(UID) == [Span(4, 10)]
