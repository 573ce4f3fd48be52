"""Experts in a `config.json`: how many, how wide, and how tokens find them."""

from collections.abc import Callable, Mapping
from typing import Final

from trainplan.costmodel.architecture import MoeSpec
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.families.aliases import alias_of
from trainplan.costmodel.families.family import Family, Fields
from trainplan.costmodel.families.reader import HfConfig

BALANCED_WITHOUT_LOSS = "noaux_tc"
"""The `topk_method` whose router holds one balancing bias per expert (DeepSeek-V3)."""
SCORES = {"softmax": "softmax", "sigmoid": "sigmoid", "sqrtsoftplus": "sigmoid"}
"""Spelling in `config.json` -> ours; a square root of a softplus is per expert as a sigmoid is."""
ALIKE: Final[Fields] = {
    "router_score_function": "softmax",
    "norm_topk_prob": True,
    "shared_expert_intermediate_size": 0,
}
"""A router over equal experts alone, as the first mixtures have it (Mixtral, gpt-oss)."""
LOSS_WEIGHTS = ("router_aux_loss_coef", "aux_loss_alpha", "moe_aux_loss_coeff")
"""Names of one weight. Source: configuration classes of transformers 5 (Qwen3-MoE, Mixtral),
modelling code of DeepSeek-V2, Megatron Core."""
OPTIONAL = {
    "moe_intermediate_size": None,
    "scoring_func": "softmax",
    "topk_method": None,
    "norm_topk_prob": True,
    "n_group": None,
    "topk_group": None,
    "routed_scaling_factor": None,
}


def experts(config: HfConfig, family: Family) -> MoeSpec | None:
    """The experts of a file that names some; null: it names none, or not more than one."""
    count = alias_of(config, "num_experts", family.names.get("num_experts"))
    if count not in config.values or config.count(count) < 1:
        return None
    config = config.with_defaults(OPTIONAL)
    fixed = family.experts or {}
    width = _width(config, family)
    per_token = alias_of(config, "num_experts_per_tok", family.names.get("num_experts_per_tok"))
    name = alias_of(config, "scoring_func", family.names.get("scoring_func"))
    scores = str(fixed.get("router_score_function") or config.text(name))
    if scores not in SCORES:
        known = ", ".join(SCORES)
        raise UnsupportedError(
            f"{config.where}: router scores {scores!r} are not modelled; known: {known}"
        )
    groups = config.optional_integer(alias_of(config, "n_group"))
    balanced = config.optional_text("topk_method") == BALANCED_WITHOUT_LOSS
    return MoeSpec.model_validate(
        {
            "num_experts": config.integer(count),
            "num_experts_per_tok": config.integer(per_token),
            "moe_intermediate_size": width,
            "router_bias": balanced,
            "router_score_function": SCORES[scores],
            "n_group": groups,
        }
        | {name: read(config, family) for name, read in READ.items() if name not in fixed}
        | dict(fixed)
        | dict(family.more_experts(config) if family.more_experts else {})
    )


def _width(config: HfConfig, family: Family) -> int:
    """Width of one routed expert: its own field, or that of the MLPs (Mixtral)."""
    own = alias_of(config, "moe_intermediate_size", family.names.get("moe_intermediate_size"))
    width = config.optional_integer(own)
    if width is not None:
        return width
    name = alias_of(config, "intermediate_size", family.names.get("intermediate_size"))
    return config.integer(name)


def _shared(config: HfConfig, family: Family) -> int:
    """Width of all shared experts together: its own field, or so many of the routed width."""
    name = "shared_expert_intermediate_size"
    own = config.optional_count(alias_of(config, name, family.names.get(name)))
    name = alias_of(config, "n_shared_experts", family.names.get("n_shared_experts"))
    count = config.optional_count(name)
    return own or count * _width(config, family)


def _normed(config: HfConfig, family: Family) -> bool:
    """Do the weights of the experts chosen add up to one?"""
    name = alias_of(config, "norm_topk_prob", family.names.get("norm_topk_prob"))
    return config.boolean(name)


def _balancing(config: HfConfig, family: Family) -> float | None:
    """Weight of the loss that balances; null where a bias does, or none is stated."""
    if config.optional_text("topk_method") == BALANCED_WITHOUT_LOSS:
        return None
    values = (config.values.get(name) for name in LOSS_WEIGHTS)
    known = (x for x in values if isinstance(x, int | float) and not isinstance(x, bool))
    return next((float(x) for x in known if 0 <= x <= 1), None)


READ: Final[Mapping[str, Callable[[HfConfig, Family], object]]] = {
    "shared_expert_intermediate_size": _shared,
    "norm_topk_prob": _normed,
    "router_aux_loss_coef": _balancing,
    "topk_group": lambda config, _: config.optional_integer("topk_group"),
    "routed_scaling_factor": lambda config, _: config.optional_number(
        alias_of(config, "routed_scaling_factor")
    ),
}
"""Fields of `MoeSpec` that the file says, unless the code fixes them."""
