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

# What a seal of the first kind covers. Named one by one and with defaults written out, so that a version that knows
# more fields, or has other defaults, comes to the same seal. A field that is to be covered too makes a second kind.
_FIRST = (
    "target", "catalogue", "catalogue_name", "span", "lane", "key", "priority", "policy", "chunk_items", "deadline",
    "start_by", "tolerance", "lane_policy", "unique", "after", "after_when", "labels", "digest", "webhook",
)  # fmt: skip


def sealed(keys: Sequence[str], uid: str, essential: Essential, run_ids: Sequence[str]) -> Essential:
    """What a job is, with a seal for this uid and these runs by the newest key; as it is if there is no key."""
    return replace(essential, seal=_made(keys[0], uid, essential, run_ids)) if keys else essential


def genuine(keys: Sequence[str], tag: JobTag) -> bool:
    """Whether a tag says what was accepted under its uid; without keys everything is taken."""
    seal = tag.essential.seal.encode()
    made = (_made(key, tag.uid, tag.essential, tag.run_ids) for key in keys)
    return not keys or any(hmac.compare_digest(seal, own.encode()) for own in made)


def _made(key: str, uid: str, essential: Essential, run_ids: Sequence[str]) -> str:
    said = encode([uid, list(run_ids), _said(essential)])
    return "1:" + hmac.new(key.encode(), said, hashlib.sha256).hexdigest()


def _said(essential: Essential | None) -> list[object] | None:
    if essential is None:
        return None
    own = [getattr(essential, name) for name in _FIRST]
    return [*own, _said(essential.on_success), _said(essential.on_failure)]
