"""What the routes work with, made once in `run`."""

from dataclasses import dataclass
from typing import Any

from litestar.datastructures import State

from cuscuta.broker import Bus
from cuscuta.broker.feed import Feed
from cuscuta.broker.projection import Projection
from cuscuta.clock import Clock
from cuscuta.db import Accounts, Database, Vault
from cuscuta.health import Health
from cuscuta.settings import Settings
from entry.admission import Admission
from entry.fleet import Fleet
from entry.gate import Gate
from entry.history import History
from entry.progress import ProgressCache
from entry.shared import Shared
from entry.waits import Waits


@dataclass(frozen=True)
class Context:
    """Wiring."""

    settings: Settings
    clock: Clock
    bus: Bus
    database: Database
    accounts: Accounts
    vault: Vault
    gate: Gate
    projection: Projection
    health: Health
    admission: Admission
    waits: Waits
    feed: Feed
    progress: ProgressCache
    history: History
    fleet: Fleet
    shared: Shared[Any]


def provide_context(state: State) -> Context:
    """The context for a route's `context` argument."""
    found = state["context"]
    assert isinstance(found, Context)  # noqa: S101 - put there by app.make
    return found
