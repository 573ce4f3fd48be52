"""Headlines of mixtures of experts: folding, and the cost of DeepSeek-V3."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from headlines_figure import Figure, Headline, Runs, estimates, fastest, place, rules

from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.architecture.moe import MoeSpec
from trainplan.costmodel.base.units import GB
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout, stage_specs
from trainplan.costmodel.layouts.rules import Rule, rule
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import Machine, machine_of
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.runtimes.megatron.options import exchange_overlapped_with_compute
from trainplan.costmodel.step import Estimate, explicit

QWEN2_57B = ModelSpec(
    name="qwen2-57b-a14b",
    num_hidden_layers=28,
    hidden_size=3584,
    intermediate_size=18944,
    num_attention_heads=28,
    num_key_value_heads=4,
    head_dim=128,
    qkv_bias=True,
    vocab_size=151_936,
    max_position_embeddings=131_072,
    moe=MoeSpec(
        num_experts=64,
        num_experts_per_tok=8,
        moe_intermediate_size=2560,
        shared_expert_intermediate_size=20_480,
        shared_expert_gate=True,
        norm_topk_prob=False,
    ),
)
"""Source: https://huggingface.co/Qwen/Qwen2-57B-A14B, config.json."""

H800_LINK_BYTES_PER_SECOND = 160 * GB
"""What DeepSeek reached over NVLink. Source: arXiv:2412.19437, section 3.2.2."""
TOKENS_PER_S_PER_GPU = 1e12 / (180_000 * 3600)
"""180 thousand GPU hours for each 10^12 tokens. Source: arXiv:2412.19437, section 1."""
MEGASCALE = ModelSpec(
    name="internal-352b",
    num_hidden_layers=60,
    hidden_size=4096,
    intermediate_size=14_336,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    vocab_size=65_536,
    max_position_embeddings=8192,
    moe=MoeSpec(num_experts=32, num_experts_per_tok=3, moe_intermediate_size=14_336),
)
"""Source: MegaScale-MoE, arXiv:2505.11432, table 2: four query heads share keys and values."""
MEGASCALE_TOKENS_PER_S = 1.41e6
DEEPSEEK_HELD = ("tp=1", "cp=1", "zero_stage=1")


def experts(runs: Runs) -> Headline:
    """Folding and DeepSeek-V3."""
    return Headline(
        "moe",
        "Experts folded and the cost of DeepSeek-V3",
        """\
*Folding*: Liu et al., [arXiv:2504.14960](https://arxiv.org/abs/2504.14960), on H100: the best
layout whose experts have a tensor and expert parallelism of their own, over the best one in which
experts are cut as attention is (`etp` = `tp`, `ep` divides `dp`). The planner chooses both; 0.1 %
counts as a gain. The batch of 256 sequences of 4096 tokens is assumed.

*DeepSeek-V3*: 180 thousand GPU hours for each 10^12 tokens on 2048 H800,
[arXiv:2412.19437](https://arxiv.org/abs/2412.19437): 15,360 sequences of 4096 tokens, fp8, `pp` 16,
`ep` 64, ZeRO-1. The H800 is an H100 with 160 GB/s of NVLink. *As 1F1B*: with the exchange of
experts overlapped with compute. Assumed are micro batch 1, bf16 moments, recomputation of norms,
`mla_up_proj` and `moe_act`, and four layers a stage with the 61st next to the head, as
Megatron-Bridge splits; this decides the figure, even stages give a third less. *DualPipe*: what a
search of `megatron-dualpipe` finds with even stages; `pp` 16 in two directions is `dualpipe-v` on
`pp` 8. *Place* is that of `pp` 16 and `ep` 64 without tensor and context parallelism.

*MegaScale-MoE*: 352 B on 1440 H800, [arXiv:2505.11432](https://arxiv.org/abs/2505.11432): 720
sequences of 8192 tokens in bf16, `pp` 15. The Megatron-LM that it is compared with cuts attention
and experts over the 8 GPUs of a node (`tp` and `etp` 8), MegaScale-MoE attention by sequence and
experts by `ep`, with the exchange overlapped with compute. Four virtual stages a rank are assumed
of both.

*Megatron-Bridge*: its published tokens/s of one H100, as the data have them; DeepSeek-V3 there is a
run in fp8 that does not state its recomputation.""",
        (
            *_folding(preset("mixtral-8x22b"), 16, 49.3, WHY_NOT_MIXTRAL),
            *_folding(QWEN2_57B, 8, 39.0),
            *_deepseek(),
            *_megascale(),
            *_bridge(runs),
        ),
    )


