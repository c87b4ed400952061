"""Settings from `CUSCUTA_*` in the environment and an optional TOML file (`CUSCUTA_CONFIG`); the environment wins.

Nothing is read at import. `load` reports every fault at once: unknown names with a suggestion, wrong types, values
out of bounds, and relations between settings that cannot work. There are no default credentials.
"""

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta, Struct

from cuscuta import limits, relations
from cuscuta.errors import CuscutaError

PREFIX = "CUSCUTA_"
_FILE = PREFIX + "CONFIG"
# Where the command line finds the API and its token; not settings of a part.
_RESERVED = frozenset({_FILE, PREFIX + "URL", PREFIX + "TOKEN", PREFIX + "TOKEN_FILE"})


_LISTS = frozenset({"secret_keys", "seal_keys", "webhook_secrets", "fleet"})
_SECRET = frozenset({"postgres_url", "nats_url", "nats_password", "webhook_url", *_LISTS})


class SettingsError(CuscutaError):
    """All faults of the settings, one a line."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


def _d(text: str) -> Meta:
    return Meta(description=text)


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every setting of every part. Durations end in `_s`, sizes in `_bytes`."""

    nats_url: Annotated[str, _d("NATS servers, separated by commas")] = "nats://127.0.0.1:4222"
    nats_user: Annotated[str, _d("user at NATS, if it wants one")] = ""
    nats_password: Annotated[str, _d("password at NATS")] = ""
    nats_creds: Annotated[str, _d("path of a NATS credentials file")] = ""
    nats_ca: Annotated[str, _d("path of the certificates that NATS servers are checked against")] = ""
    nats_cert: Annotated[str, _d("path of this client's certificate, if NATS wants one")] = ""
    nats_key: Annotated[str, _d("path of its private key, if it is not in the same file")] = ""
    postgres_url: Annotated[str, _d("PostgreSQL, as postgresql://user:password@host:port/database")] = ""
    postgres_pool: Annotated[int, Meta(ge=2, le=50), _d("connections to PostgreSQL a process")] = 4
    secret_keys: Annotated[
        list[str], _d("Fernet keys for account passwords, newest first (make one: cuscuta secret-key)")
    ] = []

    seal_keys: Annotated[
        list[str],
        _d("keys of entry and reaper alone, newest first, that jobs are sealed with (make one: cuscuta secret-key)"),
    ] = []

    replicas: Annotated[int, Meta(ge=1, le=5), _d("replicas of every stream; 3 in production")] = 1
    max_active_jobs: Annotated[
        int,
        Meta(ge=1, le=limits.MAX_ACTIVE_JOBS_CEILING),
        _d("jobs out at once, a tenth of them high priority only"),
    ] = limits.MAX_ACTIVE_JOBS
    default_seats: Annotated[int, Meta(ge=1, le=4096), _d("seats to divide by while no worker is alive")] = 8
    retention_s: Annotated[float, Meta(ge=1), _d("how long a job and its results stay after its end")] = 7 * 86_400.0

    name: Annotated[str, Meta(max_length=64), _d("what this deployment is called, on its dashboard")] = "cuscuta"
    fleet: Annotated[list[str], _d("other deployments to look at from this one, each as name=https://host token")] = []
    entry_host: Annotated[str, _d("address that the REST API listens on")] = "127.0.0.1"
    entry_port: Annotated[int, Meta(ge=0, le=65535), _d("port of the REST API; 0 takes a free one")] = 8000
    insecure: Annotated[bool, _d("the REST API asks for no token; on loopback only")] = False
    health_host: Annotated[str, _d("address of /livez, /readyz and /metrics of worker and reaper")] = "127.0.0.1"
    health_port: Annotated[
        int, Meta(ge=0, le=65535), _d("port of /livez, /readyz and /metrics; 0 takes a free one")
    ] = 0
    port_file: Annotated[str, _d("file to write the port to, once it listens")] = ""

    upstream: Annotated[str, _d("an adapter: a TOML file, module:Class, or a name of cuscuta.upstreams")] = ""
    upstream_url: Annotated[str, _d("replaces the base_url of a declarative adapter, for a test deployment")] = ""
    seats: Annotated[int, Meta(ge=1, le=limits.SEATS_PER_PROCESS), _d("accounts a worker process works with")] = 4
    item_timeout_s: Annotated[float, Meta(gt=0, le=600), _d("time for one poll of the upstream")] = 8.0
    flush_s: Annotated[float, Meta(gt=0, le=60), _d("a long chunk stores what it has at least this often")] = 2.0
    transient_retries: Annotated[int, Meta(ge=0, le=20), _d("retries in place of a failed poll")] = 4
    backoff_base_s: Annotated[float, Meta(gt=0, le=60), _d("first wait before a retry in place")] = 0.5
    backoff_cap_s: Annotated[float, Meta(gt=0, le=600), _d("longest wait before a retry in place")] = 8.0
    throttle_base_s: Annotated[float, Meta(gt=0, le=600), _d("first rest of a throttled account")] = 1.0
    throttle_cap_s: Annotated[float, Meta(gt=0, le=86_400), _d("longest rest of a throttled account")] = 60.0
    account_penalty: Annotated[float, Meta(gt=0, le=1), _d("what an account error takes from a rate of at most 1")] = (
        0.34
    )
    account_recovery: Annotated[float, Meta(ge=0, le=1), _d("what a finished chunk gives back to the rate")] = 0.02
    halt_grace_s: Annotated[float, Meta(gt=0, le=600), _d("time for a clean stop before what is left is cut off")] = (
        15.0
    )

    donation: Annotated[bool, _d("at a job's tail, busy seats share with idle ones")] = True
    hedging: Annotated[
        bool,
        _d("at a job's tail, up to 3 % of its items may be asked for twice"),
    ] = True

    ack_wait_s: Annotated[float, Meta(ge=0.5, le=600), _d("a chunk whose holder is silent this long is handed on")] = (
        10.0
    )
    max_attempts: Annotated[int, Meta(ge=1, le=100), _d("attempts before a chunk is given up")] = 5
    max_deliver: Annotated[
        int, Meta(ge=2, le=1000), _d("deliveries before NATS itself gives up; the reaper sweeps")
    ] = 12
    lease_term_s: Annotated[float, Meta(ge=0.5, le=3600), _d("an account's lease, renewed at a third")] = 30.0
    lease_margin_s: Annotated[float, Meta(gt=0, le=600), _d("the holder stops this long before its lease ends")] = 2.0
    heartbeat_s: Annotated[float, Meta(gt=0, le=600), _d("how often a worker says that it is alive")] = 3.0
    presence_ttl_s: Annotated[float, Meta(ge=1, le=3600), _d("a worker silent this long counts as gone")] = 10.0
    reap_s: Annotated[float, Meta(gt=0, le=600), _d("how often each duty of the reaper runs")] = 2.0
    mend_after_s: Annotated[float, Meta(gt=0, le=3600), _d("how long something must look lost before it is mended")] = (
        5.0
    )

    webhook_url: Annotated[str, _d("where the end of every job is told")] = ""
    webhook_secrets: Annotated[
        list[str], _d("keys that webhooks are signed with, newest first (make one: cuscuta webhook-secret)")
    ] = []
    webhook_allow_private: Annotated[bool, _d("webhooks may go to private addresses, and without TLS")] = False

    log_format: Annotated[str, _d("json, console, or auto (console on a terminal)")] = "auto"
    log_level: Annotated[str, _d("debug, info, warning or error")] = "info"

    def __repr__(self) -> str:
        return "Settings(***)"

    def require(self, *names: str) -> None:
        """Refuse to start a part without these settings. Raises SettingsError with all that are missing."""
        missing = [f"{n} is not set. Set {PREFIX}{n.upper()}: {describe()[n]}." for n in names if not getattr(self, n)]
        if missing:
            raise SettingsError(missing)


