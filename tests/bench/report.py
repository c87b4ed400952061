"""`python -m tests.bench.report`: the plots and the table of docs/benchmarks.md, from the recorded results.

Needs matplotlib, which only .venv-peers has. `python -m tests.bench NAME --record` makes the results.
"""

import contextlib
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "benchmarks"
BEGIN, END = "<!-- made by tests.bench.report -->", "<!-- end -->"
Report = dict[str, Any]

mpl.use("svg")
mpl.rcParams.update({"svg.hashsalt": "cuscuta", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})


def load() -> dict[str, Report]:
    return {file.stem: json.loads(file.read_text(), object_hook=_numbered) for file in sorted(RESULTS.glob("*.json"))}


def _numbered(made: dict[str, Any]) -> dict[Any, Any]:
    """Keys that are numbers, such as how many seats, as numbers."""
    return {int(key) if key.isdigit() else key: value for key, value in made.items()}


def _save(figure: Any, name: str) -> None:
    figure.tight_layout()
    figure.savefig(RESULTS / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)


def plot_policies(found: dict[str, Report]) -> None:
    """Makespan over ideal, peers beside it where they were measured."""
    ways = dict(found["policies"]["seconds_over_ideal"])
    for name, ratio in found.get("peers", {}).get("seconds_over_ideal", {}).items():
        ways[f"{name} (peers' run)"] = ratio
    figure, axes = plt.subplots(figsize=(7, 0.35 * len(ways) + 1))
    names = list(ways)[::-1]
    bars = axes.barh(names, [ways[name] for name in names], color=["#999" if "tasks" in n else "#2a7" for n in names])
    axes.bar_label(bars, fmt="%.3f", padding=2)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("seconds / ideal (600 items, 8 accounts of 25/s, two of them 60 ms a poll)")
    _save(figure, "policies")


def plot_lines(name: str, points: dict[str, list[tuple[float, float]]], x: str, y: str, *, log: bool = False) -> None:
    figure, axes = plt.subplots(figsize=(6, 3.4))
    for label, line in points.items():
        axes.plot([p[0] for p in line], [p[1] for p in line], marker="o", markersize=3, label=label)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if log:
        axes.set_xscale("symlog")
    axes.set_ylim(bottom=0)
    if len(points) > 1:
        axes.legend(frameon=False)
    _save(figure, name)


def _pairs(values: dict[str, float]) -> list[tuple[float, float]]:
    return [(float(x), y) for x, y in values.items()]


def plots(found: dict[str, Report]) -> None:
    plot_policies(found)
    ups = _pairs(found["seats"]["speed_up"])
    plot_lines("seats", {"measured": ups, "ideal": [(x, x) for x, _ in ups]}, "seats", "times one seat")
    shared = found["shared"]
    lines = {
        "shared": _pairs(shared["polls_per_job"]),
        "not shared": [(float(x), 1.0) for x in shared["polls_per_job"]],
    }
    plot_lines("shared", lines, "jobs at once", "polls / catalogue, for each job")
    chunks = found["chunks"]
    figure, axes = plt.subplots(figsize=(5, 1.6))
    bars = axes.barh(["raw loop", "cuscuta"], [chunks["raw_per_s"], chunks["chunks_per_s"]], color=["#999", "#2a7"])
    axes.bar_label(bars, fmt="%.0f", padding=2)
    axes.set_xlabel("one-item chunks a second")
    _save(figure, "chunks")
    if latency := found.get("latency"):
        lines = {
            f"{label} {q}": [(float(n), spread[q]) for n, spread in latency[key].items()]
            for key, label in (("submit_ms", "submit"), ("high_first_poll_ms", "first poll, high priority"))
            for q in ("p50", "p99")
        }
        plot_lines("latency", lines, "jobs waiting", "ms", log=True)
    if memory := found.get("memory"):
        plot_lines("memory", {"worker": [(x, y) for x, y in memory["samples_mb"]]}, "jobs done", "RSS, MB")


def _peer(name: str) -> str:
    return " / ".join(f"{{peers[seconds_over_ideal][{name}, tasks of {size}]}}" for size in (10, 1))


