"""Every page of the console over a pipeline that runs, with a lake that was loaded by Spark."""

import re
import urllib.request

import pytest
from playwright.sync_api import expect

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from spark_jobs import load as job
from tests.console.conftest import SOURCES
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]


def in_lake(spark, lake, rows):
    """Load until both sources' rows are published."""
    found = {"rows": 0}

    def loaded():
        report = job.run(spark, lake, "bank")
        found["rows"] += sum(report.silver.changes.values()) if report.silver else 0
        return found["rows"] >= rows

    eventually(loaded, 180, every=0.5, saying=f"{rows} rows are published")


@pytest.fixture
def lake(headquarters, kafka, tmp_path, spark):
    """Return the path of a lake's file that has what the edges sent."""
    path = tmp_path / "lake.toml"
    path.write_text(
        f'[lake]\nroot = "lake"\n[kafka]\nbootstrap = "{kafka.bootstrap}"\n[streams.bank]\ntopic = "{headquarters.topic}"\n'
        f"sources = {list(SOURCES)}\n".replace("'", '"')
    )
    in_lake(spark, load(path, LakeFile), 500 * len(SOURCES))
    return path


def hop(page, source, number):
    """Return the cell of a source's hop in the overview, from 1."""
    return page.locator(f"tr[id='row-{source}'] td.hop").nth(number - 1)


def test_every_page_shows_what_the_bridge_and_the_lake_know(headquarters, lake, console, watched):
    served = console("--config", str(headquarters.file), "--lake", str(lake))
    seen = watched(served.url)

    page = seen.go("/")
    expect(page.get_by_role("heading", level=1)).to_have_text("All 2 sources are well", timeout=60_000)
    for source in SOURCES:
        for number in range(1, 8):
            expect(hop(page, source, number)).to_have_class("hop ok")
    page.get_by_role("link", name="jakarta/bank").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("jakarta/bank")
    positions = page.locator("section[aria-labelledby=positions] code").all_inner_texts()
    assert len(positions) == 3
    assert all(re.fullmatch("[0-9a-f]{8}/[0-9a-f]{16}/[0-9a-f]{8}", each) for each in positions)
    # All that is committed is published.
    assert positions[0] == positions[2]
    expect(page.locator("section[aria-labelledby=tables]")).to_contain_text("silver.accounts")
    expect(page.locator("section[aria-labelledby=next]")).to_contain_text(
        "everything that is known of this source is well"
    )
    # The chart gets its first point within seconds.
    expect(page.locator("svg.chart .dot, svg.chart .line").first).to_be_attached(timeout=20_000)

    page = seen.go("/loads")
    expect(page.get_by_role("row", name=re.compile("silver")).first).to_contain_text("bank")
    assert page.locator("svg.chart rect.bar").count() >= 2
    page = seen.go("/tables")
    expect(page.get_by_role("row", name=re.compile("public.accounts"))).to_contain_text("published")
    page.get_by_role("link", name="public.accounts").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("public.accounts ● published")
    columns = page.locator("section[aria-labelledby=columns]")
    expect(columns.get_by_role("row", name=re.compile("^id "))).to_contain_text("integer")
    expect(columns.get_by_role("row", name=re.compile("^id "))).to_contain_text("int4")
    expect(columns.get_by_role("row", name=re.compile("^note "))).to_contain_text("text")
    # From both databases by one bridge, each by a partition of its own.
    assert page.locator("svg.lineage g.node").count() == 3 * len(SOURCES) + 4
    assert page.locator("svg.lineage g.node:not(.ok)").count() == 0
    assert page.locator("section[aria-labelledby=versions] rect.bar").count() >= 1
    page = seen.go("/trends")
    expect(page.get_by_role("heading", level=1)).to_have_text("Trends")
    assert page.goto(f"{served.url}/sources/no/such").status == 404
    seen.errors.clear()

    with urllib.request.urlopen(f"{served.url}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    assert 'headrace_lake_tables{state="published",stream="bank"} 1.0' in text
    assert 'headrace_lake_freshness_seconds{source="jakarta/bank",stream="bank"} 0.0' in text
    assert served.stop() == 0


def test_new_rows_move_the_page_without_a_reload(headquarters, console, watched):
    served = console("--config", str(headquarters.file))
    page = watched(served.url).go("/sources/jakarta/bank")
    expect(page.locator("h1")).to_contain_text("well", timeout=60_000)
    before = page.locator("section[aria-labelledby=positions] code").first.inner_text()
    page.evaluate("window.same = true")
    headquarters.databases["jakarta/bank"].execute("insert into accounts values (1001, 'b')")
    expect(page.locator("section[aria-labelledby=positions] code").first).not_to_have_text(before, timeout=20_000)
    assert page.evaluate("window.same") is True
    expect(page.locator("main")).to_contain_text("no lake")


def test_a_snapshot_is_shown_in_rows_while_it_is_under_way(headquarters, console, watched):
    edge = headquarters.edges["jakarta/bank"]
    headquarters.databases["jakarta/bank"].execute("create table more (id int primary key)")
    edge.command("snapshot", "--pause")
    edge.command("snapshot", "public.accounts")
    edge.command("snapshot", "public.accounts", "--where", "id > 100")
    served = console("--config", str(headquarters.file))
    page = watched(served.url).go("/sources/jakarta/bank")
    section = page.locator("section[aria-labelledby=snapshots]")
    expect(section).to_contain_text("public.accounts (paused): 0 rows. 1 more table waits.", timeout=60_000)
    edge.command("snapshot", "--resume")
    expect(section).to_contain_text("No table of this source is copied now.", timeout=60_000)


def test_pages_work_without_javascript(headquarters, console, watched):
    served = console("--config", str(headquarters.file))
    page = watched(served.url, java_script_enabled=False).go("/?q=london")

    def shown():
        page.reload()
        return page.locator("tr.ok th a").all_inner_texts() == ["london/cards"]

    eventually(shown, 60, saying="the filtered source is well")
    page.get_by_label("Source", exact=True).fill("nothing like it")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("td.nothing")).to_have_text("No source fits the filter.")
    page.get_by_role("link", name="Show all").click()
    page.get_by_role("link", name="Lag").click()
    assert page.url == f"{served.url}/?sort=lag"
    expect(page.locator("th[aria-sort]")).to_contain_text("Lag")


