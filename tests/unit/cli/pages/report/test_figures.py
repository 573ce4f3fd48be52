"""Text in figures, and charts that stay small whatever the pipeline."""

import json

import pytest

from trainplan.cli.blocks.blocks import Cell, Chart, Column, Page, Section, Table
from trainplan.cli.blocks.html import COLOURS, html
from trainplan.cli.pages.figures import chart, folded, label
from trainplan.cli.pages.report.plan.ranks import MOST_NODES, ranks_chart
from trainplan.cli.pages.report.plan.timeline import (
    MOST_BARS,
    MOST_RANKS,
    timeline_section,
    windows,
)
from trainplan.costmodel.calibration.machine import NOTHING
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.plan.plan import Candidate, Plan
from trainplan.planner.questions.estimation import estimate
from trainplan.planner.questions.simulation import simulate


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<b>x</b>", "&lt;b&gt;x&lt;/b&gt;"),
        ("a & b", "a &amp; b"),
        ("@blue", "&#64;blue"),
        ("10@0", "10@0"),
        ("%{x}", "%&#123;x}"),
    ],
)
def test_a_label_is_read_by_plotly_as_it_stands(text, shown):
    assert label(text) == shown
    assert shown not in COLOURS


def test_a_long_label_is_folded_between_words():
    assert folded("one two <three>", 8) == "one two<br>&lt;three&gt;"


def test_two_parts_of_a_page_with_one_name_are_refused():
    numbers = Table("", (Column("a"),), ((Cell("1"),),))
    drawn = chart("same", "", "", [], numbers)
    with pytest.raises(AssertionError, match="same"):
        html(Page("t", "a", (), (Section("same", "s", (drawn,)),)))


@pytest.fixture(scope="module")
def deep(make_job):
    """A pipeline of 64 ranks and 512 micro batches."""
    job = make_job("small-dense", "64x1:h100-sxm", 512)
    model = job.model.model_copy(update={"num_hidden_layers": 64})
    return job.model_copy(update={"model": model}), Layout(pp=64)


def test_of_a_deep_pipeline_some_ranks_begin_and_end_are_drawn(deep):
    simulation = simulate(*deep)
    begin, end = windows(simulation)
    assert begin.ranks == end.ranks
    assert len(begin.ranks) == MOST_RANKS
    assert (begin.ranks[0], begin.ranks[-1]) == (0, 63)
    assert begin.begin == 0.0
    assert end.end == simulation.step_time_s
    assert 0 < begin.end < end.begin < simulation.scored.makespan


def test_charts_of_a_deep_pipeline_hold_few_bars(deep, monkeypatch):
    job, best = deep
    simulation = simulate(job, best)
    monkeypatch.setattr("trainplan.cli.pages.report.plan.timeline.simulate", lambda *_: simulation)
    candidate = Candidate.model_construct(rank=1, layout=best, estimate=estimate(job, best))
    plan = Plan.model_construct(job=job, best=candidate, memory_margin=0.0)
    section = timeline_section(plan, NOTHING, "p.json")
    drawn = [block for block in section.blocks if isinstance(block, Chart)]
    assert [one.name for one in drawn] == ["pipeline-begin", "pipeline-end"]
    for one in drawn:
        passes = [t for t in one.figure["data"] if t["name"] in ("forward", "backward")]
        assert sum(len(trace["x"]) for trace in passes) <= MOST_BARS
        assert len(json.dumps(one.figure)) < 1_000_000


def test_too_many_passes_are_left_to_plan_simulate(make_job):
    job = make_job("llama3-70b", "64x1:h100-sxm", 8192, 128)
    candidate = Candidate.model_construct(rank=1, layout=Layout(pp=64), estimate=None)
    section = timeline_section(Plan.model_construct(job=job, best=candidate), NOTHING, "p.json")
    assert section.blocks[0].text == (
        "1,048,576 passes are too many for a page: `plan simulate` runs them."
    )


def test_every_gpu_of_a_small_cluster_has_its_pipeline_rank():
    chart = ranks_chart(parse_cluster("2x4:h100-sxm"), Layout(tp=2, dp=2, pp=2), ())
    cells = chart.figure["data"][0]
    assert cells["text"] == [["0"] * 4, ["1"] * 4]
    assert cells["customdata"][1][3] == "rank 7: pp 1, dp 1, cp 0, tp 1"


def test_of_many_nodes_those_are_drawn_where_pipeline_ranks_begin_and_end():
    chart = ranks_chart(parse_cluster("256x8:h100-sxm"), Layout(tp=8, dp=128, pp=2), ())
    assert chart.figure["data"][0]["y"] == ["node 0", "node 127", "node 128", "node 255"]
    assert "Of 256 nodes 4 are drawn" in chart.says
    deep = ranks_chart(parse_cluster("256x8:h100-sxm"), Layout(tp=8, pp=256), ())
    assert len(deep.figure["data"][0]["y"]) == MOST_NODES
    assert deep.figure["data"][0]["y"][-1] == "node 255"


def test_names_of_nodes_are_text():
    named = ("<b>one", "two")
    chart = ranks_chart(parse_cluster("2x1:h100-sxm"), Layout(dp=2), named)
    assert chart.figure["data"][0]["y"] == ["&lt;b&gt;one", "two"]
