"""The zero-bubble fork of Megatron-LM: its older options, and those of its schedules.

Source of every option and of the rules between them: sail-sg/zero-bubble-pipeline-parallelism,
commit `COMMIT`, `megatron/training/arguments.py` (A) and `megatron/core/zbpp_utils.py` (Z). As its
own example it runs the legacy models without Transformer Engine, whose products hide their weight
gradients from the schedule (Z, `WeightGradStore.is_supported`).
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import SCHEDULE_NAMES, Layout
from trainplan.costmodel.layouts import (
    LayoutTable,
    layers_per_stage,
    module_bits,
    rule,
    stage_codes,
)
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.planner.launch import (
    Argument,
    EntryPoint,
    EnvironmentVariable,
    LaunchConfig,
    RequiredVariable,
    UserVariable,
    option,
    switch,
)
from trainplan.planner.runtimes.exporter import Exporter, recorded, with_traits
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.write import MEGATRON_LM, REQUIRED, export_megatron_lm

COMMIT = "39f2c186"
"""Commit of the fork whose options are written."""
CHECKED = (
    "20 plans were taken by this commit's own parser, validator and configuration (torch "
    "2.14, no GPU)"
)
FLAGS = "megatron_zero_bubble/options.json"
V_SHAPED = {"zb-v": "zb", "v-half": "half", "v-min": "min"}
"""Memory of a schedule in the form of a V (Z, --zero-bubble-v-schedule-mem-setup)."""
PENDING = {"zb-1p": 1, "zb-2p": 2}
"""Backward passes a rank puts off, in pipeline ranks (--zero-bubble-max-pending-backward)."""
BY_ITSELF = frozenset({keys.CHECKPOINTS.flag, keys.RECOMPUTED_MODULES.flag})
"""What the fork has one kind of: checkpoints, and core attention as what it computes again."""
OF_PIPELINE = frozenset({keys.PP.flag, keys.STAGES.flag, keys.VPP.flag, keys.CP.flag})
"""Options of Megatron-LM that are written another way."""


@with_traits
def export_zero_bubble(job: Job, traits: RuntimeTraits, layout: Layout) -> LaunchConfig:
    """Arguments and environment of the fork's `pretrain_gpt.py`.

    Raises:
        UnsupportedError: The model or the layout has something no option of the fork expresses.
    """
    _refuse(job, layout, traits)
    base = export_megatron_lm(_plain(job), _one_stage_a_rank(layout))
    split = layout.schedule in (*V_SHAPED, *PENDING)
    arguments = (
        *(a for a in base.arguments if a.flag not in BY_ITSELF | OF_PIPELINE),
        *_pipeline(job, layout),
        *_schedule(layout),
        *((switch("optimizer", POST_VALIDATION),) if split and _validates(job) else ()),
        *_implementation(job, traits),
    )
    _known(arguments)
    return replace(
        base,
        runtime="megatron-zero-bubble",
        runtime_version=COMMIT,
        checked=CHECKED,
        summary=_summary(base, layout),
        environment=_environment(base, split=split),
        required_environment=(CHECKOUT, *REQUIRED[1:]),
        entry_point=EntryPoint(UserVariable(CHECKOUT.name), "pretrain_gpt.py"),
        arguments=arguments,
        notes=(*base.notes, *_notes(job, split=split)),
    )


CHECKOUT = RequiredVariable(
    "MEGATRON_PATH",
    "the folder of a checkout of sail-sg/zero-bubble-pipeline-parallelism, the one that holds "
    "pretrain_gpt.py",
)
POST_VALIDATION = "--enable-optimizer-post-validation"


def _refuse(job: Job, layout: Layout, traits: RuntimeTraits) -> None:
    """What the fork does not have, or has without an option."""
    options = job.options
    reasons = {
        "overlap_tp_comm=true: it has no user buffers without Transformer Engine": (
            options.overlap_tp_comm is True
        ),
        "overlap_param_gather=true without MCore models": (options.overlap_param_gather is True),
        "split backward passes with overlapped reductions of gradients": (
            layout.schedule in (*V_SHAPED, *PENDING) and traits.sharding.overlaps_gradients
        ),
    }
    if feature := traits.refuses(job.model):
        raise UnsupportedError(f"megatron-zero-bubble cannot express {feature}: use megatron-lm")
    found = next((reason for reason, applies in reasons.items() if applies), None)
    if found:
        raise UnsupportedError(
            f"megatron-zero-bubble does not run {found}: change it, or export to megatron-lm"
        )


def _plain(job: Job) -> Job:
    """The job without what `_implementation` says."""
    return job.model_copy(update={"options": job.options.model_copy(update={"attention": None})})


def _one_stage_a_rank(layout: Layout) -> Layout:
    """The layout under the schedule that every Megatron-LM knows."""
    return layout.model_copy(update={"vpp": 1, "schedule": "1f1b", "stages": None})


def _pipeline(job: Job, layout: Layout) -> Iterator[Argument]:
    """Stages: evenly filled, or one layer less at the ends, as `ends_lack_layers` has left them."""
    yield keys.PP(layout.pp)
    if layout.pp == 1:
        return
    layers = job.model.num_hidden_layers
    missing = -layers % layout.pp
    if missing:
        yield switch("layout", "--allow-padding-num-layers")
    if layout.schedule == "interleaved":
        yield option(
            "layout",
            "--num-layers-per-virtual-pipeline-stage",
            -(-layers // (layout.pp * layout.vpp)),
        )


def padded_layers(num_layers: int, pp: int, vpp: int) -> tuple[int, ...]:
    """Layers of every virtual stage where those that lack are taken from the ends.

    Source: A:259 and `megatron/legacy/model/transformer.py:1745`, get_offset.
    """
    missing = -num_layers % pp
    stages = [(num_layers + missing) // (pp * vpp)] * (pp * vpp)
    for stage in range(-1, missing - 1):
        stages[stage] -= 1
    return tuple(stages)


@rule(
    "pp vpp stages",
    "megatron-zero-bubble fills stages evenly, or with one layer less at the last and at the first "
    "ones: use pp * vpp that divides the layers, or stages with the short ones there",
    "sail-sg/zero-bubble-pipeline-parallelism megatron/legacy/model/transformer.py, get_offset",
)
def ends_lack_layers(job: Job, table: LayoutTable) -> BoolColumn:
    """Stages are of one length but for the ends."""
    layers, (codes, splits) = job.model.num_hidden_layers, stage_codes(table)
    own = [tuple(one.layers for one in stages or ()) for stages in splits]

    def written(pp: int, vpp: int, code: int) -> bool:
        stages = own[code] or layers_per_stage(layers, pp * vpp)
        return pp == 1 or stages == padded_layers(layers, pp, vpp)

    rows = np.stack([table.pp, table.vpp, codes], axis=1)
    kinds, kind_of_row = np.unique(rows, axis=0, return_inverse=True)
    return ~np.array([written(*map(int, kind)) for kind in kinds], dtype=bool)[kind_of_row]


@rule(
    "recompute_modules",
    "megatron-zero-bubble recomputes core attention alone: use recompute_modules=core_attn",
    "sail-sg/zero-bubble-pipeline-parallelism megatron/training/arguments.py, "
    "--recompute-granularity",
)
def recomputes_attention_alone(job: Job, table: LayoutTable) -> BoolColumn:
    """It has one kind of selective recomputation."""
    return np.asarray((table.recompute_modules & ~module_bits({"core_attn"})) != 0)


@rule(
    "pp schedule",
    "megatron-zero-bubble runs no zb-1p, zb-2p or zb-v without a pipeline: use 1f1b, or pp",
    "sail-sg/zero-bubble-pipeline-parallelism megatron/training/arguments.py, --enable-zb-runtime",
)
def splits_in_a_pipeline(job: Job, table: LayoutTable) -> BoolColumn:
    """Split backward passes have a pipeline to fill."""
    split = [SCHEDULE_NAMES.index(name) for name in (*V_SHAPED, *PENDING)]
    return np.asarray((table.pp == 1) & np.isin(table.schedule, split))


def _schedule(layout: Layout) -> Iterator[Argument]:
    """The plain ones run as in Megatron-LM, without the runtime of the others.

    That is said besides: messages are else taken to wait before the schedule is looked at (A:297).
    """
    if layout.schedule in (*V_SHAPED, *PENDING):
        yield switch("layout", "--enable-zb-runtime")
    if layout.schedule in V_SHAPED:
        yield switch("layout", "--zero-bubble-v-schedule")
        yield option("layout", "--zero-bubble-v-schedule-mem-setup", V_SHAPED[layout.schedule])
    elif layout.schedule in PENDING:
        pending = PENDING[layout.schedule] * layout.pp
        yield switch("layout", "--enable-zero-bubble")
        yield option("layout", "--zero-bubble-max-pending-backward", pending)
    else:
        yield switch("layout", "--no-pre-communication-optimization")


def _validates(job: Job) -> bool:
    """Is the step of the optimizer checked afterwards? Source: Megatron-LM's fork, Z, fp16."""
    return job.training.precision == "fp16"


