"""The dashboard in a real browser, against real processes: a token, a job whose map fills, a dead worker, a cancel.

Screenshots go to `out/screenshots`.
"""

import re
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.conftest import MakeHouse
from tests.support.house import House

CHROMIUM = Path("/usr/bin/chromium")
SHOTS = Path(__file__).parents[2] / "out" / "screenshots"
pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no /usr/bin/chromium: apt-get install chromium; .ci/run does"),
]
expect.set_options(timeout=15_000)


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as play:
        started = await play.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield started
        await started.close()


def token(h: House) -> str:
    return str(h.http.headers["authorization"]).removeprefix("Bearer ")


async def opened(browser: Browser, h: House, **options: object) -> Page:
    """The page, signed in, whose every fault in the browser fails the test."""
    context = await browser.new_context(**{"base_url": str(h.http.base_url), "locale": "en-GB", **options})  # type: ignore[arg-type]
    page = await context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if "Content Security" in message.text else None)
    page.faults = faults  # type: ignore[attr-defined]
    await page.goto("/")
    await page.get_by_label("Token").fill(token(h))
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", name="Running")).to_be_visible()
    return page


async def good(page: Page, name: str) -> None:
    """A picture, and nothing that keeps somebody out: names, roles, contrast."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=SHOTS / f"{name}.png", full_page=True)
    found = await Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.faults == []  # type: ignore[attr-defined]


async def deployment(make_house: MakeHouse, items: int = 60, latency_ms: float = 200) -> House:
    h = await make_house(name="Garden")
    await h.upstream(accounts=3, latency_ms=latency_ms)
    await h.entry()
    await h.accounts(3)
    await h.catalogue(items)
    return h


async def test_a_job_is_submitted_watched_and_read(make_house: MakeHouse, browser: Browser) -> None:
    h = await deployment(make_house)
    worker = await h.worker(seats="3")
    await h.seats(3)
    page = await opened(browser, h)
    await expect(page).to_have_title(re.compile("Garden"))
    await expect(page.get_by_text("No job runs. Submit one.")).to_be_visible()
    await good(page, "overview-empty")
    await page.get_by_role("button", name="Submit a job").click()
    await page.get_by_label("Target").fill("<b>player 1</b>")
    await page.get_by_label("Catalogue").select_option("songs")
    await page.get_by_role("button", name="Submit", exact=True).click()
    await expect(page.get_by_role("heading", name="<b>player 1</b>")).to_be_visible()  # a name, never markup
    cells = page.locator(".map .cell")
    await expect(page.locator(".map .cell.held").first).to_be_visible()
    await good(page, "job-running")
    await expect(page.get_by_text("completed").first).to_be_visible(timeout=30_000)
    assert await page.locator(".map .cell.done").count() == await cells.count() > 3
    await expect(page.get_by_role("group", name="First items").get_by_text("song-0")).to_be_visible()
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Download CSV").click()
    assert "song-59" in Path(await (await download.value).path()).read_text()
    await good(page, "job-completed")
    await page.get_by_role("link", name="Workers").click()
    await expect(page.get_by_role("cell", name="idle")).to_have_count(3)
    await good(page, "workers")
    worker.kill()
    await expect(page.get_by_text("No worker is alive")).to_be_visible()
    await page.get_by_role("link", name="Jobs").click()
    await page.get_by_label("Search").fill("PLAYER")
    await expect(page.get_by_role("link", name="<b>player 1</b>")).to_be_visible()
    await page.get_by_label("Search").fill("nobody")
    await expect(page.get_by_text("Nothing here.")).to_be_visible()
    await good(page, "jobs")


async def test_a_job_is_cancelled_and_tried_again(make_house: MakeHouse, browser: Browser) -> None:
    h = await deployment(make_house)
    uid = await h.submit("player 1")
    page = await opened(browser, h)
    await page.get_by_role("link", name="player 1").click()
    await page.get_by_role("button", name="Cancel").click()
    await page.get_by_role("button", name="Back").click()  # nothing happens without a yes
    assert (await h.job(uid))["status"] in ("queueing", "pending")
    await page.get_by_role("button", name="Cancel").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    await expect(page.locator(".badge.cancelled")).to_be_visible()
    await h.worker(seats="3")
    await page.get_by_role("button", name="Retry").click()
    await page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    await expect(page.locator(".badge.completed")).to_be_visible(timeout=30_000)


async def test_it_speaks_chinese_fits_a_phone_and_the_night(make_house: MakeHouse, browser: Browser) -> None:
    h = await deployment(make_house)
    await h.submit("player 1")
    page = await opened(browser, h, color_scheme="dark", viewport={"width": 380, "height": 800})
    await page.get_by_label("Language").select_option("zh")
    await expect(page.get_by_role("heading", name="运行中")).to_be_visible()
    assert await page.evaluate("document.documentElement.lang") == "zh-CN"
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await good(page, "phone-dark-chinese")
    for name in ("任务", "工作进程", "账号", "定时"):
        await page.get_by_role("link", name=name, exact=True).click()
        await expect(page.get_by_role("heading", name=name).first).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
    await good(page, "phone-schedules")


async def test_it_works_by_keyboard_alone(make_house: MakeHouse, browser: Browser) -> None:
    h = await deployment(make_house)
    page = await opened(browser, h)
    await page.keyboard.press("Tab")
    seen = []
    for _ in range(12):
        seen.append(await page.evaluate("document.activeElement.textContent.trim()"))
        if seen[-1] == "Submit a job":
            break
        await page.keyboard.press("Tab")
    assert seen[-1] == "Submit a job", seen
    await page.keyboard.press("Enter")
    await expect(page.get_by_label("Target")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_label("Target")).not_to_be_visible()


async def test_accounts_are_imported_and_taken_out(make_house: MakeHouse, browser: Browser) -> None:
    h = await deployment(make_house)
    page = await opened(browser, h)
    await page.get_by_role("link", name="Accounts").click()
    await page.get_by_role("button", name="Import accounts").click()
    await page.get_by_role("textbox").fill("new@example.com:a password")
    await page.get_by_role("dialog").get_by_role("button", name="Import accounts").click()
    await expect(page.get_by_text("1 / 0 added / changed")).to_be_visible()
    await page.get_by_role("button", name="OK").click()
    row = page.get_by_role("row").filter(has_text="new@example.com")
    await row.get_by_role("button", name="Disable").click()
    await page.get_by_role("dialog").get_by_role("button", name="Disable").click()
    await expect(row.get_by_role("cell", name="Disabled")).to_be_visible()
    assert "a password" not in await page.content()
    await good(page, "accounts")


async def test_twenty_jobs_of_ten_thousand_items(make_house: MakeHouse, browser: Browser) -> None:
    h = await deployment(make_house, items=10_000, latency_ms=20)
    await h.reaper()
    await h.worker(seats="3")
    uids = [await h.submit(f"player {n}") for n in range(20)]
    await h.done(uids[0], 1)
    page = await opened(browser, h)
    running = page.get_by_role("table", name="Running").locator("tbody tr")
    await expect(running).to_have_count(20)
    await expect(running.filter(has_text="player 0")).to_contain_text("10,000")
    await good(page, "twenty jobs")
    await running.filter(has_text="player 0").get_by_role("link").click()
    cells = page.locator(".map .cell")
    await expect(page.get_by_role("heading", name="Chunk map")).to_be_visible()
    assert 20 <= await cells.count() <= 2_000
    before = await page.locator(".map .cell.done").count()
    await h.done(uids[0], 200)
    await expect(page.locator(".map .cell.done").nth(before)).to_be_attached(timeout=20_000)  # it fills while one looks
    assert page.faults == []  # type: ignore[attr-defined]


async def test_long_lists_come_in_pages(make_house: MakeHouse, browser: Browser) -> None:
    h = await deployment(make_house)
    await h.accounts(130)
    job = {"target": "player 1", "catalogue": "songs"}
    for _ in range(101):
        await h.call("POST", "/schedules", json={"when": "@every 24h", "job": job})
    page = await opened(browser, h)
    for name, on_first, on_second in (("Accounts", 100, 30), ("Schedules", 100, 1)):
        await page.get_by_role("link", name=name).click()
        rows = page.get_by_role("table", name=name).locator("tbody tr")
        await expect(rows).to_have_count(on_first)
        await page.get_by_role("button", name="Next page").click()
        await expect(rows).to_have_count(on_second)
        await expect(page.get_by_role("button", name="Next page")).not_to_be_visible()
        await page.get_by_role("button", name="First page").click()
        await expect(rows).to_have_count(on_first)
    await good(page, "pages")


@contextmanager
def silent() -> Iterator[str]:
    """An address where every connection is taken, by the kernel, and nothing is ever said."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(64)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


