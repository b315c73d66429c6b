"""What the open page shows when an edge, the bridge, the lake or Prometheus is down, and when they are back."""

import signal
import time
import urllib.error
import urllib.request

from playwright.sync_api import expect

from bridge.metrics import Complete, SourceMetrics
from bridge.service import BridgeService
from headrace.metrics.endpoint import Endpoint
from infra.local.server import free_port
from tests.console.lake_of_a_day import REASON, SOURCES, make_lake
from tests.console.test_pages import CONTRAST

pytest_plugins = ["tests.bridge.fix_bridge"]


def heading(page, text, seconds=60):
    expect(page.get_by_role("heading", level=1)).to_contain_text(text, timeout=seconds * 1000)


def test_an_edge_that_dies_turns_red_within_seconds_and_green_when_it_is_back(headquarters, console, watched):
    served = console("--config", str(headquarters.file))
    page = watched(served.url).go("/")
    heading(page, "All 2 sources are well")

    headquarters.edges["london/cards"].kill()
    killed = time.monotonic()
    cell = page.locator("tr[id='row-london/cards'] td.hop").nth(1)
    expect(cell).to_have_class("hop bad", timeout=30_000)
    # Three heartbeats of 0.3 s and a second, a look of the console and one of the page.
    print(f"an edge that was killed is red after {time.monotonic() - killed:.1f} s")
    assert time.monotonic() - killed < 10
    heading(page, "1 of 2 sources is failing", 1)
    expect(page.get_by_role("status")).to_have_text("1 of 2 sources is failing")
    expect(page.locator("tr[id='row-jakarta/bank']")).to_have_class("ok")
    # The state is in words and signs too.
    expect(page.locator("tr[id='row-london/cards'] .state")).to_contain_text("failing")
    page.get_by_role("link", name="london/cards").first.click()
    expect(page.locator("section[aria-labelledby=next]")).to_contain_text("headrace edge doctor")

    headquarters.edges["london/cards"].start()
    expect(page.locator("h1 .state")).to_contain_text("well", timeout=60_000)


def test_a_bridge_that_dies_turns_red_within_seconds_the_page_stays_and_recovers(headquarters, console, watched):
    served = console("--config", str(headquarters.file))
    page = watched(served.url).go("/")
    heading(page, "All 2 sources are well")

    headquarters.bridge.kill()
    killed = time.monotonic()
    heading(page, "2 of 2 sources are failing", 10)
    print(f"a bridge that was killed is red after {time.monotonic() - killed:.1f} s")
    expect(page.locator("main .notice.bad").first).to_contain_text(
        f"The bridge at {headquarters.metrics} does not answer"
    )
    expect(page.locator("table.sources tbody tr")).to_have_count(2)
    page.get_by_role("link", name="jakarta/bank").first.click()
    expect(page.locator("section[aria-labelledby=next]")).to_contain_text("headrace bridge doctor")
    page.get_by_role("link", name="Overview").first.click()

    headquarters.start_bridge()
    heading(page, "All 2 sources are well", 90)
    expect(page.locator("main .notice.bad")).to_have_count(0)


def test_a_bridge_that_hangs_counts_as_down_and_delays_no_page(headquarters, console, watched):
    served = console("--config", str(headquarters.file))
    page = watched(served.url).go("/")
    heading(page, "All 2 sources are well")
    headquarters.bridge.process.send_signal(signal.SIGSTOP)
    try:
        heading(page, "2 of 2 sources are failing", 15)
        begun = time.monotonic()
        page.reload()
        assert time.monotonic() - begun < 2
    finally:
        headquarters.bridge.process.send_signal(signal.SIGCONT)
    heading(page, "All 2 sources are well", 90)


def test_without_a_bridge_a_lake_and_prometheus_every_page_says_what_to_check(console, watched, tmp_path):
    (tmp_path / "bridge.toml").write_text(
        '[kafka]\nbootstrap = "127.0.0.1:1"\n[interconnect]\nlisten = "127.0.0.1:0"\n'
        f'[metrics]\nlisten = "127.0.0.1:{free_port()}"\n[streams.bank.sources]\n"jakarta/bank" = [0]\n'
    )
    (tmp_path / "lake.toml").write_text(
        '[lake]\nroot = "nowhere"\n[kafka]\nbootstrap = "127.0.0.1:1"\n[streams.bank]\nsources = ["jakarta/bank"]\n'
    )
    away = f"http://127.0.0.1:{free_port()}"
    served = console(
        "--config", str(tmp_path / "bridge.toml"), "--lake", str(tmp_path / "lake.toml"), "--prometheus", away
    )
    seen = watched(served.url)
    page = seen.go("/")
    expect(page.locator("main .notice.bad").first).to_contain_text("does not answer", timeout=20_000)
    expect(page.locator("main .notice.bad").first).to_contain_text("Check that its process runs")
    expect(page.locator("table.sources tbody tr")).to_have_count(1)
    for path in ("/loads", "/tables"):
        expect(seen.go(path).locator("main .notice.bad")).to_contain_text("nothing is published yet", timeout=20_000)
    expect(seen.go("/trends").locator(".notice.warn")).to_contain_text(f"Prometheus at {away} does not answer")
    expect(seen.go("/sources/jakarta/bank").locator("main")).to_contain_text("headrace bridge doctor")


