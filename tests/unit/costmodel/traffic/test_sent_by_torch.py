"""Bytes handed over under torch's own parallelism, counted by hand for two layers."""

import pytest

from tests.torch_requests import request
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.traffic.sent_by_torch import times_gathered, torch_sent_bytes

TOKENS, HIDDEN, VOCABULARY, LAYERS = 32, 64, 512, 2
QUERIES, KEYS, WIDTH = 64, 32, 128
"""Columns of queries, of keys and of the MLP."""
LAYER = 2 * HIDDEN * (QUERIES + KEYS) + 3 * HIDDEN * WIDTH + 2 * HIDDEN
EMBEDDING, HEAD = VOCABULARY * HIDDEN, VOCABULARY * HIDDEN + HIDDEN
ROW = 4 * TOKENS * HIDDEN
"""Bytes of the hidden states of a micro batch of one sequence."""


def sent(pp_rank=0, **layout):
    wanted = request(**layout)
    return dict(torch_sent_bytes(wanted.job, traits_of(wanted.job), wanted.layout, pp_rank))


def test_one_process_sends_nothing():
    assert sent(zero_stage=0) == {}


def test_replicas_sum_gradients_once_a_step():
    assert sent(dp=2, zero_stage=0) == {
        ("dp_replicate", "all_reduce"): 4 * (LAYERS * LAYER + EMBEDDING + HEAD)
    }


@pytest.mark.parametrize(("runtime", "ends"), [("torchtitan", 1), ("fsdp2", 2)])
def test_freed_weights_are_gathered_in_both_passes_of_every_micro_batch(runtime, ends):
    """The unit of the whole, which has the ends in torchtitan, stays gathered between them."""
    microbatches = 4
    assert sent(runtime=runtime, dp=2, zero_stage=3) == {
        ("dp", "all_gather"): 4 * microbatches * (2 * LAYERS * LAYER + ends * (EMBEDDING + HEAD)),
        ("dp", "reduce_scatter"): 4 * microbatches * (LAYERS * LAYER + EMBEDDING + HEAD),
    }


def test_a_pipeline_gathers_and_reduces_once_a_step():
    last = 4 * (LAYER + HEAD)
    assert sent(1, pp=2, dp=2, zero_stage=3) == {
        ("dp", "all_gather"): last,
        ("dp", "reduce_scatter"): last,
        ("pp", "send"): 4 * ROW,
    }


def test_groups_sum_their_shards():
    microbatches, held = 2, 4 * (LAYERS * LAYER + EMBEDDING + HEAD)
    found = sent(dp=4, dp_replicate=2, zero_stage=3)
    assert found["dp", "reduce_scatter"] == microbatches * held
    assert found["dp_replicate", "all_reduce"] == microbatches * held // 2


def test_halves_of_layers_and_ends_are_summed_in_both_passes_with_the_loss():
    sums = LAYERS * 4 + 2
    loss = 3 * 4 * TOKENS
    assert sent(tp=2, zero_stage=0) == {("tp", "all_reduce"): 8 * (sums * ROW + loss)}


def test_a_layer_that_runs_again_ends_before_its_last_product():
    again = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    plain = sent(tp=2, zero_stage=0, sequence_parallel=True)
    found = sent(tp=2, zero_stage=0, sequence_parallel=True, **again)
    assert found["tp", "all_gather"] - plain["tp", "all_gather"] == 8 * LAYERS * 2 * ROW
    assert found["tp", "reduce_scatter"] - plain["tp", "reduce_scatter"] == 8 * LAYERS * ROW


def test_gradients_of_whole_norms_are_summed_over_tensor_ranks_as_often_as_over_replicas():
    norms, loss = 4 * (2 * LAYERS + 1) * HIDDEN, 3 * 4 * TOKENS
    once = sent(tp=2, zero_stage=0, sequence_parallel=True)
    often = sent(tp=2, dp=2, zero_stage=3, sequence_parallel=True)
    assert once["tp", "all_reduce"] == 8 * loss + norms
    assert often["tp", "all_reduce"] == 4 * (loss + norms)


def test_keys_and_values_go_round_a_ring_once_forward_and_twice_backward():
    """With as many heads as the queries have, in torchtitan."""
    piece = 4 * TOKENS // 4 * 2 * QUERIES
    assert sent(cp=4, zero_stage=3)["cp", "send"] == 8 * LAYERS * 3 * 3 * piece


def test_neighbouring_stages_on_one_rank_send_nothing_to_each_other():
    folded = sent(0, pp=2, vpp=2, zero_stage=0, schedule="zb-v", model=FOUR)
    looped = sent(0, pp=2, vpp=2, zero_stage=0, schedule="interleaved", model=FOUR)
    assert folded["pp", "send"] == 8 * 2 * ROW
    assert looped["pp", "send"] == 8 * 3 * ROW


def test_three_stages_of_a_rank_stay_gathered_and_a_fourth_comes_and_goes():
    assert times_gathered([0, 1, 2, 0, 1, 2]) == {0: 1, 1: 1, 2: 1}
    assert times_gathered([0, 1, 2, 3, 0, 1, 2, 3]) == dict.fromkeys(range(4), 2)


def test_a_rank_of_four_virtual_stages_gathers_as_often_as_was_seen():
    """Bytes of a real run of both ranks, torch 2.13 on gloo."""
    eight = FOUR.model_copy(update={"num_hidden_layers": 8})
    layout = {"pp": 2, "vpp": 4, "dp": 2, "zero_stage": 1, "schedule": "interleaved"}
    found = [sent(rank, model=eight, **layout)["dp", "all_gather"] for rank in (0, 1)]
    assert found == [2_151_936, 1_594_368]


FOUR = request().job.model.model_copy(update={"num_hidden_layers": 4})
