"""Contents that no name means any more and no kept job is about are removed."""

from cuscuta import limits
from reaper.duty import Patience, Scene

EVERY_ROUNDS = 10  # nothing hurries: a content in nobody's use costs disk only


class UnusedCatalogues:
    """A catalogue put again under its name leaves its old content behind; the last job over it lets it go."""

    name = "unused-catalogues"

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._turn = 0

    async def round(self, scene: Scene) -> int:
        """Find contents in nobody's use, and remove those that have been so for long enough."""
        self._turn += 1
        if self._turn % EVERY_ROUNDS != 1:
            return 0
        catalogues = scene.bus.catalogues
        stored = await catalogues.contents()  # before the names: a content is stored before a name means it
        named = {name.hash for name in await catalogues.names()}
        unused = self._patience.over(stored - named - scene.projection.catalogues())
        if unused:  # a name may have come to mean one of them a moment ago
            unused -= {name.hash for name in await catalogues.names()}
        for content in list(unused)[: limits.DUTY_BATCH]:
            await catalogues.remove(content)
        return len(unused)
