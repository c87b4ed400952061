"""From the setting `upstream` to an adapter: a TOML file, `module:Class`, or the name of an entry point."""

import difflib
import importlib
from importlib.metadata import entry_points
from pathlib import Path

import msgspec

from cuscuta.errors import CuscutaError
from worker.upstream.declarative import Declarative
from worker.upstream.protocol import Upstream
from worker.upstream.schema import read

GROUP = "cuscuta.upstreams"


class AdapterError(CuscutaError):
    """The setting names no usable adapter; the message says why and what would work."""


def load(name: str, url: str = "") -> Upstream:
    """The adapter that the setting names; `url` replaces a declarative one's base_url.

    Raises AdapterError, or AdapterFileError for a fault in a TOML file.
    """
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise AdapterError(f"upstream: there is no file {name}. Set CUSCUTA_UPSTREAM to an adapter's TOML file.")
        file = read(path)
        return Declarative(msgspec.structs.replace(file, base_url=url) if url else file)
    made = _by_path(name) if ":" in name else _by_entry_point(name)
    if not (isinstance(made, type) and issubclass(made, Upstream)):
        raise AdapterError(f"upstream: {name} is no subclass of worker.upstream.Upstream; docs/upstreams.md shows one")
    try:
        adapter = made()
    except Exception as error:
        raise AdapterError(f"upstream: {name}() raised {type(error).__name__}: {error}") from error
    if adapter.capacity.targets_per_poll > 1 and made.poll_shared is Upstream.poll_shared:
        raise AdapterError(f"upstream: {name} has targets_per_poll above 1, so it needs a method poll_shared")
    return adapter


def _by_path(name: str) -> object:
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise AdapterError(f"upstream: cannot import {module}: {error}. Is it on PYTHONPATH?") from error
    except AttributeError as error:
        raise AdapterError(f"upstream: {module} has no {attribute}; write module:Class") from error
    except Exception as error:
        raise AdapterError(f"upstream: importing {module} raised {type(error).__name__}: {error}") from error


def _by_entry_point(name: str) -> object:
    points = {point.name: point for point in entry_points(group=GROUP)}
    if name not in points:
        near = difflib.get_close_matches(name, points, n=1)
        hint = f" Did you mean {near[0]}?" if near else f" Known: {', '.join(sorted(points))}."
        raise AdapterError(f"upstream: {name!r} is no TOML file, no module:Class and no entry point of {GROUP}.{hint}")
    return points[name].load()
