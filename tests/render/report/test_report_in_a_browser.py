"""The page of `gpuplan report` in a real browser, from `file://`, with the network off.

Any Chromium that is there will do (`apt-get install chromium`, or `playwright install chromium`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from gpuplan.render.report.page import build_report_html
from hostile import HOSTILE

pytestmark = pytest.mark.slow

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge")
PATIENCE_MS = 120_000  # a browser on a busy machine
DESKTOP, PHONE = {"width": 1300, "height": 900}, {"width": 400, "height": 850}
CELLS = "rows => rows.map(tr => [...tr.cells].map(td => td.textContent))"
OPEN = "document.querySelectorAll('details').forEach(one => { one.open = true; })"
VISIBLE_WORDS = 1500


def browser_path(own: str) -> str | None:
    """Return a browser of this machine: as asked for, as installed, or as playwright downloaded it."""
    asked = os.environ.get("BROWSER_UNDER_TEST")
    found = asked or next(filter(None, map(shutil.which, NAMES)), None)
    return found or (own if Path(own).exists() else None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    with playwright.sync_playwright() as driver:
        path = browser_path(driver.chromium.executable_path)
        if path is None:
            pytest.skip("no Chromium here: `apt-get install chromium` or `playwright install chromium`")
        sandboxed = os.geteuid() != 0  # Chromium refuses a sandbox to root
        started = driver.chromium.launch(executable_path=path, chromium_sandbox=sandboxed)
        yield started
        started.close()


@pytest.fixture(scope="module")
def report(plan: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page as a file."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(build_report_html(plan), encoding="utf-8")
    return path


@pytest.fixture
def open_page(browser: Any, report: Path) -> Iterator[Any]:
    """Open the page without a network; nothing may be asked for beside it, and no error may be told."""
    contexts: list[Any] = []
    faults: list[str] = []

    def opened(viewport: dict[str, int] = DESKTOP, **options: Any) -> Any:
        context = browser.new_context(viewport=viewport, offline=True, **options)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda asked: asked.url in (report.as_uri(), "") or faults.append(asked.url))
        page.goto(report.as_uri())
        page.wait_for_selector("#count:not(:empty)", state="attached")
        page.wait_for_selector("#chart-cost-time svg")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [fault for fault in faults if not fault.startswith("blob:")] == []


def column(page: Any, title: str) -> tuple[Any, int]:
    """Return a column's heading and place."""
    titles = page.eval_on_selector_all("#table thead th", "heads => heads.map(h => h.dataset.column)")
    return page.locator(f'#table thead th[data-column="{title}"]'), titles.index(title)


def read_usd(text: str) -> float | None:
    """Return the amount of a cell; None if there is none."""
    if text == "< 1 cent":
        return 0.005
    return float(text.split(maxsplit=1)[0].lstrip("$").replace(",", "")) if text.startswith("$") else None


def test_the_first_screen_is_the_answer(open_page: Any, plan: dict[str, Any]) -> None:
    """The decision and its chart on the first screen, in few words; the page within 1,500, the rest is folded."""
    page = open_page()
    words = page.evaluate("document.body.innerText").split()
    chart = page.locator("#chart-cost-time").bounding_box()

    assert page.locator("h1").text_content() == plan["decision"]["sentence"]
    assert chart["y"] + chart["height"] < DESKTOP["height"]
    assert 50 < len(words) <= VISIBLE_WORDS
    assert page.locator("details[open]").count() == 0


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE])
def test_the_chart_names_the_decision_without_overlaps(
    open_page: Any, plan: dict[str, Any], viewport: dict[str, int]
) -> None:
    """Several labels on the axis of time, one for each offer of the decision; no two texts meet."""
    page = open_page(viewport)
    picks = {one["offer"] for one in plan["decision"].values() if isinstance(one, dict)}
    texts = page.locator("#chart-cost-time svg text")
    boxes = [(texts.nth(i).text_content(), texts.nth(i).bounding_box()) for i in range(texts.count())]
    times = [text for text, _ in boxes if text.endswith((" s", " min", " h", " d"))]

    assert len(times) >= 3
    marked = [
        text for text, _ in boxes if text.startswith(("take", "free", "cheaper", "faster")) and text != "free"
    ]
    assert len(marked) == len(picks) == 3
    for at, (text, one) in enumerate(boxes):
        for other_text, other in boxes[:at]:
            apart_x = one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
            apart_y = one["y"] + one["height"] <= other["y"] or other["y"] + other["height"] <= one["y"]
            assert apart_x or apart_y, (text, other_text)


def test_folded_charts_are_drawn_when_they_are_opened(open_page: Any) -> None:
    """Each has its size then."""
    page = open_page()
    assert page.locator("#chart-epochs svg").count() == 0
    for name in ("step", "roofline", "memory", "epochs"):
        page.locator(f"#{name} > summary").click()
        page.wait_for_selector(f"#{name} svg")
    assert page.locator("#chart-epochs svg").last.bounding_box()["width"] > 900


