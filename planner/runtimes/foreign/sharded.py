"""Keys of projects that stand on no Megatron-Core as a job and a layout of ours, field by field."""

import re
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from pydantic import ValidationError

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.families import model_from_config
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job import Job, TrainingSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.spec import first_complaint
from trainplan.planner.runtimes.foreign.documents import Keys
from trainplan.planner.runtimes.foreign.tables import (
    DEFAULT,
    RANKS_OPEN,
    Rules,
    Table,
    count,
    lifted,
    moved,
    ranks_stated,
    stated,
)
from trainplan.planner.runtimes.megatron_bridge.read_keys import plain
from trainplan.planner.runtimes.ranks import counts_of, is_silent, launched_on
from trainplan.planner.runtimes.reading import Field, Reading, Request
from trainplan.planner.shell import Launch, Problem, Word
from trainplan.planner.space import broken_rules

BATCHES = ("micro_batch_size", "micro_tokens")
FULL = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
INNER = ("tp", "pp", "cp")
NUMBERS = (*INNER, "vpp", "ep", "etp", "dp_replicate", "zero_stage")
LARGEST = 1 << 20


class _Facts:
    """What the keys say, each with where it stands."""

    def __init__(self, table: Table, keys: Mapping[str, Word]) -> None:
        self.words: dict[str, Word] = {}
        self.written: dict[str, str] = {}
        for name, rules in table.options.items():
            field, *fixed = name.split(" ")
            found = None if field in self.words else stated(rules, keys)
            if found is not None:
                self.written[field] = f"{found[0]}={found[1].text}"
                self.words[field] = moved(found[1], fixed[0]) if fixed else found[1]

    def number(self, name: str) -> int | None:
        """A whole number above 0; null: none is said, or it fills what is left."""
        return count(self.words.get(name)) or None

    @property
    def degrees(self) -> dict[str, int]:
        """Ranks of one replica along each dimension."""
        return {name: self.number(name) or 1 for name in INNER}

    def fields(self, values: Mapping[str, object], under: str) -> Iterator[Field]:
        """Where each value comes from."""
        for name, value in values.items():
            word = self.words.get(name)
            if word is None or word.place == DEFAULT:
                yield Field(f"{under}.{name}", value, "default" if word else "derived")
            else:
                yield Field(f"{under}.{name}", value, "stated", self.written[name], word.place)


def read(
    table: Table, launch: Launch, request: Request, keys: Keys, model: ModelSpec | None
) -> Reading:
    """The launch under the runtime that is nearest."""
    own = {**table.usual(), **lifted(table, keys)}
    facts = _Facts(table, own)
    model = model or _of_shape(table.config, own)
    launch = ranks_stated(table, own, launch, prod(facts.degrees.values()))
    cluster, found, problems = _cluster(launch, request)
    lacking = [*_lacking(table, facts, model, launch)]
    job = layout = None
    if cluster is not None and model is not None and not lacking:
        try:
            job, layout = _question(table, facts, model, cluster, request)
        except (ValidationError, PlanError) as error:
            says = first_complaint(error).text if isinstance(error, ValidationError) else str(error)
            problems = (*problems, Problem("bad_value", "unread", says))
    if job is None:
        stated = {name: n for name in (*NUMBERS, "micro_batch_size") if (n := facts.number(name))}
        fields = (*facts.fields(stated, "layout"), *found)
        return Reading(table.priced_as, "", None, None, fields, (*problems, *lacking))
    training = {n: getattr(job.training, n) for n in ("seq_length", "global_batch_size")}
    stated_layout = layout.model_dump(mode="json") if layout else {}
    if layout is not None:
        problems = (*problems, *_broken(job, layout))
    fields = (
        *facts.fields({n: v for n, v in stated_layout.items() if n in _SHOWN}, "layout"),
        *facts.fields(training, "training"),
        *found,
    )
    return Reading(table.priced_as, "", job, layout, fields, (*launch.problems, *problems))


def _broken(job: Job, layout: Layout) -> Iterator[Problem]:
    """Rules of ours, of which nothing is known here: the project may have other ones."""
    for rule in broken_rules(job, LayoutTable.of([layout]))[0]:
        yield Problem(rule.name, "unread", f"undecided and not priced: {rule.says}", absent=True)


_SHOWN = (*NUMBERS, "dp", "micro_batch_size", "recompute", "sequence_parallel")


def _cluster(
    launch: Launch, request: Request
) -> tuple[ClusterSpec | None, tuple[Field, ...], tuple[Problem, ...]]:
    """What the launch runs on, or the machines asked about."""
    counts = None if is_silent(launch) else counts_of(launch)
    if request.cluster is not None:
        ranks = counts and counts[0] * counts[1]
        if ranks is None or ranks == request.cluster.num_gpus:
            return request.cluster, (), ()
        says = (
            f"the launch runs {ranks} ranks and the cluster has {request.cluster.num_gpus} GPUs: "
            "priced on the cluster"
        )
        return request.cluster, (), (Problem("cluster_size", "ignored", says),)
    if counts is None or not 0 < counts[0] * counts[1] <= LARGEST:
        return None, (), (Problem("world_size", "unread", RANKS_OPEN),)
    machines = launched_on(launch, *counts)
    return machines.cluster, machines.fields, machines.problems


