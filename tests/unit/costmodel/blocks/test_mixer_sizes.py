"""What mixers move and keep for one token, added up by hand; traffic and host time around them."""

import numpy as np
import pytest

from tests.conftest import SMALL_DENSE, SMALL_MOE
from tests.unit.costmodel.blocks.test_mixers import candidates, model
from trainplan.costmodel.architecture.layers import LinearAttentionSpec, SsmSpec
from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.blocks.host import dense_launches, layer_launches, moe_launches
from trainplan.costmodel.blocks.mixers.carried import CHUNK_PRODUCTS_SPEED, heads_exchange
from trainplan.costmodel.blocks.mixers.convolutions import mamba_sizes
from trainplan.costmodel.blocks.mixers.linear_attention import linear_attention_sizes
from trainplan.costmodel.blocks.mixers.sparse import SCORE_PASSES, sparse_attention_part
from trainplan.costmodel.blocks.parts import shapes
from trainplan.costmodel.candidates.context import of_kinds
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.kernels.memory_bound import streaming_bytes_per_second
from trainplan.costmodel.layout.layout import Layout

LENGTH = 64
HEADS = {"num_value_heads": 4, "key_head_dim": 8, "value_head_dim": 16, "chunk_size": 32}


def mamba(**sizes):
    ssm = SsmSpec(**sizes)
    spec = SMALL_DENSE.model_dump() | {"mixer": "mamba", "ssm": ssm}
    return mamba_sizes(ModelSpec(**spec), LENGTH)


def linear(**sizes):
    attention = LinearAttentionSpec(**(HEADS | sizes))
    spec = SMALL_DENSE.model_dump() | {"mixer": "linear_attention", "linear_attention": attention}
    return linear_attention_sizes(ModelSpec(**spec), LENGTH)


def test_mamba_2_moves_its_convolution_its_scan_and_its_norm():
    sizes = mamba(num_heads=4, head_dim=8, state_size=16, num_groups=2, chunk_size=32)
    inner, groups = 32, 64
    assert sizes.convolved[0] == 2 * (inner + groups)
    scan = 3 * inner + 2 * groups + 4 * 2 * 32 + 6 * inner * 16 / 32 + 5 * 4
    assert sizes.moved == scan + 3 * inner
    assert sizes.columns == 2 * inner + groups + 4


def test_mamba_1_keeps_the_inputs_of_its_inner_products():
    sizes = mamba(num_heads=32, state_size=16, time_step_rank=4)
    assert sizes.inner == ((4 + 32, 32), (32, 4))
    assert sizes.kept == 64 + 32 + 32 + 36
    assert sizes.convolved[0] == 2 * 32
    assert sizes.moved == (4 * 32 + 32) + 3 * 32


def test_the_delta_rule_moves_what_it_prepares_multiplies_and_norms():
    sizes = linear(num_key_heads=2)
    key, value, repeated = 16, 64, 32
    prepared = 2 * (2 * key + value) + 4 * key + 2 * (key + repeated) + 4 * value
    core = 4 * (6 * 8 + 6 * 16 + 2 * 32 + 2 * 8 * 16 / 32)
    assert sizes.moved == prepared + core + 5 * value + 4 * 4
    assert sizes.columns == 2 * key + 2 * value + 2 * 4


def test_decays_of_each_channel_come_from_a_low_rank_and_are_kept():
    sizes = linear(num_key_heads=4, rule="kda", gate_rank=8)
    assert sizes.columns == 2 * 32 + 64 + 4
    assert sizes.inner == ((32, 8), (64, 8))
    assert sizes.whole == (16,)
    assert sizes.kept == 132 + 2 * 32 + 2 * 32 + 5 * 64 + 4 * 32 * 2 + 16
    assert sizes.kept_fp32 == 32 + 4


def test_lightning_attention_has_no_inverse_and_no_convolution():
    sizes = linear(num_key_heads=4, rule="lightning", conv_kernel=None)
    assert sizes.moved == 3 * 128 + 6 * 64
    assert sizes.kept == 2 * 128 + 4 * 64
    assert len(sizes.products) == 4


def columns_of(spec, **layout):
    return shapes(candidates(spec, Layout(**layout)))


def test_an_exchange_sends_all_projected_columns_there_and_the_outputs_back():
    columns = columns_of(model("mamba"), tp=2, cp=2)
    sizes = mamba_sizes(columns.job.model, 2048)
    links = group(columns.machine, np.array([2]), np.array([2]))
    tokens = 2048 / 2
    wide, narrow = (
        collective_seconds(columns.machine, "alltoall", np.array([2.0 * tokens * n / 2]), links)
        for n in (2 * 2048 + 2048 + 32, 2048)
    )
    assert heads_exchange(columns, sizes) == pytest.approx(wide + narrow)


def test_scores_of_an_indexer_pass_memory_three_times():
    whole, shared = (
        sparse_attention_part(columns_of(model("sparse_attention", shares_index=shares)))
        for shares in (False, True)
    )
    columns = columns_of(model("sparse_attention"))
    scores = SCORE_PASSES * 4 * 2048 * 2048 / 2
    kernels = 8 * columns.machine.constants.launch_seconds
    added = scores / streaming_bytes_per_second(columns.machine) + kernels
    more = whole.forward.elementwise - shared.forward.elementwise
    assert more == pytest.approx(added)
    flop = 2048 * 2048 * 8 * (64 + 1)
    speed = CHUNK_PRODUCTS_SPEED * columns.machine.attention_max_efficiency
    seconds = flop / (columns.machine.half.peak_flop_per_second * speed)
    assert whole.forward.attention - shared.forward.attention == pytest.approx(seconds)
    picked = 512 * (1 - 512 / 4096) / 1024  # of all keys
    back = whole.backward.attention - shared.backward.attention
    assert back == pytest.approx(2 * picked * seconds)


def test_the_host_launches_half_a_dense_layer_for_a_half():
    dense = dense_launches(columns_of(SMALL_DENSE))
    for spec in (model("none"), model("mamba", feed_forward="none")):
        half = layer_launches(columns_of(spec))
        assert half.forward_seconds == dense.forward_seconds / 2
        assert half.backward_seconds == dense.backward_seconds / 2
    assert layer_launches(columns_of(model("mamba"))).forward_seconds == dense.forward_seconds


def test_experts_alone_launch_all_but_the_attention_half():
    spec = ModelSpec(**(SMALL_MOE.model_dump() | {"mixer": "none"}))
    keys = candidates(spec, Layout())
    [experts] = [one for one in of_kinds(keys) if one.job.model.feed_forward == "moe"]
    columns = shapes(experts)
    found, whole, dense = (of(columns) for of in (layer_launches, moe_launches, dense_launches))
    assert found.forward_seconds == whole.forward_seconds - dense.forward_seconds / 2
    assert found.sync_seconds == whole.sync_seconds
