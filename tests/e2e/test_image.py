"""The image, where no container engine runs: its file is parsed, and its build steps are done one after another.

The base image is not tested here. What the engine would do at a start is done with the kernel's own means: a mount
namespace whose root is read-only, and a user who is nobody.
"""

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from dockerfile_parse import DockerfileParser  # type: ignore[import-untyped]

from cuscuta.embedded.postgres import free_port
from tests.conftest import MakeHouse
from tests.support import checks, users
from tests.support.wait import until

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "image" / "Dockerfile"
NOBODY = 10001
pytestmark = pytest.mark.timeout(600)
# As `docker run --read-only --cap-drop ALL --security-opt no-new-privileges`, but that it may read everything: the
# interpreter of the tests may stand in a folder that is only its owner's.
CONFINED = f"""mount --make-rprivate / && mount -o remount,bind,ro / && exec setpriv --reuid {NOBODY} \\
--regid {NOBODY} --clear-groups --no-new-privs --bounding-set=-all,+dac_read_search --inh-caps=-all,+dac_read_search \\
--ambient-caps=-all,+dac_read_search "$@"
"""


def steps() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DockerfileParser(str(FILE), fileobj=None).structure
    return [step for step in found if step["instruction"] != "COMMENT"]


def stages() -> list[list[dict[str, Any]]]:
    parts: list[list[dict[str, Any]]] = []
    for step in steps():
        if step["instruction"] == "FROM":
            parts.append([])
        if parts:
            parts[-1].append(step)
    return parts


@pytest.fixture(scope="module")
def image() -> Iterator[Path]:
    """The build stage, done in a folder: what it would copy into the image."""
    with tempfile.TemporaryDirectory(prefix="cuscuta-image-") as folder:
        root = Path(folder)
        root.chmod(0o755)  # the image's user must get there
        (root / "src").mkdir()
        _build(root)
        yield root


def _build(root: Path) -> None:
    build, _ = stages()
    for step in build:
        value = step["value"]
        if step["instruction"] == "COPY":
            *sources, to = value.split()
            for source in sources:
                target = root / "src" / to
                into = target / Path(source).name if to.endswith("/") else target
                into.parent.mkdir(parents=True, exist_ok=True)
                subprocess.run(["cp", "-r", ROOT / source, into], check=True)
        elif step["instruction"] == "RUN":
            value = value.replace("--no-cache-dir ", "")  # `make test` has fetched most of it a moment ago
            command = re.sub(r"(?<= )/(build|opt|wheels)\b", rf"{root}/\1", f" {value}").strip()
            command = re.sub(r"(?<![/\w])python -m (venv|pip)", rf"{shlex.quote(sys.executable)} -m \1", command)
            env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
            done = subprocess.run(["sh", "-c", command], cwd=root / "src", capture_output=True, text=True, env=env)
            assert done.returncode == 0, f"{command}\n{done.stdout[-1500:]}{done.stderr[-1500:]}"


def test_its_last_stage_is_small_and_may_nothing() -> None:
    build, last = stages()
    assert all(re.fullmatch(r"python:\$\{PYTHON\}( AS build)?", stage[0]["value"]) for stage in (build, last))
    (pin,) = [step["value"] for step in steps() if step["instruction"] == "ARG"]
    assert re.fullmatch(r"PYTHON=3\.\d+-slim-[a-z]+", pin)
    kinds = [step["instruction"] for step in last]
    assert [step["value"] for step in last if step["instruction"] == "COPY"] == [
        "--from=build /opt/cuscuta /opt/cuscuta"
    ]
    assert kinds[-1] == "CMD"
    (user,) = [step["value"] for step in last if step["instruction"] == "USER"]
    assert user == f"{NOBODY}:{NOBODY}"
    assert kinds.index("USER") > max(i for i, kind in enumerate(kinds) if kind in ("RUN", "COPY"))
    (check,) = [step["value"] for step in last if step["instruction"] == "HEALTHCHECK"]
    assert json.loads(check[check.index("[") :]) == ["python", "-m", "cuscuta.probe"]
    env = DockerfileParser(str(FILE), fileobj=None).envs
    assert env["PYTHONSAFEPATH"] == "1"
    text = FILE.read_text()
    assert text.count("--require-hashes") == 2
    assert not re.search(r"ADD |curl|wget|apt", text)


def test_everything_that_is_installed_has_its_hash() -> None:
    for name in ("requirements.txt", "build.txt"):
        text = (FILE.parent / name).read_text()
        pins = re.findall(r"^([a-z0-9-]+)==", text, re.M | re.I)
        blocks = re.split(r"^(?=[a-zA-Z0-9])", text, flags=re.M)[1:]
        assert len(pins) == len(blocks)
        assert all("--hash=sha256:" in block for block in blocks)
        assert "://" not in re.sub(r"#.*", "", text)


