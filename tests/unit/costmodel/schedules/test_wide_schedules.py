"""Schedules with more than forward and backward passes of one pipeline, and copies to the host."""

import numpy as np
import pytest

from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.program.dependencies import checked
from trainplan.costmodel.program.held_activations import (
    peak_activation_bytes,
    peak_activations,
    with_copies,
)
from trainplan.costmodel.program.ops import Op, Shape
from trainplan.costmodel.schedules import SCHEDULES, program_for
from trainplan.costmodel.schedules.programs.one_forward_one_backward import causal_shares
from trainplan.costmodel.schedules.programs.split_backward import split_backward
from trainplan.costmodel.timeline.clock import StageSeconds, run


def seconds(program, forward=1.0, backward=2.0, weight=1.0, alongside=()):
    """Equal stages; `beside` are seconds of the ops after the whole backward pass."""
    chunks = program.sequence_chunks
    one = np.ones((1, program.num_stages * chunks)) / chunks
    others = tuple(value * one for value in alongside)
    return StageSeconds(forward * one, backward * one, weight * one, others)


def timed(name, pp, vpp, m, **options):
    program = checked(program_for(name, Shape(pp, vpp, m, **options)))
    return run(program, seconds(program))


@pytest.mark.parametrize(
    ("name", "shape", "makespan", "peaks"),
    [
        ("gpipe", Shape(4, 1, 8), 33, [8, 8, 8, 8]),
        ("breadth-first", Shape(4, 2, 8), 57, [16, 16, 16, 16]),
        ("grouped-interleaved", Shape(4, 2, 8, 2), 56, [6, 5, 4, 3]),
        ("grouped-interleaved", Shape(4, 2, 8, 3), 55, [7, 6, 5, 4]),
        ("grouped-interleaved", Shape(4, 2, 8), 54, [8, 7, 6, 5]),
        ("2bp", Shape(4, 1, 8), 27, [8, 8, 8, 8]),
        ("chimera", Shape(4, 1, 8), 30, [3, 4, 4, 3]),
        ("dualpipe", Shape(8, 1, 20), 66, [9] * 8),
        ("interleaved", Shape(4, 2, 8, 8), 57, [15, 13, 11, 9]),
    ],
)
def test_a_schedule_takes_the_time_and_memory_its_authors_give(name, shape, makespan, peaks):
    program = checked(program_for(name, shape))
    timeline = run(program, seconds(program))
    assert timeline.makespan == makespan
    assert timeline.peak_activations.tolist() == peaks
    assert peak_activations(program).tolist() == peaks


def test_chimera_halves_the_bubble_where_both_passes_take_equally_long():
    program = program_for("chimera", Shape(4, 1, 8))
    assert run(program, seconds(program, backward=1.0, weight=0.0)).makespan == 2 * 8 + 4 - 2


@pytest.mark.parametrize("pp", [2, 4, 6, 8, 16])
def test_dualpipe_has_the_published_bubble_and_memory(pp):
    """(p / 2 - 1)(F&B + B - 3 W) and p + 1. Source: deepseek-ai/DualPipe `README.md`, table."""
    for m in (2 * pp, 2 * pp + 2, 5 * pp):
        program = checked(program_for("dualpipe", Shape(pp, 1, m)))
        timeline = run(program, seconds(program))
        assert timeline.makespan == 3 * m + (pp / 2 - 1) * (3 + 2 - 3)
        assert timeline.peak_activations.tolist() == [pp + 1] * pp


@pytest.mark.parametrize("pp", [2, 4, 8])
def test_dualpipe_is_its_v_on_half_the_ranks_but_for_the_message_where_it_turns(pp):
    random, m = np.random.default_rng(pp), 4 * pp
    forward, backward, weight = random.integers(1, 9, (3, 1, pp)).astype(float)
    stages = StageSeconds(forward, backward + weight, weight)
    both, v = (
        program_for("dualpipe", Shape(pp, 1, m)),
        program_for("dualpipe-v", Shape(pp // 2, 2, m // 2)),
    )
    free, folded = run(both, stages), run(v, stages)
    assert free.makespan == folded.makespan
    halves = folded.peak_activations.tolist()
    assert free.peak_activations.tolist() == halves + halves[::-1]
    assert run(both, stages, 0.5).makespan >= run(v, stages, 0.5).makespan


@pytest.mark.parametrize("pp", [2, 4, 8])
@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_chunks_of_a_sequence_shrink_bubble_and_activations(pp, chunks):
    m = 2 * pp
    timeline = timed("seq-1f1b", pp, 1, m, sequence_chunks=chunks)
    assert timeline.makespan == pytest.approx(3 * m + 3 * (pp - 1) / chunks)
    expected = (pp - np.arange(pp) - 1 + chunks) / chunks
    np.testing.assert_allclose(timeline.peak_activations, expected)


def test_later_chunks_of_a_causal_sequence_attend_to_more():
    shares = causal_shares(4, 0.5)
    assert shares.sum() == pytest.approx(1.0)
    assert (np.diff(shares) == pytest.approx(0.5 * 2 / 16)) and shares[0] > 0.5 / 4
    np.testing.assert_allclose(causal_shares(4, 0.0), 0.25)


@pytest.mark.parametrize(("name", "barriers"), [("vocab-1f1b", 1), ("vocab-1f1b-2", 2)])
@pytest.mark.parametrize("pp", [2, 3, 4, 8])
def test_shares_of_the_output_layer_cost_a_micro_batch_for_each_barrier(name, barriers, pp):
    m = 6 * pp
    program = checked(program_for(name, Shape(pp, 1, m)))
    timeline = run(program, seconds(program, alongside=(0.25, 0.25)))
    assert timeline.peak_activations[0] == pp + barriers
    without_stalls = 3.5 * m + 3 * (pp - 1)
    assert without_stalls <= timeline.makespan <= without_stalls + 2 * 3.5


def test_no_share_of_the_output_layer_overtakes_its_barrier():
    program = program_for("vocab-1f1b-2", Shape(4, 1, 8))
    timeline = run(program, seconds(program, alongside=(0.25, 0.25)))
    for microbatch in range(8):
        of_microbatch = program.microbatch == microbatch
        scores = timeline.end[(program.kind == Op.VOCAB_FORWARD) & of_microbatch]
        gradients = (program.kind == Op.VOCAB_BACKWARD) & of_microbatch
        turns = (program.kind == Op.WHOLE) & of_microbatch & (program.stage == 3)
        assert timeline.start[gradients].min() >= scores.max()
        assert timeline.start[turns].min() >= timeline.end[gradients].max()


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "breadth-first", "seq-1f1b"])
def test_any_backward_pass_can_be_split(name):
    vpp = 2 if SCHEDULES[name].least_vpp == 2 else 1
    whole = program_for(name, Shape(4, vpp, 8))
    for defer in (False, True):
        split = checked(split_backward(whole, defer=defer))
        assert not (split.kind == Op.WHOLE).any()
        assert run(split, seconds(split)).makespan <= run(whole, seconds(whole)).makespan
    at_once = split_backward(whole, defer=False)
    np.testing.assert_array_equal(peak_activations(at_once), peak_activations(whole))


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "grouped-interleaved"])
def test_copies_to_the_host_are_free_while_they_hide_behind_a_pass(name):
    vpp = max(1, SCHEDULES[name].least_vpp)
    plain = program_for(name, Shape(4, vpp, 16))
    copied = checked(with_copies(plain, np.ones(plain.num_stages, dtype=bool)))
    alone = run(plain, seconds(plain))
    hidden = run(copied, seconds(copied, alongside=(0, 0, 1.0, 1.0)))
    exposed = run(copied, seconds(copied, alongside=(0, 0, 2.0, 2.0)))
    assert hidden.makespan == alone.makespan < exposed.makespan
    assert hidden.peak_activations.max() == 2 < alone.peak_activations.max()


