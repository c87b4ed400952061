"""House law that no linter knows: names, clocks, sizes, hosts, the wheel."""

import ast
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cuscuta import limits, subjects

ROOT = Path(__file__).parents[2]
PACKAGES = ("cuscuta", "entry", "worker", "reaper")
SOURCES = sorted(p for package in PACKAGES for p in (ROOT / package).rglob("*.py"))
EVERYTHING = sorted([*SOURCES, *(ROOT / "tests").rglob("*.py")])


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [ROOT / entry for entry in listed.decode().split("\0") if entry and (ROOT / entry).is_file()]


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """String constants that are not docstrings."""
    tree = ast.parse(path.read_text())
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


def test_no_file_is_longer_than_300_lines() -> None:
    long = {name(p): n for p in EVERYTHING if (n := len(p.read_text().splitlines())) > 300}
    assert long == {}


def test_there_are_no_utils() -> None:
    assert [name(p) for p in EVERYTHING if p.stem in ("utils", "helpers", "manager", "util", "helper")] == []


def test_names_on_the_bus_are_spelled_in_one_module_only() -> None:
    spelled = re.compile(r"CUSCUTA_(WORK|EVENTS|DEAD|SCHEDULES)|"
                         r"cuscuta_(tags|active|results|workers|catalogues|schedules)|"
                         r"cuscuta\.(lane|admit|chunk|event|dead|announce|schedule|fire)\.|^job-|\$KV\.")  # fmt: skip
    allowed = {
        "cuscuta/subjects.py": "the module that builds and parses them",
        "cuscuta/limits.py": "the reasons in the table name what a limit is for",
        "cuscuta/instruments.py": "names of metrics, which are not of the bus",
        "cuscuta/broker/bus.py": "log messages for a person",
        "cuscuta/broker/projection.py": "a log message for a person",
    }
    found = {name(p) for p in SOURCES for _, text in strings(p) if spelled.search(text)}
    assert found <= set(allowed), found - set(allowed)


def test_time_comes_from_the_clock() -> None:
    """Nobody else asks what time it is, or sleeps; each exception has its reason."""
    allowed = {
        "cuscuta/clock.py": "the clock",
        "cuscuta/embedded/nats.py": "a supervisor of real processes, without a loop",
        "cuscuta/embedded/postgres.py": "a supervisor of real processes, without a loop",
        "cuscuta/embedded/supervisor.py": "a supervisor of real processes",
        "cuscuta/embedded/stack.py": "a supervisor of real processes",
        "cuscuta/cli/client.py": "a person waits at a terminal",
        "cuscuta/cli/watch.py": "a person waits at a terminal",
        "cuscuta/cli/up.py": "a person waits at a terminal",
        "cuscuta/cli/demo.py": "a person waits at a terminal",
        "cuscuta/cli/top.py": "a person waits at a terminal",
        "cuscuta/broker/projection.py": "sleep(0) lets other tasks run; no time passes",
        "worker/upstream/declarative.py": "an HTTP date is compared with the wall clock",
        "worker/upstream/reference/server.py": "a stand-in for somebody else's server",
    }
    asks = re.compile(r"\btime\.(time|monotonic|perf_counter|sleep)\(|datetime\.(now|utcnow)\(|asyncio\.sleep\(")
    found = {name(p) for p in SOURCES if asks.search(p.read_text())}
    assert found == set(allowed), found ^ set(allowed)


def test_tasks_are_started_in_composition_roots_only() -> None:
    allowed = {
        "cuscuta/health.py", "cuscuta/service.py", "cuscuta/embedded/stack.py", "entry/run.py", "reaper/run.py",
        "worker/run.py", "worker/finisher.py",
    }  # fmt: skip
    found = {name(p) for p in SOURCES if "create_task(" in p.read_text()}
    assert found <= allowed, found - allowed


def test_no_path_of_a_machine_and_no_registry_is_named() -> None:
    hosts = re.compile(r"pypi\.org|pythonhosted|proxy\.golang|registry\.npm|crates\.io|deb\.debian|--index-url")
    for path in tracked():
        if path == Path(__file__) or path.suffix in (".svg", ".png"):
            continue
        text = path.read_text(errors="replace")
        assert str(ROOT.parent) + "/" not in text or len(str(ROOT.parent)) < 5, path
        assert not hosts.search(text), path


def test_pins_have_hashes_and_no_address() -> None:
    text = (ROOT / "requirements.txt").read_text()
    pins = re.findall(r"^[a-z0-9][\w.\-\[\]]*==\S+", text, re.M | re.I)
    assert len(pins) > 50
    assert text.count("--hash=sha256:") >= len(pins)
    assert "://" not in text


def test_the_wheel_holds_the_packages_and_nothing_else(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(n for n in names if n.endswith("METADATA"))).decode()
        scripts = archive.read(next(n for n in names if n.endswith("entry_points.txt"))).decode()
    assert {n.split("/")[0] for n in names if ".dist-info" not in n} == set(PACKAGES)
    for needed in ("cuscuta/db/migrations/01_pre_accounts.sql", "worker/upstream/reference/reference.toml"):
        assert needed in names
    assert "Private :: Do Not Upload" in metadata
    for script in ("cuscuta", "cuscuta-entry", "cuscuta-worker", "cuscuta-reaper"):
        assert re.search(rf"^{script} = ", scripts, re.M)


def test_the_arrows_run_downwards() -> None:
    lint = subprocess.run([str(Path(sys.executable).parent / "lint-imports")], cwd=ROOT, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert lint.returncode == 0, lint.stdout


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_public_things_have_docstrings(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), "the module"
    for node in tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        assert ast.get_docstring(node), node.name
        for inner in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and not inner.name.startswith("_"):
                assert ast.get_docstring(inner), f"{node.name}.{inner.name}"


def test_every_limit_is_used_and_has_a_reason() -> None:
    text = "".join(p.read_text() for p in SOURCES if p.name != "limits.py")
    for limit in limits.TABLE:
        assert re.search(rf"\b{limit.name}\b", text), limit.name
        assert len(limit.why) > 20
        assert limit.unit


def test_bus_names_are_as_the_docs_show_them() -> None:
    shown = (ROOT / "docs" / "architecture.md").read_text()
    for asset in (subjects.work_stream(), subjects.EVENTS_STREAM, subjects.DEAD_STREAM, subjects.TAGS, subjects.ACTIVE,
                  subjects.RESULTS, subjects.WORKERS, subjects.CATALOGUES):  # fmt: skip
        assert f"`{asset}`" in shown


def test_values_need_the_standard_library_and_msgspec_only() -> None:
    values = ("limits", "errors", "uids", "backoff", "spans", "codec", "model", "transitions", "settling", "subjects")
    for module in values:
        for node in ast.walk(ast.parse((ROOT / "cuscuta" / f"{module}.py").read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
                if node.module == "cuscuta":
                    names = [f"cuscuta.{a.name}" for a in node.names]
            for name_ in names:
                top, _, rest = name_.partition(".")
                allowed = top in sys.stdlib_module_names and top != "asyncio"
                assert allowed or top == "msgspec" or rest in values, f"{module} imports {name_}"
