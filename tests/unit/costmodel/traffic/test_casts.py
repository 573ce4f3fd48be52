"""Casts of updated weights: bytes against formats, and the delay against a clock."""

import pytest

from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.kernels.memory_bound import streaming_bytes_per_second
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.pipeline.ranks import ranks_of
from trainplan.costmodel.program.ops import Op, Shape
from trainplan.costmodel.schedules import program_for
from trainplan.costmodel.traffic.casts import copied_bytes, rank_cast_seconds


@pytest.fixture(scope="module")
def candidates_of(make_job):
    def candidates(runtime, precision="fp8", gpu="h100-sxm", options=None, **layout):
        made = make_job("llama3-8b", f"8x8:{gpu}", 512, 4096, precision=precision)
        update = {"runtime": runtime, "options": RuntimeOptions(**options or {})}
        job = made.model_copy(update=update)
        machine = machine_of(job.cluster, precision)
        table = LayoutTable.of([Layout(zero_stage=1, **(layout or {"dp": 64}))])
        return context_of(job, machine).with_table(table)

    return candidates


@pytest.mark.parametrize(
    ("runtime", "format_on", "gathered", "moved"),
    [
        ("megatron-lm", ("bf16", "h100-sxm"), None, 0),
        ("megatron-lm", ("fp8", "h100-sxm"), None, 2 + 1 + 1),  # read, written, written transposed
        ("nemo", ("fp8", "h100-sxm"), None, 1 + 1),  # a transposed copy of what is in fp8 already
        ("nemo", ("fp8", "h100-sxm"), False, 2 + 1 + 1),
        ("megatron-lm", ("fp8", "h100-sxm"), True, 1 + 1),
        ("megatron-lm", ("fp8", "b200"), None, 2 + 1),  # products read either way round
        ("megatron-bridge", ("fp8", "b200"), None, 0),
        ("megatron-lm", ("fp8", "mi300x"), None, 2 + 1 + 1),  # by rows alone
        ("megatron-bridge", ("mxfp8", "b200"), None, 2 + 33 / 16),  # gathered in 16 bits
        ("megatron-lm", ("mxfp8", "b200"), None, 2 + 33 / 16),  # a scale beside 32
        ("megatron-lm", ("nvfp4", "b200"), None, 2 + 9 / 8),  # a scale beside 16
        ("megatron-bridge", ("nvfp4", "b200"), None, 9 / 8),
        ("torchtitan", ("fp8", "h100-sxm"), None, 0),  # cast before each product
    ],
)
def test_a_weight_is_read_and_written_as_its_format_needs(
    candidates_of, runtime, format_on, gathered, moved
):
    some = candidates_of(runtime, *format_on, {"fp8_param_gather": gathered})
    assert copied_bytes(some, some.machine) == moved


def seconds_of(some):
    """Of the slowest rank."""
    return rank_cast_seconds(some, some.machine, ranks_of(some.job, some.table)).max()


def test_all_matrices_of_the_layers_are_cast_once_on_each_tensor_rank(candidates_of):
    """Those of Llama-3-8B: 32 layers of 4096 x (2 4096 + 2 1024 + 3 14336)."""
    some = candidates_of("nemo")
    weights = 32 * 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336)
    assert seconds_of(some) == pytest.approx(2 * weights / streaming_bytes_per_second(some.machine))
    assert seconds_of(candidates_of("nemo", tp=4, dp=16)) == pytest.approx(seconds_of(some) / 4)


def test_a_pipeline_waits_for_the_casts_of_all_its_ranks_whatever_the_replicas(candidates_of):
    alone = seconds_of(candidates_of("nemo"))
    for layout in ({"pp": 4, "dp": 16}, {"pp": 4, "dp": 8, "tp": 2}):
        part = seconds_of(candidates_of("nemo", **layout))
        assert part == pytest.approx(alone / layout.get("tp", 1))


def makespan(schedule, shape, cast):
    """Of passes of 1 and 2 s; the first through each virtual stage casts its weights before."""
    program, (pp, vpp, *_) = program_for(schedule, shape), shape
    last, ends, free = pp * vpp - 1, {}, [0.0] * pp
    ops = [
        [
            (kind == Op.FORWARD, stage, number)
            for kind, stage, number in zip(*(one[rank].tolist() for one in rows), strict=True)
            if kind != Op.NONE
        ]
        for rows in [(program.kind, program.stage, program.microbatch)]
        for rank in range(pp)
    ]
    while any(ops):
        for rank, mine in enumerate(ops):
            while mine:
                forward, stage, number = mine[0]
                before = (True, stage - 1, number) if forward else (False, stage + 1, number)
                if not forward and stage == last:
                    before = (True, stage, number)
                if before not in ends and not (forward and stage == 0):
                    break
                seconds = 1.0 + cast * (number == 0) if forward else 2.0
                free[rank] = max(free[rank], ends.get(before, 0.0)) + seconds / vpp
                ends[mine.pop(0)] = free[rank]
    return max(free)


@pytest.mark.parametrize(
    ("schedule", "vpp", "microbatches"),
    [("1f1b", 1, 4), ("1f1b", 1, 16), ("interleaved", 3, 4), ("interleaved", 3, 16)],
)
def test_the_first_micro_batch_delays_a_step_by_the_casts_of_every_rank(
    schedule, vpp, microbatches
):
    """On the clock too: all ranks are full, so none makes up for what the first one waited."""
    shape = Shape(4, vpp, microbatches)
    plain, late = (makespan(schedule, shape, cast) for cast in (0.0, 0.25))
    assert late - plain == pytest.approx(4 * 0.25)


def test_weights_in_16_bits_are_gathered_in_16_bits_and_kept_beside_their_copies(candidates_of):
    alone, alongside = (
        candidates_of("nemo", options={"fp8_param_gather": one}).traits for one in (True, False)
    )
    assert (alone.sharding.weight_message_bytes, alongside.sharding.weight_message_bytes) == (
        1,
        None,
    )
    assert (alone.footprint.low_precision, alongside.footprint.low_precision) == (
        "primary",
        "cached",
    )
