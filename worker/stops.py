"""Why a run of chunks may stop before its end, beside what an upstream raises."""

from cuscuta.errors import CuscutaError


class HoldLost(CuscutaError):
    """Ack-wait may have passed: the chunk may be somebody else's by now."""


class Resting(CuscutaError):
    """The upstream asked for a rest that is longer than this chunk."""

    def __init__(self, seconds: float, cause: str) -> None:
        super().__init__(cause)
        self.seconds = seconds
