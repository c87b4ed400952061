"""The mark of whoever may accept jobs. It stands in a job's tag, and nobody without the key can make one.

Workers write tags, because they settle jobs. So that a worker that was taken over cannot submit any, admission lets out
only what bears the seal of entry or of the reaper, who alone have the keys.
"""

import hashlib
import hmac
from collections.abc import Sequence

from msgspec.structs import replace

from cuscuta.codec import encode
from cuscuta.model import Essential, JobTag


def sealed(keys: Sequence[str], uid: str, essential: Essential) -> Essential:
    """What a job is, with a seal for this uid by the newest key; as it is if there is no key."""
    return replace(essential, seal=_made(keys[0], uid, essential)) if keys else essential


def genuine(keys: Sequence[str], tag: JobTag) -> bool:
    """Whether a tag says what was accepted under its uid; without keys everything is taken."""
    seal = tag.essential.seal
    return not keys or any(hmac.compare_digest(seal, _made(key, tag.uid, tag.essential)) for key in keys)


def _made(key: str, uid: str, essential: Essential) -> str:
    said = uid.encode() + b"\n" + encode(replace(essential, seal=""))
    return hmac.new(key.encode(), said, hashlib.sha256).hexdigest()
