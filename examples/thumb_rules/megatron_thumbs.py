"""Advice for Megatron-LM: its guide, its MoE README, NeMo's tool, the Llama 3 paper.

Read at NVIDIA/Megatron-LM@d98e8a64ddf34856e74b24714e3bedb2f5a39553 and
NVIDIA/NeMo@8cfedd7203462cb251a914e700e5605444277561.
"""

from __future__ import annotations

from thumb_jobs import Facts
from thumb_rule import Reading, Step, ThumbRule, among, at_least, at_most, only, powers, where

LONG = 8192
"""Tokens from which the guides call a sequence long."""
PIPELINED = Reading(virtual_stages="middle", recompute=("none", "selective", "full"))
SHARDED = only(zero_stage=1)
"""The distributed optimizer, with which the guides ask whether a model fits."""
VERY_LARGE = 500
"""Billions: the README names DeepSeek-V3."""
MODELS = {
    "llama3-8b": (1, 1, 2, 1),
    "llama3-70b": (4, 4, 2, 1),
    "llama3.1-405b": (8, 8, 2, 1),
    "mixtral-8x7b": (1, 4, 1, 8),
    "deepseek-v3": (2, 16, 1, 64),
}
"""Degrees tp, pp, cp, ep of the guide's table."""


def context(facts: Facts) -> Step:
    """Context parallelism for long sequences alone."""
    return () if facts.seq_length >= LONG else only(cp=1)


def interleaved() -> Step:
    """Virtual stages wherever there is a pipeline."""
    return (where("pp vpp", lambda t: (t.pp == 1) | (t.vpp > 1)),)


def named(facts: Facts) -> tuple[Step, ...] | None:
    """The table: more context ranks than it says where the sequence is longer.

    It states its GPUs: nothing is said of fewer than its layout needs.
    """
    known = MODELS.get(facts.job.model.name)
    if known is None:
        return None
    tp, pp, cp, ep = known
    if facts.gpus < pp * max(tp * cp, ep):
        return None
    sequence = at_least("cp", cp) if facts.seq_length > LONG else at_most("cp", cp)
    return ((*only(tp=tp, pp=pp, ep=ep), sequence),)


