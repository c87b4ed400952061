"""The dashboard's API as it is described is the one that there is."""

import json
import re
from pathlib import Path

from entry.app import ROUTES
from entry.dashboard import API, schema

DOCS = Path(__file__).parents[2] / "docs"


def test_the_schema_is_that_of_the_answers() -> None:
    """`python -m entry.dashboard > docs/dashboard-api.schema.json` writes it."""
    assert json.loads((DOCS / "dashboard-api.schema.json").read_text()) == json.loads(json.dumps(schema()))


def test_the_page_names_every_route_and_no_other() -> None:
    text = (DOCS / "dashboard-api.md").read_text()
    named = set(re.findall(r"^\| `GET (/[^`? ]*)", text, re.M))
    there = {
        path.replace(":str", "") for route in ROUTES for path in route.paths if re.match("/(deployment|fleet)", path)
    }
    assert named == there
    assert f"version {API}." in text
