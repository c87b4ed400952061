"""Putting work back into the queue: the next incarnation first, then the old one's acknowledgement."""

from cuscuta import subjects
from cuscuta.errors import BrokerRefused, BrokerUnavailable
from cuscuta.model import ChunkBody, encode
from cuscuta.spans import Span
from cuscuta.subjects import ChunkName
from worker.kit import Kit
from worker.pieces import Piece


async def put_back(kit: Kit, piece: Piece, span: Span, attempts: int) -> None:
    """Put (the rest of) a chunk back into the queue as its next incarnation, then acknowledge the old one."""
    fresh = subjects.chunk(ChunkName(piece.name.uid, span, piece.name.n + 1))
    again = ChunkBody(piece.body.uid, piece.body.catalogue, piece.body.target, attempts)
    traceparent = piece.hold.delivery.headers.get("traceparent")
    headers = {"traceparent": traceparent} if traceparent else None
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
