"""Reports in a real browser: drawn, readable, reachable, contained."""

from pathlib import Path

import pytest

from trainplan.cli.blocks.html import TEXT

LARGEST_FILE = 2_700_000
LONGEST_LOAD_MS = 3000
"""Far over the second it takes, because other programs may want the processor."""
LEAST_CONTRAST = 4.5
WIDTHS = (1280, 400)
EVIL = "<img src=x onerror=alert(1)>\"'</script><b>@grid &amp; %{x}"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
RING = """(() => {
  const style = getComputedStyle(document.activeElement);
  return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
})()"""
REACHABLE = """[...document.querySelectorAll(
  'a[href], button, summary, input, select, [tabindex="0"]')]
  .filter((one) => one.checkVisibility()).length"""


def named(value: object, evil: str) -> object:
    """The document with `evil` as every name, id and sentence that a user can choose."""
    if isinstance(value, list):
        return [named(one, evil) for one in value]
    if not isinstance(value, dict):
        return value
    free = ("id", "source_group", "verdict", "says", "why", "reason", "teaches", "created")
    changed = {key: named(one, evil) for key, one in value.items()}
    changed |= {key: evil for key in free if isinstance(value.get(key), str)}
    if isinstance(value.get("model"), dict):
        changed["model"] = {**changed["model"], "name": evil}
    if isinstance(value.get("cluster"), dict):
        changed["cluster"] = {**changed["cluster"], "name": evil}
    if isinstance(value.get("notes"), list):
        changed["notes"] = [evil]
    if "num_gpus" in value and "name" in value:
        changed["name"] = evil
    if value.get("kind") == "link":
        changed |= {"source": f"{evil}:{value['source']}", "target": f"{evil}:{value['target']}"}
    return changed


@pytest.fixture(scope="module")
def report(documents, kind):
    """The file of a report whose names are HTML."""
    path = documents.folder / f"{kind}.html"
    documents.write(path, named(documents.of(kind), EVIL))
    return path


@pytest.fixture(scope="module")
def opened(browser, report):
    """The report with every chart drawn."""
    browser.open(report)
    browser.draw()
    return browser


def test_a_report_is_one_small_file(report):
    assert report.stat().st_size < LARGEST_FILE


def test_every_chart_is_drawn(opened):
    charts = opened.ask_file("charts.js")
    assert charts
    for name, chart in charts.items():
        assert chart["marks"] > 0, name
        assert min(chart["width"], chart["height"]) > 100, name


def test_the_console_is_silent_and_nothing_is_loaded(opened):
    assert opened.ask("performance.getEntriesByType('resource').length") == 0
    assert opened.console() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(opened, scheme):
    opened.scheme(scheme)
    opened.settle()
    weak = {
        name: ratio
        for name, ratio in opened.ask_file("contrast.js").items()
        if ratio < LEAST_CONTRAST
    }
    assert not weak


@pytest.mark.parametrize("width", WIDTHS)
def test_no_heading_of_the_page_is_cut(opened, width):
    opened.resize(width)
    cut = """[...document.querySelectorAll('nav a')].filter((one) =>
      one.getBoundingClientRect().right > document.documentElement.clientWidth).length"""
    assert opened.wait(f"{cut} === 0")
    opened.resize(WIDTHS[0])


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_never_scrolls_sideways(opened, width):
    opened.resize(width)
    fits = opened.wait(f"{OVERFLOW} <= 0")
    opened.resize(WIDTHS[0])
    assert fits


def test_the_table_of_alternatives_does_not_scroll_on_a_narrow_page(browser, documents):
    path = documents.folder / "alternatives.html"
    documents.write(path, documents.of("plan"))
    browser.open(path, width=800)
    wide = """[...document.querySelectorAll('#alternatives > .scroll')].filter(
      (one) => one.scrollWidth > one.clientWidth).length"""
    assert browser.ask("document.querySelectorAll('#alternatives > .scroll').length") == 1
    assert browser.wait(f"{wide} === 0")


