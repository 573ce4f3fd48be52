"""The zero-bubble fork of Megatron-LM: its own options here, the others as Megatron-LM's.

Source of the rules: sail-sg/zero-bubble-pipeline-parallelism, `megatron/core/zbpp_utils.py` (Z) and
`megatron/training/arguments.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from trainplan.costmodel.job import Job, RuntimeOptions
from trainplan.costmodel.layout import Layout, Schedule, stage_specs
from trainplan.costmodel.layouts import layers_per_stage
from trainplan.costmodel.runtimes import pipeline_layout_string
from trainplan.planner.runtimes.forks import groups_of, unknown_options
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.read import MEGATRON_LM, PROGRAMS
from trainplan.planner.runtimes.megatron_lm.read.parser import options
from trainplan.planner.runtimes.megatron_zero_bubble.write import (
    COMMIT,
    PENDING,
    V_SHAPED,
    padded_layers,
)
from trainplan.planner.runtimes.megatron_zero_bubble.write import MEGATRON_ZERO_BUBBLE as EXPORTER
from trainplan.planner.runtimes.reading import NOT_STATED, Reader, Reading, Request
from trainplan.planner.shell import COMMAND_LINE, Launch, Problem, Verdict, Word

SIGNS = frozenset(
    {
        "--enable-zb-runtime",
        "--enable-zero-bubble",
        "--zero-bubble-v-schedule",
        "--enable-1f1b-v",
        "--no-pre-communication-optimization",
        "--allow-padding-num-layers",
    }
)
"""Options that no other Megatron-LM has."""
IN_THE_FORK = frozenset({"--use-flash-attn", "--transformer-impl"})
"""Options of both that mean more in the fork."""
NOT_OURS = frozenset({"device_max_connections"})
"""What Megatron-LM would say and the fork does not: its queues are checked by its own runtime."""
OF_INTERLEAVING = frozenset({"interleaved_needs_whole_groups"})
"""As above, of virtual stages in the form of a V."""


def recognises(launch: Launch) -> bool:
    """Is it the fork's program? Seen from its options."""
    if launch.is_module or PurePosixPath(launch.program.text).name not in PROGRAMS:
        return False
    return any(word.text.partition("=")[0] in SIGNS for word in launch.arguments)


@dataclass(frozen=True, slots=True)
class Split:
    """The words of a launch by who knows their options."""

    shared: Mapping[str, tuple[Word, ...]]
    """Of Megatron-LM, the option itself first."""
    own: Mapping[str, tuple[Word, ...]]
    problems: tuple[Problem, ...]

    def number(self, flag: str, otherwise: int = 0) -> int:
        """A whole number that an option gives."""
        words = (*self.shared.get(flag, ()), *self.own.get(flag, ()))[1:]
        text = words[0].text if words else ""
        return (
            int(text) if text.isascii() and text.isdigit() and len(text) < TOO_LONG else otherwise
        )


CURES = {
    "tied_embeddings": keys.UNTIED.flag,
    "zero_bubble_needs_pipeline": keys.PP.flag,
    "post_validation_needs_fp16": keys.FP16.flag,
    "pre_communication_needs_runtime": "--enable-zb-runtime",
    "v_needs_even_stages": "--allow-padding-num-layers",
}
"""What stops the fork where an option is not stated."""
TOO_LONG = 10
"""Digits of a number that is not read."""


def read(launch: Launch, request: Request) -> Reading:
    """The job and the layout of a launch, and what is wrong with it."""
    split = _split(launch.arguments, strict=request.strict)
    schedule = _schedule(split)
    layers = _layers(split, schedule)
    shared = dict(split.shared)
    if layers and len(layers) > 1:
        text = pipeline_layout_string(layers, 0)
        shared.pop("--num-layers-per-virtual-pipeline-stage", None)
        shared[keys.STAGES.flag] = tuple(
            Word(word, COMMAND_LINE) for word in (keys.STAGES.flag, text)
        )
    words = tuple(word for group in shared.values() for word in group)
    reading = MEGATRON_LM.read(replace(launch, arguments=words), request)
    own = (*split.problems, *_wrong(split, schedule, strict=request.strict))
    silent = NOT_OURS | OF_INTERLEAVING if schedule in V_SHAPED else NOT_OURS
    others = tuple(p for p in reading.problems if p.cause not in silent)
    job, layout = reading.job, reading.layout
    if job is not None:
        stated = {"runtime": EXPORTER.runtime, "options": _options(job, split)}
        job = job.model_copy(update=stated)
    if job is not None and layout is not None:
        layout = _as_run(layout, schedule, job.model.num_hidden_layers)
    return replace(
        reading,
        runtime=EXPORTER.runtime,
        runtime_version=COMMIT,
        job=job,
        layout=layout,
        problems=(*own, *others),
    )


