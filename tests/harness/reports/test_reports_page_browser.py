"""The page in a real browser: chromium, headless, with no way out."""

import shutil

import pytest
from test_reports_page import SOURCES

from harness.reports.figures.saving import save
from harness.reports.formats import Table
from harness.reports.page import render_page
from harness.reports.tables import all_tables

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
ARGUMENTS += ["--disable-component-update", "--disable-sync"]
NUMBERS = ["0.5 ± 0.1", "n/a (0 seeds)", "-0.25", "1.2e+03", "12,800"]


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(study, drawn, tmp_path_factory):
    rows = [[f"arm {n:03d}", NUMBERS[n] if n < len(NUMBERS) else str(n)] for n in range(250)]
    tables = [*all_tables(study), Table("long", "Many arms", ["arm", "score"], rows, [], [])]
    pictures = {name: save(drawn[name], "png", None) for name in ("final_scores", "entropy")}
    file = tmp_path_factory.mktemp("page") / "page.html"
    file.write_bytes(render_page(study, "grpo", tables, pictures, SOURCES))
    return file.as_uri()


@pytest.fixture
def opened(browser, address):
    """Open the page; at the end nothing was asked for, said or broken."""
    pages, heard = [], []

    def open_page(width=1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 800}, offline=True, **options)
        page = context.new_page()
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("request", lambda r: None if r.url.startswith((address, "data:image/png")) else heard.append(r.url))
        page.goto(address)
        pages.append(context)
        return page

    yield open_page
    for context in pages:
        context.close()
    assert heard == []


def column(page, table, number):
    return page.locator(f"#{table} tbody tr:visible").evaluate_all(
        "(rows, n) => rows.map((row) => row.cells[n].textContent)", number
    )


def test_a_click_sorts_up_a_second_down_a_third_restores(opened) -> None:
    page = opened()
    before = column(page, "table-long", 1)
    heading = page.locator("#table-long thead th").nth(1)
    heading.get_by_role("button").click()
    assert column(page, "table-long", 1)[:4] == ["-0.25", "0.5 ± 0.1", "5", "6"]
    assert heading.get_attribute("aria-sort") == "ascending"
    heading.get_by_role("button").click()
    assert column(page, "table-long", 1)[:3] == ["12,800", "1.2e+03", "249"]
    assert heading.get_attribute("aria-sort") == "descending"
    page.get_by_role("button", name="Show all 250 rows").click()
    assert column(page, "table-long", 1)[-1] == "n/a (0 seeds)"  # missing ones last, whichever way
    heading.get_by_role("button").click()
    assert column(page, "table-long", 1)[:100] == before
    assert heading.get_attribute("aria-sort") is None


def test_the_keyboard_sorts_too(opened) -> None:
    page = opened()
    heading = page.locator("#cells thead th").nth(list_index(page, "cells", "final"))
    heading.get_by_role("button").focus()
    page.keyboard.press("Enter")
    final = column(page, "cells", list_index(page, "cells", "final"))
    assert final[-3:] == ["n/a"] * 3
    assert final[:-3] == sorted(final[:-3], key=float)


def list_index(page, table, name):
    heads = page.locator(f"#{table} thead th").all_inner_texts()
    return [head.split("\u00a0")[0].strip() for head in heads].index(name)


def test_a_long_table_shows_its_first_rows_and_can_be_searched(opened) -> None:
    page = opened()
    assert len(column(page, "table-long", 0)) == 100
    page.get_by_placeholder("filter 250 rows").fill("24 ARM")
    assert column(page, "table-long", 0) == ["arm 024", "arm 124", "arm 224", *(f"arm {n}" for n in range(240, 250))]


@pytest.mark.parametrize("width", [320, 360, 768, 1280])
def test_the_page_is_never_wider_than_the_screen(opened, width) -> None:
    page = opened(width)
    for part in page.locator("details").all():
        part.evaluate("part => { part.open = true }")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    wide = page.locator("#table-comparison").evaluate("table => table.offsetWidth > table.parentNode.clientWidth")
    assert wide or width == 1280
    box = page.locator("#table-comparison").locator("xpath=..")
    assert box.evaluate("box => box.scrollWidth >= box.clientWidth && getComputedStyle(box).overflowX") == "auto"


def test_nothing_that_a_model_wrote_runs(opened) -> None:
    page = opened()
    assert page.title() == "kills & <b>bold</b>: report"
    assert page.locator("script").count() == 1
    assert page.locator("img").count() == 2
    assert "<script>document.title=" in page.locator("#samples pre").nth(1).text_content()


def test_a_script_that_slipped_in_would_not_run(browser, address) -> None:
    with browser.new_context(offline=True) as context:
        page = context.new_page()
        page.goto(address)
        violated = page.evaluate("""() => new Promise((done) => {
            addEventListener("securitypolicyviolation", (event) => done(event.violatedDirective));
            const element = document.createElement("div");
            element.setAttribute("onclick", "document.title = 'owned'");
            document.body.append(element);
            element.click();
        })""")
        assert violated.startswith("script-src")
        assert page.title() != "owned"


def test_without_scripts_everything_is_there(opened) -> None:
    page = opened(java_script_enabled=False)
    assert page.locator("#table-long tbody tr").count() == 250
    assert page.locator("#table-long tbody tr").last.is_visible()
    assert page.locator("button, input").count() == 0


def test_the_print_fits_its_paper_and_has_no_buttons(opened) -> None:
    page = opened(1040)  # CSS pixels of an A4 page in landscape
    page.emulate_media(media="print")
    assert page.locator(".more:visible, input:visible, nav:visible").count() == 0
    wide = page.locator("#results table").evaluate_all(
        "tables => tables.filter((t) => t.offsetWidth > t.parentNode.clientWidth + 1).map((t) => t.id)"
    )
    assert wide == []
    paper = page.pdf(prefer_css_page_size=True)
    assert paper.startswith(b"%PDF-")
    assert len(paper) > 50_000
    page.emulate_media(media="screen")
    page.locator("#table-long thead").get_by_role("button").first.click()  # the buttons are back, and work
    assert page.locator("#table-long thead th").first.get_attribute("aria-sort") == "ascending"


def test_dark_text_is_light(opened) -> None:
    colour = "getComputedStyle(document.body).color"
    assert opened(color_scheme="dark").evaluate(colour) == "rgb(230, 230, 230)"
    assert opened(color_scheme="light").evaluate(colour) == "rgb(27, 27, 27)"
