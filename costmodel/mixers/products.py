"""Matrix products in the core of a mixer that carries a state from chunk to chunk.

They are those of the whole layer, for one token: what costs FLOPs and what costs time are the same
list. tests/oracles/test_mixer_products.py counts them on the torch code of transformers.
"""

from dataclasses import dataclass

from trainplan.costmodel.architecture import (
    ConvolutionSpec,
    LinearAttentionSpec,
    ModelSpec,
    SsmSpec,
)


@dataclass(frozen=True, slots=True)
class CoreProduct:
    """So many rows for each token, `rows x inner` times `inner x columns`."""

    rows: float
    columns: float
    inner: float
    again: bool = False
    """The backward pass makes it once more, since its result is not kept."""

    @property
    def flop(self) -> float:
        """For one token. Source: a product of m x k and k x n takes 2 m n k."""
        return 2.0 * self.rows * self.columns * self.inner


def ssm_of(model: ModelSpec) -> SsmSpec:
    """Sizes of a layer that the specification has checked to have them."""
    assert model.ssm is not None
    return model.ssm


def linear_of(model: ModelSpec) -> LinearAttentionSpec:
    """As `ssm_of`."""
    assert model.linear_attention is not None
    return model.linear_attention


def convolution_of(model: ModelSpec) -> ConvolutionSpec:
    """As `ssm_of`."""
    assert model.convolution is not None
    return model.convolution


def scan_products(ssm: SsmSpec, seq_length: int) -> tuple[CoreProduct, ...]:
    """Of Mamba-2: scores of a chunk, its values, the states of chunks, and what they add.

    Scores are those of a group of heads. Of Mamba-1, whose scan is
    no product, the output of every state alone. Scores and states are not
    kept (state-spaces/mamba `mamba_ssm/ops/triton/ssd_combined.py`).
    Source: Dao and Gu, arXiv:2405.21060, section 6: steps 1 (both), 2 and 4 of listing 1.
    """
    if ssm.time_step_rank:
        return (CoreProduct(ssm.inner_width, 1, ssm.state_size),)
    chunk, heads = min(ssm.chunk_size, seq_length), ssm.num_heads
    return (
        CoreProduct(ssm.num_groups, chunk, ssm.state_size, again=True),
        CoreProduct(heads, ssm.head_dim, chunk, again=True),
        CoreProduct(heads * ssm.state_size / chunk, ssm.head_dim, chunk, again=True),
        CoreProduct(heads, ssm.head_dim, ssm.state_size),
    )


def linear_attention_products(
    linear: LinearAttentionSpec, seq_length: int
) -> tuple[CoreProduct, ...]:
    """Of linear attention: scores of a chunk, its values, what the state adds, the new state.

    The delta rule also compares keys with keys, inverts that triangle (a third of a cube),
    multiplies keys and values with it, and takes from the values what the state knows. Scores,
    states and the products with the inverse are not kept (flash-linear-attention 0.6.0
    `ops/gated_delta_rule/chunk.py`).
    Source: MiniMax-01, arXiv:2501.08313, section 2.2; Yang et al., arXiv:2412.06464, section 3.3
    and, of the triangle, arXiv:2406.06484, section 3.2; Kimi Linear, arXiv:2510.26692, section 4.
    """
    chunk = min(linear.chunk_size, seq_length)
    heads, key, value = linear.num_value_heads, linear.key_head_dim, linear.value_head_dim
    products = (
        CoreProduct(heads, chunk, key, again=True),
        CoreProduct(heads, value, chunk),
        CoreProduct(heads, value, key),
        CoreProduct(heads * key / chunk, value, chunk, again=True),
    )
    if linear.rule == "lightning":
        return products
    return (
        *products,
        CoreProduct(heads, chunk, key),
        CoreProduct(heads, chunk, chunk / 6),
        CoreProduct(heads, key, chunk, again=True),
        CoreProduct(heads, value, chunk, again=True),
        CoreProduct(heads, value, key, again=True),
    )


def core_products(model: ModelSpec, seq_length: int) -> tuple[CoreProduct, ...]:
    """Of the mixer of a layer of a model with one kind.

    Source: `scan_products` and `linear_attention_products`.
    """
    if model.mixer == "linear_attention":
        return linear_attention_products(linear_of(model), seq_length)
    return scan_products(ssm_of(model), seq_length)


def products_flop(model: ModelSpec, seq_length: int) -> float:
    """Forward FLOPs of `core_products` for one token."""
    return sum(product.flop for product in core_products(model, seq_length))


def indexer_flop(model: ModelSpec, seq_length: int) -> float:
    """Forward FLOPs of the indexer for one token: every earlier key, all heads, and their sum.

    Source: DeepSeek-V3.2, arXiv:2512.02556, section 2.1, equation 1; half of all by the mask.
    """
    if model.indexer is None or model.shares_index:
        return 0.0
    keys = seq_length / (model.key_compression or 1)
    return keys * model.indexer.num_heads * (model.indexer.head_dim + 1.0)
