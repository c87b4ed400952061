"""deploy/compose.yaml: read by Docker's own program, and by us for what it must not forget."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from cuscuta.embedded.nats import binary
from cuscuta.embedded.postgres import free_port
from cuscuta.settings import load
from tests.support.drain import DRAIN_S
from tests.support.process import Proc, clean_env
from tests.support.tools import find, needs
from tests.support.wait import until

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "compose.yaml"
OURS = ("entry", "worker", "reaper")
compose = needs("docker-compose", "build github.com/docker/compose/v2/cmd with Go")


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    folder = tmp_path / "secrets"
    subprocess.run([ROOT / "deploy/compose/secrets.sh", folder], check=True, capture_output=True)
    return folder


def config(*more: str) -> dict[str, Any]:
    """The file as Docker understands it."""
    command = [str(find("docker-compose")), "-f", str(FILE), *more, "config", "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, env=clean_env(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr.lower(), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@compose
@pytest.mark.parametrize(
    ("more", "services"),
    [
        ((), {*OURS, "nats", "postgres"}),
        (("--env-file", "deploy/compose/demo.env"), {*OURS, "nats", "postgres", "upstream"}),
        (("--env-file", "deploy/compose/cluster.env"), {*OURS, "nats", "nats-2", "nats-3", "postgres"}),
    ],
)
def test_docker_understands_it(more: tuple[str, ...], services: set[str]) -> None:
    found = config(*more)
    assert set(found["services"]) == services
    cluster = "nats-2" in services
    for part in OURS:
        environment = found["services"][part]["environment"]
        assert environment["CUSCUTA_REPLICAS"] == ("3" if cluster else "1")
        assert environment["CUSCUTA_NATS_URL"].count("nats://") == (3 if cluster else 1)
    if "upstream" in services:
        url = URL(found["services"]["worker"]["environment"]["CUSCUTA_UPSTREAM_URL"])
        command = found["services"]["upstream"]["command"]
        assert url.host == "upstream"
        assert command[command.index("--port") + 1] == str(url.port)
        assert set(found["services"]["worker"]["networks"]) & set(found["services"]["upstream"]["networks"])
    for secret in found["secrets"].values():
        assert Path(secret["file"]).parent == ROOT / "deploy" / "secrets"


@compose
def test_everything_is_confined() -> None:
    found = config("--profile", "demo")
    for name, service in found["services"].items():
        if name == "postgres":
            continue  # its image writes where it is told, and starts as root to become its own user
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
    for name in ("nats", "postgres"):
        assert set(found["services"][name]["networks"]) == {"inside"}, name
        assert not found["services"][name].get("ports")
    assert found["networks"]["inside"]["internal"]
    (port,) = found["services"]["entry"]["ports"]
    assert port["host_ip"] == "127.0.0.1"
    for name in ("nats", "postgres"):
        assert found["services"][name]["healthcheck"]["test"]
    for part, seconds in DRAIN_S.items():
        assert int(found["services"][part]["stop_grace_period"].removesuffix("s")) > seconds, part


@compose
def test_every_variable_of_ours_is_a_setting(secrets: Path) -> None:
    found = config("--env-file", "deploy/compose/demo.env")
    for part in OURS:
        environment = found["services"][part]["environment"]
        ours = {k: v for k, v in environment.items() if k.startswith("CUSCUTA_")}
        settings = load({**ours, "CUSCUTA_CONFIG": str(secrets / f"{part}.toml")})
        assert settings.nats_user == part


def test_each_part_gets_its_own_secrets_and_no_other_ones(secrets: Path) -> None:
    assert oct(secrets.stat().st_mode & 0o777) == "0o700"
    settings = {part: load({"CUSCUTA_CONFIG": str(secrets / f"{part}.toml")}) for part in OURS}
    assert {part: s.nats_user for part, s in settings.items()} == {part: part for part in OURS}
    assert len({s.nats_password for s in settings.values()}) == 3
    assert len({s.secret_keys[0] for s in settings.values()}) == 1
    assert settings["entry"].seal_keys == settings["reaper"].seal_keys != []
    assert settings["worker"].seal_keys == []
    again = subprocess.run([ROOT / "deploy/compose/secrets.sh", secrets], check=False, capture_output=True, text=True)
    assert again.returncode == 1
    assert "there already" in again.stderr
    ignored = subprocess.run(["git", "check-ignore", "-q", "deploy/secrets/entry.toml"], cwd=ROOT, check=False)
    assert ignored.returncode == 0


def as_mounted(name: str, secrets: Path, root: Path) -> Path:
    """A server's file with everything where the container would have it, below `root`, on ports of its own."""
    for folder in ("etc/nats", "run/secrets", "data"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for secret in ("nats-users", "nats-cluster"):
        text = (secrets / f"{secret}.conf").read_text()
        (root / "run/secrets" / secret).write_text(text.replace("0.0.0.0:6222", f"127.0.0.1:{free_port()}"))
    file = root / "etc/nats" / f"{name}.conf"
    text = (ROOT / "deploy/compose" / f"{name}.conf").read_text()
    text = text.replace("/data", str(root / "data")).replace("0.0.0.0:4222", f"127.0.0.1:{free_port()}")
    file.write_text(text.replace("127.0.0.1:8222", f"127.0.0.1:{free_port()}"))
    return file


@pytest.mark.parametrize("name", ["single", "cluster"])
async def test_nats_starts_with_these_files(secrets: Path, tmp_path: Path, name: str) -> None:
    file = as_mounted(name, secrets, tmp_path)
    proc = Proc("nats", [binary(), "-c", str(file)], {**os.environ, "HOSTNAME": "nats"}, tmp_path)

    async def ready() -> bool:
        assert proc.running(), proc.text()
        return "Server is ready" in proc.text()

    try:
        await until(ready, 10, "the server is ready")
        text = proc.text()
    finally:
        proc.kill()
    assert ("Cluster name is cuscuta" in text) == (name == "cluster")