WHY_NO_FOLDING = """\
The fastest layout the planner finds does without tensor parallelism, so that there is nothing to
fold. Where `tp` is held at 2, folding wins."""
WHY_NOT_MIXTRAL = """\
The batch is assumed, and MFU is counted with causal attention, which the publication may count
whole."""


@rule("tp dp ep etp", "experts are cut as attention is", "arXiv:2504.14960")
def unfolded(job: Job, table: LayoutTable) -> BoolColumn:
    """One mapping for attention and experts."""
    return np.asarray((table.etp != table.tp) | (table.dp % np.maximum(1, table.ep) != 0))


def _folding(model: ModelSpec, nodes: int, mfu: float, why: str = "") -> Iterator[Figure]:
    job = Job(
        model=model,
        training=TrainingSpec(seq_length=4096, global_batch_size=256),
        cluster=parse_cluster(f"{nodes}x8:h100-sxm"),
    )
    name, best = model.name, _best(job)
    yield Figure(f"{name}, MFU", mfu, 100 * best.mfu, 0.15, "%", why=why)
    two = rules(["tp=2"])
    ways = ((best, (), "", WHY_NO_FOLDING), (_best(job, *two), two, ", `tp` 2", ""))
    for free, held, what, reason in ways:
        gain = _best(job, *held, unfolded).step_time_s / free.step_time_s - 1
        yield Figure(f"{name}{what}, gain by folding", 0.1, 100 * gain, 0, "%", "at least", reason)


def _best(job: Job, *held: Rule) -> Estimate:
    machine = machine_of(job.cluster, job.training.precision)
    table = fastest(job, machine, held, places=1)
    return explicit(context_of(job, machine).with_table(table.take(np.array([0]))))[0]


def deepseek_job() -> Job:
    """DeepSeek-V3 as it was trained, but for the GPU."""
    return Job(
        model=preset("deepseek-v3"),
        training=TrainingSpec(seq_length=4096, global_batch_size=15_360, precision="fp8"),
        cluster=parse_cluster("256x8:h100-sxm"),
        runtime="megatron-bridge",
        options=RuntimeOptions(
            overlap_moe_a2a=True,
            moe_dispatcher="deepep",
            moment_dtype="bf16",
            gradient_dtype="fp32",
        ),
    )


def _h800(job: Job) -> Machine:
    machine = machine_of(job.cluster, job.training.precision)
    link = np.minimum(machine.bus_bytes_per_second, H800_LINK_BYTES_PER_SECOND)
    return replace(machine, bus_bytes_per_second=link)


WHY_NOT_PP16 = """\
The place is that among even stages, with which the last of 16 ranks computes the head, the MTP
module and as many layers as the others. With free stages it is the third choice of `pp` and `ep`,
4 % behind the first, `pp` 8 and `ep` 64."""


DEEPSEEK_LAYOUT = Layout(
    pp=16,
    dp=128,
    ep=64,
    recompute="selective",
    recompute_modules=("layernorm", "mla_up_proj", "moe_act"),
    stages=stage_specs((*(4,) * 15, 1)),
)


def deepseek() -> Estimate:
    """DeepSeek-V3 as it was trained."""
    job = deepseek_job()
    return explicit(context_of(job, _h800(job)).with_table(LayoutTable.of([DEEPSEEK_LAYOUT])))[0]


def deepseek_found() -> tuple[LayoutTable, Estimate]:
    """What the planner finds for DeepSeek-V3 with even splits, and the best of it priced."""
    job = deepseek_job()
    machine = _h800(job)
    table = fastest(job, machine, rules(DEEPSEEK_HELD), without=[exchange_overlapped_with_compute])
    return table, explicit(context_of(job, machine).with_table(table.take(np.array([0]))))[0]


