"""The heads of lanes that a process has seen last."""

from typing import NamedTuple

from cuscuta.limits import HEADS_KNOWN


class Found(NamedTuple):
    """A message of the stream, read without a consumer."""

    subject: str
    sequence: int
    data: bytes


class Heads:
    """By lane; the oldest are forgotten. Whoever uses one must see that it still stands."""

    def __init__(self) -> None:
        self._found: dict[str, Found] = {}

    def get(self, lane: str) -> Found | None:
        """The head that was seen last."""
        return self._found.get(lane)

    def put(self, lane: str, head: Found) -> None:
        """A head was seen."""
        self._found.pop(lane, None)
        self._found[lane] = head
        while len(self._found) > HEADS_KNOWN:
            del self._found[next(iter(self._found))]

    def forget(self, lane: str) -> None:
        """It stands no more."""
        self._found.pop(lane, None)
