"""One recipe put to `plan check`'s own parts: read, judged, priced, compared with our best plan."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from recipes import Recipe

from trainplan.cli.values import alongside, model_next_to, read_launches, text_next_to
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.calibration import NOTHING
from trainplan.costmodel.hardware import parse_cluster
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.step import Estimate
from trainplan.planner.plan import Plan, SearchOptions
from trainplan.planner.questions import check_model, estimate, search
from trainplan.planner.runtimes import Reading, Request, readers
from trainplan.planner.shell import Problem
from trainplan.planner.space import broken_rules
from trainplan.planner.work import Unlimited

GIB = 2**30
FREED = dict.fromkeys(
    ("cuda_graph", "overlap_grad_reduce", "overlap_param_gather", "overlap_moe_a2a")
)
"""Settings that the search may take as it likes."""
NODES = (1, 2, 4, 8, 16, 32, 64, 128)
OF_RANKS = frozenset(
    {
        *("degrees_divide_world", "experts_fold_into_ranks", "micro_batch_divides_batch"),
        *("world_size", "ranks_hold_degrees", "degrees_fill_world", "dp_divides_batch"),
    }
)
"""Causes that another number of ranks takes away."""
NAMES = ("foreign_format", "left_out", "unused_keys")
"""Problems that say what a file is, and no more."""
Row = dict[str, object]


class Seconds(Unlimited):
    """So many from now on."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    def spent(self) -> bool:
        """Are they over?"""
        return self.seconds_left() <= 0

    def seconds_left(self) -> float:
        """Until then."""
        return self.end - time.monotonic()


def verdict_row(recipe: Recipe, root: str, seconds: float) -> Row:
    """Facts of one recipe: settings that were read, and the verdict on them."""
    os.chdir(root)
    row: Row = {
        "project": recipe.project,
        "path": recipe.path,
        "recipe": recipe.name,
        "task": recipe.task,
    }
    try:
        reading = read(recipe)
    except PlanError as error:
        return {**row, "verdict": "undecided", "cause": "not_read", "says": _first(str(error))}
    row |= _settings(reading)
    try:
        found = checked(reading, seconds if recipe.task == "pretraining" else 0)
    except PlanError as error:
        return {**row, "verdict": "undecided", "cause": "not_priced", "says": _first(str(error))}
    return row | _verdict(found) | _price(found)


class Checked(NamedTuple):
    """What `plan check` would say before it looks for edits."""

    problems: Sequence[Problem]
    legal: bool | None
    estimate: Estimate | None
    optimum: Plan | None


def checked(reading: Reading, seconds: float) -> Checked:
    """The verdict on a launch, its price and, with seconds to search, the best plan of its job."""
    job, layout = reading.job, reading.layout
    if job is None or layout is None or reading.legal is False:
        return Checked(reading.problems, reading.legal, None, None)
    check_model(job)
    broken = broken_rules(job, LayoutTable.of([layout]))[0]
    named = {one.cause for one in reading.problems}
    added = (Problem(rule.name, "unmodelled", rule.says) for rule in broken)
    problems = (*reading.problems, *(one for one in added if one.cause not in named))
    options = SearchOptions(only_written=False)
    margin = options.margin(job)
    whole = layout.world_size == job.cluster.num_gpus and not broken
    price = estimate(job, layout, NOTHING, memory_margin=margin) if whole else None
    best = None
    if price is not None and seconds:
        free = job.model_copy(update={"options": job.options.model_copy(update=FREED)})
        with suppress(PlanError):  # nothing in the time
            answer = search(free, options, Seconds(seconds))
            best = answer if isinstance(answer, Plan) else None
    return Checked(problems, reading.legal, price, best)


