"""A plan as keys of another project, to be pasted into its command or its file."""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from trainplan.costmodel.architecture import ModelSpec, adapted, projections
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.planner.launch import Argument
from trainplan.planner.runtimes.key_tables import OTHERS, KeyTable, key_table, translated
from trainplan.planner.runtimes.megatron_bridge.write_recipe import JOINED, WHOLE
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.write import MEGATRON_LM

OF_PLAN = ("layout", "recompute", "optimizer", "precision")
"""Groups of options that a plan decides; the rest is the model, or the user's."""
OF_USER = frozenset(
    {
        keys.STEPS.flag,
        keys.OPTIMIZER.flag,
        keys.LR.flag,
        keys.MIN_LR.flag,
        "--lr-decay-style",
        "--lr-warmup-iters",
        keys.WEIGHT_DECAY.flag,
        "--adam-beta1",
        "--adam-beta2",
        "--clip-grad",
        keys.CHECKPOINTS.flag,
        keys.BALANCING_RATE.flag,
        keys.BALANCING.flag,
    }
)
"""Options that move no step time."""
NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")


@dataclass(frozen=True, slots=True)
class KeyLines:
    """What to paste, and what to know."""

    target: str
    commit: str
    lines: tuple[str, ...]
    lacking: tuple[str, ...]
    """Options of Megatron-LM that the plan needs and for which no key was found."""
    notes: tuple[str, ...]


def key_lines(target: str, job: Job, layout: Layout) -> KeyLines:
    """The plan in the words of a project.

    Raises:
        PlanError: Megatron-LM does not express the layout.
    """
    table = key_table(OTHERS[target])
    adapters = _adapters(job.model) if target == "ms-swift" and job.model.trained else ()
    if adapters:
        job = job.model_copy(update={"model": job.model.model_copy(update={"trained": None})})
    arguments = MEGATRON_LM(job, layout).arguments
    ours = [a for a in arguments if a.flag not in OF_USER]
    if not table.shape:
        ours = [a for a in ours if a.group in OF_PLAN or a.flag in OF_RUN]
    known = [a for a in ours if a.flag in table.keys]
    lacking = tuple(
        " ".join((a.flag, *map(str, a.values)))
        for a in ours
        if a.flag not in table.keys and a.group != "data"
    )
    keys = tuple(translated(table, known))
    notes = (*table.notes, "a key that is not printed keeps the default of the project")
    return KeyLines(table.target, table.commit, (*_lines(table, keys), *adapters), lacking, notes)


def _adapters(model: ModelSpec) -> tuple[str, ...]:
    """Options of ms-swift.

    Source: modelscope/ms-swift @3602360a `swift/megatron/arguments/megatron_args.py`,
    MegatronTunerMixin.
    """
    words = adapter_words(model, "ms-swift")
    rank = model.trained.rank if model.trained else None
    modules = "all-linear" if adapts_all(model) else " ".join(words)
    return ("--tuner_type lora", f"--lora_rank {rank}", f"--target_modules {modules}")


def adapter_words(model: ModelSpec, called: str) -> list[str]:
    """Megatron's names of the matrices with adapters, which stand beside joined ones alone.

    Raises:
        UnsupportedError: Of one that is joined only a part has adapters.
    """
    names, there = ({n for kind in model.kinds for n in of(kind)} for of in (adapted, projections))
    words = list(dict.fromkeys(WHOLE.get(name, name) for name in sorted(names)))
    if any(group & names and group & there - names for group in JOINED):
        raise UnsupportedError(f"{called} adapts joined matrices: name all of {', '.join(words)}")
    return words


def adapts_all(model: ModelSpec) -> bool:
    """Has every matrix adapters?"""
    return all({*adapted(kind)} == {*projections(kind)} for kind in model.kinds)


OF_RUN = frozenset(
    {
        keys.LENGTH.flag,
        keys.GRAPH.flag,
        keys.GRAPH_MODULES.flag,
        keys.ATTENTION.flag,
        keys.LOSS_FUSION.flag,
        keys.LOSS_KERNEL.flag,
        keys.DISPATCHER.flag,
        keys.BACKEND.flag,
        keys.GROUPED_GEMM.flag,
        "--moe-permute-fusion",
        "--moe-router-dtype",
    }
)
"""Options beside the shape of a model that stand with it."""


def _lines(table: KeyTable, keys: Sequence[Argument]) -> Iterator[str]:
    values = [(key.flag, " ".join(map(str, key.values))) for key in keys]
    if table.form == "options":
        words = ((key, map(shlex.quote, value.split(","))) for key, value in values)
        yield from (f"--{key} {' '.join(texts)}" for key, texts in words)
    elif table.form == "hydra":
        yield from (shlex.quote(f"{key}={value}") for key, value in values)
    else:
        yield from yaml_lines(values)


def yaml_lines(values: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Nested sections, each once."""
    sections: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for key, value in values:
        section, _, name = key.rpartition(".")
        sections.setdefault(tuple(section.split(".")) if section else (), []).append((name, value))
    before: tuple[str, ...] = ()
    for path in sorted(sections):
        same = len(list(takewhile(_alike, zip(path, before, strict=False))))
        yield from (f"{'  ' * depth}{path[depth]}:" for depth in range(same, len(path)))
        yield from (f"{'  ' * len(path)}{name}: {_scalar(v)}" for name, v in sections[path])
        before = path


def _alike(names: tuple[str, str]) -> bool:
    return names[0] == names[1]


def _scalar(value: str) -> str:
    """JSON, which YAML holds; to YAML 1.1 `1e-06` is text, and `1.0e-06` a number."""
    if value in ("true", "false", "null"):
        return value
    if number := NUMBER.fullmatch(value):
        return value.replace("e", ".0e") if number[2] and not number[1] else value
    if value.startswith("[") and value.endswith("]"):
        return "[" + ", ".join(_scalar(part) for part in value[1:-1].split(",")) + "]"
    return json.dumps(value.strip('"'))