ROWS: list[tuple[str, str, str]] = [  # work, aim, and where the figure is: a format over all results
    ("one job, 600 items, 8 accounts of 25/s: time / ideal", "≤ 1.03", "{policies[seconds_over_ideal][+hedging]}"),
    ("· messages / those of one-item tasks", "≤ 0.1", "{policies[messages_over_one_item]}"),
    ("· Celery, the same work: tasks of 10 / of 1", "1.13 / 1.02", _peer("celery")),
    ("· arq", "1.69 / 1.12", _peer("arq")),
    ("· taskiq-nats", "1.18 / 1.02", _peer("taskiq-nats")),
    ("no allowance, two of 8 accounts 3× slower", "≤ 1.03", "{slow-seat[seconds_over_ideal][two_3x][cuscuta]}"),
    ("no allowance, one of 8 accounts 10× slower", "≤ 1.10", "{slow-seat[seconds_over_ideal][one_10x][cuscuta]}"),
    ("· polls beyond one for each item, at most", "≤ 0.03", "{slow-seat[extra_polls]}"),
    ("nine minutes with 16 accounts: times faster", "≥ 15.4", "{nine-minutes[times_faster]}"),
    ("1 → 16 seats: times faster", "≥ 15", "{seats[speed_up][16]}"),
    ("10 jobs at once: polls / catalogue", "≤ 1.25", "{shared[polls_over_catalogue][10]}"),
    ("one-item chunks a second", "≥ 12,000", "{chunks[chunks_per_s]:,}"),
    ("· share of the raw loop", "≥ 0.3", "{chunks[share_of_raw]}"),
    ("one item, submit → result, ms: p50 / p99", "≤ 12 / 40",
     "{latency[one_item_ms][p50]} / {latency[one_item_ms][p99]}"),
    ("high priority into 10,000 waiting jobs, first poll, ms: p99", "≤ 250",
     "{latency[high_first_poll_ms][10000][p99]}"),
    ("unknown allowance, share used: upstream says Retry-After / is silent", "≥ 0.95",
     "{pace[share_of_allowance][retry_after]} / {pace[share_of_allowance][silent]}"),
    ("· share of answers that are 429", "≤ 0.01", "{pace[share_of_429][retry_after]} / {pace[share_of_429][silent]}"),
    ("1,000 jobs, each with a key of its own: time / without keys", "≤ 1.05", "{lanes[keys_over_none]}"),
    ("a submit, ms p50: lane with 10,000 waiting / without", "alike",
     "{lanes[long][submit_ms][p50]} / {lanes[short][submit_ms][p50]}"),
    ("from one job's end to the next one's admission, ms p50: the same lanes", "alike",
     "{lanes[long][settle_ms][p50]} / {lanes[short][settle_ms][p50]}"),
    ("worker RSS, MB: idle → after 10,000 jobs (end / a tenth of the way)", "≤ 70, ± 5 %",
     "{memory[idle_mb]} → {memory[after_mb]} ({memory[after_over_a_tenth]})"),
    ("traced to a collector: chunks a second / with all telemetry off", "≥ 0.9", "{tracing[share_of_off][traces]}"),
    ("process start → ready, s: entry / worker", "≤ 2", "{start[entry_ready_s]} / {start[worker_ready_s]}"),
    ("a worker that comes during a job, ready → first poll, s", "≤ 1", "{start[first_poll_after_ready_s]}"),
    ("1,000 seats, 1,000,000 jobs, decisions alone: makespan / ideal", "≤ 1.03", "{scale[over_ideal]}"),
]  # fmt: skip


def table(found: dict[str, Report]) -> str:
    """Aim beside figure; a benchmark that was not recorded has no row."""
    lines = ["| work | aim, or elsewhere | here |", "| --- | --- | --- |"]
    for work, aim, figure in ROWS:
        with contextlib.suppress(KeyError):
            lines.append(f"| {work} | {aim} | {figure.format_map(found)} |")
    return "\n".join(lines)


def main() -> None:
    found = load()
    plots(found)
    page = DOCS / "benchmarks.md"
    head, _, rest = page.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    page.write_text(f"{head}{BEGIN}\n\n{table(found)}\n\n{END}{tail}")


if __name__ == "__main__":
    main()