def test_everything_can_be_reached_by_the_keyboard_and_focus_stays_through_updates(headquarters, console, watched):
    served = console("--config", str(headquarters.file))
    # By lag, so that updates move rows.
    page = watched(served.url).go("/?sort=lag")
    expect(page.locator("tr.ok").first).to_be_visible(timeout=60_000)
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to the content")
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        focused = page.locator(":focus")
        if not focused.count():
            break
        seen.append(focused.evaluate("e => e.name || e.textContent.trim() || e.getAttribute('aria-label')"))
        outline = focused.evaluate("e => getComputedStyle(e).outlineStyle")
        assert outline != "none", seen
        if seen[-1] == "jakarta/bank":
            break
    assert {"Overview", "Loads", "Tables", "Trends", "Dark", "q", "state", "Show", "Lag"} <= {
        each.rstrip(" ↑↓") for each in seen
    }
    assert seen[-1] == "jakarta/bank"
    updated = page.locator("#updated").inner_text()
    expect(page.locator("#updated")).not_to_have_text(updated, timeout=20_000)
    expect(page.locator(":focus")).to_have_text("jakarta/bank")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{served.url}/sources/jakarta/bank")


def test_focus_stays_when_an_update_adds_or_removes_what_is_ahead(headquarters, console, watched):
    served = console("--config", str(headquarters.file))
    page = watched(served.url).go("/")
    expect(page.locator("tr.ok").first).to_be_visible(timeout=60_000)
    added = 0

    def altered(route):
        nonlocal added
        answer, added = route.fetch(), added + 1
        # A notice and a mark that every second answer has.
        text = answer.text()
        if added % 2:
            text = re.sub(r'(<\w+[^>]*id="live"[^>]*>)', r'\1<p class="later">Later</p><div>more</div>', text, count=1)
            text = re.sub(r"(<a [^>]*>jakarta/bank)", r"<span>new</span> \1", text, count=1)
        route.fulfill(response=answer, body=text)

    page.route("**/*", lambda route: altered(route) if "x-fragment" in route.request.headers else route.continue_())
    page.get_by_role("link", name="jakarta/bank").focus()
    for _ in range(2):
        expect(page.locator("p.later")).to_be_attached(timeout=20_000)
        expect(page.locator(":focus")).to_have_text("jakarta/bank")
        expect(page.locator("p.later")).not_to_be_attached(timeout=20_000)
        expect(page.locator(":focus")).to_have_text("jakarta/bank")


def test_dark_and_light_follow_the_system_and_the_button_which_is_remembered(headquarters, console, watched):
    served = console("--config", str(headquarters.file))
    page = watched(served.url, color_scheme="dark").go("/")

    def background():
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    dark = background()
    page.get_by_role("button", name="Light").click()
    light = background()
    assert dark != light
    page.reload()
    assert background() == light
    page.get_by_role("button", name="Dark").click()
    assert background() == dark


def test_texts_have_enough_contrast_and_landmarks_and_headers_are_there(headquarters, console, watched):
    served = console("--config", str(headquarters.file))
    for scheme in ("light", "dark"):
        seen = watched(served.url, color_scheme=scheme)
        for path in ("/", "/sources/jakarta/bank", "/trends", "/tables"):
            page = seen.go(path)
            assert page.evaluate(CONTRAST) == [], (scheme, path)
            assert page.get_by_role("main").count() == page.get_by_role("banner").count() == 1
            assert page.get_by_role("navigation", name="Pages", exact=True).count() == 1
            assert page.locator("h1").count() == 1
            assert page.locator("thead th:not([scope])").count() == 0
            assert page.locator("[style]").count() == 0


#: Texts whose contrast with what is behind them is less than 4.5 to 1.
CONTRAST = """() => {
  const parts = (text) => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (e) => {
    for (let at = e; at; at = at.parentElement) {
      const found = parts(getComputedStyle(at).backgroundColor);
      if (found.length < 4 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const weak = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || !e.checkVisibility() || e.closest("option, script, title, desc")) continue;
    const style = getComputedStyle(e);
    const [a, b] = [light(parts(e.closest("svg") ? style.fill : style.color)), light(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) weak.push(`${e.textContent.trim().slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return weak;
}"""
