"""Upstream adapters: the protocol, the loader, the declarative HTTP adapter, and the reference upstream."""

from worker.upstream.protocol import Capacity, Session, Target, Upstream

__all__ = ["Capacity", "Session", "Target", "Upstream"]
