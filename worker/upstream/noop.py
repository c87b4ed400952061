"""An upstream that answers at once, in process: for benchmarks of everything else."""

import math
from typing import Any

from cuscuta.model import Item
from worker.upstream.protocol import Capacity, Session, Target, Upstream


class Noop(Upstream):
    """Every item's value is its id."""

    name = "noop"
    capacity = Capacity(rate_per_s=math.inf, follow_slots=1_000)

    async def reach(self) -> None:
        """It is here."""

    async def poll(self, session: Session, target: Target, item: Item) -> Any:
        """The id."""
        return item.id