def test_its_contents_are_known(tmp_path: Path) -> None:
    """`make sbom` names every package of the image, with version and hashes."""
    out = tmp_path / "sbom.json"
    make = re.search(r"^\t\$\(BIN\)/(cyclonedx-py .*?[^\\])$", (ROOT / "Makefile").read_text(), re.M | re.S)
    assert make
    command = make[1].replace("\\\n", " ").replace("dist/cuscuta.cdx.json", str(out)).split()
    subprocess.run([str(Path(sys.executable).parent / command[0]), *command[1:]], cwd=ROOT, check=True)
    bom = json.loads(out.read_text())
    found = {part["name"].lower(): part["version"] for part in bom["components"]}
    pins = re.findall(r"^([a-z0-9-]+)(?:\[[a-z,]+\])?==([^ ;]+)", (FILE.parent / "requirements.txt").read_text(), re.M)
    assert found == dict(pins)
    assert all(part["externalReferences"][0]["hashes"] for part in bom["components"])
    assert bom["metadata"]["component"]["name"] == "cuscuta"


def _packages(image: Path) -> Path:
    return next((image / "opt" / "cuscuta" / "lib").glob("python3*/site-packages"))


def test_nothing_in_it_builds_or_installs(image: Path) -> None:
    names = {path.name for path in (image / "opt" / "cuscuta" / "bin").iterdir()}
    assert {"cuscuta", "cuscuta-entry", "cuscuta-worker", "cuscuta-reaper"} <= names
    assert not {name for name in names if re.match("pip|wheel|hatch|pytest", name)}
    assert not {path.name for path in _packages(image).iterdir()} & {
        "pip",
        "setuptools",
        "hatchling",
        "tests",
        "pytest",
    }


def confined(*command: object) -> list[str]:
    return ["unshare", "--mount", "sh", "-c", CONFINED, "sh", *(str(part) for part in command)]


def test_what_is_confined_may_write_nothing() -> None:
    """Else the next test would prove nothing."""
    done = subprocess.run(confined("sh", "-c", "id -u; touch /tmp/x"), capture_output=True, text=True)
    assert "unshare" not in done.stderr, f"a mount namespace wants root: {done.stderr}"
    assert done.stdout.split() == [str(NOBODY)]
    assert "Read-only file system" in done.stderr


async def test_a_job_runs_in_it_confined(image: Path, make_house: MakeHouse) -> None:
    h = await make_house()
    await h.upstream(accounts=2)
    binaries = image / "opt" / "cuscuta" / "bin"
    env = {key: value for key, value in DockerfileParser(str(FILE), fileobj=None).envs.items() if key != "PATH"}
    ports = {"entry": "CUSCUTA_ENTRY_PORT", "worker": "CUSCUTA_HEALTH_PORT", "reaper": "CUSCUTA_HEALTH_PORT"}
    started: dict[str, tuple[subprocess.Popen[bytes], dict[str, str]]] = {}
    try:
        for n, (part, port) in enumerate(ports.items()):
            adapter = _packages(image) / "worker" / "upstream" / "reference" / "reference.toml"
            mine = h.env(**users.login(part), upstream=str(adapter), seats="2")
            mine |= env | {port: str(free_port()), "HOME": "/nonexistent", "TMPDIR": "/nonexistent"}
            with (h.folder / f"image-{n}.log").open("wb") as log:
                command = confined(binaries / f"cuscuta-{part}")
                started[part] = subprocess.Popen(command, env=mine, stdout=log, stderr=log, cwd="/"), mine
        for part, (_, mine) in started.items():

            async def live(mine: dict[str, str] = mine) -> bool:
                probe = confined(binaries / "python", "-m", "cuscuta.probe")
                return (await asyncio.to_thread(subprocess.run, probe, env=mine)).returncode == 0

            await until(live, 30, f"{part} is live, says the image's health check")
        h.http.headers["authorization"] = f"Bearer {await h.token()}"
        h.http.base_url = httpx.URL(f"http://127.0.0.1:{started['entry'][1]['CUSCUTA_ENTRY_PORT']}")
        await h.accounts(2)
        items = await h.catalogue(20)
        uid = await h.submit("player 1")
        await h.ended(uid)
        await checks.complete(h, uid, "player 1", items)
    finally:
        for proc, _ in started.values():
            proc.terminate()
        codes = {part: proc.wait(20) for part, (proc, _) in started.items()}
    assert set(codes.values()) == {0}, codes
    stopped = started["worker"][1]
    probe = subprocess.run([binaries / "python", "-m", "cuscuta.probe"], env=stopped, capture_output=True, text=True)
    assert probe.returncode == 1
    assert "not live" in probe.stderr
    assert "Traceback" not in probe.stderr
