"""Model FLOPs of a step against published formulas."""

import pytest

from tests.conftest import SMALL_DENSE
from trainplan.costmodel.architecture.moe import MoeSpec
from trainplan.costmodel.model.flops import (
    matrix_params_per_token,
    mixer_flop_per_token,
    model_flop_per_step,
)
from trainplan.costmodel.model.params import num_parameters


def test_gpt3_175b_agrees_with_the_published_formula(make_job):
    """72 B s l h^2 (1 + s/6h + V/12lh) FLOPs without recomputation, attention in full.

    Source: Narayanan et al., arXiv:2104.04473, appendix: 96 with the recomputed forward pass,
    hence 72 without. This project halves the attention core: causal.
    """
    job = make_job("gpt3-175b", "128x8:a100-sxm-80gb", global_batch_size=1536)
    batch, seq, layers, hidden, vocab = 1536, 2048, 96, 12288, 51200
    full = 72 * batch * seq * layers * hidden**2
    full *= 1 + seq / (6 * hidden) + vocab / (12 * layers * hidden)
    attention = 3 * mixer_flop_per_token(job.model, seq) * batch * seq
    assert model_flop_per_step(job) + attention == pytest.approx(full, rel=0.01)


def test_the_causal_attention_core_is_half_of_the_full_one(make_job):
    """Full: 4 s h FLOPs a token and layer. Source: arXiv:2104.04473, appendix."""
    model = make_job("gpt3-175b", "1x8:a100-sxm-80gb").model
    assert mixer_flop_per_token(model, 2048) == 96 * 4 * 2048 * 12288 / 2


@pytest.mark.parametrize("window", [1, 7, 64, 100, 128, 500])
def test_a_window_counts_every_token_that_is_seen(make_job, window):
    """One by one: a token sees itself and those before it, up to the window; half of itself."""
    model = make_job("llama3-8b", "1x8:h100-sxm").model
    sliding = {"sliding_window": window, "mixer": "sliding_attention"}
    seq = 128
    seen = [min(t + 0.5, window) for t in range(seq)]
    share = sum(seen) / sum(t + 0.5 for t in range(seq))
    full = mixer_flop_per_token(model, seq)
    found = mixer_flop_per_token(model.model_copy(update=sliding), seq)
    assert found / full == pytest.approx(share, rel=0.01)


def test_a_dense_model_needs_six_flop_a_parameter_and_token(make_job):
    job = make_job("llama3-70b", "8x8:h100-sxm", seq_length=128, global_batch_size=8)
    embedding = job.model.vocab_size * job.model.hidden_size
    weights = num_parameters(job.model) - embedding
    expected = 6 * weights * job.training.tokens_per_step
    assert model_flop_per_step(job) == pytest.approx(expected, rel=0.01)


def test_deepseek_v3_computes_with_37_billion_parameters(make_job):
    """Source: arXiv:2412.19437, abstract: 37 B activated, of which 0.9 B embedding; MTP apart."""
    job = make_job("deepseek-v3", "16x8:h100-sxm", seq_length=16, global_batch_size=1)
    main = job.model.model_copy(update={"num_nextn_predict_layers": 0})
    job = job.model_copy(update={"model": main})
    per_token = model_flop_per_step(job) / 6 / job.training.tokens_per_step
    assert per_token == pytest.approx(37e9 - 0.93e9, rel=0.02)


@pytest.mark.parametrize("name", ["deepseek-v3", "small-moe"])
def test_a_prediction_module_is_a_layer_a_projection_of_two_states_and_the_head_again(
    make_job, name
):
    """Per token 2 h x h and h x V weights more than a layer. Source: arXiv:2412.19437, section
    2.2."""
    model = make_job(name, "1x8:h100-sxm").model

    def weights(modules, layers=0):
        layers += model.num_hidden_layers
        fields = {"num_nextn_predict_layers": modules, "num_hidden_layers": layers}
        return matrix_params_per_token(model.model_copy(update=fields))

    hidden, vocab = model.hidden_size, model.vocab_size
    layer = weights(0, layers=1) - weights(0)
    assert weights(1) - weights(0) == layer + 2 * hidden**2 + hidden * vocab
    assert weights(2) - weights(1) == weights(1) - weights(0)


def test_a_token_multiplies_every_matrix_it_meets_once(make_job):
    """One layer of four experts, two of them active, and a shared one, by hand."""
    moe = MoeSpec(
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=10,
        shared_expert_intermediate_size=20,
    )
    fields = {"num_hidden_layers": 1, "moe": moe}
    model = make_job("small-dense", "1x8:h100-sxm").model.model_copy(update=fields)
    attention = 1024 * (16 + 2 * 4) * 64 + 16 * 64 * 1024
    experts = 3 * 1024 * (2 * 10 + 20) + 4 * 1024
    assert matrix_params_per_token(model) == attention + experts + 1024 * 32_000


def test_a_share_of_what_is_compared_is_that_share_of_its_operations():
    model = SMALL_DENSE
    whole = mixer_flop_per_token(model, 8192)
    assert mixer_flop_per_token(model, 8192, lambda _: 0.25) == whole / 4