def _deepseek() -> Iterator[Figure]:
    predicted = deepseek().tokens_per_s_per_gpu
    yield Figure(
        "deepseek-v3, 2048 H800, as 1F1B", TOKENS_PER_S_PER_GPU, predicted, 0.15, "tokens/s"
    )
    found = place(deepseek_found()[0], {"pp": 16, "ep": 64, "etp": 1})
    what = "place of the layout of deepseek-v3"
    yield Figure(what, 5, found, 0, "place", "at most", WHY_NOT_PP16)
    job = deepseek_job().model_copy(update={"runtime": "megatron-dualpipe"})
    machine = _h800(job)
    table = fastest(job, machine, rules(DEEPSEEK_HELD))
    found = place(table, {"pp": 8, "vpp": 2, "ep": 64, "etp": 1, "schedule": "dualpipe-v"})
    row = table.take(np.array([int(found) - 1 if np.isfinite(found) else 0]))
    predicted = explicit(context_of(job, machine).with_table(row))[0].tokens_per_s_per_gpu
    what = "deepseek-v3, 2048 H800, DualPipe"
    yield Figure(what, TOKENS_PER_S_PER_GPU, predicted, 0.1, "tokens/s")
    yield Figure("place of the layout of deepseek-v3, DualPipe", 5, found, 0, "place", "at most")


def _megascale() -> Iterator[Figure]:
    shape = {"pp": 15, "vpp": 4, "dp": 12, "schedule": "interleaved"}
    theirs = Layout(cp=8, ep=8, **shape)
    tensor = Layout(tp=8, etp=8, sequence_parallel=True, **shape)
    plain = RuntimeOptions(overlap_grad_reduce=True, overlap_param_gather=True)
    own = {"cp_comm_type": "a2a", "overlap_moe_a2a": True, "moe_dispatcher": "deepep"}
    before, after = (
        _on_h800(layout, options)
        for layout, options in ((tensor, plain), (theirs, plain.model_copy(update=own)))
    )
    what = "MegaScale-MoE, 1440 H800"
    yield Figure(what, MEGASCALE_TOKENS_PER_S / 1440, after, 0.2, "tokens/s", why=WHY_NOT_MEGASCALE)
    yield Figure(
        "MegaScale-MoE over Megatron-LM", 1.88, after / before, 0.2, "times", why=WHY_NOT_MEGASCALE
    )


def _on_h800(layout: Layout, options: RuntimeOptions) -> float:
    job = Job(
        model=MEGASCALE,
        training=TrainingSpec(seq_length=8192, global_batch_size=720),
        cluster=parse_cluster("180x8:h800-sxm"),
        options=options,
    )
    context = context_of(job, machine_of(job.cluster, job.training.precision))
    return explicit(context.with_table(LayoutTable.of([layout])))[0].tokens_per_s_per_gpu


WHY_NOT_MEGASCALE = """\
The publication states neither virtual stages nor what is recomputed. The model has Megatron-LM 60 %
faster than published, 1.20 against 0.75 million tokens/s, and MegaScale-MoE 24 %: it prices today's
Megatron Core. Without virtual stages it has 0.79 and 1.00."""


BRIDGE = {
    "deepseek-v3, 1024 H100": (
        "bridge-25-09-pre-training-deepseekv3-dropless-h100-1024-fp8-cs-g8192-tp2pp8cp1ep64"
    ),
    "qwen3-235b-a22b, 256 H100, 25.11": (
        "bridge-25-11-pre-training-qwen3-235b-a22b-h100-256-fp8-cs-g2048-tp2pp8cp1ep32"
    ),
    "qwen3-235b-a22b, 256 H100, 26.04": (
        "bridge-26-04-01-pre-training-qwen3-235b-a22b-h100-256-fp8-g8192-tp2pp8cp1ep32"
    ),
}


def _bridge(runs: Runs) -> Iterator[Figure]:
    rows = [runs[name] for name in BRIDGE.values()]
    for what, run, estimate in zip(BRIDGE, rows, estimates(rows), strict=True):
        published = run.measured.tokens_per_s_per_gpu
        assert published
        why = WHY_NOT_BRIDGE if "deepseek" in what else ""
        predicted = estimate.tokens_per_s_per_gpu
        yield Figure(what, published, predicted, 0.15, "tokens/s", why=why)


WHY_NOT_BRIDGE = """\
A third of the predicted step is the exchange of experts, which the run does not say it overlapped.
Taken as overlapped, the model is too fast instead of too slow."""