def test_copies_of_some_stages_leave_the_others_where_they_are():
    plain = program_for("interleaved", Shape(4, 2, 16))
    some = with_copies(plain, np.arange(plain.num_stages) < 4)
    stages = some.stage[(some.kind == Op.OFFLOAD) | (some.kind == Op.RELOAD)]
    assert set(stages.tolist()) == {0, 1, 2, 3}


def test_nothing_is_copied_that_is_needed_at_once():
    plain = program_for("1f1b", Shape(4, 1, 8))
    copied = with_copies(plain, np.ones(4, dtype=bool))
    assert not (copied.stage[copied.kind == Op.OFFLOAD] == 3).any()


@pytest.mark.parametrize(
    ("name", "shape", "rule"),
    [
        ("chimera", Shape(3, 1, 6), "pp must be even"),
        ("chimera", Shape(4, 1, 6), "multiple of pp"),
        ("dualpipe", Shape(3, 1, 6), "pp must be even"),
        ("dualpipe", Shape(4, 1, 6), r"at least 2 \* pp"),
        ("dualpipe", Shape(4, 1, 9), "must be even and"),
        ("interleaved", Shape(4, 2, 9), "multiple of num_microbatches // pp"),
        ("interleaved", Shape(4, 2, 8, 3), "between pp=4"),
        ("interleaved", Shape(4, 2, 9, 4), "last group"),
        ("grouped-interleaved", Shape(8, 2, 16, 3), "from pp / 2"),
        ("grouped-interleaved", Shape(8, 2, 17, 4), "whole groups"),
        ("grouped-interleaved", Shape(4, 2, 3), "at least pp"),
        ("gpipe", Shape(4, 2, 8), "with vpp=1"),
        ("gpipe", Shape(4, 1, 8, 4), "no microbatch_group_size"),
        ("1f1b", Shape(4, 1, 8, sequence_chunks=2), "no sequence_chunks"),
        ("1f1b", Shape(4, 1, 0), "at least 1"),
    ],
)
def test_an_illegal_shape_is_refused_with_its_rule(name, shape, rule):
    with pytest.raises(SpecError, match=rule):
        program_for(name, shape)


def test_no_legal_group_deadlocks():
    refused = 0
    for pp in range(2, 8):
        for m in range(pp, 3 * pp + 1):
            for group in range(1, m + 1):
                for name in ("interleaved", "grouped-interleaved"):
                    try:
                        program = program_for(name, Shape(pp, 3, m, group))
                    except SpecError:
                        refused += 1
                        continue
                    run(checked(program), seconds(program))
    assert refused


def test_what_the_input_gradient_frees_weighs_less_than_what_waits_for_the_weight_gradient():
    one, none = np.ones(4), np.zeros(4)
    for name in ("zb-h1", "zb-2p", "1f1b"):
        program = program_for(name, Shape(4, 1, 8))
        late = peak_activation_bytes(program, none, one)
        early = peak_activation_bytes(program, one, none)
        np.testing.assert_array_equal(late, peak_activations(program))
        np.testing.assert_array_equal(early, peak_activations(program, at_input_grad=True))
        half = peak_activation_bytes(program, one / 2, one / 2)
        assert (early <= half).all()
        assert (half <= late).all()


def test_stages_weigh_what_they_hold():
    program = program_for("1f1b", Shape(4, 1, 8))
    weights = np.array([1.0, 10.0, 100.0, 1000.0])
    peaks = peak_activation_bytes(program, np.zeros(4), weights)
    assert peaks.tolist() == [4, 30, 200, 1000]