def describe() -> dict[str, str]:
    """What each setting means, by name."""
    hints = get_type_hints(Settings, include_extras=True)
    return {
        name: next(m.description for m in hints[name].__metadata__ if isinstance(m, Meta) and m.description)
        for name in Settings.__struct_fields__
    }


def table() -> str:
    """All settings as a Markdown table, for docs/configuration.md."""
    defaults, described = Settings(), describe()
    rows = [
        f"| `{PREFIX}{name.upper()}` | `{getattr(defaults, name)}` | {described[name]} |"
        for name in Settings.__struct_fields__
    ]
    return "\n".join(["| variable | default | meaning |", "| --- | --- | --- |", *rows])


def load(environ: Mapping[str, str], overrides: Mapping[str, Any] | None = None) -> Settings:
    """The settings from a TOML file named by `CUSCUTA_CONFIG`, the environment and `overrides`, later ones winning.

    Raises SettingsError with every fault.
    """
    faults: list[str] = []
    given: dict[str, tuple[str, Any]] = {}  # setting -> (where it was said, raw value)
    if path := environ.get(_FILE):
        for key, value in _read_file(path, faults).items():
            given[key] = (f"{path}: {key}", value)
    for key, value in environ.items():
        if key.startswith(PREFIX) and key not in _RESERVED:
            given[key.removeprefix(PREFIX).lower()] = (key, value)
    for key, value in (overrides or {}).items():
        given[key] = (key, value)

    values: dict[str, Any] = {}
    hints = get_type_hints(Settings, include_extras=True)
    for name, (said, raw) in given.items():
        if name not in hints:
            near = difflib.get_close_matches(name, hints, n=1, cutoff=0.6)
            hint = f" Did you mean {near[0]}?" if near else " Remove it; docs/configuration.md lists all settings."
            faults.append(f"{said}: there is no such setting.{hint}")
            continue
        if name in _LISTS and isinstance(raw, str):
            raw = [k for k in raw.split(",") if k]
        try:
            values[name] = msgspec.convert(raw, hints[name], strict=not isinstance(raw, str))
        except msgspec.ValidationError as error:
            value = "" if name in _SECRET else f" ({raw!r})"
            faults.append(f"{said}{value}: {_plain(str(error))}. It is {describe()[name]}.")
    settings = Settings(**values)
    faults.extend(relations.faults(settings))
    if faults:
        raise SettingsError(faults)
    return settings


def _plain(message: str) -> str:
    return message.replace("`", "").removesuffix(".").lower()


def _read_file(path: str, faults: list[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        faults.append(f"{path}: cannot be read ({error.strerror}). Set {_FILE} to a readable TOML file.")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        faults.append(f"{path}: {error}")
    return {}


if __name__ == "__main__":
    print(table())