def test_every_button_link_and_table_is_reached_by_tab_and_shows_it(opened):
    wanted = opened.ask(REACHABLE)
    assert opened.ask(
        "[...document.querySelectorAll('button')].every((one) => one.textContent.trim())"
    )
    opened.driver.execute_script(
        "window.rings = []; window.reached = new Set();"
        f"addEventListener('focusin', () => rings.push({RING}));"
        "addEventListener('focusin', (event) => reached.add(event.target));"
        "document.querySelector('.skip').focus();"
    )
    opened.press(*["\ue004"] * (wanted - 1))
    assert opened.ask("reached.size") == wanted
    assert opened.ask("rings.slice(1).every(Boolean)")


def test_headings_sort_by_number_from_the_keyboard(opened):
    opened.ask(f"{HEADING}.closest('details')?.setAttribute('open', '')")
    before = opened.ask(f"{COLUMN}.length")
    opened.ask(f"{HEADING}.focus()")
    for order in ("ascending", "descending"):
        opened.press("\ue007")
        values = opened.ask(COLUMN)
        assert opened.ask(f"{HEADING}.closest('th').ariaSort") == order
        assert values == sorted(values, reverse=order == "descending")
        assert len(values) == before > 1


HEADING = "document.querySelector('main th.number button')"
COLUMN = f"""((button) => [...button.closest("table").tBodies[0].rows]
  .map((row) => row.cells[button.closest("th").cellIndex].dataset.value)
  .filter((value) => value !== undefined).map(Number))({HEADING})"""


def test_the_button_changes_page_and_charts_to_the_other_theme(opened):
    def colours():
        chart = "document.querySelector('[data-figure]').layout.font.color"
        return opened.ask(f"[getComputedStyle(document.body).backgroundColor, {chart}]")

    light = colours()
    opened.ask("document.getElementById('theme').click()")
    opened.settle()
    dark = colours()
    opened.ask("document.getElementById('theme').click()")
    assert all(one != other for one, other in zip(light, dark, strict=True))
    assert colours() == light


def test_print_opens_what_is_folded_but_whole_files_and_is_dark_on_light(opened, kind):
    opened.scheme("dark")
    opened.settle()
    shown = "document.querySelector('[data-figure]').layout.font.color"
    before = opened.ask(shown)
    opened.driver.execute_script(
        "document.querySelectorAll('details').forEach((one) => { one.open = false; });"
        "addEventListener('beforeprint', () => {"
        " window.folded = document.querySelectorAll('details:not([open]):not(:has(pre))').length;"
        f" window.printed = {shown};"
        " window.widths = [...document.querySelectorAll('[data-figure]')]"
        "  .map((one) => one.querySelector('svg').clientWidth - one.clientWidth);"
        "});"
    )
    assert opened.pdf_pages() > (0 if kind == "pareto" else 1)  # nine choices fit on one
    assert opened.ask("window.folded") == 0
    assert opened.ask("window.printed") == TEXT.light
    assert not any(opened.ask("window.widths"))
    assert opened.ask(shown) == before == TEXT.dark
    opened.scheme("light")
    assert opened.ask("document.querySelectorAll('details[open]').length") == 0


def test_names_with_html_are_text(opened):
    tags = "document.querySelectorAll('img, main b, main script:not([type])').length"
    assert opened.ask(tags) == 0
    assert EVIL in opened.ask("document.body.textContent")


def test_it_opens_at_once(opened):
    load = "performance.getEntriesByType('navigation')[0].loadEventEnd"
    assert 0 < opened.ask(load) < LONGEST_LOAD_MS


def test_axe_finds_nothing(opened):
    package = pytest.importorskip("axe_selenium_python", reason="axe-selenium-python is needed")
    script = Path(package.__file__).parent / "node_modules" / "axe-core" / "axe.min.js"
    opened.driver.execute_script(script.read_text(encoding="utf-8"))
    found = opened.driver.execute_async_script(
        "axe.run({ resultTypes: ['violations'] }).then(arguments[0])"
    )
    assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found["violations"]] == []
