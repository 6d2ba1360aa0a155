"""The report as a reader sees it: on a laptop, on a telephone, on paper, with a mouse and with the keyboard alone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest
import sweep_samples as samples

from specsweep.analysis.report import build, html

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(120)]
A4_WIDTH = 718  # px at 96 dpi between margins of 1 cm
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def chromium() -> Iterator[object]:
    """The system's Chromium, driven by Playwright, whose own copy would be a download that no lock file pins.

    It is open for these tests only: Playwright's event loop counts as running all the while, and nobody's ``asyncio.run`` could start one.
    """
    from playwright.sync_api import sync_playwright

    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.fail(f"no browser found ({', '.join(BROWSERS)}): install Debian's chromium, or leave these tests out with -m 'not browser'")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    attempts = samples.quickstart()
    attempts[4] = samples.attempt(samples.axes("ngram", 4, 4), rate=23, al=2.4, invalid="lag_p99_share")
    attempts.append(samples.attempt(samples.axes("ngram", 16), failed=True))
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(html(build("quickstart", attempts, planned=25, command="specsweep run sweep=quickstart")), encoding="utf-8")
    return file.as_uri()


@pytest.fixture
def open_page(chromium, address):
    pages = []

    def opened(width=1280, height=800, **more):
        page = chromium.new_page(viewport={"width": width, "height": height}, **more)
        page.asked, page.complaints = [], []
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.goto(address)
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()


def test_it_asks_for_nothing_but_itself_and_complains_of_nothing(open_page, address):
    page = open_page()
    assert page.asked == [address]
    assert page.complaints == []


def test_a_mark_that_is_pointed_at_shows_its_numbers_inside_of_the_window(open_page):
    page = open_page()
    told = set()
    for mark in page.locator(".targets circle").all():
        mark.hover(force=True)  # another mark may lie over it
        tip = page.locator(".tip")
        assert tip.is_visible()
        for text in tip.inner_text().split("\n\n"):
            assert re.match(r"(none|ngram · DL \d+), BS \d+\nper user: [\d.]+ \[", text)
            told.add(text)
        box = tip.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 1280
    assert len(told) == page.locator(".targets circle").count()  # those under others too
    page.mouse.move(2, 2)
    assert not page.locator(".tip").is_visible()


def test_the_keyboard_reaches_marks_and_leaves_them(open_page):
    page = open_page()
    first = page.locator(".targets circle").first
    first.focus()
    assert page.locator(".tip").is_visible()
    said = page.locator(".tip").inner_text()
    page.keyboard.press("Tab")
    assert page.locator(".tip").inner_text() != said
    page.keyboard.press("Escape")
    assert not page.locator(".tip").is_visible()


def test_without_scripts_the_numbers_are_the_browsers_own_tooltips(chromium, address):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator(".targets circle title").first.text_content().count("\n") >= 3
    context.close()


@pytest.mark.parametrize("width", [390, 1024, 1280, 1920])
def test_the_page_never_scrolls_sideways(open_page, width):
    page = open_page(width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_on_paper_no_table_or_figure_is_cut_and_nothing_of_the_screen_is_left(open_page):
    page = open_page(A4_WIDTH)
    page.emulate_media(media="print")
    cut = page.evaluate(
        "(width) => [...document.querySelectorAll('table, svg')].filter(e => e.getBoundingClientRect().right > width + 1)"
        ".map(e => e.closest('section, figure, div')?.previousElementSibling?.textContent ?? e.tagName)",
        A4_WIDTH,
    )
    assert cut == []
    assert page.locator("nav").is_hidden()
    assert page.locator(".targets").is_hidden()
    assert page.pdf(format="A4").startswith(b"%PDF")