def _lacking(
    table: Table, facts: _Facts, model: ModelSpec | None, launch: Launch
) -> Iterator[Problem]:
    """What is not said and without which there is no price."""
    missing: list[tuple[str, str]] = []
    if model is None:
        shape = next(iter(table.config.values()), None) or table.places.get("model", ("model",))
        missing.append((shape[0].partition("=")[0], "--model"))
    if "seq_length" not in facts.words:
        rules = table.options.get("seq_length", ("the length of a sequence",))
        missing.append((rules[0].partition("=")[0], "--seq-length"))
    if missing:
        names, options = ([one[at] for one in missing] for at in (0, 1))
        says = f"not stated in what was read: {', '.join(names)}: add it, or give "
        yield Problem("unread_job", "unread", says + " and ".join(options), launch.program.place)


def _question(
    table: Table,
    facts: _Facts,
    model: ModelSpec,
    cluster: ClusterSpec,
    request: Request,
) -> tuple[Job, Layout]:
    """Job and layout.

    Raises:
        ValidationError: The values make none.
        PlanError: They do not go together.
    """
    length = facts.number("seq_length") or request.seq_length
    degrees = facts.degrees
    world, inner = cluster.num_gpus, prod(degrees.values())
    dp = world // inner if world % inner == 0 else 0
    if length is None:
        raise PlanError("the length of a sequence is no whole number: give --seq-length")
    if not dp:
        raise PlanError(f"tp, pp and cp of {inner} ranks do not divide {world} GPUs")
    deals = not any(name in _names(table) for name in BATCHES)
    micro, batch = _batches(facts, inner, dp, length, request, deals=deals)
    if micro is None or batch is None:
        raise PlanError(
            f"no micro batch is stated ({', '.join(_keys_of(table, BATCHES))}): give it as a number"
        )
    precision = facts.words.get("precision")
    job = Job(
        model=model,
        training=TrainingSpec.model_validate(
            {
                "seq_length": length,
                "global_batch_size": batch,
                "precision": precision.text if precision else "bf16",
                **({"state_precision": "bf16"} if "pure_bf16" in facts.words else {}),
            }
        ),
        cluster=cluster,
        runtime=table.priced_as,
    )
    shard = facts.number("dp_shard")
    replicate = facts.number("dp_replicate") or (dp // shard if shard and dp % shard == 0 else 1)
    parallel = facts.words.get("sequence_parallel")
    numbers = {name: n for name in NUMBERS if (n := facts.number(name)) is not None}
    zero = count(facts.words.get("zero_stage"))
    layout = Layout.model_validate(
        {
            **numbers,
            **degrees,
            "dp": dp,
            "dp_replicate": replicate if dp % replicate == 0 else 1,
            "zero_stage": 3 if zero is None else zero,
            "micro_batch_size": micro,
            "ep": numbers.get("ep", 1) if model.moe else 1,
            "etp": numbers.get("etp", 1) if model.moe else 1,
            "sequence_parallel": degrees["tp"] > 1 and parallel is not None,
            "schedule": "interleaved" if numbers.get("vpp", 1) > 1 else "1f1b",
            **_recompute(facts),
        }
    )
    return job, layout


def _recompute(facts: _Facts) -> dict[str, Any]:
    word, modules = facts.words.get("recompute"), facts.words.get("recompute_modules")
    if modules is not None:
        return {"recompute": "selective", "recompute_modules": (modules.text,)}
    if word is None or word.text == "none":
        return {}
    return FULL if word.text == "full" else {"recompute": word.text}


def _names(table: Table) -> frozenset[str]:
    """Fields that a table has rules for."""
    return frozenset(name.partition(" ")[0] for name in table.options)


def _keys_of(table: Table, fields: Sequence[str]) -> Iterator[str]:
    """The first key of each field."""
    for name, rules in table.options.items():
        if name in fields:
            yield rules[0].partition("=")[0]


def _batches(
    facts: _Facts, inner: int, dp: int, length: int, request: Request, *, deals: bool
) -> tuple[int | None, int | None]:
    """Sequences of a micro batch, and of a step; null: nothing says them.

    `deals`: a step is one micro batch of every rank where nothing is said.
    """
    micro = facts.number("micro_batch_size")
    each = facts.words.get("per_gpu_batch")
    if each is not None and re.fullmatch(r"\d{1,6}(\.\d{1,6})?", plain(each.text)):
        micro = max(1, round(float(plain(each.text)) * inner))
    tokens = facts.number("micro_tokens")
    micro = micro or (max(1, tokens // length) if tokens else None)
    batch = facts.number("global_batch_size") or request.global_batch_size
    tokens = facts.number("batch_tokens")
    batch = batch or (max(1, tokens // length) if tokens else None)
    steps = facts.number("accumulation")
    if batch is None and micro is not None:
        batch = micro * (steps or 1) * dp
    if micro is None and batch is not None and (deals or steps):
        micro = max(1, batch // ((steps or 1) * dp))
    return micro, batch


def _of_shape(config: Rules, keys: Mapping[str, Word]) -> ModelSpec | None:
    """The model of keys that say its shape; null: they do not, or it is none that is priced."""
    values: dict[str, object] = {}
    for name, rules in config.items():
        key, *fixed = name.split(" ")
        found = None if key in values else stated(rules, keys)
        if found is not None:
            values[key] = _value(fixed[0] if fixed else plain(found[1].text))
    if "hidden_size" not in values or "num_hidden_layers" not in values:
        return None
    try:
        return model_from_config({"vocab_size": USUAL_ENTRIES, **values}, "custom")
    except PlanError:
        return None


USUAL_ENTRIES = 128_256
"""Of a vocabulary that only a tokenizer says. Source: assumed, that of Llama 3."""


def _value(text: str) -> object:
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"\d{1,12}", text):
        return int(text)
    return float(text) if re.fullmatch(r"\d{1,12}\.?\d*(e[+-]?\d{1,2})?", text) else text
