"""Advice tables of Megatron-Bridge.

Read at NVIDIA-NeMo/Megatron-Bridge@067f987df03b8355b03192d88d70f1709fedf51a, Apache-2.0.
"""

from __future__ import annotations

from thumb_jobs import Facts
from thumb_rule import Reading, Step, ThumbRule, among, at_least, either, only

SAME_SIZE = 0.02
"""Of a boundary: a model so near may be read into either row."""
DENSE = (
    ((0, 1), 1, only(tp=1, pp=1)),
    ((1, 10), 8, (among("tp", 2, 4), *only(pp=1))),
    ((10, 70), 16, (among("tp", 4, 8), among("pp", 2, 4))),
    ((70, 175), 64, (*only(tp=8), among("pp", 4, 8))),
    ((175, 500), 256, (*only(tp=8), among("pp", 8, 16))),
)
"""Billions of parameters, fewest GPUs, layouts. More GPUs than a row has mean more replicas."""
ALWAYS_TWO = 175
"""Billions from which the table has cp = 2 whatever the sequence."""
MIXED = (
    ((0, 20), only(tp=1, pp=1)),
    ((20, 100), (among("tp", 1, 2), among("pp", 2, 4), among("ep", 8, 16))),
    ((100, 500), (among("tp", 2, 4), among("pp", 8, 16), among("ep", 8, 16, 32))),
    ((500, 9999), (*only(tp=2, pp=16), among("ep", 32, 64))),
)
"""As above, of experts, by all their parameters."""
NAMED = {
    "qwen3-30b-a3b": only(tp=4, pp=2, ep=4),
    "qwen3-235b-a22b": (*only(tp=4, pp=16, ep=8), at_least("cp", 2)),
    "deepseek-v3": only(tp=2, pp=16, ep=64),
}


def _inside(limits: tuple[int, int], billions: float) -> bool:
    least, most = limits
    return least * (1 - SAME_SIZE) <= billions < most * (1 + SAME_SIZE)


def context(facts: Facts) -> tuple[int, ...]:
    """Context ranks of the table of sequence lengths; at 32K tokens either row may be read."""
    if facts.seq_length < 8192:
        return (1,)
    return (2, 4, 8) if facts.seq_length <= 32768 else (4, 8)


def dense(facts: Facts) -> tuple[Step, ...] | None:
    """Rows that the model's size may be read into; the better of them is the rule's."""
    rows = [
        step for size, gpus, step in DENSE if _inside(size, facts.billions) and facts.gpus >= gpus
    ]
    if facts.experts or not rows:
        return None
    two = facts.billions >= ALWAYS_TWO and facts.seq_length < 8192
    cp = among("cp", *((2,) if two else context(facts)))
    return ((*either(*rows), cp),)


def mixed(facts: Facts) -> tuple[Step, ...] | None:
    """The row of the size."""
    if not facts.experts:
        return None
    row = next(step for size, step in MIXED if _inside(size, facts.billions))
    return ((*row, among("cp", *context(facts))),)


def named(facts: Facts) -> tuple[Step, ...] | None:
    """The row of the model; context ranks as for the sequence."""
    row = NAMED.get(facts.job.model.name)
    if row is None:
        return None
    two = facts.job.model.name == "qwen3-235b-a22b" and facts.seq_length < 8192
    return ((*row, among("cp", *((2,) if two else context(facts)))),)


def topology(facts: Facts) -> tuple[Step, ...] | None:
    """By what joins the GPUs; nothing of GPUs without a fast link."""
    if facts.experts or facts.domain == 1:
        return None
    cp = among("cp", *context(facts))
    if facts.domain >= facts.gpus:
        return ((*only(tp=min(8, facts.gpus)), cp),)
    if facts.ethernet:
        return ((*only(tp=4), at_least("pp", 2), cp),)
    return ((*only(tp=8), cp),)


BRIDGE = "NVIDIA-NeMo/Megatron-Bridge@067f987d"
STRATEGIES = f"{BRIDGE}, docs/parallelisms.md, Strategy Selection Guide"
SKILL = "skills/nemo-mbridge-perf-parallelism-strategies/SKILL.md; Apache-2.0"
USUAL = Reading(virtual_stages="middle", recompute=("none", "selective", "full"))
RULES = (
    ThumbRule(
        "bridge-dense-sizes",
        "Megatron-Bridge: dense models by size",
        "megatron-bridge",
        "1 to 10 B tp 2 to 4; 10 to 70 B tp 4 to 8 and pp 2 to 4; 70 to 175 B tp 8 and pp 4 to 8; "
        "175 to 500 B tp 8, pp 8 to 16 and cp 2; cp 2 from 8K tokens and 4 to 8 from 32K",
        f"{STRATEGIES}; {SKILL}",
        dense,
        USUAL,
    ),
    ThumbRule(
        "bridge-moe-sizes",
        "Megatron-Bridge: MoE models by size",
        "megatron-bridge",
        "20 to 100 B tp 1 to 2, pp 2 to 4, ep 8 to 16; 100 to 500 B tp 2 to 4, pp 8 to 16, ep 8 to "
        "32; from 500 B tp 2, pp 16, ep 32 to 64; cp by sequence length",
        f"{STRATEGIES}; Apache-2.0",
        mixed,
        USUAL,
    ),
    ThumbRule(
        "bridge-moe-models",
        "Megatron-Bridge: MoE models by name",
        "megatron-bridge",
        "Qwen3 30B-A3B tp 4, pp 2, ep 4; Qwen3 235B-A22B tp 4, pp 16, ep 8, cp 2; DeepSeek-V3 tp "
        "2, pp 16, ep 64; cp by sequence length",
        f"{BRIDGE}, {SKILL}",
        named,
        USUAL,
    ),
    ThumbRule(
        "bridge-topology",
        "Megatron-Bridge: by topology",
        "megatron-bridge",
        "in one NVLink domain tp as large as the node, up to 8; over InfiniBand tp 8 with pipeline "
        "or data parallelism across nodes; over Ethernet tp 4 with pipeline parallelism; cp by "
        "sequence length",
        f"{STRATEGIES}, By Hardware Topology; {SKILL}",
        topology,
        USUAL,
    ),
)
