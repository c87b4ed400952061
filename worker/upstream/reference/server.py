"""The reference upstream over HTTP.

    POST   /login {"email", "password"}        -> {"token", "user": {"id"}}
    PUT    /friends/{target}                   -> {"friend": {"id"}}; 404 for targets that begin with `unknown`
    GET    /songs/{item}/score?friend={id}     -> {"score": {"value", "item"}}
    GET    /songs/{item}/board                 -> {"scores": [{"friend", "value"}]}, of all friends at once
    GET    /players/{target}/songs/{item}      -> {"score": {"value", "item"}}, without being friends
    DELETE /friends/{id}
    DELETE /friends

Items that begin with `missing` are 404, with `huge` have a result of 2 MB, with `broken` answer 500.
`/_world` shows counters and calls, `POST /_control` changes accounts; both are for tests.
"""

import argparse
import asyncio
import dataclasses
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

import uvicorn

from cuscuta.health import listen
from worker.upstream.reference.rules import Call, Profile, World, score

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Answer = tuple[int, Any]


class App:
    """ASGI over a world."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        parts = [unquote(part) for part in scope["raw_path"].decode().split("?")[0].strip("/").split("/")]
        headers = {key.decode().lower(): value.decode("latin-1") for key, value in scope["headers"]}
        if sent := headers.get("traceparent"):
            self.world.traces[sent.split("-")[1]] += 1
        query = parse_qs(scope["query_string"].decode())
        extra: dict[str, str] = {}
        try:
            status, body = await self._route(scope["method"], parts, query, headers, receive, extra)
        except ConnectionAbortedError:
            return  # "nothing": the connection is left without an answer
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        out = {"content-type": "application/json", "content-length": str(len(payload)), **extra}
        await send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [(key.encode(), value.encode()) for key, value in out.items()],
            }
        )
        await send({"type": "http.response.body", "body": payload})

    async def _route(
        self,
        method: str,
        parts: list[str],
        query: dict[str, list[str]],
        headers: dict[str, str],
        receive: Receive,
        extra: dict[str, str],
    ) -> Answer:
        match method, parts:
            case "POST", ["login"]:
                return await self._login(await _json(receive))
            case "POST", ["_control"]:
                return self._control(await _json(receive))
            case "GET", ["_world"]:
                return 200, self._show()
        email = self.world.who(headers.get("authorization", "").removeprefix("Bearer "), time.monotonic())
        if email is None:
            return 401, {"error": "who are you?"}
        match method, parts:
            case "PUT", ["friends", target]:
                return await self._follow(email, target)
            case "DELETE", ["friends"]:
                self.world.accounts[email].friends.clear()
                return 200, {}
            case "DELETE", ["friends", friend]:
                self.world.accounts[email].friends.pop(friend, None)
                self.world.counts["unfollows"] += 1
                return 200, {}
            case "GET", ["songs", item, "score"]:
                target = self.world.accounts[email].friends.get(query.get("friend", [""])[0], "")
                return await self._poll(email, item, target, extra)
            case "GET", ["players", target, "songs", item]:
                return await self._poll(email, item, target, extra)
            case "GET", ["songs", item, "board"]:
                return await self._poll(email, item, None, extra)
        return 404, {"error": "no such thing"}

    async def _login(self, body: Any) -> Answer:
        token = self.world.log_in(str(body.get("email")), str(body.get("password")), time.monotonic())
        if token is None:
            return 401, {"error": "wrong email or password"}
        return 200, {"token": token, "user": {"id": token.partition("@")[0]}}

    async def _follow(self, email: str, target: str) -> Answer:
        if target.startswith("unknown"):
            return 404, {"error": "no such player"}
        await asyncio.sleep(self.world.accounts[email].follow_s)
        friend = self.world.follow(email, target)
        return (409, {"error": "all friend slots are taken"}) if friend is None else (200, {"friend": {"id": friend}})

    async def _poll(self, email: str, item: str, target: str | None, extra: dict[str, str]) -> Answer:
        """One poll; without a target it answers for all friends."""
        account, now = self.world.accounts[email], time.monotonic()
        call = Call(email, target or "", item, now)
        self.world.calls.append(call)
        self.world.counts["polls"] += 1
        if account.running:
            self.world.overlaps += 1
        account.running += 1
        try:
            status, body = await self._answer(account, call, extra, board=target is None)
        finally:
            account.running -= 1
            call.ended = time.monotonic()
        call.status = status
        self.world.counts[f"status_{status}"] += 1
        return status, body

    async def _answer(self, account: Profile, call: Call, extra: dict[str, str], *, board: bool) -> Answer:
        mode = self.world.misbehaves(account)
        if mode == "nothing":
            await asyncio.sleep(3600)
        await asyncio.sleep(account.latency_s * (20 if mode == "slow" else 1))
        if mode == "garbage":
            return 200, b"<html>surprise</html>"
        if mode == "cut":
            raise ConnectionAbortedError
        if mode.isdigit():
            if account.retry_after is not None:
                extra["retry-after"] = account.retry_after
            return int(mode), {"error": f"mode {mode}"}
        if not self.world.within_window(account, call.began):
            extra.update(self.world.told(account, call.began))
            return 429, {"error": "slow down"}
        extra.update(self.world.told(account, call.began))
        if not self.world.within_rate(account, call.began):
            if account.retry_after is not None:
                extra["retry-after"] = account.retry_after
            return 429, {"error": "slow down"}
        if not call.target and not board:
            return 409, {"error": "not a friend"}
        if call.item.startswith("missing"):
            return 404, {"error": "no such song"}
        if call.item.startswith("broken"):
            return 500, {"error": "oops"}
        if board:
            friends = [
                {"friend": friend, "value": score(target, call.item)}
                for friend, target in account.friends.items()
                if not target.startswith("hidden")
            ]
            return 200, {"scores": friends}
        value: Any = "x" * (2 << 20) if call.item.startswith("huge") else score(call.target, call.item)
        return 200, {"score": {"value": value, "item": call.item}}

    def _control(self, body: Any) -> Answer:
        """{"account": email or absent for all, "set": {profile fields}}, {"expire_tokens": true}, {"reset": true}."""
        if body.get("expire_tokens"):
            self.world.expire_tokens()
        if body.get("reset"):
            self.world.calls.clear()
            self.world.counts.clear()
            self.world.overlaps = self.world.over_rate = 0
        emails = [body["account"]] if body.get("account") else list(self.world.accounts)
        for email in emails:
            profile = self.world.accounts.setdefault(email, Profile(""))
            for key, value in body.get("set", {}).items():
                setattr(profile, key, value)
        return 200, {}

    def _show(self) -> Any:
        world = self.world
        return {
            "counts": world.counts,
            "traces": world.traces,
            "overlaps": world.overlaps,
            "over_rate": world.over_rate,
            "calls": [dataclasses.astuple(call) for call in world.calls],
            "friends": {email: account.friends for email, account in world.accounts.items()},
            "now": time.monotonic(),
        }


async def _json(receive: Receive) -> Any:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return json.loads(body or b"{}")


def email_of(n: int) -> str:
    """The n-th account's email, from 1."""
    return f"account-{n}@example.com"


