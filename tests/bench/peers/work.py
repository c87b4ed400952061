"""What a task of every peer does: poll some items with this process's account, at its pace, one at a time."""

import asyncio
import os
import time
from typing import Any

import aiohttp
import httpx

URL = os.environ.get("PEER_UPSTREAM", "")
ACCOUNT = int(os.environ.get("PEER_ACCOUNT", "0"))
INTERVAL_S = 1 / float(os.environ.get("PEER_RATE", "25"))


def token() -> str:
    """Log in; each worker process has one account for as long as it lives."""
    body = {"email": f"account-{ACCOUNT}@example.com", "password": f"password-{ACCOUNT}"}
    return str(httpx.post(f"{URL}/login", json=body).json()["token"])


class Poller:
    """Polls in order, never quicker than the account may."""

    def __init__(self) -> None:
        self._headers = {"authorization": f"Bearer {token()}"}
        self._next = time.monotonic()
        self._client: aiohttp.ClientSession | None = None

    async def poll(self, target: str, items: list[str]) -> list[Any]:
        """The values of some items."""
        if self._client is None:
            self._client = aiohttp.ClientSession()
        values = []
        for item in items:
            now = time.monotonic()
            self._next = max(self._next, now - 0.004) + INTERVAL_S
            await asyncio.sleep(max(0.0, self._next - INTERVAL_S - now))
            async with self._client.get(f"{URL}/players/{target}/songs/{item}", headers=self._headers) as answer:
                values.append((await answer.json())["score"]["value"])
        return values
