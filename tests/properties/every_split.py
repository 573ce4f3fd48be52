"""Small layouts with every split of their layers on the clock: the slow way to the same answers."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np

from tests.fractions import every_fraction, with_every_fraction
from trainplan.costmodel.architecture.layers import listed_kinds
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.candidates.context import Candidates
from trainplan.costmodel.columns import objects
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.layout.layout import SCHEDULE_NAMES, stage_specs
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.program.ops import placed
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.step import price
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.planner.policies.recompute import allows_any_split
from trainplan.planner.space import Space
from trainplan.planner.space.choices import rules_of_job
from trainplan.planner.space.grid import RuleFilter, memory_policies, nodes, skeletons
from trainplan.planner.stages.problem.of_layouts import stage_problems
from trainplan.planner.stages.problem.problem import StageProblem

CLUSTERS = ("1x2:h100-sxm", "1x4:a100-sxm-40gb", "1x8:h100-sxm", "1x8:l4", "2x8:h100-sxm")
RUNTIMES = ("megatron-lm", "torchtitan", "megatron-deepspeed")
MOST = 400
"""Splits of one layout."""


def compositions(layers, stages):
    """Layers of each stage in all ways; the ends alone may be empty."""
    if stages == 1:
        return [(layers,)]
    found = []

    def fill(before, left):
        if len(before) == stages - 1:
            found.append((*before, left))
            return
        for n in range(0 if not before else 1, left + 1):
            fill((*before, n), left - n)

    fill((), layers)
    return found


def longer_chunks(own, last, *, first):
    """The chunks of a rank in the order in which they get one more layer; the ends come last."""
    order = sorted(range(len(own)), reverse=not first)
    return sorted(order, key=lambda chunk: own[chunk] in (0, last))


def alike_branch(layers, stage_of):
    """Those whose chunks are alike, by the words of `planner.stages.problem.chunks`."""
    pp, vpp = stage_of.shape
    if vpp == 1:
        return compositions(layers, pp)
    last, found = stage_of.size - 1, set()
    for totals in product(range(layers + 1), repeat=pp - 1):
        if sum(totals) > layers:
            continue
        for first in (True, False):
            held = np.zeros(stage_of.size, dtype=int)
            for own, total in zip(stage_of, (*totals, layers - sum(totals)), strict=True):
                longer = longer_chunks(own, last, first=first)[: total % vpp]
                for chunk in range(vpp):
                    held[own[chunk]] = total // vpp + (chunk in longer)
            if held[1:-1].all():
                found.add(tuple(held.tolist()))
    return sorted(found)


def branch(layers, stage_of, *, alike=False):
    """Every split the search may choose: the ends alone may be empty."""
    return alike_branch(layers, stage_of) if alike else compositions(layers, stage_of.size)


@dataclass(frozen=True)
class EverySplit:
    """A layout and all its splits."""

    row: StageProblem
    layers: np.ndarray
    seconds: np.ndarray
    """Step time of each split."""
    used: np.ndarray
    """Bytes of the fullest rank."""

    @cached_property
    def fits(self):
        return self.used <= memory_of(self.row)

    @property
    def incumbent_s(self):
        return self.seconds[self.fits].min(initial=np.inf)

    @property
    def totals(self):
        return self.layers[:, self.row.stage_of].sum(axis=2)

    def __repr__(self):
        row = self.row
        return f"{row.job.model.name} {row.table.row(0)} {memory_of(row):.0f} {row.alike=}"


def number(job, table):
    """Splits of a layout, about."""
    shape = int(table.pp[0]), int(table.vpp[0]), int(table.schedule[0])
    return len(stages_in(job, *shape))


def on_the_clock(job, table, memory_bytes=np.inf, *, alike=False):
    """One layout with all its splits."""
    machine, traits = machine_of(job.cluster, job.training.precision), traits_of(job)
    row = stage_problems(Candidates(job, machine, traits, table), [memory_bytes], alike=alike)[0]
    layers = np.array(branch(job.model.num_hidden_layers, row.stage_of, alike=alike))
    many = table.take(np.zeros(len(layers), dtype=np.int64))
    many = many.replaced(stages=objects(stage_specs(one) for one in layers.tolist()))
    used = price(Candidates(job, machine, traits, many), merged=False).memory.used
    return EverySplit(row, layers, step_seconds(Candidates(job, machine, traits, many)), used)


def with_mixed_layers(model, rng):
    """A model whose layers see a narrow window or all, in any order: up to four kinds."""
    layers = model.num_hidden_layers
    mixers = ["full_attention", *rng.choice(["full_attention", "sliding_attention"], layers - 1)]
    feed_forwards = ["moe" if one else "mlp" for one in model.moe_layers]
    listed = listed_kinds([*map(str, mixers)], feed_forwards)
    moe = model.moe.everywhere() if model.moe else None
    window = 64 if "sliding_attention" in mixers else None
    return model.model_copy(update={**listed, "moe": moe, "sliding_window": window})


def random_job(base, rng, most=12):
    """Another job like a given one: its model, batch, machine and runtime are random."""
    model = base.model.model_copy(update={"num_hidden_layers": int(rng.integers(3, most + 1))})
    if model.moe:
        moe = {
            "first_k_dense_replace": int(rng.integers(0, 4)),
            "moe_layer_freq": int(rng.integers(1, 4)),
        }
        update = {
            "moe": model.moe.model_copy(update=moe),
            "num_nextn_predict_layers": int(rng.integers(2)),
        }
        model = model.model_copy(update=update)
    if rng.random() < 0.5:
        model = with_mixed_layers(model, rng)
    training = {
        "global_batch_size": int(rng.choice([4, 8, 12, 24, 32])),
        "seq_length": int(rng.choice([512, 2048, 4096])),
    }
    return base.model_copy(
        update={
            "model": model,
            "training": base.training.model_copy(update=training),
            "cluster": parse_cluster(str(rng.choice(CLUSTERS))),
            "runtime": str(rng.choice(RUNTIMES)),
        }
    )


def random_layouts(job, count, rng):
    """Random legal layouts of a job whose layers may be split freely, with few splits."""
    space, rules = Space(context_for(job)), rules_of_job(job)
    rule_filter = RuleFilter(job, rules)
    table = nodes(space, rule_filter).table
    depth = rng.choice([2, 3, 4, 8], 3)
    table = some(table.take(np.isin(table.pp, depth)), 10 * count, rng)
    if not len(table):
        return table
    table = skeletons(space, rule_filter, table).table
    table = some(table.take(allows_any_split(space.traits, table)), 5 * count, rng)
    if not len(table):
        return table
    table = some(memory_policies(space, table)[0], 5 * count, rng)
    fractions = rng.choice([0.0, *every_fraction(space.traits)], len(table))
    table = table.replaced(offload_optimizer=fractions)
    for rule in rules:
        table = table.take(~rule.broken(job, table))
    few = [number(job, table.take(np.array([i]))) <= MOST for i in range(len(table))]
    return some(table.take(np.array(few, dtype=bool)), count, rng)


def random_splits(base, count, seed):
    """Random layouts on the clock, most under a memory limit that some of their splits reach."""
    rng = np.random.default_rng(seed)
    job = random_job(base, rng)
    table = random_layouts(job, count, rng)
    for i in range(len(table)):
        alike = bool(rng.integers(2))
        one = on_the_clock(job, table.take(np.array([i])), alike=alike)
        yield with_memory(one, float(rng.choice([np.inf, *rng.choice(one.used, 3)])))


def every_layout_and_split(job, rules):
    """The grid of layouts that may be split freely, each with all its splits."""
    space = Space(context_for(job))
    rule_filter = RuleFilter(job, rules)
    table = skeletons(space, rule_filter, nodes(space, rule_filter).table).table
    plain, _ = memory_policies(space, table.take(allows_any_split(space.traits, table)))
    table = with_every_fraction(space.traits, plain)
    for rule in rules:
        table = table.take(~rule.broken(job, table))
    shapes = list(zip(table.pp.tolist(), table.vpp.tolist(), table.schedule.tolist(), strict=True))
    splits = {shape: stages_in(job, *shape) for shape in set(shapes)}
    rows = [row for row, shape in enumerate(shapes) for _ in splits[shape]]
    stages = [stages for shape in shapes for stages in splits[shape]]
    return table.take(np.array(rows, dtype=np.int64)).replaced(stages=objects(stages))


def chunks_alike(job, table):
    """Which rows of a table have stages whose chunks are alike."""
    shapes = list(zip(table.pp.tolist(), table.vpp.tolist(), table.schedule.tolist(), strict=True))
    alike = {shape: set(stages_in(job, *shape, alike=True)) for shape in set(shapes)}
    rows = zip(shapes, table.stages, strict=True)
    return np.array([stages in alike[shape] for shape, stages in rows], dtype=bool)


def stages_in(job, pp, vpp, schedule, *, alike=False):
    """All splits of a shape, as columns hold them."""
    stage_of = placed(SCHEDULES[SCHEDULE_NAMES[schedule]].placement, pp, vpp)
    splits = branch(job.model.num_hidden_layers, stage_of, alike=alike)
    return [stage_specs(layers) for layers in splits]


def some(table, count, rng):
    """Random rows."""
    return table.take(rng.permutation(len(table))[:count])


def with_memory(one, memory_bytes):
    """The same where a rank may use so many bytes."""
    return replace(one, row=within(one.row, memory_bytes))


def within(row, memory_bytes):
    """A layout where a rank may use so many bytes."""
    parts = tuple(replace(part, memory_bytes=memory_bytes) for part in row.parts)
    return replace(row, parts=parts)


def memory_of(row):
    """Bytes that a rank may use."""
    return row.parts[0].memory_bytes
