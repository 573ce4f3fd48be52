"""Experts: the inverse of the exporter's `moe`."""

from collections.abc import Sequence

from trainplan.costmodel.architecture import MoeSpec
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.read.arguments import Arguments

GLU_MULTIPLE = 64
"""Width of a gated MLP that none states. Source: `megatron/training/arguments.py:1320`."""


def read_experts(arguments: Arguments, layers: int) -> MoeSpec | None:
    """The experts of a launch; null: it has none.

    Raises:
        ValidationError: The sizes make none.
    """
    experts = arguments.count(keys.EXPERTS)
    if not experts:
        return None
    first, freq = expert_places(expert_layers(arguments, layers))
    biased, top = arguments.on(keys.BIASES), arguments.count(keys.TOP_K)
    groups, limit = map(arguments.whole, (keys.ROUTER_GROUPS, keys.TOP_GROUPS))
    softmax = arguments.text(keys.SCORES) == "softmax"
    return MoeSpec(
        num_experts=experts,
        num_experts_per_tok=top,
        moe_intermediate_size=expert_width(arguments),
        shared_expert_intermediate_size=arguments.count(keys.SHARED_EXPERT),
        shared_expert_gate=arguments.on(keys.SHARED_GATE),
        first_k_dense_replace=first,
        moe_layer_freq=freq,
        router_bias=biased or arguments.on(keys.ROUTER_BIAS),
        expert_bias=biased,
        router_score_function="softmax" if softmax else "sigmoid",
        norm_topk_prob=not softmax or not arguments.on(keys.PRE_SOFTMAX) or top == 1,
        n_group=groups if limit else None,
        topk_group=limit if groups else None,
        routed_scaling_factor=arguments.number(keys.ROUTED_SCALE),
    )


def mlp_width(arguments: Arguments) -> int:
    """Width of a dense MLP: four times the hidden size, or two thirds of that under a gate."""
    stated, hidden = arguments.whole(keys.FFN), arguments.count(keys.HIDDEN)
    if stated is not None:
        return stated
    gated = int(4 * hidden * 2 / 3 / GLU_MULTIPLE) * GLU_MULTIPLE
    return gated if arguments.on(keys.SWIGLU) else 4 * hidden


def expert_width(arguments: Arguments) -> int:
    """Width of one expert: that of a dense MLP where none is stated."""
    return arguments.whole(keys.EXPERT_FFN) or mlp_width(arguments)


def expert_layers(arguments: Arguments, layers: int) -> tuple[bool, ...]:
    """Which layers are experts: the first of every so many, or those that a list gives 1.

    Source: Megatron-LM `megatron/core/models/gpt/gpt_layer_specs.py`, moe_layer_freq.
    """
    freq = arguments.value(keys.EXPERT_LAYERS)
    if isinstance(freq, tuple):
        return tuple(map(bool, freq))
    every = freq if isinstance(freq, int) and freq > 0 else 1
    return tuple(layer % every == 0 for layer in range(layers))


def expert_places(experts: Sequence[bool]) -> tuple[int, int]:
    """`first_k_dense_replace` and `moe_layer_freq` of such layers; 0 and 1 where none say so."""
    layers, count = len(experts), sum(experts)
    start = experts.index(True) if count else layers
    freq = list(experts)[start + 1 :].index(True) + 1 if count > 1 else 1
    for first, every in ((start, 1), (start - freq + 1, freq), (0, start + 1)):
        if first >= 0 and places(layers, first, every) == tuple(experts):
            return first, every
    return 0, 1


def places(layers: int, first: int, freq: int) -> tuple[bool, ...]:
    """For every layer: is it an expert? As `ModelSpec.moe_layers`."""
    return tuple(i >= first and (i - first) % freq == freq - 1 for i in range(layers))
