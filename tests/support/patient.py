"""A caller who does not give up: what a careful client does while parts of a deployment come and go."""

from typing import Any

import httpx

from tests.support.house import ENDED, House
from tests.support.wait import until


class Patient:
    """Asks again while nobody answers or the answer is 503; any other refusal fails the test."""

    def __init__(self, h: House) -> None:
        self.h = h

    async def submit(self, target: str, **body: Any) -> str:
        """Submit a job as a careful client does: with a key, again until it is answered."""
        body = {"target": target, "catalogue": "songs", **body}

        async def accepted() -> str:
            try:
                answer = await self.h.http.post("/jobs", json=body, headers={"Idempotency-Key": target})
            except httpx.TransportError:
                return ""
            assert answer.status_code in (200, 202, 503), answer.text
            return str(answer.json()["uid"]) if answer.status_code < 300 else ""

        return await until(accepted, 60, f"{target} is accepted")

    async def get(self, path: str, **params: Any) -> Any:
        """An answer of the API, waited for while a part of it is away; None for 404."""
        last: list[httpx.Response] = []

        async def answered() -> bool:
            try:
                last[:] = [await self.h.http.get(path, params=params)]
            except httpx.TransportError:
                return False
            assert last[0].status_code in (200, 404, 503), last[0].text
            return last[0].status_code != 503

        await until(answered, 60, f"{path} is answered")
        return last[0].json() if last[0].status_code == 200 else None

    async def ended(self, uid: str, timeout: float = 60) -> Any:
        async def over() -> Any:
            job = await self.get(f"/jobs/{uid}")
            assert job is not None, f"the job {uid} is lost"
            return job if job["status"] in ENDED else None

        return await until(over, timeout, f"job {uid} has ended")

    async def followed(self, target: str) -> str:
        """The uid of the one job of a target, which another one's end has made."""

        async def made() -> list[str]:
            found = await self.get("/jobs", target=target)
            return [job["uid"] for job in (found or {"jobs": []})["jobs"]]

        (uid,) = await until(made, 30, f"{target} was made")  # two would be one too many
        return uid
