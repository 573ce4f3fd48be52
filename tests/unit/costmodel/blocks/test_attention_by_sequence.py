"""Attention cut by sequence over the ranks of experts, against tensor parallelism on as many.

Source: MegaScale-MoE, arXiv:2505.11432: experts stay where they are, attention's weights are on
every rank with states sharded over as many, and heads are exchanged in place of whole sequences.
"""

import numpy as np
import pytest

from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.memory.states import layer_rank_params, mixer_rank_params
from trainplan.costmodel.shard_groups import groups_of
from trainplan.planner.questions import estimate

RANKS = 4
BY_TENSOR = Layout(tp=RANKS, dp=4, ep=RANKS, sequence_parallel=True)
BY_SEQUENCE = Layout(cp=RANKS, dp=4, ep=RANKS)
TABLE = LayoutTable.of([BY_TENSOR, BY_SEQUENCE])


@pytest.fixture(name="job")
def _job(make_job):
    job = make_job("mixtral-8x7b", "2x8:h100-sxm", 32, 16_384)
    return job.model_copy(update={"options": RuntimeOptions(cp_comm_type="a2a")})


def test_weights_of_attention_are_repeated_and_experts_lie_as_before(job):
    _, experts = layer_rank_params(job.model, TABLE)
    tensor, sequence = mixer_rank_params(job.model, TABLE)
    assert experts[0] == experts[1]
    assert sequence / tensor == pytest.approx(RANKS, rel=0.02)  # norms are whole in both


def test_states_of_attention_are_sharded_over_as_many_more_ranks(job):
    dense, experts = groups_of(TABLE)
    assert dense.optimizer.tolist() == [4, 4 * RANKS]
    assert experts.optimizer.tolist() == [4, 4]
    np.testing.assert_array_equal(experts.ranks, 4)
    memory = [estimate(job, one).memory.pipeline_ranks[0] for one in (BY_TENSOR, BY_SEQUENCE)]
    assert memory[1].optimizer_bytes == pytest.approx(memory[0].optimizer_bytes, rel=1e-3)
    assert memory[1].weights_bytes > memory[0].weights_bytes


def test_heads_travel_in_place_of_sequences_and_tokens_go_to_experts_as_before(job):
    tensor, sequence = (estimate(job, one).terms for one in (BY_TENSOR, BY_SEQUENCE))
    assert tensor.cp_comm == sequence.tp_comm == 0
    assert 0 < sequence.cp_comm < tensor.tp_comm / 2
    assert sequence.ep_comm == pytest.approx(tensor.ep_comm)
