"""Sizes of what mixes tokens other than by comparing all queries with all keys."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from trainplan.costmodel.architecture.layers import Mixer, Size
from trainplan.costmodel.spec import Spec


class SsmSpec(Spec):
    """Selective state space: Mamba-1 (arXiv:2312.00752) or Mamba-2 (arXiv:2405.21060)."""

    num_heads: Size
    """Of Mamba-1: its channels, where `head_dim` is 1."""
    head_dim: Size = 1
    state_size: Size
    num_groups: Size = 1
    """Groups of heads that share B and C (Mamba-2)."""
    time_step_rank: Size | None = None
    """Rank of the time step of Mamba-1; null: Mamba-2, whose heads have one time step each."""
    conv_kernel: Size = 4
    conv_bias: bool = True
    input_bias: bool = False
    output_bias: bool = False
    gated_norm: bool = True
    """Mamba-2: RMSNorm over the inner width, gated, before the output projection."""
    inner_norms: bool = False
    """Mamba-1: RMSNorm with weights on time step, B and C (Jamba)."""
    chunk_size: Size = 256
    """Tokens of a chunk of the scan of Mamba-2."""

    @property
    def inner_width(self) -> int:
        """Width of all heads."""
        return self.num_heads * self.head_dim

    @property
    def group_width(self) -> int:
        """Width of B and C together."""
        return 2 * self.num_groups * self.state_size

    @model_validator(mode="after")
    def _groups_fit(self) -> Self:
        if self.num_heads % self.num_groups:
            raise ValueError(
                f"num_heads = {self.num_heads} is not a multiple of num_groups = "
                f"{self.num_groups}; correct one of them"
            )
        if self.time_step_rank and self.num_groups > 1:
            raise ValueError(
                "time_step_rank is of Mamba-1, num_groups of Mamba-2; leave one of them out"
            )
        return self


class LinearAttentionSpec(Spec):
    """Linear attention whose state is a matrix of each value head."""

    rule: Literal["gated_delta", "kda", "lightning"] = "gated_delta"
    """How the state changes: gated delta rule (arXiv:2412.06464; Qwen3-Next), with a decay of each
    channel (Kimi Delta Attention, arXiv:2510.26692), or a decay that is given (lightning
    attention, arXiv:2501.08313; MiniMax-01)."""
    num_key_heads: Size
    num_value_heads: Size
    key_head_dim: Size
    value_head_dim: Size
    conv_kernel: Size | None = 4
    """Of the short convolution of queries, keys and values; null: none."""
    gate_rank: Size | None = None
    """Rank of the projections of decay and output gate (KDA)."""
    chunk_size: Size = 64
    """Tokens of a chunk."""

    @property
    def key_width(self) -> int:
        """Width of all keys."""
        return self.num_key_heads * self.key_head_dim

    @property
    def value_width(self) -> int:
        """Width of all values."""
        return self.num_value_heads * self.value_head_dim

    @model_validator(mode="after")
    def _rule_has_its_sizes(self) -> Self:
        if self.num_value_heads % self.num_key_heads:
            raise ValueError(
                f"num_value_heads = {self.num_value_heads} is not a multiple of num_key_heads = "
                f"{self.num_key_heads}; correct one of them"
            )
        if (self.rule == "kda") != (self.gate_rank is not None):
            raise ValueError("gate_rank is needed by rule kda and by no other")
        if (self.rule == "lightning") != (self.conv_kernel is None):
            raise ValueError("conv_kernel is null in rule lightning and in no other")
        return self


class IndexerSpec(Spec):
    """What picks the keys of sparse attention (DeepSeek-V3.2, arXiv:2512.02556, section 2.1)."""

    num_heads: Size
    head_dim: Size
    top_k: Size
    """Keys that a query is compared with."""


class ConvolutionSpec(Spec):
    """A gated short convolution over the hidden width (LFM2, arXiv:2511.23404)."""

    kernel: Size
    bias: bool = False


SIZES: dict[Mixer, str] = {
    "sliding_attention": "sliding_window",
    "chunked_attention": "attention_chunk_size",
    "sparse_attention": "indexer",
    "linear_attention": "linear_attention",
    "mamba": "ssm",
    "attention_and_mamba": "ssm",
    "convolution": "convolution",
}
"""Field of the model that gives the sizes of a mixer; the others have those of the model."""


def check_sizes(mixers: set[Mixer], given: set[str]) -> None:
    """Refuse mixers without their sizes, and sizes that belong to no layer."""
    for mixer in sorted(mixers):
        field = SIZES.get(mixer)
        if field and field not in given:
            raise ValueError(f"a layer has mixer {mixer} but {field} is null; give it")
    for field in sorted(given):
        users = [mixer for mixer, name in SIZES.items() if name == field]
        if not mixers.intersection(users):
            raise ValueError(
                f"{field} is given but no layer has mixer {' or '.join(users)}; say which have, "
                "or leave it out"
            )