def read(recipe: Recipe) -> Reading:
    """On the GPUs that the recipe names; else on the fewest nodes that its degrees divide."""
    clusters = [recipe.cluster] if recipe.cluster else []
    clusters += [f"{nodes}x8:{recipe.gpu}" for nodes in NODES if recipe.gpu]
    readings = (_on(recipe, cluster) for cluster in clusters)
    kept: Reading | None = None
    for reading in readings:
        kept = kept or reading
        if not any(one.cause in OF_RANKS and one.verdict != "ignored" for one in reading.problems):
            return reading
    return kept if kept is not None else _on(recipe, "")


def _on(recipe: Recipe, cluster: str) -> Reading:
    words = [word.replace("$NODES", cluster.partition("x")[0] or "1") for word in recipe.words]
    launches = read_launches(words, {})
    text_of = partial(text_next_to, alongside(words))
    machines = parse_cluster(cluster) if cluster else None
    model_of = partial(model_next_to, alongside(words))
    request = Request(cluster=machines, model_of=model_of, text_of=text_of)
    for launch in launches:
        for reader in readers():
            if reader.recognises(launch):
                return reader.read(launch, request)
    raise PlanError("no runtime is known for it")


def _settings(reading: Reading) -> Row:
    job, layout = reading.job, reading.layout
    if job is None:
        return {}
    training, groups = job.training, job.cluster.groups
    return {
        "runtime": job.runtime,
        "model": job.model.name,
        "gpus": job.cluster.num_gpus,
        "gpu": groups[0].gpu,
        "seq_length": training.seq_length,
        "global_batch_size": training.global_batch_size,
        "precision": training.precision,
        "layout": layout_text(layout),
    }


def layout_text(layout: object) -> str:
    """Degrees above 1, and the micro batch."""
    if layout is None:
        return ""
    names = ("tp", "pp", "vpp", "cp", "dp", "ep", "etp")
    degrees = [(name, getattr(layout, name)) for name in names]
    parts = [f"{name} {value}" for name, value in degrees if value > 1]
    recompute = getattr(layout, "recompute", "none")
    tail = [] if recompute == "none" else [f"recompute {recompute}"]
    micro = getattr(layout, "micro_batch_size", 1)
    return " ".join([*parts, f"mbs {micro}", *tail])


def _verdict(found: Checked) -> Row:
    """Starts, does not start and why, or undecided and for what."""
    problems = found.problems
    refused = [one for one in problems if one.verdict == "illegal"]
    opened = [one for one in problems if one.verdict in ("unread", "unmodelled")]
    opened = [one for one in opened if one.cause not in NAMES] or opened
    opened = opened or list(problems)
    if refused:
        first = refused[0]
        return {"verdict": "does not start", "cause": first.cause, "says": _first(first.says)}
    if found.estimate is None:
        first = opened[0] if opened else None
        says = _first(first.says) if first else "too little was read"
        cause = first.cause if first else "not_priced"
        return {"verdict": "undecided", "cause": cause, "says": says}
    if not found.legal:
        first = opened[0]
        return {"verdict": "undecided", "cause": first.cause, "says": _first(first.says)}
    return {"verdict": "starts", "notes": sorted({one.cause for one in opened})}


def _price(found: Checked) -> Row:
    own, best = found.estimate, found.optimum
    if own is None:
        return {}
    memory, sure = own.memory, own.uncertainty
    row: Row = {
        "step_s": _round(own.step_time_s),
        "fits": memory.fits,
        "gib": _round(memory.peak_reserved_bytes / GIB),
        "fit_chance": None if memory.fit_chance is None else round(memory.fit_chance, 2),
    }
    if sure is not None:
        row |= {
            "step_low_s": _round(sure.step_time_low_s),
            "step_high_s": _round(sure.step_time_high_s),
            "like": sure.regime,
        }
    if best is not None:
        seconds = best.best.estimate.step_time_s
        better = memory.fits and seconds < own.step_time_s
        row |= {
            "best_s": _round(min(seconds, own.step_time_s) if memory.fits else seconds),
            "best_layout": layout_text(best.best.layout) if better or not memory.fits else "",
        }
    return row


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def _first(text: str) -> str:
    return " ".join(text.split())[:240]
