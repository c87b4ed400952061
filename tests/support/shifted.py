"""A part of Cuscuta on a box whose clock is wrong: `python -m tests.support.shifted SECONDS MODULE`."""

import runpy
import sys
import time
from datetime import UTC, datetime, timedelta

from cuscuta.clock import SystemClock


def main() -> None:
    """Shift what people and records see; what durations are measured by goes on as it is."""
    by, module = float(sys.argv[1]), sys.argv[2]
    true_time = time.time
    time.time = lambda: true_time() + by
    SystemClock.wall = lambda self: datetime.now(UTC) + timedelta(seconds=by)  # type: ignore[method-assign]
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__")


if __name__ == "__main__":
    main()
