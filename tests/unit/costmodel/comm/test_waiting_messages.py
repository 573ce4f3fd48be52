"""Pipelines whose ranks wait for their messages: DeepSpeed's engine."""

import numpy as np
import pytest

from trainplan.costmodel.calibration import machine_for
from trainplan.costmodel.candidates import Candidates, context_of
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.step import explicit, price
from trainplan.costmodel.step.estimate import message_seconds_of, p2p_seconds
from trainplan.costmodel.step.timelines import busy_with_messages, simulate, virtual_stage_seconds
from trainplan.planner.questions.simulation import simulate as drawn

ONE = Layout(tp=4, pp=2, dp=1)
LAYOUT = Layout(tp=2, pp=4, dp=1)


@pytest.fixture
def job(make_job):
    return make_job("small-dense", "2x4:a100-sxm-80gb", precision="fp16").model_copy(
        update={"runtime": "megatron-deepspeed"}
    )


def message_by_message(forward, backward, count, sent, gathered):
    """Seconds of 1F1B, one op after the other: a rank sends what a pass made before it goes on, and
    begins a pass by receiving and gathering what it needs."""
    stages = len(forward)
    orders = []
    for rank in range(stages):
        ahead = min(stages - 1 - rank, count)
        passes = [("F", i) for i in range(ahead)]
        for i in range(count - ahead):
            passes += [("F", ahead + i), ("B", i)]
        passes += [("B", i) for i in range(count - ahead, count)]
        orders.append(passes)
    clock, sent_at, place = [0.0] * stages, {}, [0] * stages
    while any(place[r] < len(orders[r]) for r in range(stages)):
        for rank in range(stages):
            while place[rank] < len(orders[rank]):
                kind, number = orders[rank][place[rank]]
                source = rank - 1 if kind == "F" else rank + 1
                if 0 <= source < stages:
                    if (kind, source, number) not in sent_at:
                        break
                    begun = max(clock[rank], sent_at[kind, source, number])
                    clock[rank] = begun + sent + gathered
                clock[rank] += (forward if kind == "F" else backward)[rank]
                sent_at[kind, rank, number] = clock[rank]
                target = rank + 1 if kind == "F" else rank - 1
                clock[rank] += sent * (0 <= target < stages)
                place[rank] += 1
    return max(clock)


def test_a_pipeline_with_waiting_ranks_runs_as_long_as_one_run_message_by_message(job):
    machine, traits = machine_for(job), traits_of(job)
    table = LayoutTable.of([LAYOUT])
    priced = price(Candidates(job, machine, traits, table), merged=False)
    passes = virtual_stage_seconds(priced, np.array([0]))
    sent = float(priced.seconds.sending[0])
    gathered = float(priced.seconds.p2p[0]) - sent
    assert min(sent, gathered) > 0
    expected = message_by_message(
        passes.forward[0], passes.backward[0], int(priced.microbatches[0]), sent, gathered
    )
    found = simulate(priced).row(0)
    assert found.with_messages == pytest.approx(expected)
    assert found.instant < found.with_messages


def test_a_message_holds_the_slice_and_its_gathering(job):
    machine, traits = machine_for(job), traits_of(job)
    table = LayoutTable.of([ONE, ONE.model_copy(update={"sequence_parallel": True}), Layout(dp=8)])
    sent, whole = (
        f(Candidates(job, machine, traits, table)) for f in (message_seconds_of, p2p_seconds)
    )
    tensor = 2 * job.training.seq_length * job.model.hidden_size
    links = group(machine, np.array([4]), np.array([1]))
    gather = collective_seconds(machine, "all_gather", np.array([float(tensor)]), links)
    assert whole[0] - sent[0] == pytest.approx(float(gather[0]))
    assert whole[1] == sent[1] > 0
    assert whole[2] == 0


def test_the_first_and_the_last_rank_wait_for_half_as_many_messages(job):
    table = LayoutTable.of([LAYOUT])
    priced = price(context_of(job, machine_for(job)).with_table(table), merged=False)
    rows = np.array([0])
    passes = virtual_stage_seconds(priced, rows)
    busy, way = busy_with_messages(priced, rows, passes)
    waits = (busy.forward + busy.backward - passes.forward - passes.backward)[0]
    both = float(priced.seconds.p2p[0] + priced.seconds.sending[0])
    np.testing.assert_allclose(waits, [both, 2 * both, 2 * both, both])
    assert way[0] == -priced.seconds.sending[0]


def test_ranks_that_do_not_wait_are_as_busy_as_before(make_job):
    job = make_job("small-dense", "2x4:a100-sxm-80gb", precision="fp16")
    priced = price(
        context_of(job, machine_for(job)).with_table(LayoutTable.of([LAYOUT])), merged=False
    )
    rows = np.array([0])
    passes = virtual_stage_seconds(priced, rows)
    busy, way = busy_with_messages(priced, rows, passes)
    assert (busy.forward == passes.forward).all()
    assert (busy.backward == passes.backward).all()
    assert (way == priced.seconds.p2p).all()


def test_the_zero_bubble_fork_waits_under_the_schedules_it_has_from_megatron(make_job):
    job = make_job("small-dense", "2x4:a100-sxm-80gb", precision="fp16").model_copy(
        update={"runtime": "megatron-zero-bubble"}
    )
    layouts = [LAYOUT.model_copy(update={"schedule": name}) for name in ("1f1b", "zb-1p")]
    priced = price(context_of(job, machine_for(job)).with_table(LayoutTable.of(layouts)))
    assert priced.seconds.sending[0] > 0
    assert priced.seconds.sending[1] == 0
    assert (priced.seconds.p2p > 0).all()


def test_the_drawn_timeline_of_waiting_ranks_is_that_of_the_estimate(job):
    found = drawn(job, LAYOUT)
    terms = explicit(context_of(job, machine_for(job)).with_table(LayoutTable.of([LAYOUT])))[
        0
    ].terms
    assert terms.p2p > 0
    assert found.overhead == pytest.approx(terms.overhead)
