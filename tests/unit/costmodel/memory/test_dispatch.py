"""Buffers of HybridEP, by hand."""

import numpy as np
import pytest

from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.memory.dispatch import dispatch_buffer_bytes
from trainplan.costmodel.step import price

TOKENS, HIDDEN, EXPERTS = 4096, 2048, 128


def buffers(make_job, dispatcher, cluster, **layout):
    job = make_job("qwen3-30b-a3b", cluster, 512, TOKENS)
    options = RuntimeOptions(moe_dispatcher=dispatcher)
    job = job.model_copy(update={"runtime": "megatron-bridge", "options": options})
    candidates = context_for(job).with_table(LayoutTable.of([Layout(**layout)]))
    return dispatch_buffer_bytes(candidates, np.array([float(TOKENS)]))[0]


def test_hybridep_has_room_for_all_tokens_of_a_group(make_job):
    """In 16 bits, with a probability for every expert of the domain and a scale for 128 numbers."""
    found = buffers(make_job, "hybridep", "1x8:b200", dp=8, ep=8)
    assert found == 8 * TOKENS * (2 * HIDDEN + 4 * EXPERTS + 4 * HIDDEN / 128)
    cut = buffers(make_job, "hybridep", "1x8:b200", dp=4, tp=2, ep=4, etp=2, sequence_parallel=True)
    assert cut == found / 2


def test_hybridep_holds_what_travels_between_domains(make_job):
    found = buffers(make_job, "hybridep", "2x8:b200", dp=16, ep=16)
    near = EXPERTS / 2
    inside = 16 * TOKENS * (2 * HIDDEN + 4 * near + 4 * HIDDEN / 128)
    sent, others = 2 * HIDDEN + 4 * EXPERTS, 3 * (2 * HIDDEN + 4 * near)
    assert found == inside + TOKENS * (sent + others)


def test_an_all_to_all_and_one_rank_have_none(make_job):
    for dispatcher in ("alltoall", "deepep"):
        assert buffers(make_job, dispatcher, "1x8:b200", dp=8, ep=8) == 0
    assert buffers(make_job, "hybridep", "1x8:b200", dp=8, ep=1) == 0


def test_buffers_lie_outside_what_the_allocator_hands_out(make_job):
    job = make_job("qwen3-30b-a3b", "1x8:b200", 512, TOKENS)
    memory = []
    for dispatcher in ("alltoall", "hybridep"):
        options = RuntimeOptions(moe_dispatcher=dispatcher)
        one = job.model_copy(update={"runtime": "megatron-bridge", "options": options})
        table = LayoutTable.of([Layout(dp=8, ep=8, zero_stage=1)])
        memory.append(price(context_for(one).with_table(table)).memory)
    plain, held = memory
    assert held.allocated == pytest.approx(plain.allocated)
    buffer = buffers(make_job, "hybridep", "1x8:b200", dp=8, ep=8)
    assert held.used - plain.used == pytest.approx(buffer)
