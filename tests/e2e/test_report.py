"""Pages with charts, as users ask for them."""

import json

from tests.e2e.command import TINY, plan
from tests.examples import ROOT


def test_search_writes_the_page_that_report_writes_of_its_plan(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert plan("search", *TINY, "--output", "plan.json", "--report", "one.html").code == 0
    done = plan("report", "plan.json", "--output", "two.html")
    assert (done.code, done.out, done.err) == (0, "", "wrote two.html\n")
    one, two = ((tmp_path / name).read_text() for name in ("one.html", "two.html"))
    assert one == two
    assert one.startswith("<!doctype html>")


def test_a_page_that_cannot_be_written_is_refused_before_the_search(tmp_path):
    there = tmp_path / "there.html"
    there.write_text("mine")
    for wanted in (there, tmp_path / "no" / "folder.html"):
        done = plan("search", *TINY, "--report", wanted)
        assert (done.code, done.out) == (2, "")
        assert str(wanted) in done.err
    assert there.read_text() == "mine"
    both = tmp_path / "one-name"
    done = plan("search", *TINY, "--report", both, "--output", both)
    assert done.code == 2
    assert "give two names" in done.err


def test_where_nothing_fits_no_page_is_written_and_that_is_said(tmp_path):
    job = ("--model", "llama3-70b", "--cluster", "1x1:l4", "--global-batch-size", "1")
    done = plan("search", *job, "--seq-length", "128", "--report", tmp_path / "page.html")
    assert done.code == 2
    assert "no report is written" in done.err
    assert not (tmp_path / "page.html").exists()


def test_a_front_has_a_page(tmp_path):
    page = tmp_path / "front.html"
    job = ("--model", ROOT / "examples" / "tiny.yaml", "--cluster", "1x1:h100-sxm")
    size = ("--global-batch-size", "1", "--seq-length", "128", "--fix", "recompute=none")
    assert plan("search", *job, *size, "--pareto", "time,memory", "--report", page).code == 0
    assert page.exists()


def test_a_plan_edited_by_hand_is_drawn_or_refused_in_a_line(tmp_path):
    path, page = tmp_path / "plan.json", tmp_path / "page.html"
    assert plan("search", *TINY, "--output", path).code == 0
    text = path.read_text()
    document = json.loads(text)
    document["provenance"]["notes"] = ["half \ud800"]
    path.write_text(json.dumps(document))
    assert plan("report", path, "--output", page).code == 0
    assert "half ?" in page.read_text()
    path.write_text(text.replace('"rank": 0', f'"rank": {10**30}', 1))
    done = plan("report", path, "--output", page, "--force")
    assert done.code == 2
    assert "too large a number" in done.err


def test_a_file_that_is_no_plan_is_refused_with_its_path(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("{}")
    done = plan("report", path, "--output", tmp_path / "x.html")
    assert done.code == 2
    assert f"{path}: no document of plan" in done.err
