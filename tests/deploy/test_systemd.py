"""deploy/systemd: read by systemd's own program, and run as far as that goes without systemd."""

import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import MakeHouse
from tests.support import checks
from tests.support.drain import DRAIN_S
from tests.support.house import House
from tests.support.tools import find, needs

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNITS = {"entry": "cuscuta-entry.service", "worker": "cuscuta-worker@.service", "reaper": "cuscuta-reaper.service"}
systemd = needs("systemd-analyze", "apt-get install systemd")
CONFINE = "import ctypes, os, sys; done = ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) == 0"  # PR_SET_MDWE


def analyze(*words: str, folder: Path) -> str:
    done = subprocess.run(
        [str(find("systemd-analyze")), *words], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The units, with the programs of this environment."""
    for file in FOLDER.iterdir():
        text = file.read_text().replace("/opt/cuscuta/bin", str(Path(sys.executable).parent))
        (tmp_path / file.name).write_text(text)
    return tmp_path


@systemd
@pytest.mark.parametrize("unit", [*UNITS.values(), "cuscuta.target"])
def test_systemd_takes_every_unit(here: Path, unit: str) -> None:
    told = analyze("verify", f"./{unit.replace('@.', '@1.')}", folder=here)
    assert not [line for line in told.splitlines() if "cuscuta" in line], told


@systemd
@pytest.mark.parametrize("unit", UNITS.values())
def test_every_service_is_hardened(unit: str) -> None:
    told = analyze("security", "--offline=yes", "--no-pager", unit, folder=FOLDER)
    level = re.search(r"Overall exposure level for \S+: ([0-9.]+)", told)
    assert level, told
    assert float(level[1]) <= 2.0  # of 10


@pytest.mark.parametrize("part", UNITS)
def test_a_service_is_given_the_time_that_its_drain_takes(part: str) -> None:
    text = (FOLDER / UNITS[part]).read_text()
    stop = re.search(r"^TimeoutStopSec=(\d+)$", text, re.M)
    assert stop
    assert int(stop[1]) > DRAIN_S[part]
    assert f"CUSCUTA_CONFIG=/etc/cuscuta/{part}.toml" in text
    assert "Restart=always" in text


async def test_the_parts_work_without_writable_code(make_house: MakeHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """MemoryDenyWriteExecute by the kernel's own switch, which children inherit."""
    before = House.spawn

    def confined(self: House, name: str, argv: list[str], env: dict[str, str]):  # type: ignore[no-untyped-def]
        if name in UNITS:
            argv = [sys.executable, "-c", f"{CONFINE}; assert done; os.execv(sys.argv[1], sys.argv[1:])", *argv]
        return before(self, name, argv, env)

    if subprocess.run([sys.executable, "-c", f"{CONFINE}; sys.exit(not done)"], check=False).returncode:
        version = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
        assert version < (6, 3), "the kernel has the switch and does not take it"
        pytest.skip(f"this kernel ({platform.release()}) is older than 6.3, with which the switch came")
    monkeypatch.setattr(House, "spawn", confined)
    h = await make_house()
    await h.upstream(accounts=2, latency_ms=5)
    await h.entry()
    await h.reaper()
    await h.worker(seats="2")
    await h.accounts(2)
    items = await h.catalogue(20)
    uid = await h.submit("player 1")
    await h.ended(uid)
    await checks.complete_values(h, uid, "player 1", items)
    parquet = await h.http.get(f"/jobs/{uid}/results", headers={"accept": "application/vnd.apache.parquet"})
    assert parquet.content[:4] == b"PAR1"