async def test_a_fleet_of_which_one_hangs_and_one_refuses(make_house: MakeHouse, browser: Browser) -> None:
    h = await deployment(make_house)
    mine, secret = str(h.http.base_url).rstrip("/"), token(h)
    with silent() as nobody:
        entries = [f"Near={mine} {secret}", f"Hangs={nobody} {secret}", f"Refuses={mine} cus_1_wrong"]
        await h.entry(fleet=",".join(entries))
        page = await opened(browser, h)
        await page.get_by_role("link", name="Fleet").click()
        near, hangs, refuses = (page.get_by_role("region", name=name) for name in ("Near", "Hangs", "Refuses"))
        await expect(near.get_by_text("live")).to_be_visible()
        await expect(hangs.get_by_text("no answer within 1 s")).to_be_visible()
        await expect(refuses.get_by_text("answered 401")).to_be_visible()
        await good(page, "fleet")
        assert secret not in await page.content()
        answer = await h.http.get("/fleet")
        assert secret not in answer.text
        assert [one["figures"] is not None for one in answer.json()] == [True, False, False]
        first = next(proc for proc in h.procs if "entry" in proc.name)
        first.kill()
        await expect(near.get_by_text("last seen")).to_be_visible()
        await expect(near.get_by_text("Running")).to_be_visible()  # what was seen last stays


