"""Layouts one change away from a given one: what would make it legal, or make it fit."""

from collections.abc import Iterator, Mapping

import numpy as np
from pydantic import ValidationError

from trainplan.costmodel.axes import divisors, micro_batch_sizes, tiled_losses, tiled_mlps_under
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout, OffloadSpec
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.runtimes import Offload
from trainplan.costmodel.step import explicit, price
from trainplan.planner.cases import Case
from trainplan.planner.plan import Candidate
from trainplan.planner.policies import fractions_of, least_offload, with_fraction
from trainplan.planner.space import broken_rules

MOST_SIMULATED = 8
"""Neighbours whose schedules are run; the others have a larger bound."""
MOST_REPORTED = 3

Values = Mapping[str, object]


def nearest_fitting(case: Case, layout: Layout) -> tuple[Candidate, ...]:
    """The fastest legal layouts that fit and differ in one thing, fastest first."""
    context = case.context
    limit = context.machine.memory_bytes * (1 - case.margin)
    some = (*neighbours(context, layout), *_offloading(context, layout, limit))
    every = list(dict.fromkeys(some))
    if not every:
        return ()
    rules = broken_rules(case.job, LayoutTable.of(every))
    legal = [one for one, broken in zip(every, rules, strict=True) if not broken]
    if not legal:
        return ()
    candidates = context.with_table(LayoutTable.of(legal))
    priced = price(candidates)
    margin = case.margin
    fits = np.flatnonzero(priced.memory.fits(limit))
    first = fits[np.argsort(priced.step_seconds[fits], kind="stable")][:MOST_SIMULATED]
    if not len(first):
        return ()
    estimates = explicit(candidates.take(first), memory_margin=margin)
    order = sorted(range(len(first)), key=lambda i: estimates[i].step_time_s)[:MOST_REPORTED]
    return tuple(
        Candidate(rank=rank, layout=legal[first[i]], estimate=estimates[i])
        for rank, i in enumerate(order, start=1)
    )


def _offloading(context: Context, layout: Layout, memory_bytes: float) -> Iterator[Layout]:
    """The layout with the least fraction of the optimizer offloaded with which it fits, if any."""
    ranges = fractions_of(context.traits, ())
    table = with_fraction(LayoutTable.of([layout]), 0.0)
    memory = price(context.with_table(table)).memory
    every = np.ones((len(ranges), 1), dtype=bool)
    fraction = float(least_offload(memory, memory_bytes, ranges, every)[0])
    if fraction >= 0:
        yield layout.model_copy(update={"offload": OffloadSpec(optimizer=fraction)})


def neighbours(on: Context, layout: Layout) -> Iterator[Layout]:
    """Layouts that differ in one thing and use all GPUs; what follows from it is adapted."""
    world = on.job.cluster.num_gpus
    yield from (one for one in single_changes(on, layout) if one.world_size == world)


def single_changes(on: Context, layout: Layout) -> Iterator[Layout]:
    """Layouts that differ in one thing, whatever GPUs they use."""
    values = dict(layout)
    for change in (*_degrees(on.job, layout), *_pipelines(on, layout), *_policies(on, layout)):
        try:
            one = Layout.model_validate({**values, **change})
        except ValidationError:  # such values never go together, whatever the job
            continue
        if one != layout:
            yield one


def _degrees(job: Job, layout: Layout) -> Iterator[Values]:
    """Another degree; data parallelism fills the cluster."""
    sizes, world = divisors(job.cluster.num_gpus), job.cluster.num_gpus
    for name, own in (("tp", layout.tp), ("cp", layout.cp), ("pp", layout.pp)):
        rest = layout.tp * layout.cp * layout.pp // own
        for size in sizes:
            if world % (rest * size):
                continue
            tp = size if name == "tp" else layout.tp
            change: dict[str, object] = {name: size, "dp": world // (rest * size)}
            change["sequence_parallel"] = layout.sequence_parallel and tp > 1
            yield {**change, **({"stages": None} if name == "pp" else {})}
    for size in sizes if job.model.moe else ():
        yield {"ep": size}
        yield {"etp": size}


def _pipelines(on: Context, layout: Layout) -> Iterator[Values]:
    """Another number of virtual stages, micro batch, ZeRO stage or schedule."""
    job, traits = on.job, on.traits
    for vpp in range(1, job.model.num_hidden_layers // layout.pp + 1):
        schedule = "interleaved" if vpp > 1 else "1f1b"
        yield {"vpp": vpp, "schedule": schedule, "stages": None}
    for size in micro_batch_sizes(job, traits):
        yield {"micro_batch_size": size}
    for schedule in traits.pipeline.schedules:
        yield {"schedule": schedule}
    for stage in traits.sharding.zero_stages:
        yield {"zero_stage": stage}
    yield {"sequence_parallel": not layout.sequence_parallel}
    yield from ({name: 1} for name in ("dp_replicate", "gtp", "egtp", "hpz"))
    yield {"stages": None}


def _policies(on: Context, layout: Layout) -> Iterator[Values]:
    """Other recomputation, other tiles, or other offload."""
    plain: dict[str, object] = {
        "recompute": "none",
        "recompute_modules": (),
        "recompute_method": None,
        "recompute_num_layers": None,
    }
    job, traits = on.job, on.traits
    yield plain
    for modules in traits.recompute.subsets(job.model):
        yield {**plain, "recompute": "selective", "recompute_modules": modules}
    whole = {**plain, "recompute": "full"}
    yield {**whole, "recompute_method": "uniform", "recompute_num_layers": 1}
    for layers in range(1, job.model.num_hidden_layers // (layout.pp * layout.vpp) + 1):
        yield {**whole, "recompute_method": "block", "recompute_num_layers": layers}
    for loss in tiled_losses(job, traits):
        for mlp in tiled_mlps_under(job, traits, {"tiled_loss": loss}):
            yield {"tiled_loss": loss, "tiled_mlp": mlp}
    yield {"offload": {"optimizer": 0.0}}
    held, offloading = dict(layout.offload), traits.offloading
    for name in ("parameters", "checkpoints"):
        for value in getattr(offloading, name):
            yield {"offload": {**held, name: value}}
    for tier in offloading.tiers:
        yield {"offload": {**held, "tier": tier}}
    for one in (Offload(()), *traits.offloading.choices(job.model)):
        yield {"offload_modules": one.modules}
