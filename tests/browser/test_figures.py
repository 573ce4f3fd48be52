"""Figures of reports, before a browser draws them: the document's numbers, and keys that exist."""

import json

import pytest
from plotly.graph_objects import Figure

from tests.browser.drawn import DRAWN
from trainplan.cli.blocks.blocks import Chart, Folded
from trainplan.cli.blocks.html import BACKGROUND, COLOURS, TEXT
from trainplan.cli.pages.report.registry import Request, page_of


def charts_of(blocks):
    for block in blocks:
        if isinstance(block, Chart):
            yield block.name, block
        elif isinstance(block, Folded):
            yield from charts_of(block.blocks)


@pytest.fixture(scope="module")
def charts(documents, kind):
    """The charts of the report of a kind, by name."""
    text = json.dumps(documents.of(kind))
    page = page_of(Request("plan.json", text, json.loads(text)))
    return dict(one for section in page.sections for one in charts_of(section.blocks))


def test_figures_hold_the_numbers_of_the_document(charts, documents, kind):
    for name, trace, key, values in DRAWN[kind](documents.of(kind)):
        data = charts[name].figure["data"]
        found = next(one for one in data if trace in (None, one.get("name")))
        assert list(found[key]) == pytest.approx(values), (name, trace, key)


def coloured(value):
    """As the script of a page does."""
    if isinstance(value, str):
        return COLOURS[value].light if value in COLOURS else value
    if isinstance(value, list | tuple):
        return [coloured(one) for one in value]
    if isinstance(value, dict):
        return {key: coloured(one) for key, one in value.items()}
    return value


def test_plotly_knows_every_key_of_a_figure(charts):
    for chart in charts.values():
        Figure(coloured(dict(chart.figure)))


def test_every_trace_is_of_the_script_that_a_report_embeds(charts):
    """The cartesian bundle draws these and a few others, not all of plotly."""
    kinds = {trace["type"] for chart in charts.values() for trace in chart.figure["data"]}
    assert kinds <= {"scatter", "bar", "heatmap"}


def luminance(colour: str) -> float:
    """Source: WCAG 2.1, `relative luminance`."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    """Source: WCAG 2.1, `contrast ratio`."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_colour_stands_out_from_its_background(theme):
    back = getattr(BACKGROUND, theme)
    ratios = {name: contrast(getattr(one, theme), back) for name, one in COLOURS.items()}
    assert contrast(getattr(TEXT, theme), back) > 12
    assert all(
        ratio >= 4.5 for name, ratio in ratios.items() if name not in ("@background", "@grid")
    )