def make_world(args: argparse.Namespace) -> World:
    """A world as the command line describes it: the last `slow` accounts are `slow_factor` times slower."""
    world = World(args.token_ttl_s, args.slots)
    for n in range(1, args.accounts + 1):
        slow = args.slow_factor if n > args.accounts - args.slow else 1.0
        world.accounts[email_of(n)] = Profile(
            f"password-{n}", args.latency_ms / 1000 * slow, args.rate or None, retry_after=args.retry_after
        )
    return world


def main() -> None:
    """Run the server until it is stopped."""
    parser = argparse.ArgumentParser(prog="python -m worker.upstream.reference.server", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on; beyond this box it is open to all")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--port-file", type=Path)
    parser.add_argument("--accounts", type=int, default=8)
    parser.add_argument("--latency-ms", type=float, default=40.0)
    parser.add_argument("--slow", type=int, default=0, help="how many accounts are slow")
    parser.add_argument("--slow-factor", type=float, default=3.0)
    parser.add_argument("--rate", type=float, default=0.0, help="polls a second for each account, 0 for no limit")
    parser.add_argument("--retry-after", default=None, help="sent with 429")
    parser.add_argument("--token-ttl-s", type=float, default=3600.0)
    parser.add_argument("--slots", type=int, default=50)
    args = parser.parse_args()
    sock = listen(args.host, args.port)
    if args.port_file:
        args.port_file.write_text(str(sock.getsockname()[1]))
    config = uvicorn.Config(App(make_world(args)), log_level="warning", access_log=False, lifespan="off")
    uvicorn.Server(config).run([sock])


if __name__ == "__main__":
    main()
