"""What an adapter is. Subclass `Upstream`, override `poll` and whatever else the API needs, raise `cuscuta.errors`.

An adapter instance serves all seats of a process. Everything that belongs to an account lives in its `Session`. The
kernel keeps the pace, bounds every call in time, retries, and decides by the type of the error alone what follows.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from cuscuta.model import Item
from worker.pace import Quota


class Capacity(Struct, frozen=True, kw_only=True):
    """What the upstream allows each account.

    `rate_per_s` calls a second (None: unknown, found out by trying; `math.inf`: no limit at all), `concurrency` polls
    at once, `follow_slots` targets followed at once, `targets_per_poll` targets that one poll answers for, `repeatable`
    whether polling an item twice is harmless.
    """

    rate_per_s: float | None = None
    concurrency: int = 1
    follow_slots: int = 1
    targets_per_poll: int = 1
    repeatable: bool = True


class Session(Struct, kw_only=True):
    """One account at the upstream. `log_in` fills `token` and, if there is one, `user_id`; both are kept for the next
    holder. `state` is the adapter's own and ends with the lease. An adapter that reads in an answer what is left of the
    allowance (`worker.upstream.ratelimit`) says so in `quota`."""

    email: str
    password: str
    user_id: str | None = None
    token: str | None = None
    state: dict[str, Any] = {}
    quota: Quota | None = None

    def __repr__(self) -> str:
        return "Session(***)"


class Target(Struct, frozen=True):
    """What a job asks about; `follow_id` is what `follow` returned for it with this account."""

    name: str
    follow_id: str | None = None


class Upstream:
    """The base of all adapters."""

    name = "upstream"
    capacity = Capacity()
    needs_login = False
    needs_follow = False

    async def open(self) -> None:
        """Called once before anything else; make clients here."""

    async def close(self) -> None:
        """Called once at the end."""

    async def reach(self) -> None:
        """Called now and then, without an account: raises if nothing answers at the upstream's address.

        NotImplementedError, as here, means that nobody knows.
        """
        raise NotImplementedError

    async def log_in(self, session: Session) -> None:
        """Get a token for `session.email` and `session.password`. Raises AuthenticationFailed if they are wrong."""

    async def reset(self, session: Session) -> None:
        """Called before the first follow of a lease: drop what an earlier holder, who may have died, still follows."""

    async def follow(self, session: Session, target: str) -> str | None:
        """Make a target visible to the account; must be harmless if it is already. Raises TargetNotFound."""
        return None

    async def poll(self, session: Session, target: Target, item: Item) -> Any:
        """The target's value for an item, as anything that JSON can say."""
        raise NotImplementedError  # an adapter without poll is a bug that the first chunk reports

    async def poll_shared(self, session: Session, targets: Sequence[Target], item: Item) -> Sequence[Any]:
        """One poll that answers for several followed targets: for each, in order, its value or an UpstreamError.

        Needed, instead of `poll`, if `targets_per_poll` is above 1. What it raises concerns all of them.
        """
        raise NotImplementedError

    async def unfollow(self, session: Session, target: Target) -> None:
        """Undo `follow`; its failure is ignored."""
