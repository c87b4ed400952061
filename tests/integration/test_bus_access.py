"""Who may do what on the bus: deploy/nats with real servers, TLS, and credentials of an operator."""

import asyncio
import base64
import datetime
import hashlib
import ipaddress
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import nkeys  # type: ignore[import-untyped]
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from msgspec.structs import replace
from nats.aio.client import Client

from cuscuta.broker.assets import streams
from cuscuta.broker.connection import Broker
from cuscuta.clock import SystemClock
from cuscuta.embedded.nats import Nats, binary
from cuscuta.embedded.postgres import free_port
from cuscuta.logs import get
from cuscuta.settings import Settings, load
from tests.support import users
from tests.support.wait import until

STREAMS = [config["name"] for config in streams(Settings())]
KV = ["tags", "active", "results", "workers", "catalogues", "schedules"]
WRITES = [
    *(f"$JS.API.STREAM.{what}.{name}" for what in ("CREATE", "UPDATE", "PURGE", "MSG.DELETE") for name in STREAMS),
    *(f"$JS.API.CONSUMER.{what}.{name}.x" for what in ("DURABLE.CREATE", "DELETE", "MSG.NEXT") for name in STREAMS),
    *(f"$KV.cuscuta_{bucket}.x" for bucket in KV),
    *(f"$JS.ACK.{name}.x" for name in STREAMS),
    "cuscuta.lane.x.y", "cuscuta.admit.high.x.y", "cuscuta.chunk.x.1-2.1", "cuscuta.unique.x", "cuscuta.after.x.y",
    "cuscuta.event.x.y", "cuscuta.dead.x.1-2", "cuscuta.schedule.x", "cuscuta.fire.x", "cuscuta.last-places",
    "cuscuta.announce",
]  # fmt: skip


@pytest.fixture
async def guarded(folder: Path) -> AsyncIterator[Nats]:
    server = Nats(folder / "nats", extra=users.conf())
    server.start()
    yield server
    server.kill()


async def refusals(server: Nats, user: str, publish: list[str], subscribe: list[str]) -> set[str]:
    """Those subjects that a user is refused."""
    told: list[str] = []

    async def on_error(error: Exception) -> None:
        told.append(str(error))

    client = await nats.connect(server.url, user=user, password=users.password(user), error_cb=on_error)
    for subject in publish:
        await client.publish(subject, b"")
    for subject in subscribe:
        await client.subscribe(subject)
    await client.publish("nobody.may", b"")

    async def all_told() -> bool:
        return any("nobody.may" in text for text in told)

    await until(all_told, 10, "the last refusal has come, and so have those before it")
    await client.close()
    return {s for s in [*publish, *subscribe] if any(f'"{s}"'.lower() in text.lower() for text in told)}


async def test_nobody_may_delete_a_stream_or_reads_anothers_answers(guarded: Nats) -> None:
    deletes = [f"$JS.API.STREAM.DELETE.{name}" for name in STREAMS]
    others = ["_INBOX.>", ">", "$JS.>", "_INBOX.tests.>"]
    for user in users.PARTS:
        foreign = [f"_INBOX.{part}.>" for part in users.PARTS if part != user]
        everything = {*deletes, *others, *foreign, "$SYS.REQ.SERVER.PING", "$JS.API.ACCOUNT.PURGE.x"}
        inboxes = [*others, *foreign]
        found = await refusals(guarded, user, [s for s in everything if s not in inboxes], inboxes)
        assert found == everything, (user, everything - found)


async def test_the_inspector_writes_nothing(guarded: Nats) -> None:
    assert await refusals(guarded, "inspector", WRITES, []) == set(WRITES)
    reads = [f"$JS.API.STREAM.INFO.{STREAMS[0]}", f"$JS.API.STREAM.MSG.GET.{STREAMS[0]}"]
    assert await refusals(guarded, "inspector", reads, ["_INBOX.inspector.x", "cuscuta.event.>"]) == set()


