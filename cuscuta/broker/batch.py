"""Atomic batch publish: all messages are stored or none. nats-py 2.16 knows only the headers' names [nats §1, §2]."""

import secrets

import msgspec

from cuscuta.broker.connection import Broker
from cuscuta.broker.translation import refused, translated
from cuscuta.limits import BATCH_MESSAGES

Message = tuple[str, bytes, dict[str, str]]


async def publish_batch(broker: Broker, messages: list[Message]) -> None:
    """Store up to BATCH_MESSAGES messages of one stream, all or none.

    Raises what `Broker.publish` raises; Standing if one of the subjects already stands in the queue. After
    BrokerUnavailable the batch may or may not be stored: every caller must be safe to repeat.
    """
    if not 0 < len(messages) <= BATCH_MESSAGES:
        raise ValueError(f"a batch has 1 to {BATCH_MESSAGES} messages, not {len(messages)}")
    if len(messages) == 1:
        subject, payload, headers = messages[0]
        await broker.publish(subject, payload, headers or None)
        return
    with translated("batch"):
        await _publish(broker, messages)


async def _publish(broker: Broker, messages: list[Message]) -> None:
    name, last = secrets.token_hex(12), len(messages)
    for n, (subject, payload, extra) in enumerate(messages, 1):
        headers = {**extra, "Nats-Batch-Id": name, "Nats-Batch-Sequence": str(n)}
        if n == last:
            headers["Nats-Batch-Commit"] = "1"
        if n in (1, last):
            answer = (await broker.request(subject, payload, headers)).data
            said = msgspec.json.decode(answer) if answer else {}
            if error := said.get("error"):
                raise refused(error)
        else:
            await broker.nc.publish(subject, payload, headers=headers)
