"""Exact parameter counts of what mixes tokens in one layer, and the FLOPs of its core.

Source of every shape: the Hugging Face implementation of the family that has the mixer
(tests/oracles/test_mixer_parameters.py counts all of them). What tensor parallelism divides:
Megatron-LM `core/ssm/mamba_mixer.py` and `core/ssm/gated_delta_net.py`, whose heads are cut with
their convolution, decay and time step; `core/transformer/experimental_attention_variant/dsa.py`,
whose indexer every rank holds whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainplan.costmodel.architecture import LinearAttentionSpec, ModelSpec, SsmSpec
from trainplan.costmodel.mixers.products import (
    convolution_of,
    indexer_flop,
    linear_of,
    products_flop,
    ssm_of,
)

Counted = Callable[[ModelSpec], int]


@dataclass(frozen=True, slots=True)
class MixerCounts:
    """Parameters of one mixer in a layer of a model with one kind, and FLOPs of its core."""

    divided: Counted
    """That tensor parallelism divides."""
    whole: Counted
    """That every tensor-parallel rank holds."""
    core_flop: Callable[[ModelSpec, int], float]
    """Forward FLOPs for one token of what compares or carries tokens, at a sequence length."""

    def __add__(self, other: MixerCounts) -> MixerCounts:
        return MixerCounts(
            lambda model: self.divided(model) + other.divided(model),
            lambda model: self.whole(model) + other.whole(model),
            lambda model, length: self.core_flop(model, length) + other.core_flop(model, length),
        )


def _zero(model: ModelSpec) -> int:
    return 0


def _no_flop(model: ModelSpec, seq_length: int) -> float:
    return 0.0


NOTHING = MixerCounts(_zero, _zero, _no_flop)
"""A layer that mixes no tokens."""


def ssm_input_columns(ssm: SsmSpec) -> int:
    """Output width of the input projection: x and its gate; of Mamba-2 also B, C, time steps.

    Source: Dao and Gu, arXiv:2405.21060, section 7.1 (parallel projections); arXiv:2312.00752,
    section 3.4.
    """
    mamba_2 = 0 if ssm.time_step_rank else ssm.group_width + ssm.num_heads
    return 2 * ssm.inner_width + mamba_2


def ssm_convolved_columns(ssm: SsmSpec) -> int:
    """Channels of the short convolution. Source: as `ssm_input_columns`."""
    return ssm.inner_width + (0 if ssm.time_step_rank else ssm.group_width)


def ssm_inner_products(ssm: SsmSpec) -> int:
    """Weights of the products inside Mamba-1: time step, B and C from x, and up from its rank.

    Source: arXiv:2312.00752, section 3.6.
    """
    rank = ssm.time_step_rank or 0
    return bool(rank) * ssm.inner_width * (2 * rank + ssm.group_width)


def mamba_met(model: ModelSpec) -> int:
    """Weights of the products of a Mamba mixer."""
    ssm = ssm_of(model)
    ends = model.hidden_size * (ssm_input_columns(ssm) + ssm.inner_width)
    return ends + ssm_inner_products(ssm)


def mamba_divided(model: ModelSpec) -> int:
    """Weights of a Mamba mixer that its heads are cut with."""
    ssm = ssm_of(model)
    inner = ssm.inner_width
    convolved = ssm_convolved_columns(ssm) * (ssm.conv_kernel + ssm.conv_bias)
    bias = ssm_input_columns(ssm) if ssm.input_bias else 0
    if ssm.time_step_rank:  # decay of each channel and state, D, bias of the time step
        return mamba_met(model) + convolved + bias + inner * (ssm.state_size + 2)
    return mamba_met(model) + convolved + bias + 3 * ssm.num_heads + ssm.gated_norm * inner


def mamba_whole(model: ModelSpec) -> int:
    """Weights of a Mamba mixer that every tensor-parallel rank holds."""
    ssm = ssm_of(model)
    norms = (ssm.time_step_rank or 0) + 2 * ssm.state_size
    return ssm.output_bias * model.hidden_size + ssm.inner_norms * norms


def linear_input_columns(linear: LinearAttentionSpec) -> int:
    """Output width of the projections of the input that heads are cut with.

    Source: as `linear_attention_met`; a low rank makes decay and gate of KDA.
    """
    columns = 2 * linear.key_width + linear.value_width
    gates = {"gated_delta": 2 * linear.num_value_heads, "kda": linear.num_value_heads}
    gate = 0 if linear.gate_rank else linear.value_width
    return columns + gates.get(linear.rule, 0) + gate


def projected_columns(model: ModelSpec) -> int:
    """Output width of the input projection of a mixer that carries a state; 0: of another."""
    if model.mixer in ("mamba", "attention_and_mamba"):
        return ssm_input_columns(ssm_of(model))
    if model.mixer == "linear_attention":
        return linear_input_columns(linear_of(model))
    return 3 * model.hidden_size if model.mixer == "convolution" else 0


def linear_attention_met(model: ModelSpec) -> int:
    """Weights of the products of linear attention: queries, keys, values, gates, output.

    Source: Yang et al., arXiv:2412.06464, section 3.4 (decay and writing strength of each head, a
    gate as wide as the values); Kimi Linear, arXiv:2510.26692, section 3.2 (decay of each channel
    and gate by a low rank); MiniMax-01, arXiv:2501.08313, section 2.2 (decay is given).
    """
    linear, h = linear_of(model), model.hidden_size
    rank = linear.gate_rank or 0
    low = rank * (2 * h + linear.key_width + linear.value_width)
    return h * (linear_input_columns(linear) + linear.value_width) + low


def linear_attention_divided(model: ModelSpec) -> int:
    """Weights of linear attention that its heads are cut with."""
    linear = linear_of(model)
    key, value = linear.key_width, linear.value_width
    convolved = (2 * key + value) * (linear.conv_kernel or 0)
    down = 2 * model.hidden_size * (linear.gate_rank or 0)
    own = {
        "gated_delta": 2 * linear.num_value_heads,  # decay and bias of the time step
        "kda": linear.num_value_heads + key,
        "lightning": value,  # norm over all heads
    }
    return linear_attention_met(model) - down + convolved + own[linear.rule]


def linear_attention_whole(model: ModelSpec) -> int:
    """Weights of linear attention on every rank: projections to a low rank, norm of one head."""
    linear = linear_of(model)
    norm = 0 if linear.rule == "lightning" else linear.value_head_dim
    return 2 * model.hidden_size * (linear.gate_rank or 0) + norm


def convolution_met(model: ModelSpec) -> int:
    """Weights of the products of a gated short convolution. Source: LFM2, arXiv:2511.23404."""
    return 4 * model.hidden_size**2


def convolution_divided(model: ModelSpec) -> int:
    """Weights of a gated short convolution that its channels are cut with."""
    one = convolution_of(model)
    return convolution_met(model) + model.hidden_size * (one.kernel + 4 * one.bias)


def convolution_whole(model: ModelSpec) -> int:
    """Its output bias."""
    return convolution_of(model).bias * model.hidden_size


def indexer_met(model: ModelSpec) -> int:
    """Weights of the indexer's products: its queries (from the latent), one key, head weights.

    Source: DeepSeek-V3.2, arXiv:2512.02556, section 2.1.
    """
    indexer = model.indexer
    if indexer is None or model.shares_index:
        return 0
    rank = model.low_rank.query_rank if model.low_rank else None
    latent = (model.mla and model.mla.q_lora_rank) or rank or model.hidden_size
    queries = latent * indexer.num_heads * indexer.head_dim
    return queries + model.hidden_size * (indexer.head_dim + indexer.num_heads)


def indexer_whole(model: ModelSpec) -> int:
    """All of the indexer, with the LayerNorm of its key."""
    if model.indexer is None or model.shares_index:
        return 0
    return indexer_met(model) + 2 * model.indexer.head_dim


MAMBA = MixerCounts(mamba_divided, mamba_whole, products_flop)
LINEAR_ATTENTION = MixerCounts(linear_attention_divided, linear_attention_whole, products_flop)
CONVOLUTION = MixerCounts(convolution_divided, convolution_whole, _no_flop)
INDEXER = MixerCounts(_zero, indexer_whole, indexer_flop)
"""What sparse attention has beside the attention."""
