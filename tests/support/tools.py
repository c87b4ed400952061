"""Programs that no Python package brings: found, or the test is skipped and says how to get them. In CI nothing is."""

import os
import shutil
from pathlib import Path

import pytest

PLACES = (Path(__file__).parents[2] / ".tools", Path.home() / "go" / "bin")


def find(name: str) -> str | None:
    """Where a program is."""
    return shutil.which(name) or next(
        (found for place in PLACES if (found := shutil.which(name, path=str(place)))), None
    )


def needs(name: str, how: str) -> pytest.MarkDecorator:
    """Skip unless a program is there. `.ci/run` installs them all and sets CUSCUTA_NO_SKIPS."""
    missing = find(name) is None and not os.environ.get("CUSCUTA_NO_SKIPS")
    return pytest.mark.skipif(missing, reason=f"no {name}: {how}; .ci/run does")
