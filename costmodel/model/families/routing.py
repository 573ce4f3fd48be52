"""Experts in a `config.json`: how many, how wide, and how tokens find them."""

from __future__ import annotations

from trainplan.costmodel.architecture import MoeSpec
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.model.families.family import Family
from trainplan.costmodel.model.families.reader import HfConfig
from trainplan.costmodel.model.families.spellings import spelled

BALANCED_WITHOUT_LOSS = "noaux_tc"
"""The `topk_method` whose router holds one balancing bias per expert (DeepSeek-V3)."""
SCORES = {"softmax": "softmax", "sigmoid": "sigmoid", "sqrtsoftplus": "sigmoid"}
"""Spelling in `config.json` -> ours; a square root of a softplus is per expert as a sigmoid is."""
OPTIONAL = {
    "moe_intermediate_size": None,
    "n_shared_experts": 0,
    "shared_expert_intermediate_size": 0,
    "scoring_func": "softmax",
    "topk_method": None,
    "norm_topk_prob": True,
    "n_group": None,
    "topk_group": None,
    "routed_scaling_factor": None,
}


def experts(config: HfConfig, family: Family) -> MoeSpec | None:
    """The experts of a file that names some; null: it names none, or not more than one."""
    count = spelled(config, "num_experts", family.names.get("num_experts"))
    if count not in config.values or config.count(count) < 1:
        return None
    config = config.with_defaults(OPTIONAL)
    width = _width(config, family)
    per_token = spelled(config, "num_experts_per_tok", family.names.get("num_experts_per_tok"))
    fixed = family.experts.get("router_score_function")
    name = spelled(config, "scoring_func", family.names.get("scoring_func"))
    scores = str(fixed) if fixed else config.text(name)
    if scores not in SCORES:
        known = ", ".join(SCORES)
        raise UnsupportedError(
            f"{config.where}: router scores {scores!r} are not modelled; known: {known}"
        )
    groups = config.optional_integer(spelled(config, "n_group"))
    method = config.with_defaults({"topk_method": None})
    balanced = method.has("topk_method") and method.text("topk_method") == BALANCED_WITHOUT_LOSS
    return MoeSpec.model_validate(
        {
            "num_experts": config.integer(count),
            "num_experts_per_tok": config.integer(per_token),
            "moe_intermediate_size": width,
            "shared_expert_intermediate_size": _shared(config, family, width),
            "router_bias": balanced,
            "router_score_function": SCORES[scores],
            "norm_topk_prob": config.boolean(
                spelled(config, "norm_topk_prob", family.names.get("norm_topk_prob"))
            ),
            "n_group": groups,
            "topk_group": config.optional_integer("topk_group"),
            "routed_scaling_factor": config.optional_number(
                spelled(config, "routed_scaling_factor")
            ),
        }
        | dict(family.experts)
        | dict(family.more_experts(config) if family.more_experts else {})
    )


def _width(config: HfConfig, family: Family) -> int:
    """Width of one routed expert: its own field, or that of the MLPs (Mixtral)."""
    own = spelled(config, "moe_intermediate_size", family.names.get("moe_intermediate_size"))
    width = config.optional_integer(own)
    if width is not None:
        return width
    name = spelled(config, "intermediate_size", family.names.get("intermediate_size"))
    return config.integer(name)


def _shared(config: HfConfig, family: Family, width: int) -> int:
    """Width of all shared experts together: its own field, or so many of the routed width."""
    name = "shared_expert_intermediate_size"
    own = config.count(spelled(config, name, family.names.get(name)))
    count = config.count(spelled(config, "n_shared_experts", family.names.get("n_shared_experts")))
    return own or count * width
