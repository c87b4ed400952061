"""When to leave a NATS server. No I/O.

A node that is cut off from its cluster keeps its clients. It answers what it knows by itself, and leaves unanswered, or
answers with "nobody is there", whatever a stream's leader would have to say: so what counts is each kind of question.
"""

PATIENCE_S = 4.0  # two lost requests in a row
SETTLE_S = 10.0  # after leaving one, the next one is given this long: a whole cluster may be electing leaders
_KINDS = 256


class Deafness:
    """Which kinds of questions a server has left unanswered, and since when."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._left_at = -SETTLE_S

    def answered(self, subject: str) -> None:
        """A question was answered."""
        self._since.pop(kind(subject), None)

    def unanswered(self, subject: str, asked: float, now: float) -> bool:
        """A question was not; whether to leave the server, which is then a new one for all that is known."""
        if len(self._since) >= _KINDS:
            self._since.clear()
        since = self._since.setdefault(kind(subject), asked)
        if now - since < PATIENCE_S or now - self._left_at < SETTLE_S:
            return False
        self.forget()
        self._left_at = now
        return True

    def forget(self) -> None:
        """Another server, or the same anew."""
        self._since.clear()


def kind(subject: str) -> str:
    """Questions that one leader answers: the API call with its stream, the bucket, or the family of subjects."""
    return ".".join(subject.split(".")[: 6 if subject.startswith("$JS.API.") else 2])
