"""Who should do what at a job's tail: how much to keep of a chunk, what to give away, when to ask twice. Pure.

The aim is that all seats end together. Times are in seconds, work is in items.
"""

from collections.abc import Sequence
from typing import NamedTuple

from cuscuta import limits

_WORTH = 1.0  # of an item's usual time: what giving away must save to be worth its messages
_SOONER = 0.2  # of an item's usual time: how much sooner a second answer must be to be worth asking for
_LEAST_S = 0.01  # and no less than this: publishing, pulling and reading what is stored cost about half of it
_KEEP = 0.7  # of its share a seat keeps when it shrinks a chunk: the next one corrects the estimate
_SLOW = 2.0  # times slower than usual: such a seat shrinks its chunks, and stands back when the end is near
_STUCK = 2.0  # times its own usual time: nobody knows when such a call ends


class Load(NamedTuple):
    """What one seat still has: seconds until the items in flight are answered, items not begun, seconds an item."""

    busy_s: float
    rest: int
    item_s: float

    @property
    def end_s(self) -> float:
        """When it would be done alone."""
        return self.busy_s + self.rest * self.item_s


class Gift(NamedTuple):
    """How many of the items not begun a seat keeps, and among how many others the rest goes."""

    keep: int
    parts: int


def share_out(loads: Sequence[Load], waiters: int, typical_s: float) -> list[Gift]:
    """What each load gives away so that idle seats, which take `typical_s` an item, end with it.

    Each waiter goes to the load that would end last. Nothing is given that saves too little to be worth its messages.
    """
    helpers = [0] * len(loads)
    for _ in range(waiters):
        ends = [(_gift(load, n, typical_s)[1], -i) for i, (load, n) in enumerate(zip(loads, helpers, strict=True))]
        open_ends = [end for end, load, n in zip(ends, loads, helpers, strict=True) if n < load.rest]
        if not open_ends:
            break
        helpers[-max(open_ends)[1]] += 1
    return [_gift(load, n, typical_s)[0] for load, n in zip(loads, helpers, strict=True)]


def _gift(load: Load, helpers: int, typical_s: float) -> tuple[Gift, float]:
    """The best division among a load and its helpers, and when it ends."""
    nothing = Gift(load.rest, 0), load.end_s
    if not helpers or not load.rest:
        return nothing
    together_s = (load.rest + load.busy_s / load.item_s) / (1 / load.item_s + helpers / typical_s)
    keep = max(0, min(load.rest, int((together_s - load.busy_s) / load.item_s)))
    parts = min(helpers, load.rest - keep)
    if not parts:
        return nothing
    end_s = max(load.busy_s + keep * load.item_s, -(-(load.rest - keep) // parts) * typical_s)
    stuck = load.busy_s > load.item_s  # nobody knows for how long: whatever stands behind it goes
    worth_s = _LEAST_S if stuck else max(_LEAST_S, _WORTH * typical_s)
    return (Gift(keep, parts), end_s) if load.end_s - end_s > worth_s else nothing


def fair_size(size: int, left: int, fleet_per_s: float | None, seats: int, item_s: float | None) -> int:
    """How many of a chunk's items a slow seat should keep when `left` items, the chunk included, are not done.

    If its chunk would last beyond the job's end it keeps a part of what it can do until then, and at least one item.
    Others keep all: whoever has too much shares it once somebody waits.
    """
    if not fleet_per_s or not item_s or size <= 1 or item_s <= _SLOW * seats / fleet_per_s:
        return size
    left_s = left / fleet_per_s
    if size * item_s <= left_s + limits.PULL_WORK_S:  # what a seat may hold in any case
        return size
    return max(1, min(size, int(left_s / item_s * _KEEP)))


def stands_back(left: int, fleet_per_s: float | None, seats: int, item_s: float | None) -> bool:
    """Whether a slow seat should let quicker ones have what is left of a job's queue."""
    if not fleet_per_s or not item_s or seats <= 1:
        return False
    return item_s > max(left / fleet_per_s, _SLOW * seats / fleet_per_s)


def ask_twice_in_s(asked_s: float, item_s: float, typical_s: float) -> float:
    """In how many seconds a second seat would have an answer sooner than the one that was asked `asked_s` ago.

    0 or less: now. A seat that is slow as always is overtaken at once; one that is stuck, after twice its usual time.
    """
    if item_s - asked_s > typical_s * (1 + _SOONER):
        return 0.0
    return _STUCK * item_s - asked_s


def worth_following(left: int, item_s: float, follow_s: float) -> bool:
    """Whether following a target costs less than polling the items that a ride can spare its job."""
    return left * item_s > follow_s


def hedges_allowed(items: int) -> int:
    """How many items of a job may be asked for twice."""
    return int(items * limits.HEDGE_SHARE)
