"""The bus: the only package that knows nats-py.

`connection` speaks to NATS and translates its errors once; `batch`, `pull` and `kv` are what nats-py lacks or does too
slowly; `assets` declares streams and buckets; the stores (`tags`, `results`, `catalogues`) and `work` give
the assets types; `submit`, `activate` and `settle` are the steps of a job's way that several services share, each safe
to repeat at any line.
"""

from cuscuta.broker.bus import Bus
from cuscuta.broker.connection import Broker
from cuscuta.broker.pull import Delivery, Puller

__all__ = ["Broker", "Bus", "Delivery", "Puller"]
