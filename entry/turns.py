"""Whose job is admitted next: priorities take their turns, and of a priority the group that has least. No I/O."""

from collections import Counter
from collections.abc import Iterable, Sequence

from cuscuta import limits
from cuscuta.model import Priority

SHARES = {Priority.HIGH: 12, Priority.NORMAL: 3, Priority.LOW: 1}  # of 16 admissions while all three have a backlog
Queue = tuple[Priority, str]  # jobs of one priority and one group wait in order of submission


def preference(turn: int) -> Sequence[Priority]:
    """Which priorities to try, in order, at the n-th admission: the turn's owner first, then by urgency."""
    place = turn % sum(SHARES.values())
    for priority, share in SHARES.items():
        if place < share:
            return [priority, *(p for p in Priority if p is not priority)]
        place -= share
    return list(Priority)


class Turns:
    """What one replica knows of groups: which may have jobs that wait, and how many active ones each has.

    It is a second old at most, which costs fairness for a moment and nothing else: what waits is read from the leader.
    """

    def __init__(self) -> None:
        self._turn = 0
        self._waiting: dict[Priority, set[str]] = {priority: set() for priority in Priority}
        self._active: dict[str, Queue] = {}  # by uid
        self._served: dict[str, int] = {}  # when each group had its last turn

    def waits(self, queue: Queue) -> None:
        """A job of a group waits."""
        self._waiting[queue[0]].add(queue[1])

    def asked(self, queue: Queue) -> None:
        """A queue is being looked at: unless it gives a job, or one is heard of meanwhile, none waits there."""
        self._waiting[queue[0]].discard(queue[1])

    def began(self, uid: str, queue: Queue) -> None:
        """A job is active, or about to be."""
        self._active[uid] = queue

    def ended(self, uid: str) -> None:
        """A job is not active any more."""
        self._active.pop(uid, None)

    def served(self, group: str) -> None:
        """A group had a turn."""
        self._turn += 1
        self._served[group] = self._turn

    def room(self, queue: Queue, active: int, most: int) -> bool:
        """Whether there is a place for a job beside so many active ones.

        A tenth of all is for high priority, and a tenth of the rest for groups that have no active job. Where high
        priority has more than its tenth, places that become free are for all again, in turn.
        """
        priority, group = queue
        if priority is Priority.HIGH or active >= most:
            return active < most
        newcomer = all(group != other for _, other in self._active.values())
        kept = most // limits.URGENT_PLACES + (0 if newcomer else most // limits.NEWCOMER_PLACES)
        return sum(one is not Priority.HIGH for one, _ in self._active.values()) < most - kept

    def see(self, waiting: Iterable[Queue], active: Iterable[tuple[str, Queue]]) -> None:
        """More queues in which a job may wait, and the active jobs with their groups."""
        self._active = dict(active)
        for queue in waiting:
            self.waits(queue)
        active_groups = {group for _, group in self._active.values()}
        known = active_groups | {group for groups in self._waiting.values() for group in groups}
        self._served = {group: turn for group, turn in self._served.items() if group in known}

    def order(self) -> list[Queue]:
        """The queues to take the next job from, best first."""
        active = Counter(group for _, group in self._active.values())
        return [
            (priority, group)
            for priority in preference(self._turn)
            for group in sorted(self._waiting[priority], key=lambda g: (active[g], self._served.get(g, 0), g))
        ]
