"""Results outlive their job's tag by a moment: when retention has let the tag expire, its results go too."""

from cuscuta import limits
from reaper.duty import Patience, Scene

EVERY_ROUNDS = 10  # it lists every result's key, so it looks less often than the others


class Retention:
    """Removes results without a tag."""

    name = "retention"

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._turn = 0

    async def round(self, scene: Scene) -> int:
        """Find jobs that have results and no tag, and purge them."""
        self._turn += 1
        if self._turn % EVERY_ROUNDS != 1:
            return 0
        suspects = {uid for uid in await scene.bus.results.jobs() if scene.projection.get(uid) is None}
        mended = 0
        for uid in list(self._patience.over(suspects))[: limits.DUTY_BATCH]:
            before = await scene.bus.results.revision()
            if await scene.bus.tags.get(uid) is None:
                mended += await scene.bus.results.forget(uid, before) > 0
        return mended
