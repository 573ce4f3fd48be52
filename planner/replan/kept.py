"""Layouts that keep the degrees and the stages of a plan, on fewer nodes or more."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product

import numpy as np

from trainplan.costmodel.axes import AXES, divisors, micro_batch_sizes, recompute_subsets
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import FIELDS, LayoutTable, legal_rows, stage_layers
from trainplan.costmodel.pipeline import is_heterogeneous
from trainplan.costmodel.run_costs import stretch_of
from trainplan.costmodel.step import explicit, price
from trainplan.planner.cases import Case
from trainplan.planner.plan import Candidate, Certificate, Plan, Source, Target
from trainplan.planner.policies import POLICY_COLUMNS, policy_columns
from trainplan.planner.space import Choice, parse_choice, rules_of_job

Part = tuple[ClusterSpec, int]
"""Some nodes of each group, and `dp * cp` of a layout that fills them."""
PARTS = 16
"""Largest parts whose batches are tried."""
AT_ONCE = 8
"""Layouts that are simulated together."""


def held_choices(
    layout: Layout, free: frozenset[str], zero_stages: Sequence[int]
) -> tuple[Choice, ...]:
    """What holds a search to the fields of a layout but for some, and to some ZeRO stages."""
    held = [
        parse_choice(f"zero_stage={stage}", excluded=True)
        for stage in range(4)
        if stage not in zero_stages
    ]
    for axis in AXES:
        path = FIELDS[axis.column].path
        if path.partition(".")[0] not in free:
            value = axis.codec.value(FIELDS[axis.column].code(layout))
            held.append(parse_choice(f"{axis.option}={axis.codec.text(value)}", excluded=False))
    return tuple(held)


def kept_plan(
    case: Case,
    layout: Layout,
    parts: Iterable[Part],
    free: frozenset[str],
    below_s: float = math.inf,
) -> Plan | None:
    """The fastest layout that keeps all of a plan's but some fields, on one of some parts.

    Each is tried with every `cp`, micro batch and recomputation that is free; null: none is legal,
    fits and takes less than `below_s`, as `elapsed_s`.
    """
    best: Plan | None = None
    for cluster, ranks in parts:
        own = case.with_job(case.job.model_copy(update={"cluster": cluster}))
        on, most_s = own.context, below_s / stretch_of(own.job)
        if found := _fastest(own, on, _table(on, layout, ranks, free), most_s):
            best, below_s = found, elapsed_s(own.job, found.best)
    return best


def elapsed_s(job: Job, candidate: Candidate) -> float:
    """Seconds that pass for a step, with its share of what does not train."""
    return candidate.estimate.step_time_s * stretch_of(job)


def batches_near(job: Job, layout: Layout, left: ClusterSpec) -> list[tuple[int, Part]]:
    """Global batches next to that of a job, each with a large part that it fills.

    Of some parts, largest first, the largest smaller one and the smallest larger one under the
    degrees of a plan; the nearest first. None where the own batch fills the largest.
    """
    own, near = job.training.global_batch_size, dict[int, Part]()
    for cluster, ranks in islice(parts_of(job.cluster, layout, left), PARTS):
        share = ranks // layout.cp * layout.micro_batch_size
        if share and ranks % layout.cp == 0 and share // layout.micro_batch_size % layout.ep == 0:
            below = own // share * share
            if below == own:
                break
            for batch in filter(None, (below, below + share)):
                near.setdefault(batch, (cluster, ranks))
    return sorted(near.items(), key=lambda one: (abs(one[0] - own), one[0]))


def parts_of(cluster: ClusterSpec, layout: Layout, left: ClusterSpec) -> Iterator[Part]:
    """Parts of what is left, largest first.

    Of every group it has as many nodes as before for each of these ranks.
    """
    need, ranks = [one.num_nodes for one in cluster.groups], layout.dp * layout.cp
    before, now = ([(one.gpu, one.gpus_per_node) for one in c.groups] for c in (cluster, left))
    if before != now:
        return  # a group is gone, or there is another
    have = [one.num_nodes for one in left.groups]
    most = min(have[i] * ranks // need[i] for i in range(len(need)))
    for count in range(most, 0, -1):
        if all(one * count % ranks == 0 for one in need):
            part = left.with_nodes(one * count // ranks for one in need)
            # links of some nodes are not known
            yield (part if part == left else part.model_copy(update={"links": None})), count


def _table(on: Context, layout: Layout, ranks: int, free: frozenset[str]) -> LayoutTable:
    """The layout with every value of what is free, on so many ranks of `dp * cp`."""
    job, traits = on.job, on.traits
    varied = frozenset[str]() if is_heterogeneous(job.cluster) else free
    cps = divisors(ranks) if "cp" in varied else [layout.cp]
    pairs = [(ranks // cp, cp) for cp in cps if ranks % cp == 0]
    pairs = [one for one in pairs if "dp" in free or one[0] == layout.dp]
    pairs = [one for one in pairs if one[0] % math.lcm(layout.dp_replicate, layout.gtp) == 0]
    sizes = micro_batch_sizes(job, traits) if "micro_batch_size" in varied else ()
    flags = (0, 1) if "sequence_parallel" in varied else (int(layout.sequence_parallel),)
    own = LayoutTable.of([layout])
    policies = np.array([getattr(own, name) for name in POLICY_COLUMNS])
    by_stage = any(one.recompute_num_layers is not None for one in layout.stages or ())
    if "recompute" in varied and not by_stage:
        largest = max(stage_layers(job.model, layout))
        policies = policy_columns(recompute_subsets(job, traits), (), largest)
    every = product(pairs, {layout.micro_batch_size, *sizes}, flags, policies.T.tolist())
    rows = np.array([(dp, cp, size, flag, *some) for (dp, cp), size, flag, some in every])
    names = ("dp", "cp", "micro_batch_size", "sequence_parallel", *POLICY_COLUMNS)
    columns = dict(zip(names, rows.reshape(-1, len(names)).T.astype(np.int64), strict=True))
    return own.take(np.zeros(len(rows), dtype=np.int64)).replaced(**columns)


def _fastest(case: Case, on: Context, table: LayoutTable, below_s: float) -> Plan | None:
    """The fastest row that is legal, fits and takes less than `below_s`, by bounds first.

    Of different groups, which have no bounds, each is run.
    """
    margin = case.margin
    rules = (*rules_of_job(case.job), *case.options.rules_of_layouts(on))
    table = table.take(legal_rows(case.job, rules, table))
    if not len(table):
        return None
    bounds, fits = np.zeros(len(table)), np.ones(len(table), dtype=bool)
    if not is_heterogeneous(case.job.cluster):
        priced = price(on.with_table(table))
        bounds, fits = (
            priced.step_seconds,
            priced.memory.fits(on.machine.memory_bytes * (1 - margin)),
        )
    order = np.flatnonzero(fits)
    order = order[np.argsort(bounds[order], kind="stable")]
    best: Candidate | None = None
    simulated = 0
    for start in range(0, len(order), AT_ONCE):
        if bounds[order[start]] >= below_s:
            break
        some = table.take(order[start : start + AT_ONCE])
        for row, one in enumerate(explicit(on.with_table(some), memory_margin=margin)):
            simulated += 1
            if one.memory.fits and one.step_time_s < below_s:
                best, below_s = (
                    Candidate(rank=1, layout=some.row(row), estimate=one),
                    one.step_time_s,
                )
    return _plan(case, on, best, (len(table), simulated)) if best else None


def _plan(case: Case, on: Context, best: Candidate, counts: tuple[int, int]) -> Plan:
    """A plan of a layout that is the fastest of some."""
    step = best.estimate.step_time_s
    target = Target(name="time", unit="s", per="step", value=step, lower_bound=step)
    return Plan(
        job=case.job,
        runtime_version=on.traits.version,
        memory_margin=case.margin,
        choices=case.options.held,
        best=best,
        candidates=(best,),
        certificate=Certificate(
            optimal=True,
            alternatives_complete=False,
            lower_bound_s=step,
            gap_fraction=0.0,
            relaxed_bound_s=step,
            space={},
            space_size=counts[0],
            bounded=counts[0] - counts[1],
            priced=counts[0],
            evaluated=counts[1],
            objective=target,
        ),
        refused={},
        sources=tuple(
            Source.model_validate(one, from_attributes=True) for one in on.machine.provenance
        ),
    )
