"""Mixture of experts: how many, how wide, in which layers, and how tokens choose them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, field_validator, model_validator

from trainplan.costmodel.architecture.layers import Count, FeedForward, Mixer, Size, listed_kinds
from trainplan.costmodel.spec import Spec


class MoeSpec(Spec):
    """Mixture of experts: which layers, how many experts, how wide."""

    num_experts: Size
    """Routed experts of a layer."""
    num_experts_per_tok: Size
    """Experts the router chooses for a token."""
    mean_experts_per_tok: PositiveFloat | None = None
    """Of these, how many compute on average, where some of those chosen pass a token on unchanged
    (zero-compute experts of LongCat); null: all."""
    moe_intermediate_size: Size
    """Width of one routed expert."""
    shared_expert_intermediate_size: Count = 0
    """Total width of all shared experts; 0: none."""
    shared_expert_gate: bool = False
    """A sigmoid gate (one row of `hidden_size`) on the shared expert (Qwen2-MoE)."""
    first_k_dense_replace: Count = 0
    """Leading layers that stay dense."""
    moe_layer_freq: PositiveInt = 1
    """After the leading dense layers, every `moe_layer_freq`-th layer is MoE."""
    router_bias: bool = False
    """One learned or balancing number per expert in the router (`e_score_correction_bias` of
    DeepSeek-V3 and GLM-4.5); one that balances is a buffer, no parameter."""
    router_bias_is_parameter: bool = False
    """It is a parameter all the same (AFMoE, Laguna, ERNIE 4.5), as it is wherever experts have
    biases, too (gpt-oss)."""
    expert_bias: bool = False
    """The products of experts have biases (gpt-oss); the router's is `router_bias`."""
    router_score_function: Literal["softmax", "sigmoid"] = "softmax"
    """`softmax` or `sigmoid`."""
    norm_topk_prob: bool = True
    """Are the chosen scores normalised?"""
    n_group: Size | None = None
    """Device-limited routing: number of expert groups; null: no groups."""
    topk_group: Size | None = None
    """Groups a token may visit."""
    routed_scaling_factor: PositiveFloat | None = None
    """Factor on the routed output."""
    router_aux_loss_coef: float | None = Field(default=None, ge=0, le=1)
    """Weight of the loss that balances the experts, which exports write; null: not stated."""
    num_zero_experts: Count = 0
    """Further choices of the router that return their input, without weights (LongCat)."""
    latent_size: Size | None = None
    """Width that routed experts work in, between projections down and up (Nemotron-3 Super); null:
    the hidden size."""
    wide_latent: bool = False
    """Those projections multiply in 16 bits, whatever the experts do."""

    @field_validator("num_experts_per_tok", mode="before")
    @classmethod
    def _whole(cls, value: object) -> object:
        if isinstance(value, float) and value != int(value):
            raise ValueError(
                f"{value:g} is a mean and the router chooses a whole number: write that here, and "
                f"mean_experts_per_tok: {value:g} with it"
            )
        return value

    @model_validator(mode="after")
    def _top_k_fits(self) -> Self:
        if self.num_experts_per_tok > self.num_experts:
            raise ValueError(
                f"num_experts_per_tok = {self.num_experts_per_tok} exceeds "
                f"num_experts = {self.num_experts}; lower it"
            )
        return self

    @model_validator(mode="after")
    def _mean_fits(self) -> Self:
        mean, top = self.mean_experts_per_tok, self.num_experts_per_tok
        if mean is not None and mean > top:
            raise ValueError(
                f"mean_experts_per_tok = {mean} exceeds num_experts_per_tok = {top}, which the "
                "router chooses; lower it"
            )
        return self

    @property
    def rows_per_token(self) -> float:
        """Rows of experts that a token makes, on average; choices fall on all equally."""
        if self.mean_experts_per_tok is not None:
            return self.mean_experts_per_tok
        share = self.num_experts / (self.num_experts + self.num_zero_experts)
        return (
            self.num_experts_per_tok * share if self.num_zero_experts else self.num_experts_per_tok
        )

    @model_validator(mode="after")
    def _groups_fit(self) -> Self:
        groups = self.n_group or 1
        if self.num_experts % groups:
            raise ValueError(
                f"num_experts = {self.num_experts} is not a multiple of n_group = {groups}; "
                "correct one of them"
            )
        if (self.topk_group or 1) > groups:
            raise ValueError(f"topk_group = {self.topk_group} exceeds n_group = {groups}; lower it")
        return self

    @property
    def counted_router_bias(self) -> int:
        """Parameters of a router with its product; a balancing bias is a buffer of the class.

        Source: transformers 5.24, `e_score_correction_bias` of `modeling_deepseek_v3.py` and 23
        more; Megatron Core `moe/router.py`, expert_bias.
        """
        learned = self.router_bias and (self.expert_bias or self.router_bias_is_parameter)
        return learned * (self.num_experts + self.num_zero_experts)

    def placed(self, layers: int) -> tuple[FeedForward, ...]:
        """What feeds forward in each of so many layers."""
        first, freq = self.first_k_dense_replace, self.moe_layer_freq
        return tuple(
            "moe" if i >= first and (i - first) % freq == freq - 1 else "mlp" for i in range(layers)
        )

    def everywhere(self) -> MoeSpec:
        """The same in every layer."""
        return self.model_copy(update={"first_k_dense_replace": 0, "moe_layer_freq": 1})


def placed_layers(
    mixers: Sequence[Mixer],
    moe: MoeSpec | None,
    feed_forwards: Sequence[FeedForward] | None = None,
    changes: Sequence[Mapping[str, object]] | None = None,
) -> dict[str, object]:
    """Fields of a model whose layers have these parts, in order; experts as `moe` has them."""
    usual: tuple[FeedForward, ...] = tuple("mlp" for _ in mixers)
    usual = moe.placed(len(mixers)) if moe else usual
    plain = feed_forwards is None or tuple(feed_forwards) == usual
    if len(set(mixers)) == 1 and plain and not any(changes or ()):
        return {"mixer": mixers[0], "moe": moe}
    listed = listed_kinds(mixers, feed_forwards or usual, changes)
    return {"moe": moe.everywhere() if moe else None, **listed}
