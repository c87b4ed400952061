"""`cuscuta profiles`: several deployments by name, their tokens seen by nobody else."""

import asyncio
import json
from pathlib import Path

from cuscuta.db import Scope
from tests.conftest import MakeHouse
from tests.e2e.test_command_line import run


async def test_a_deployment_by_its_name(make_house: MakeHouse, tmp_path: Path) -> None:
    h = await make_house()
    await h.entry()
    await h.catalogue(3)
    uid = await h.submit("player 1")
    home = {"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}
    token, url = await h.token(Scope.READ), str(h.http.base_url)

    def do(*words: str, code: int = 0, text: str | None = None, **env: str) -> str:
        return str(run(*words, env={**home, **env}, code=code, text=text))

    assert "there is: none" in await asyncio.to_thread(do, "--profile", "garden", "jobs", "list", code=1)
    shown = do("profiles", "add", "garden", url, CUSCUTA_TOKEN=token)
    assert token not in shown
    listed = await asyncio.to_thread(do, "--profile", "garden", "jobs", "list", "--json")
    assert [job["uid"] for job in json.loads(listed)["jobs"]] == [uid]
    assert uid in await asyncio.to_thread(do, "jobs", "list", CUSCUTA_PROFILE="garden")
    assert json.loads(do("profiles", "list", "--json")) == [{"name": "garden", "url": url.rstrip("/")}]
    (file,) = (tmp_path / "cuscuta").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert "both say" in do("--profile", "garden", "--url", url, "jobs", "list", code=2)
    assert "no address" in do("profiles", "add", "x", "ftp://x", CUSCUTA_TOKEN=token, code=1)
    assert "no token" in do("profiles", "add", "x", url, CUSCUTA_TOKEN="a b", code=1)
    do("profiles", "remove", "garden")
    assert "no profile 'garden'" in do("profiles", "remove", "garden", code=1)
    file.write_text("[1]")
    assert "Mend or remove it" in do("profiles", "list", code=1)