@pytest.mark.parametrize(
    ("user", "never"),
    [
        ("worker", ["$JS.API.STREAM.MSG.GET.KV_cuscuta_schedules", "$JS.API.STREAM.MSG.GET.CUSCUTA_SCHEDULES",
                    "$JS.API.STREAM.MSG.GET.CUSCUTA_EVENTS", "$JS.API.DIRECT.GET.KV_cuscuta_tags",
                    "$JS.API.CONSUMER.DURABLE.CREATE.CUSCUTA_WORK.job-x", "$JS.API.STREAM.PURGE.KV_cuscuta_tags",
                    "$JS.API.STREAM.PURGE.KV_cuscuta_results", "$KV.cuscuta_catalogues.x", "$KV.cuscuta_schedules.x",
                    "$KV.cuscuta_active.x", "cuscuta.schedule.x", "cuscuta.fire.x", "cuscuta.last-places"]),
        ("reaper", ["$KV.cuscuta_results.x", "$KV.cuscuta_catalogues.x", "$KV.cuscuta_workers.x", "cuscuta.last-places",
                    "$JS.API.CONSUMER.MSG.NEXT.CUSCUTA_WORK.job-x", "$JS.ACK.CUSCUTA_WORK.job-x",
                    "$JS.API.STREAM.PURGE.KV_cuscuta_tags"]),
        ("entry", ["$KV.cuscuta_results.x", "$KV.cuscuta_workers.x", "cuscuta.dead.x", "cuscuta.fire.x",
                   "$JS.API.CONSUMER.MSG.NEXT.CUSCUTA_WORK.job-x", "$JS.ACK.CUSCUTA_WORK.job-x",
                   "$JS.API.STREAM.PURGE.KV_cuscuta_tags", "$JS.API.STREAM.PURGE.CUSCUTA_EVENTS"]),
    ],
)  # fmt: skip
async def test_what_a_part_may_not_do(guarded: Nats, user: str, never: list[str]) -> None:
    makes = [f"$JS.API.STREAM.{what}.{name}" for what in ("CREATE", "UPDATE") for name in STREAMS]
    refused = [*never, *(makes if user != "entry" else [])]
    assert await refusals(guarded, user, refused, []) == set(refused)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def certificates(folder: Path) -> None:
    """ca.pem, and server and client certificates with their keys."""
    now = datetime.datetime.now(datetime.UTC)
    ca_key = ec.generate_private_key(ec.SECP256R1())

    def make(name: str, key: ec.EllipticCurvePrivateKey, *, is_ca: bool = False) -> None:
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(_name("ca"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
            )
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
            )
        )  # fmt: skip
        pem = serialization.Encoding.PEM
        (folder / f"{name}.pem").write_bytes(builder.sign(ca_key, hashes.SHA256()).public_bytes(pem))
        plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        (folder / f"{name}-key.pem").write_bytes(key.private_bytes(pem, *plain))

    make("ca", ca_key, is_ca=True)
    for name in ("server", "client"):
        make(name, ec.generate_private_key(ec.SECP256R1()))


@pytest.mark.parametrize("verify", [False, True])
async def test_the_servers_file_as_it_stands_with_tls(folder: Path, verify: bool) -> None:
    """deploy/nats/nats.conf with its TLS block switched on, and passwords from the environment."""
    certificates(folder)
    port = free_port()
    lines: list[str] = []
    inside = False
    for line in (users.FILE.parent / "nats.conf").read_text().splitlines():
        inside = line == "# tls {" or (inside and line != "# }")
        lines.append(line.removeprefix("# ") if inside or (lines and lines[-1].startswith("  verify")) else line)
    text = "\n".join(lines).replace("4222", str(port)).replace("8222", str(free_port()))
    (folder / "nats.conf").write_text(text.replace("verify: false", f"verify: {str(verify).lower()}"))
    (folder / "users.conf").write_text(users.FILE.read_text())
    env = {f"CUSCUTA_NATS_{user.upper()}_PASSWORD": users.password(user) for user in users.PARTS}
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [binary(), "-c", "nats.conf"], cwd=folder, env={**os.environ, **env}, stdout=log, stderr=log
        )
    try:
        ours = {"nats_cert": str(folder / "client.pem"), "nats_key": str(folder / "client-key.pem")} if verify else {}
        url, ca = f"tls://127.0.0.1:{port}", str(folder / "ca.pem")
        settings = load({f"CUSCUTA_{k.upper()}": v for k, v in {**ours, "nats_url": url, "nats_ca": ca}.items()})
        settings = replace(settings, nats_user="worker", nats_password=users.password("worker"))
        broker = Broker(settings, SystemClock(), get("test"), "cuscuta.worker test")
        await asyncio.wait_for(broker.connect(), 20)
        assert (await broker.api("INFO"))["type"].endswith("account_info_response")
        assert await _tls(broker.nc)
        await broker.close()
        unknown = Broker(replace(settings, nats_ca=""), SystemClock(), get("test"), "cuscuta.worker test")
        with pytest.raises(TimeoutError):  # it trusts nobody whom it does not know, and goes on trying
            await asyncio.wait_for(unknown.connect(), 2)
    finally:
        server.kill()
        server.wait()