def _split(words: Sequence[Word], *, strict: bool) -> Split:
    """Options of both, of the fork alone, and of neither or of a later Megatron-LM alone."""
    shared: dict[str, tuple[Word, ...]] = {}
    own: dict[str, tuple[Word, ...]] = {}
    for flag, group in groups_of(words):
        if flag in EXPORTER.flags:
            (shared if flag in options() and flag not in IN_THE_FORK else own)[flag] = group
    return Split(shared, own, unknown_options(words, EXPORTER.flags, "the fork", strict=strict))


V_FORMS: tuple[Schedule, ...] = ("zb-v", "v-half", "v-min")


def _schedule(split: Split) -> Schedule:
    """What the runtime runs (Z, validate_arguments)."""
    if "--zero-bubble-v-schedule" in split.own:
        words = split.own.get("--zero-bubble-v-schedule-mem-setup", ())
        setup = words[1].text if len(words) > 1 else "zb"
        return next((name for name in V_FORMS if V_SHAPED[name] == setup), "zb-v")
    if "--enable-zero-bubble" in split.own:
        pending = split.number("--zero-bubble-max-pending-backward", 2 * _pp(split))
        return "zb-1p" if pending <= PENDING["zb-1p"] * _pp(split) else "zb-2p"
    virtual = "--num-layers-per-virtual-pipeline-stage" in split.shared
    return "interleaved" if virtual else "1f1b"


def _pp(split: Split) -> int:
    return max(1, split.number(keys.PP.flag, 1))


def _layers(split: Split, schedule: Schedule) -> tuple[int, ...] | None:
    """Layers of every virtual stage; null: they are not told, or do not fit."""
    pp, layers = _pp(split), split.number(keys.LAYERS.flag)
    whole = layers + (-layers % pp if "--allow-padding-num-layers" in split.own else 0)
    each = split.number("--num-layers-per-virtual-pipeline-stage", max(1, whole // pp))
    vpp = 2 if schedule in V_SHAPED else max(1, whole // pp // max(1, each))
    if not layers or whole % (pp * vpp):
        return None
    return padded_layers(layers, pp, vpp)


def _wrong(split: Split, schedule: Schedule, *, strict: bool) -> Iterator[Problem]:
    """Where `validate_arguments` of the fork stops (Z)."""
    own, shared = split.own, split.shared
    reasons = {
        "tied_embeddings": (
            "--untie-embeddings-and-output-weights is missing, the fork ties none: add it",
            keys.UNTIED.flag not in shared,
        ),
        "zero_bubble_needs_pipeline": (
            "a split schedule needs --pipeline-model-parallel-size above 1",
            schedule in (*V_SHAPED, *PENDING) and _pp(split) == 1,
        ),
        "post_validation_needs_fp16": (
            "--enable-optimizer-post-validation needs --fp16: take it out",
            "--enable-optimizer-post-validation" in own
            and keys.FP16.flag not in shared
            and schedule in (*V_SHAPED, *PENDING),
        ),
        "pre_communication_needs_runtime": (
            "--enable-zb-runtime is missing: add it, or --no-pre-communication-optimization",
            not {"--enable-zb-runtime", "--no-pre-communication-optimization"} & own.keys(),
        ),
        "v_needs_even_stages": (
            "a schedule in the form of a V needs an even number of layers on each rank: change "
            "--pipeline-model-parallel-size, or add --allow-padding-num-layers",
            schedule in V_SHAPED and _layers(split, schedule) is None,
        ),
        "split_beside_overlap": (
            "--overlap-grad-reduce with a split schedule: take it out",
            schedule in (*V_SHAPED, *PENDING)
            and {keys.GRADIENT_OVERLAP.flag, keys.DISTRIBUTED.flag} <= shared.keys(),
        ),
    }
    for cause, (says, applies) in reasons.items():
        if applies:
            absent = not strict and CURES.get(cause, cause) not in {*own, *shared, cause}
            verdict: Verdict = "unread" if absent else "illegal"
            yield Problem(cause, verdict, (NOT_STATED if absent else "") + says, absent=absent)
    if "--enable-1f1b-v" in own:
        says = "--enable-1f1b-v: 1F1B in the form of a V is priced as 1F1B"
        yield Problem("unmodelled_schedule", "unmodelled", says)


def _as_run(layout: Layout, schedule: Schedule, layers: int) -> Layout:
    """Under the schedule that runs; stages that are the even split are none of their own."""
    stated = layout.model_copy(update={"schedule": schedule})
    even = stage_specs(layers_per_stage(layers, layout.pp * layout.vpp))
    return stated.model_copy(update={"stages": None}) if stated.stages == even else stated


def _options(job: Job, split: Split) -> RuntimeOptions:
    """Settings as the fork states them: unfused, with dropout, without overlap unless told."""
    options = job.options
    return options.model_copy(
        update={
            "attention": "flash" if "--use-flash-attn" in split.own else None,
            "dropout": None if options.dropout else False,
            "overlap_grad_reduce": True if keys.GRADIENT_OVERLAP.flag in split.shared else None,
            "overlap_param_gather": True if keys.GATHER_OVERLAP.flag in split.shared else None,
        }
    )


MEGATRON_ZERO_BUBBLE = Reader(EXPORTER.runtime, recognises, read)
