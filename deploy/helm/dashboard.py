"""Writes the Grafana dashboard from the table of metrics: `python deploy/helm/dashboard.py`, into the chart's files."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cuscuta.instruments import TABLE, Instrument

FILE = Path(__file__).with_name("cuscuta") / "files" / "dashboard.json"
WIDE, HIGH, COLUMNS = 8, 7, 3
UNITS = {"s": "s", "By": "bytes"}
SCOPE = '{namespace="$namespace"}'
SOURCE = {"type": "prometheus", "uid": "${source}"}


def label(name: str) -> str:
    """An attribute as Prometheus names it."""
    return name.replace(".", "_")


def targets(one: Instrument) -> Iterator[dict[str, Any]]:
    """The queries of an instrument's panel."""
    by = ", ".join(label(name) for name in one.attributes)
    legend = " ".join(f"{{{{{label(name)}}}}}" for name in one.attributes) or one.name
    if one.kind == "counter":
        yield {"expr": f"sum by ({by}) (rate({one.prometheus}{SCOPE}[$__rate_interval]))", "legendFormat": legend}
    elif one.kind == "histogram":
        for quantile, name in ((0.5, "median"), (0.99, "99 %")):
            rate = f"sum by (le) (rate({one.prometheus}_bucket{SCOPE}[$__rate_interval]))"
            yield {"expr": f"histogram_quantile({quantile}, {rate})", "legendFormat": name}
    elif one.part == "entry":  # every replica shows the same
        yield {"expr": f"max by ({by}) ({one.prometheus}{SCOPE})", "legendFormat": legend}
    else:
        yield {"expr": f"sum by ({by}) ({one.prometheus}{SCOPE})", "legendFormat": legend}


def panels() -> Iterator[dict[str, Any]]:
    """A row for each part, a panel for each instrument."""
    y = number = 0
    for part in ("entry", "worker", "reaper", "all"):
        number += 1
        yield {"id": number, "type": "row", "title": part, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}, "panels": []}
        y += 1
        ours = [one for one in TABLE if one.part == part]
        for i, one in enumerate(ours):
            number += 1
            unit = UNITS.get(one.unit, "short") if one.kind != "counter" else "cps"
            yield {
                "id": number,
                "type": "timeseries",
                "title": one.meaning,
                "description": one.name,
                "datasource": SOURCE,
                "gridPos": {"x": i % COLUMNS * WIDE, "y": y + i // COLUMNS * HIGH, "w": WIDE, "h": HIGH},
                "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                "targets": [
                    {"refId": chr(65 + n), "datasource": SOURCE, **target} for n, target in enumerate(targets(one))
                ],
            }
        y += -(-len(ours) // COLUMNS) * HIGH


def dashboard() -> dict[str, Any]:
    """The whole of it."""
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    query = "label_values(cuscuta_ready, namespace)"
    namespace = {"name": "namespace", "type": "query", "datasource": SOURCE, "query": query, "refresh": 2}
    return {
        "uid": "cuscuta",
        "title": "Cuscuta",
        "tags": ["cuscuta"],
        "schemaVersion": 39,
        "refresh": "15s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [source, namespace]},
        "panels": list(panels()),
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(dashboard(), indent=1) + "\n")