async def _tls(client: Client) -> bool:
    transport = client._transport
    assert transport is not None
    return transport._io_writer.get_extra_info("cipher") is not None  # type: ignore[attr-defined]


def _jwt(issuer: nkeys.KeyPair, claims: dict[str, object]) -> str:
    """A token as `nsc` makes them."""

    def encode(part: bytes) -> str:
        return base64.urlsafe_b64encode(part).rstrip(b"=").decode()

    claims = {**claims, "iss": issuer.public_key.decode(), "iat": 1_700_000_000}
    digest = hashlib.new("sha512_256", json.dumps(claims).encode()).digest()
    claims["jti"] = base64.b32encode(digest).rstrip(b"=").decode()
    header = json.dumps({"typ": "JWT", "alg": "ed25519-nkey"}).encode()
    signed = f"{encode(header)}.{encode(json.dumps(claims).encode())}"
    return f"{signed}.{encode(issuer.sign(signed.encode()))}"


def _pair(kind: int) -> nkeys.KeyPair:
    return nkeys.from_seed(nkeys.encode_seed(os.urandom(32), kind))


async def test_a_credentials_file(folder: Path) -> None:
    """A server with an operator, who lets in whoever has a user's credentials of his account."""
    operator, account, user = (
        _pair(kind) for kind in (nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_USER)
    )
    operator_id, account_id, user_id = (pair.public_key.decode() for pair in (operator, account, user))
    root = _jwt(operator, {"sub": operator_id, "name": "op", "nats": {"type": "operator", "version": 2}})
    no_limit = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
    limits = {"limits": {**no_limit, "wildcards": True}, "type": "account", "version": 2}
    its = _jwt(operator, {"sub": account_id, "name": "cuscuta", "nats": limits})
    may = {"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1, "pub": {}, "sub": {}}
    token = _jwt(account, {"sub": user_id, "name": "worker", "nats": may})
    creds = folder / "worker.creds"
    creds.write_text(
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
    )
    system = _pair(nkeys.PREFIX_BYTE_ACCOUNT).public_key.decode()
    theirs = _jwt(operator, {"sub": system, "name": "SYS", "nats": limits})
    known = f"{{ {account_id}: {its}, {system}: {theirs} }}"
    extra = f"operator: {root}\nsystem_account: {system}\nresolver: MEMORY\nresolver_preload: {known}"
    server = Nats(folder / "nats", extra=extra)
    server.start()
    try:
        settings = Settings(nats_url=server.url, nats_creds=str(creds))
        broker = Broker(settings, SystemClock(), get("test"), "cuscuta.worker test")
        await asyncio.wait_for(broker.connect(), 20)
        heard: list[str] = []

        async def hear(msg: object) -> None:
            heard.append(getattr(msg, "subject", ""))

        await broker.subscribe("cuscuta.announce", hear)
        await broker.tell("cuscuta.announce", b"")

        async def arrived() -> bool:
            return heard == ["cuscuta.announce"]

        await until(arrived, 10, "it may speak")
        await broker.close()
        stranger = Broker(Settings(nats_url=server.url), SystemClock(), get("test"), "cuscuta.worker test")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(stranger.connect(), 2)
    finally:
        server.kill()
