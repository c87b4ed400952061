"""What the fault tests found, and docs/faults.md, which `make faults` makes of it."""

import json
import os
import statistics
import sys
from collections import defaultdict
from pathlib import Path

from msgspec import Struct
from msgspec import json as msgjson

_FOLDER = "CUSCUTA_FAULTS_REPORT"
PAGE = Path(__file__).parents[2] / "docs" / "faults.md"


class Trial(Struct, frozen=True):
    """One fault at one moment. `again`: polls beyond one for each item; `seconds` from the fault until all was done."""

    fault: str
    moment: str
    side: str
    lost: int
    doubled: int
    again: int
    seconds: float


def record(trial: Trial) -> None:
    """Keep a trial for the page, if one is to be made."""
    if folder := os.environ.get(_FOLDER):
        with (Path(folder) / f"{os.getpid()}.jsonl").open("ab") as file:
            file.write(msgjson.encode(trial) + b"\n")


def page(trials: list[Trial], when: str) -> str:
    """docs/faults.md; `when` says which code was run."""
    rows: dict[tuple[str, str], list[Trial]] = defaultdict(list)
    for trial in trials:
        rows[trial.moment, trial.fault].append(trial)
    seconds = sorted(trial.seconds for trial in trials)
    lines = [
        "# Faults",
        "",
        f"Made by `make faults` ({when}); do not edit. What every column means stands at the end of the page.",
        "",
        f"{len(trials)} faults at {len({t.moment for t in trials})} moments: {sum(t.lost for t in trials)} items lost,"
        f" {sum(t.doubled for t in trials)} stored twice, {sum(t.again for t in trials)} polled once more than needed.",
        f"Until everything was done: median {statistics.median(seconds):.1f} s, longest {seconds[-1]:.1f} s.",
        "",
        "| fault | moment | tried | lost | doubled | polled again | seconds to recover (longest) |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (moment, fault), found in sorted(rows.items(), key=lambda row: (row[0][1], row[0][0])):
        counts = [len(found), *(sum(getattr(t, name) for t in found) for name in ("lost", "doubled", "again"))]
        cells = " | ".join(map(str, counts))
        lines.append(f"| {fault} | {moment} | {cells} | {max(t.seconds for t in found):.1f} |")
    return "\n".join([*lines, "", *_MEANING])


_MEANING = [
    "Each row is two trials or more: the fault strikes once before the message that the moment is named after reaches",
    "its server, and once after it was done there but before the answer is on its way back (`tests/support/proxy.py`",
    "holds that connection meanwhile). Both jobs of a lane and a follow-up run through it, on real processes.",
    "",
    "- **lost**: items of a completed job that are missing or wrong. **doubled**: items that are stored twice.",
    "- **polled again**: polls beyond one for each item. What was polled but not yet stored when the fault struck has",
    "  to be; what was stored is not.",
    "- **seconds to recover**: from the fault until everything that was submitted had ended and nothing was left on",
    "  the bus, with ack-wait 3 s and leases of 6 s (`tests/support/quick.py`); processes that were killed are started",
    "  again at once, which takes 1 to 2 s. `SIGSTOP 7 s` and `2 s slow` include the 7 and 6 s that they last.",
    "",
]


def main() -> None:
    """Write the page from the folder that a run has filled."""
    folder, when = Path(sys.argv[1]), sys.argv[2]
    lines = [line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]
    PAGE.write_text(page([Trial(**json.loads(line)) for line in lines], when))
    print(f"{PAGE.name}: {len(lines)} trials")


if __name__ == "__main__":
    main()
