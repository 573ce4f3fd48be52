"""Estimates of one layout and of many."""

import copy
import json
import pickle
from importlib import import_module

import numpy as np
import pytest

from tests.grids import number
from trainplan import planner
from trainplan.cli.main import run
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.layout.layout import Layout, OffloadSpec
from trainplan.planner.questions import estimation as estimates

JOBS = {
    "dense": ("small-dense", "2x8:a100-sxm-80gb", 64),
    "experts": ("small-moe", "2x8:h100-sxm", 64),
    "long pipelines": ("small-dense", "4x8:h100-sxm", 1024),
}


@pytest.mark.parametrize("name", JOBS)
def test_one_by_one_is_as_in_a_batch_to_the_last_digit(make_job, legal_table, name):
    job = make_job(*JOBS[name])
    table = legal_table(job, number(40, by_night=100), 3)
    layouts = [table.row(i) for i in range(len(table))]
    batch = planner.estimates(job, layouts)
    alone = [planner.estimate(job, layout) for layout in layouts]
    assert list(batch) == alone
    assert batch.step_time_s.tolist() == [one.step_time_s for one in alone]
    assert batch.peak_reserved_bytes.tolist() == [one.memory.peak_reserved_bytes for one in alone]
    assert batch.fits.tolist() == [one.memory.fits for one in alone]


def test_the_same_layout_again_is_known(make_job, monkeypatch):
    job, layout = make_job(*JOBS["dense"]), Layout(dp=16)
    first = planner.estimate(job, layout)
    tight = planner.estimate(job, layout, memory_margin=0.99)
    assert (first.memory.fits, tight.memory.fits) == (True, False)
    other = planner.estimate(make_job("small-dense", "2x8:h100-sxm", 64), layout)
    assert other.step_time_s < first.step_time_s
    monkeypatch.setattr(estimates, "simulated", None)  # nothing is priced again
    assert planner.estimate(job, Layout(dp=16)) is first
    assert planner.estimate(job, Layout(dp=16), memory_margin=0.99) is tight
    with pytest.raises(TypeError, match="NoneType"):
        planner.estimate(job, Layout(dp=8, tp=2))


def test_what_nobody_reads_of_an_estimate_is_not_worked_out(make_job, monkeypatch):
    job, layout = make_job(*JOBS["dense"]), Layout(dp=16, offload=OffloadSpec(optimizer=0.5))
    simulate = import_module("trainplan.costmodel.step.simulate")
    calls, works = [], simulate.lane_uses
    monkeypatch.setattr(simulate, "lane_uses", lambda *row: calls.append(row) or works(*row))
    found = planner.estimate(job, layout)
    assert found.memory.fits
    assert len(calls) == 0
    assert len(found.lanes) == len(found.lanes) > 1
    assert len(calls) == 1
    assert pickle.loads(pickle.dumps(found)) == copy.copy(found) == found
    with pytest.raises(AttributeError, match="term"):
        _ = found.term


@pytest.mark.parametrize("schedule", ["1f1b", "zb-1p", "zb-2p"])
def test_schedules_that_adapt_are_as_in_a_batch(make_job, schedule):
    job = make_job("small-dense", "1x8:a100-sxm-80gb", 256)
    job = job.model_copy(update={"runtime": "megatron-zero-bubble"})
    layouts = [
        Layout(pp=pp, tp=tp, dp=8 // pp // tp, micro_batch_size=size, schedule=schedule)
        for pp in (2, 4)
        for tp in (1, 2)
        for size in (1, 2, 4)
    ]
    batch = planner.estimates(job, layouts)
    assert list(batch) == [planner.estimate(job, one) for one in layouts]


def test_a_batch_is_the_same_in_any_order_and_in_parts(make_job, legal_table, monkeypatch):
    job = make_job(*JOBS["long pipelines"])
    table = legal_table(job, 120, 4)
    whole = planner.estimates(job, table)
    monkeypatch.setattr(estimates, "AT_ONCE", 17)
    backwards = planner.estimates(job, table.take(np.arange(len(table))[::-1]))
    assert list(backwards)[::-1] == list(whole)
    assert backwards.step_time_s[::-1].tolist() == whole.step_time_s.tolist()
    assert whole[-1] == backwards[0]
    assert whole[3:5] == [whole[3], whole[4]]


def test_a_search_and_the_command_print_the_same(make_job, capsys):
    job = make_job("gpt2", "1x8:a100-sxm-80gb", 64, 1024)
    best = planner.search(job, planner.SearchOptions(only_answer=True)).best
    assert planner.estimate(job, best.layout) == best.estimate
    layout = Layout(pp=2, vpp=2, dp=4, schedule="interleaved")
    wanted = "--model gpt2 --cluster 1x8:a100-sxm-80gb --global-batch-size 64 --seq-length 1024"
    run(["estimate", *wanted.split(), "--layout", "pp=2,vpp=2,dp=4,schedule=interleaved", "--json"])
    written = json.loads(capsys.readouterr().out)["estimate"]["step_time_s"]
    assert written == planner.estimates(job, [layout]).step_time_s[0]


def test_a_layout_that_breaks_a_rule_is_named_by_its_place(make_job):
    job = make_job("small-dense", "1x8:a100-sxm-80gb")
    with pytest.raises(SpecError, match=r"layout 1 needs tp \* cp \* pp \* dp = 4 GPUs"):
        planner.estimates(job, [Layout(dp=8), Layout(dp=4)])
    with pytest.raises(SpecError, match="layout 1 breaks rule sequence_parallel_needs_tp"):
        planner.estimates(job, [Layout(dp=8), Layout(dp=8, sequence_parallel=True)])
    for _ in range(2):  # the second time from what is remembered
        with pytest.raises(SpecError, match=r"^layout breaks rule sequence_parallel_needs_tp"):
            planner.estimate(job, Layout(dp=8, sequence_parallel=True))


def test_no_layouts_are_no_estimates(make_job):
    assert len(planner.estimates(make_job("small-dense", "1x8:a100-sxm-80gb"), [])) == 0


def test_stages_in_node_groups_keep_their_place(make_job):
    job = make_job("small-dense", "1x8:a100-sxm-80gb+1x8:h100-sxm", 64)
    layers = job.model.num_hidden_layers
    stages = [{"layers": layers // 2, "group": group} for group in (0, 1)]
    grouped = Layout.model_validate({"pp": 2, "dp": 8, "stages": stages})
    layouts = [Layout(dp=16), grouped, Layout(dp=16, micro_batch_size=2)]
    batch = planner.estimates(job, layouts)
    assert list(batch) == [planner.estimate(job, one) for one in layouts]
    assert batch.step_time_s[1] == batch[1].step_time_s