def bridge_without_servers(folder):
    """Return a bridge's file, for a console that is to find nothing else."""
    path = folder / "bridge.toml"
    path.write_text(
        '[kafka]\nbootstrap = "127.0.0.1:1"\n[interconnect]\nlisten = "127.0.0.1:0"\n'
        f'[metrics]\nlisten = "127.0.0.1:{free_port()}"\n[streams.bank.sources]\n"jakarta/bank" = [0]\n'
    )
    return path


def overflowing(page):
    """Return the widths of what needs more than it has."""
    widths = page.evaluate(
        "[...document.querySelectorAll('html, .scroll')].map(e => [e.scrollWidth, e.clientWidth])",
    )
    return [pair for pair in widths if pair[0] > pair[1]]


def test_q7_the_page_of_tables_fits_1240_pixels(console, watched, tmp_path):
    """Q7: the reason of a stop did not wrap, and four columns left the screen."""
    make_lake(tmp_path / "lake")
    file = tmp_path / "lake.toml"
    file.write_text(
        f'[lake]\nroot = "{tmp_path / "lake"}"\n[kafka]\nbootstrap = "127.0.0.1:1"\n'
        f"[streams.bank]\nsources = {list(SOURCES)}\n"
    )
    served = console("--config", str(bridge_without_servers(tmp_path)), "--lake", str(file))
    seen = watched(served.url)
    seen.page.set_viewport_size({"width": 1240, "height": 760})
    page = seen.go("/tables")
    expect(page.get_by_role("row", name="public.tellers")).to_contain_text(REASON, timeout=20_000)
    assert overflowing(page) == []
    # The page of a table fits too, on a telephone all but what scrolls by itself.
    for name in ("public.accounts", "public.tellers"):
        page = seen.go(f"/table?stream=bank&name={name}")
        expect(page.locator("svg.lineage")).to_be_visible()
        assert overflowing(page) == []
    for scheme in ("light", "dark"):
        narrow = watched(served.url, color_scheme=scheme)
        narrow.page.set_viewport_size({"width": 390, "height": 844})
        page = narrow.go("/table?stream=bank&name=public.accounts")
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert page.evaluate(CONTRAST) == [], scheme


def test_a_thousand_sources_are_listed_by_the_hundred_and_found_by_name(console, watched, tmp_path):
    sources = {f"region{number % 40}/db{number}": SourceMetrics(state="serving") for number in range(1000)}
    for metrics in sources.values():
        metrics.hear({"state": "capturing", "heartbeat_seconds": 600.0, "captured_lag_seconds": 0.1}, 100)
        metrics.settle(Complete(time.monotonic(), 0.1, 0))
    sources["region7/db7"].state = "needs an operator"
    service = BridgeService(lambda: sources, dict, lambda: True, lambda: "", {}, {}, dict)
    service.waits_for = ""
    endpoint = Endpoint("127.0.0.1:0", service)
    try:
        served = console("--config", str(bridge_without_servers(tmp_path)), "--at", f"127.0.0.1:{endpoint.port}")
        page = watched(served.url).go("/")
        # That of the bridge's file, which the bridge does not report, counts too.
        heading(page, "1 of 1001 sources is failing")
        expect(page.locator("table.sources tbody tr")).to_have_count(100)
        expect(page.locator("table.sources tbody tr").first).to_contain_text("region7/db7")
        begun = time.monotonic()
        page.goto(f"{served.url}/?q=region7/&sort=source")
        took = time.monotonic() - begun
        print(f"a filtered page of a thousand sources is there after {took:.2f} s")
        assert took < 5
        expect(page.locator("table.sources tbody tr")).to_have_count(25)
    finally:
        endpoint.stop()


def test_a_strangers_request_gets_no_page(console, tmp_path):
    (tmp_path / "token").write_text("0123456789abcdef0123456789abcdef\n")
    served = console("--config", str(bridge_without_servers(tmp_path)), "--token", f"file:{tmp_path / 'token'}")

    def status(path="/", **headers):
        request = urllib.request.Request(served.url + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    for path in ("/", "/metrics", "/sources/jakarta/bank"):
        code, text = status(path)
        assert code == 401
        assert b"jakarta" not in text
        assert status(path, Authorization="Bearer wrong")[0] == 401
        assert status(path, Host="evil.example")[0] == 421
    code, text = status(Authorization="Bearer 0123456789abcdef0123456789abcdef")
    assert code == 200
    assert b"jakarta/bank" in text


def test_a_console_that_ends_is_shown_on_the_open_page(headquarters, console, watched):
    served = console("--config", str(headquarters.file))
    page = watched(served.url).go("/")
    heading(page, "All 2 sources are well")
    assert served.stop() == 0
    expect(page.get_by_role("alert")).to_contain_text("The console itself does not answer", timeout=20_000)
    heading(page, "All 2 sources are well", 1)