def _implementation(job: Job, traits: RuntimeTraits) -> Iterator[Argument]:
    yield switch("model", "--use-legacy-models")
    yield option("model", "--transformer-impl", "local")
    if traits.kernels.attention != "unfused":
        yield switch("model", "--use-flash-attn")


def _known(arguments: tuple[Argument, ...]) -> None:
    """Check that the fork has all options.

    Raises:
        UnsupportedError: It lacks one.
    """
    flags = recorded(FLAGS)
    lacking = next((argument for argument in arguments if argument.flag not in flags), None)
    if lacking:
        text = " ".join((lacking.flag, *map(str, lacking.values)))
        raise UnsupportedError(
            f"megatron-zero-bubble is older than {text} of Megatron-LM: leave out what needs "
            "it, or export to megatron-lm"
        )


def _environment(base: LaunchConfig, *, split: bool) -> tuple[EnvironmentVariable, ...]:
    """As Megatron-LM, but for the queues of its own runtime (Z, validate_arguments)."""
    name = "CUDA_DEVICE_MAX_CONNECTIONS"
    others = (one for one in base.environment if not (split and one.name == name))
    queues = EnvironmentVariable(name, "8", "messages between stages overlap with compute")
    return (*((queues,) if split else ()), *others)


def _summary(base: LaunchConfig, layout: Layout) -> tuple[str, ...]:
    stated = f"layout: schedule={layout.schedule} vpp={layout.vpp}"
    return (*base.summary[:-1], base.summary[-1].replace("schedule=1f1b ", ""), stated)


def _notes(job: Job, *, split: bool) -> Iterator[str]:
    if split and not _validates(job):
        yield (
            "the optimizer step is checked afterwards under fp16 only: here it waits for all "
            "ranks, which the plan does not count"
        )
    if split:
        yield "the schedule is made anew from times that are measured in steps 100 to 110"


LACKS = frozenset(
    {
        "cp",
        "cp_heads",
        "ep",
        "etp",
        "gtp",
        "egtp",
        "dp_replicate",
        "replicas_share_optimizer",
        "offload.optimizer",
        "offload_modules",
    }
)
"""Axes of Megatron-LM that it does not write."""
MEGATRON_ZERO_BUBBLE = Exporter(
    runtime="megatron-zero-bubble",
    export=export_zero_bubble,
    writes=MEGATRON_LM.writes - LACKS,
    optimizers=frozenset({"adamw", "sgd"}),
    saves=frozenset({"sync"}),
    source_patterns=("megatron/core/zbpp_utils.py", "megatron/training/arguments.py"),
    recorded_flags=FLAGS,
    refuses=(ends_lack_layers, recomputes_attention_alone, splits_in_a_pipeline),
)
