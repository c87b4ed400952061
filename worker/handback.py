"""Putting work back into the queue, the next incarnation before the old one's end; or giving it up, with a grave."""

import contextlib

from cuscuta import subjects, telemetry
from cuscuta.broker import Delivery
from cuscuta.codec import encode
from cuscuta.errors import BrokerRefused, BrokerUnavailable
from cuscuta.model import ChunkBody, DeadChunk
from cuscuta.spans import Span
from cuscuta.subjects import ChunkName
from worker import traced
from worker.gaps import unclaimed
from worker.kit import Kit
from worker.pieces import Piece


async def put_back(kit: Kit, piece: Piece, span: Span, attempts: int) -> None:
    """Put (the rest of) a chunk back into the queue as its next incarnation, then acknowledge the old one."""
    fresh = subjects.chunk(ChunkName(piece.name.uid, span, piece.name.n + 1))
    again = ChunkBody(piece.body.uid, piece.body.catalogue, piece.body.target, attempts)
    headers = telemetry.handing_on(traced.above(kit.jobs, piece), telemetry.traceparent(), "put back")
    while piece.hold.trusted():  # past that it is somebody else's, or will be
        try:
            await kit.bus.work.put(fresh, encode(again), headers)
        except BrokerUnavailable:
            await kit.bus.clock.sleep(0.2)
            continue
        except BrokerRefused as error:
            kit.log.error("a chunk could not be put back; it comes again", uid=piece.name.uid, cause=str(error))
            await piece.hold.delivery.nak(1.0)
            break
        await piece.hold.delivery.ack()
        await kit.bus.announce("chunk", piece.name.uid)
        break
    kit.holds.drop(piece.hold)


async def give_up(kit: Kit, piece: Piece, reason: str) -> Delivery:
    """File what of a chunk nobody has done or will do under the dead chunks, then end the message with the reason."""
    for gap in await unclaimed(kit, piece.name):
        dead = DeadChunk(piece.name.uid, gap, reason, piece.attempts + 1, kit.bus.clock.wall(), kit.name)
        await kit.bus.broker.insist(lambda: kit.bus.bury(dead))  # noqa: B023 - awaited before the loop goes on
    try:
        await piece.hold.delivery.term(reason[:200])
    except BrokerUnavailable as error:
        kit.log.debug("a term was not heard; the chunk comes again and is given up again", cause=str(error))
    kit.holds.drop(piece.hold)
    return piece.hold.delivery


async def bury_malformed(kit: Kit, delivery: Delivery, reason: str) -> None:
    """File a message that is no chunk, then end it."""
    uid = subjects.parse_uid(delivery.subject)
    kit.log.error("a message in the work queue is no chunk", subject=delivery.subject, cause=reason)
    dead = DeadChunk(uid, None, f"malformed: {reason}", delivery.delivered, kit.bus.clock.wall(), kit.name)
    await kit.bus.broker.insist(lambda: kit.bus.bury(dead, delivery.sequence))
    with contextlib.suppress(BrokerUnavailable):
        await delivery.term("malformed")
    if job := kit.jobs.get(uid):
        job.unsettled = delivery
