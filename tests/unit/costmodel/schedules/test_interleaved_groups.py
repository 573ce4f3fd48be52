"""Groups of micro batches that a run states, against a walk of every pass one by one."""

from itertools import product

import numpy as np
import pytest

from tests.makespans import makespan_seconds
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.program import Op
from trainplan.costmodel.schedules import SCHEDULES, group_runs, group_size, grouped, held_passes
from trainplan.costmodel.schedules.registry import program
from trainplan.costmodel.timeline import StageSeconds
from trainplan.costmodel.timeline.cycles import rank_end_seconds, waves
from trainplan.planner.questions.estimation import estimate
from trainplan.planner.settings.combinations import combinations
from trainplan.planner.space.choices import broken_rules

SHAPES = [
    (pp, vpp, m, g)
    for pp, vpp, m in product((2, 3, 4), (2, 3), (4, 5, 7, 10))
    for g in range(pp, m + 1)
    if group_runs(g, pp, m)
]


def walked(pp, vpp, m, g, rank):
    """(is backward, chunk, micro batch) in the order of a rank, as Megatron walks its table."""
    table = []
    for start in range(0, m, g):
        members = range(start, min(start + g, m))
        table += [(chunk, one) for chunk in range(vpp) for one in members]
    warmup = min(2 * (pp - rank - 1) + (vpp - 1) * g, m * vpp)
    forward = [(False, *one) for one in table]
    backward = [(True, vpp - 1 - chunk, one) for chunk, one in table]
    order = forward[:warmup]
    for i in range(m * vpp - warmup):
        order += [forward[warmup + i], backward[i]]
    return order + backward[m * vpp - warmup :]


def finished(orders, pp, vpp, message):
    """End of the last pass, a forward one of 1 and a backward one of 2 seconds."""
    done, clock, at = {}, [0.0] * pp, [0] * pp
    last = pp * vpp - 1
    while any(at[r] < len(orders[r]) for r in range(pp)):
        before = list(at)
        for r in range(pp):
            while at[r] < len(orders[r]):
                back, chunk, one = orders[r][at[r]]
                stage = chunk * pp + r
                source = (back, stage + 1 if back else stage - 1, one)
                if back and stage == last:
                    source = (False, stage, one)
                if not back and stage == 0:
                    ready = 0.0
                elif source in done:
                    ready = done[source] + message * (source[1] != stage)
                else:
                    break
                clock[r] = max(clock[r], ready) + 1.0 + back
                done[back, stage, one] = clock[r]
                at[r] += 1
        assert at != before, "deadlock"
    return max(clock)


@pytest.mark.parametrize(("pp", "vpp", "m", "g"), SHAPES)
def test_order_peak_and_end_are_those_of_the_walk(pp, vpp, m, g):
    name = grouped("interleaved", g, pp, m)
    ops = program(name, pp, vpp, m)
    orders = [walked(pp, vpp, m, g, rank) for rank in range(pp)]
    for rank, order in enumerate(orders):
        chunk = ops.stage[rank] // pp
        row = zip(ops.kind[rank] == Op.WHOLE, chunk, ops.microbatch[rank], strict=True)
        assert list(row) == order
    sizes = np.random.default_rng(7).integers(1, 9, (pp, vpp))
    peak = [
        max(np.cumsum([(-1) ** back * sizes[rank, chunk] for back, chunk, _ in orders[rank]]))
        for rank in range(pp)
    ]
    assert (held_passes(name, m, sizes) * sizes).sum(axis=1).tolist() == peak
    one = np.ones((1, pp * vpp))
    seconds = StageSeconds(one, 2 * one, 0 * one)
    for message in (0.0, 0.3):
        p2p = np.array([message])
        end = finished(orders, pp, vpp, message)
        ends = rank_end_seconds(name, (pp, vpp), m, seconds, p2p=p2p)
        assert ends.max() == pytest.approx(end, rel=1e-12)
        assert makespan_seconds(waves(name, pp, vpp, m), seconds, p2p)[0] == pytest.approx(end)
    ideal = 3 * (m * vpp + pp - 1)
    assert finished(orders, pp, vpp, 0.0) == ideal, "no group has more of a bubble"


def test_least_is_the_smallest_that_runs_and_double_twice_pp():
    for pp, m in product(range(2, 9), range(1, 40)):
        sizes = [g for g in range(1, m + 1) if group_runs(g, pp, m)]
        least = group_size("least", pp, m)
        assert least == (sizes[0] if sizes else pp)
        assert group_size("double", pp, m) == 2 * pp
    assert grouped("interleaved", 4, 4, 8) == grouped("interleaved", None, 4, 9) == "interleaved"
    assert grouped("1f1b", 8, 4, 16) == "1f1b"
    assert SCHEDULES["interleaved"].repeats


@pytest.fixture(name="job_of")
def jobs(make_job):
    def job(batch, size=None, **changes):
        made = make_job("small-dense", "1x8:h100-sxm", batch)
        options = RuntimeOptions(microbatch_group_size=size)
        return made.model_copy(update={"options": options, **changes})

    return job


STAGES = Layout(pp=4, dp=2, vpp=2, schedule="interleaved")


def test_micro_batches_that_fill_no_groups_run_in_larger_ones(job_of):
    """10 micro batches on 4 ranks: two groups of 5; 11: of 6 and 5."""
    table = LayoutTable.of([STAGES])
    for batch, least in ((20, 5), (22, 6)):
        assert broken_rules(job_of(batch), table)[0]
        assert not broken_rules(job_of(batch, "least"), table)[0]
        found = estimate(job_of(batch, "least"), STAGES)
        assert found == estimate(job_of(batch, least), STAGES)
        # more bubble than none, and less than that of one stage a rank
        assert found.step_time_s < estimate(job_of(batch), Layout(pp=4, dp=2)).step_time_s
    names = [one.name for one in broken_rules(job_of(20, 7), table)[0]]
    assert names == ["stated_groups_run"]
    assert not broken_rules(job_of(20, 7), LayoutTable.of([Layout(pp=4, dp=2)]))[0]


def test_larger_groups_hide_messages_and_hold_more(job_of):
    whole, double = (estimate(job_of(32, size), STAGES) for size in (None, "double"))
    assert estimate(job_of(32, "least"), STAGES) == whole
    assert double.step_time_s < whole.step_time_s
    assert double.terms.bubble == pytest.approx(whole.terms.bubble)
    assert double.terms.p2p < whole.terms.p2p
    assert double.memory.peak_allocated_bytes > whole.memory.peak_allocated_bytes


def test_least_is_tried_where_some_micro_batches_fill_no_groups(job_of):
    def tried(job, level="safe"):
        every = combinations(context_for(job), level)
        return {s.text for one in every for s in one.settings}

    assert "microbatch_group_size=least" in tried(job_of(24))
    assert "microbatch_group_size=least" not in tried(job_of(32))
    assert "microbatch_group_size=double" in tried(job_of(32), "all")
