"""How long each part may take from SIGTERM to its end, by what the code itself waits for."""

from cuscuta import telemetry
from cuscuta.broker.connection import Broker
from cuscuta.db import Database
from cuscuta.settings import Settings
from entry.run import DRAIN_S as ENTRY_DRAIN_S

CLOSING_S = Broker.CLOSE_S + Database.CLOSE_S + telemetry.FLUSH_S
DRAIN_S = {
    "entry": 2 * ENTRY_DRAIN_S + CLOSING_S,  # what it admits and fires, then requests under way
    "worker": Settings().halt_grace_s + CLOSING_S,
    "reaper": CLOSING_S,
}