def simple(facts: Facts) -> tuple[Step, ...] | None:
    """Data parallelism, then tensor ranks up to the fast domain, then pipeline ranks.

    Its steps have no expert parallelism: it is not of experts.
    """
    if facts.experts:
        return None
    most = max(powers(1, min(facts.domain, 8))) if facts.domain > 1 else facts.node
    base = (*context(facts), *SHARDED)
    tensor = [(*base, *only(tp=tp, pp=1)) for tp in powers(1, most)]
    pipeline = [(*base, *only(tp=most, pp=pp)) for pp in powers(2, facts.gpus // most)]
    return (*tensor, *pipeline)


def experts(facts: Facts) -> tuple[Step, ...] | None:
    """The least product of tensor, expert and pipeline ranks that fits, inside the fast domain.

    A note lets very large models leave the domain.
    """
    if not facts.experts:
        return None
    most = facts.gpus if facts.billions > VERY_LARGE else facts.domain
    inside = where("ep tp", lambda t: t.ep * t.tp <= most)
    base = (*context(facts), *interleaved(), *only(etp=1), inside, *SHARDED)

    def of(size: int) -> Step:
        return (*base, where("tp ep pp", lambda t: t.tp * t.ep * t.pp == size))

    return tuple(of(size) for size in powers(1, facts.gpus))


def inside(facts: Facts) -> tuple[Step, ...]:
    """Tensor ranks inside the fast domain, all else free."""
    return ((at_most("tp", facts.domain if facts.domain > 1 else facts.node),),)


GRID_80 = {
    4096: (
        (4, (1, 2, 4), (1, 1), (1, 2, 4, 8), (1, 8)),
        (8, (1, 2, 4), (1, 2), (1, 2, 4), (1, 8)),
        (13, (2, 4), (1, 2), (1, 2, 4), (1, 8)),
        (23, (4, 8), (1, 2), (1, 2), (4, 16)),
        (45, (4, 8), (2, 4), (1, 2), (8, 32)),
        (95, (4, 8), (1, 8), (1, 2), (8, 64)),
    ),
    32768: (
        (4, (2, 4), (1, 2), (1,), (1, 8)),
        (8, (4, 8), (1, 2), (1,), (4, 16)),
        (13, (4, 8), (1, 2), (1,), (4, 16)),
        (23, (8,), (2, 4), (1,), (16, 32)),
    ),
}
"""Of 80 GB and by tokens of a sequence: up to so many billions, tp, least and most pp, micro
batches, least and most tp x pp; rows that some job can meet."""
GRID_40 = (
    (4, (1, 2, 4, 8), (1, 1), (1, 2, 4, 8), (1, 8)),
    (8, (2, 4, 8), (1, 2), (1, 2, 4), (2, 8)),
    (13, (4, 8), (1, 4), (1, 2, 4), (4, 32)),
    (23, (2, 4, 8), (1, 8), (1, 2, 4, 8), (8, 64)),
)
"""Of 40 GB, whatever the sequence."""


def grid(facts: Facts) -> tuple[Step, ...] | None:
    """All of the tool's grid, whose tool runs all of it: the fastest of it is its answer."""
    rows = GRID_80.get(facts.seq_length, ()) if 75 < facts.memory_gib < 85 else ()
    rows = GRID_40 if 38 < facts.memory_gib < 42 else rows
    size = round(facts.billions)
    row = next((row for row in rows if size <= row[0]), None)
    if facts.experts or row is None:
        return None
    _, tp, (least, most), sizes, (fewest, largest) = row
    layers = facts.job.model.num_hidden_layers
    apart = where("pp vpp", lambda t: t.vpp == (t.pp > 2) * (layers // t.pp - 1) + 1)
    limits = where("tp pp", lambda t: (t.tp * t.pp >= fewest) & (t.tp * t.pp <= largest))
    pipeline = where("pp", lambda t: (t.pp >= least) & (t.pp <= most) & (layers % t.pp == 0))
    degrees = (among("tp", *tp), pipeline, limits, apart, among("micro_batch_size", *sizes))
    return ((*degrees, *only(cp=1), among("recompute", 0)),)


MEGATRON = "NVIDIA/Megatron-LM@d98e8a64"
RULES = (
    ThumbRule(
        "megatron-models",
        "Megatron-LM: table of models",
        "megatron-lm",
        "Llama 3 8B, 70B and 405B, Mixtral 8x7B and DeepSeek-V3 each have their tp, pp, cp and ep; "
        "more GPUs mean more data parallelism, longer sequences more context parallelism",
        f"{MEGATRON}, docs/user-guide/parallelism-guide.md, Parallelism Selection Guide; "
        "all rights reserved: only facts are used",
        named,
        PIPELINED,
    ),
    ThumbRule(
        "megatron-start-simple",
        "Megatron-LM: start simple",
        "megatron-lm",
        "data parallelism alone; if that does not fit tensor parallelism up to the node, then "
        "pipeline parallelism; context parallelism from 8K tokens",
        f"{MEGATRON}, docs/user-guide/parallelism-guide.md, Choosing the Right Strategy; "
        "all rights reserved: only facts are used. "
        "The same order: arXiv:2104.04473, sections 3.2 and 3.3, takeaways 1 and 2; "
        "NVIDIA-NeMo/Megatron-Bridge@067f987d, docs/performance-guide.md, Parallel Mapping "
        "Strategies, Apache-2.0; AMD-AGI/Primus@fd1eeabb, docs/04-technical-guides/"
        "parallelism-configuration.md, section 5, MIT",
        simple,
        PIPELINED,
    ),
    ThumbRule(
        "megatron-moe",
        "Megatron Core: MoE guidelines",
        "megatron-lm",
        "as little tensor, expert and pipeline parallelism as fits, tensor and expert ranks inside "
        "the NVLink domain (very large models may leave it), no tensor parallelism in experts, "
        "virtual stages with every pipeline, context parallelism from 8K tokens",
        f"{MEGATRON}, megatron/core/transformer/moe/README.md, guidelines 1 to 5; BSD-3",
        experts,
        PIPELINED,
    ),
    ThumbRule(
        "tensor-inside-node",
        "Llama 3: tensor ranks inside the node",
        "megatron-lm",
        "tensor parallelism is innermost and stays inside a server, then context, pipeline and "
        "data parallelism; it states no sizes",
        "arXiv:2407.21783, section 3.3.2, network-aware parallelism configuration",
        inside,
        None,
    ),
    ThumbRule(
        "nemo-grid",
        "NeMo: auto configurator",
        "nemo",
        "a grid of tp, pp and micro batch sizes by model size, sequence length and GPU memory; no "
        "context parallelism, no recomputation, one layer a virtual stage where pp is above 2",
        "NVIDIA/NeMo@8cfedd72, nemo/collections/llm/tools/auto_configurator/core/"
        "training_config.py, GPT3GridSearch; Apache-2.0",
        grid,
        Reading(runs_all=True),
    ),
)
