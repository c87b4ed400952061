"""Accounts whose lease is over go back to Idle."""

from cuscuta import limits
from reaper.duty import Scene


class ExpiredLeases:
    """A holder that died or stalled has stopped trusting its lease before the database ends it."""

    name = "expired-leases"

    async def round(self, scene: Scene) -> int:
        """Return what expired."""
        expired = await scene.leases.expire(limits.DUTY_BATCH)
        for account, owner in expired:
            scene.log.warning("a lease expired", account=account, owner=owner)
        return len(expired)