def test_it_sorts_filters_and_shows_every_offer(open_page: Any, plan: dict[str, Any]) -> None:
    """Numbers sort as numbers, unknown last, both ways and by keyboard; words, purchase and fit narrow it."""
    page = open_page()
    head, cost = column(page, "cost_usd")
    playwright.expect(page.locator("#table tbody tr")).to_have_count(10)
    page.locator("#more").click()
    head.locator("button").click()
    shown = page.eval_on_selector_all("#table tbody tr", CELLS)
    usd = [0.0 if (text := row[cost]) == "free" else read_usd(text) for row in shown]
    known = [one for one in usd if one is not None]
    assert known == sorted(known)
    assert usd[: len(known)] == known
    assert head.get_attribute("aria-sort") == "ascending"
    head.locator("button").press("Enter")
    again = page.eval_on_selector_all("#table tbody tr", CELLS)
    assert head.get_attribute("aria-sort") == "descending"
    assert read_usd(again[0][cost]) == max(known)

    page.locator("#everything").check()
    playwright.expect(page.locator("#count")).to_contain_text(f"of {len(plan['offers']):,} rows")
    page.locator("#find").fill("T4 us-east-1 g4dn")
    page.locator("#purchase").select_option("spot")
    _, device = column(page, "machine")
    _, purchase = column(page, "purchase")
    rows = page.eval_on_selector_all("#table tbody tr", CELLS)
    assert rows
    assert all("T4" in row[device] and row[purchase] == "spot" for row in rows)
    expected = [
        one
        for one in plan["offers"]
        if one["accelerator"] == "T4"
        and one["region"] == "us-east-1"
        and one["purchase"] == "spot"
        and one["instance_type"].startswith("g4dn")
    ]
    assert len(rows) == len(expected)


def test_hovering_and_arrow_keys_read_a_point(open_page: Any) -> None:
    """A tip names offer, time and cost; the arrow keys say the same in words."""
    page = open_page()
    chart = page.locator("#chart-cost-time")
    chart.scroll_into_view_if_needed()
    box = chart.locator('g[aria-label="dot"] circle').last.bounding_box()  # the last of the decision
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = chart.locator('g[aria-label="tip"] text')
    tip.first.wait_for(state="attached")
    assert " on demand" in tip.first.text_content() or " spot" in tip.first.text_content()
    chart.focus()
    page.keyboard.press("ArrowRight")
    first = page.locator("#read-cost-time").text_content()
    page.keyboard.press("ArrowRight")
    assert " · " in first
    assert page.locator("#read-cost-time").text_content() != first


def test_light_dark_and_print(open_page: Any) -> None:
    """The system's choice, the button's, and paper: black on white, without controls."""
    background = "getComputedStyle(document.body).backgroundColor"
    page = open_page(color_scheme="dark")
    dark = page.evaluate(background)
    page.locator("#theme").click()
    light = page.evaluate(background)
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(18, 21, 28)")
    page.locator("#theme").click()
    assert page.evaluate(background) == dark
    page.emulate_media(media="print")
    assert page.evaluate(background) == light
    assert not page.locator("#find").is_visible()


def test_hostile_names_stay_text_in_the_browser(open_page: Any) -> None:
    """Nothing ran, nothing was loaded, and the names can be read, in charts too."""
    page = open_page()
    page.locator("#everything").check()
    page.wait_for_timeout(0)
    assert page.evaluate("window.pwned") is None
    assert page.locator("img, main iframe, svg[onload]").count() == 0
    page.evaluate(OPEN)
    page.wait_for_selector("#chart-layers svg")
    assert HOSTILE[0] in page.locator(".question").text_content()
    assert "alert" not in page.title()
    assert "⟨U+202E⟩" in page.locator(".question").text_content()
    assert HOSTILE[1][-18:] in page.locator("#chart-layers").text_content()


def test_the_plan_can_be_saved_from_the_page(open_page: Any, plan: dict[str, Any], tmp_path: Path) -> None:
    """What the button saves is the plan."""
    import json

    page = open_page(accept_downloads=True)
    page.locator("#data > summary").click()
    with page.expect_download() as saving:
        page.locator("#download").click()
    saving.value.save_as(tmp_path / "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text(encoding="utf-8")) == plan


@pytest.mark.parametrize(("viewport", "scheme"), [(DESKTOP, "dark"), (PHONE, "light")])
def test_axe_finds_no_barrier(open_page: Any, viewport: dict[str, int], scheme: str) -> None:
    """axe-core with all its rules (WCAG 2 A and AA, good practices), in both themes and on a phone."""
    page = open_page(viewport, color_scheme=scheme)
    page.evaluate(OPEN)
    page.wait_for_selector("#chart-epochs svg")
    page.locator("#find").fill("T4")  # a few rows stand for all
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8") + "; undefined")
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    assert [(one["id"], [node["target"] for node in one["nodes"]][:3]) for one in found] == []


def test_a_phone_shows_it_without_scrolling_sideways(open_page: Any) -> None:
    """Only tables scroll, within themselves."""
    page = open_page(PHONE)
    page.evaluate(OPEN)
    page.wait_for_selector("#chart-epochs svg")
    assert page.evaluate("document.scrollingElement.scrollWidth") <= PHONE["width"]
    assert (
        page.evaluate("document.querySelector('#chart-cost-time svg:last-of-type').clientWidth") <= PHONE["width"]
    )