async def test_it_says_when_the_server_is_away_and_comes_back(make_house: MakeHouse, browser: Browser) -> None:
    h = await deployment(make_house)
    page = await opened(browser, h)
    await expect(page.locator("#live.on")).to_be_visible()
    port = str(h.http.base_url).rstrip("/").rsplit(":", 1)[1]
    entry = next(proc for proc in h.procs if "entry" in proc.name)
    entry.kill()
    await expect(page.get_by_role("alert").filter(has_text="The server does not answer")).to_be_visible()
    await good(page, "offline")
    await h.entry(entry_port=port)
    await expect(page.locator("#live.on")).to_be_visible(timeout=30_000)
    await expect(page.get_by_role("alert").filter(has_text="The server does not answer")).not_to_be_visible()


async def test_a_wrong_token_is_said_to_be_wrong_and_is_kept_nowhere(make_house: MakeHouse, browser: Browser) -> None:
    h = await deployment(make_house)
    context = await browser.new_context(base_url=str(h.http.base_url), locale="en-GB")
    page = await context.new_page()
    await page.goto("/")
    await page.get_by_label("Token").fill("cus_1_wrong")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_text("This token is not accepted.")).to_be_visible()
    await page.get_by_label("Token").fill(token(h))
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", name="Running")).to_be_visible()
    assert await page.evaluate("JSON.stringify(localStorage)") == '{"cuscuta-language":"en"}'
    assert await context.cookies() == []
    await page.get_by_role("button", name="Sign out").click()
    await page.get_by_role("dialog").get_by_role("button", name="Sign out").click()
    await expect(page.get_by_label("Token")).to_be_visible()
    assert await page.evaluate("sessionStorage.length") == 0
