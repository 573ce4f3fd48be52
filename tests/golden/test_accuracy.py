"""docs/accuracy.md and its figures are what the model says of the published runs.

A figure that gets worse than stated in accuracy.json fails here. `make accuracy` writes both anew;
the change then says why a figure moved.
"""

import importlib
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.grids import Request

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def accuracy():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs" / "generator"))
        yield importlib.import_module("accuracy")


def test_the_page_and_its_figures_are_current_and_no_figure_is_worse(accuracy):
    """Of the effects that are switched off, the one of fewest runs unless all are asked for."""
    effects = accuracy.REPLACEMENTS if Request.full else accuracy.REPLACEMENTS[-1:]
    left_out = accuracy.read_json(accuracy.LEAVE_ONE_OUT)
    findings = accuracy.Findings(accuracy.read_data(), left_out, effects)
    assert list(accuracy.complaints(findings)) == []


@pytest.mark.parametrize(
    ("better", "now", "verdict"),
    [
        ("lower", 0.102, None),
        ("lower", 0.11, "worse"),
        ("lower", 0.05, "better"),
        ("higher", 0.05, "worse"),
        ("near", 0.05, "worse"),
        ("near", 0.15, "worse"),
    ],
)
def test_a_figure_may_move_within_its_tolerance(accuracy, better, now, verdict):
    written = accuracy.Figure(0.1, 0.005, better).verdict(now)
    assert written is None if verdict is None else written.startswith(verdict)


def test_pages_agree_within_the_last_digit(accuracy):
    assert accuracy.agree("error 8.1 % of 12 runs", "error 8.2 % of 12 runs")
    assert not accuracy.agree("error 8.1 % of 12 runs", "error 8.4 % of 12 runs")
    assert not accuracy.agree("error 8.1 % of 12 runs", "error 8.1 % of 13 runs")
    assert not accuracy.agree("`run-1` 8.1", "`run-2` 8.1")


def test_numbers_that_rest_on_one_source_are_counted(accuracy):
    """Of three numbers one rests on a source, one moves without each of two, one is not learnt."""
    written = {"value": 1.0, "min": 0.9, "max": 1.1, "learnt": 0.4}
    constants = {
        "alone": written | {"moved_by": [], "rests_on": ["vtrain"], "learnt": 0.6},
        "shared": written | {"moved_by": ["bridge", "vtrain"], "rests_on": []},
        "still": written | {"moved_by": [], "rests_on": [], "learnt": 0.004},
    }
    found = {
        "sources": {"vtrain": {"n": 3, "median_error": 0.1}},
        "mean_of_medians": 0.1,
        "constants": constants,
        "fitted": {"numbers": 3, "effective": 1.4, "runs": 7, "layouts": 5},
    }
    page = " ".join(accuracy.accuracy_left_out.section(found, ()).split())
    assert "3 numbers on 7 runs in 5 layouts" in page
    assert "is 1 numbers. 1 are more of the runs" in page
    assert "or more (1 numbers)" in page
    assert "| others | 3 | 1 | 1 | 1 |" in page
    assert "| `shared` | 1 | 0.9 | 1.1 | 40 % | bridge, vtrain |  |" in page.replace("| |", "|  |")
    assert "The runs determine less than 1 % of 1 more: `still`." in page


def test_rows_of_a_source_left_out_are_those_of_the_fit_without_it(accuracy):
    runs = [run for run in accuracy.read_data() if run.source_group == "cards" and run.is_strict]
    rows = accuracy.Findings(runs, None).scores.rows
    found = accuracy.Findings(runs, {"residuals": {rows[0].run.id: -0.7}})
    left = found.left_out_rows
    assert left[0].error_fraction == pytest.approx(math.expm1(-0.7))
    assert left[1].error_fraction == pytest.approx(rows[1].error_fraction)
    text = accuracy.accuracy_left_out.headline_text(rows, left[:1])
    assert text.endswith("it was fitted to, 50.3 % on sources left out (50.3 % with experts)")
    assert left[0].job.model.moe


def test_the_readme_says_the_headline_of_both(accuracy):
    written = accuracy.PHRASE.search(accuracy.README.read_text("utf-8"))
    assert written
    assert " on sources left out" in written[2]


def test_a_picture_of_other_numbers_is_out_of_date(accuracy, monkeypatch, tmp_path):
    pictures = accuracy.accuracy_pictures
    monkeypatch.setattr(pictures, "FOLDER", tmp_path)
    drawn = pictures.Picture("one", [("a", [(1.234, 5.678), (9.0, 0.5)])], 100, None)
    monkeypatch.setattr(pictures, "pictures", lambda rows: [drawn])
    assert drawn.numbers == "a: 1.23 5.68, 9 0.5"
    for text, complaints in (("a: 1.23 5.68, 9 0.5", 0), ("a: 1.23 5.61, 9 0.5", 1), ("", 1)):
        drawn.path.write_text(f"<dc:description>{text}</dc:description>", encoding="utf-8")
        assert len(list(pictures.complaints([], accuracy.agree))) == complaints


@pytest.mark.parametrize("name", ["accuracy-steps", "accuracy-sources", "accuracy-kinds"])
def test_a_picture_is_on_the_page_and_follows_the_scheme(name):
    text = (ROOT / "docs" / "assets" / f"{name}.svg").read_text("utf-8")
    [style, *_] = ET.fromstring(text).iter("{http://www.w3.org/2000/svg}style")
    assert "prefers-color-scheme: dark" in style.text
    assert "currentColor" in text
    assert "#000000" not in text
    assert f"](assets/{name}.svg)" in (ROOT / "docs" / "accuracy.md").read_text("utf-8")
