"""The commands that lead to a plan and on from it, with the files they read."""

import shlex
from collections.abc import Iterator
from decimal import Decimal

import yaml

from trainplan.cli.blocks import Block, Code, Paragraph, Section
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import GIB, SpecError
from trainplan.costmodel.families import read_config
from trainplan.costmodel.hardware import ClusterSpec, parse_cluster
from trainplan.costmodel.job import DEFAULT_RUNTIME, Job, TrainingSpec
from trainplan.costmodel.presets import preset_config, preset_names
from trainplan.planner.evidence import OPTION
from trainplan.planner.plan import Plan

MODEL_FILE, CLUSTER_FILE = "model.yaml", "cluster.yaml"
NEXT = """\
plan simulate {plan} --trace trace.json
plan explain {plan}
plan compare {plan} other.json
plan export {plan} --launcher torchrun --output-dir launch"""


def reproduce_section(plan: Plan, name: str) -> Section:
    """How the plan in file `name` was made, and which commands read it."""
    return Section("commands", "Commands", tuple(_blocks(plan, name)))


def _blocks(plan: Plan, name: str) -> Iterator[Block]:
    if plan.apart:
        yield Paragraph("The document holds the decoder's job: search the whole model again.")
    else:
        yield Code("The search again", search_command(plan, name))
        yield from (Paragraph(text) for text in not_stated(plan))
        yield from _files(plan.job)
    yield Code("On from here", NEXT.format(plan=shlex.quote(name)))


def not_stated(plan: Plan) -> Iterator[str]:
    """What the command cannot state of how the plan was made."""
    if any(source.kind == "measured" for source in plan.sources):
        yield "Numbers were measured: add the --profile that the plan was made with."
    if plan.job.training.lengths:
        yield "Sequences differ in length: add the --lengths that the plan was made with."
    if plan.certificate.objective.step_time_limit_s is not None:
        yield "The objective has a limit on the step: add the --slack or --deadline it was made by."


def search_command(plan: Plan, name: str) -> str:
    """The command line of the search, on lines that a shell joins."""
    job, training = plan.job, plan.job.training
    settings = plan.certificate.settings
    chosen = settings.chosen if settings else ()
    stated = [text for text in job.options.arguments().values() if text not in chosen]
    named = job.runtime != DEFAULT_RUNTIME or job.cluster.on_cpu
    words = [
        *_model_words(job.model),
        ("--cluster", short_form(job.cluster) or CLUSTER_FILE),
        ("--global-batch-size", str(training.global_batch_size)),
        ("--seq-length", str(training.seq_length)),
        *_training_words(training),
        *([("--runtime", job.runtime)] if named else []),
        *([("--runtime-version", job.release)] if job.release else []),
        *(("--option", text) for text in stated),
        *_reserved(job),
        *(_choice(text) for text in plan.choices),
        *([("--search-options", settings.level if settings else "none")]),
        *_objective(plan),
        ("--memory-margin", f"{plan.memory_margin:g}"),
        ("--output", name),
    ]
    return " \\\n  ".join(("plan search", *(shlex.join(pair) for pair in words)))


def _model_words(model: ModelSpec) -> Iterator[tuple[str, ...]]:
    """A preset by its name, with what is trained of it; else the file next to it."""
    whole = model.model_copy(update={"trained": None})
    if preset := _is_preset(whole):
        yield "--model", preset
        if model.trained:
            yield "--train", model.trained.text
    else:
        yield "--model", MODEL_FILE


def _is_preset(model: ModelSpec) -> str:
    """Name of the preset that the model is; empty: it is none."""
    same = model.name in preset_names() and (
        read_config(preset_config(model.name), model.name).model == model
    )
    return model.name if same else ""


def short_form(cluster: ClusterSpec) -> str:
    """The cluster as `--cluster` takes it in a word; empty where a file is needed."""
    parts = []
    for group in cluster.groups:
        host = f"@{group.host.like}" if group.host and group.host.like else ""
        parts.append(f"{group.num_nodes}x{group.gpus_per_node}:{group.gpu}{host}")
    text = "+".join(parts)
    try:
        same = parse_cluster(text).model_copy(update={"name": cluster.name}) == cluster
    except SpecError:
        return ""
    return text if same else ""


def _training_words(training: TrainingSpec) -> Iterator[tuple[str, ...]]:
    """What differs from the defaults of the command."""
    usual = TrainingSpec(seq_length=1, global_batch_size=1)
    if training.precision != usual.precision:
        yield "--precision", training.precision
    if training.optimizer != usual.optimizer:
        yield "--optimizer", training.optimizer.text
    if training.state_precision != usual.state_precision:
        yield "--state-precision", training.state_precision
    if training.packing != usual.packing:
        yield "--packing", training.packing
    if training.loss_tokens != usual.loss_tokens:
        yield "--loss-tokens", f"{training.loss_tokens!r}"
    if training.tokens:
        yield "--tokens", str(training.tokens)


def _reserved(job: Job) -> Iterator[tuple[str, ...]]:
    sizes = {"--reserve": job.reserve_bytes, "--reserve-host": job.reserve_host_bytes}
    for option, size in sizes.items():
        if size:
            yield option, f"{Decimal(size) / GIB:f}GiB"


def _choice(text: str) -> tuple[str, ...]:
    """`--fix tp=8` in two words; `--trusted` in one."""
    return (text,) if text == OPTION else tuple(text.split(" ", 1))


def _objective(plan: Plan) -> Iterator[tuple[str, ...]]:
    name = plan.certificate.objective.name
    if name != "time":
        yield "--objective", name


def _files(job: Job) -> Iterator[Code]:
    """Files that the command names and that no catalog has."""
    whole = job.model.model_copy(update={"trained": None})
    if not _is_preset(whole):
        yield Code(MODEL_FILE, _yaml(job.model))
    if not short_form(job.cluster):
        yield Code(CLUSTER_FILE, _yaml(job.cluster))


def _yaml(value: ModelSpec | ClusterSpec) -> str:
    """What is not the default, as our YAML."""
    values = value.model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100)
