"""What activations on the host would gain, where the search did not try them."""

import numpy as np

from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.columns import IntColumn, objects
from trainplan.costmodel.job import Job, RuntimeOptions
from trainplan.costmodel.layout import Layout, stage_specs
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.pipeline import is_heterogeneous
from trainplan.costmodel.step import node_bound_seconds, simulated
from trainplan.planner.goals import SearchContext
from trainplan.planner.plan import Plan, SearchOptions
from trainplan.planner.policies import fractions_of, legal_offloads, with_fraction
from trainplan.planner.space import (
    NODE_COLUMNS,
    Rows,
    RuleFilter,
    Space,
    legality_rules,
    memory_policies,
    rules_of_grid,
    skeletons,
)
from trainplan.planner.tree import PricePolicies, PricingContext, StepTime
from trainplan.planner.work import Unlimited

LEAST_GAIN = 0.01
"""Share of the step from which it is printed. Source: assumed."""
MOST_NODES, MOST_SKELETONS, MOST_SIMULATED = 64, 512, 8
"""Those of the smallest bounds that are looked at. Source: measured, a tenth of a CPU second."""


def offload_gain(own: Context, plan: Plan, request: SearchContext) -> tuple[str, ...]:
    """A sentence on the fastest layout near the plan's that offloads modules; none: no gain.

    Near are the alternatives and layouts of half and double degrees; a whole search may find more.
    """
    options = request.options
    if not _open(own, plan, options):
        return ()
    job, now = _without_graphs(plan, request.job.options), plan.best.estimate.step_time_s
    on = context_for(job, request.measured)
    limit = on.machine.memory_bytes * (1 - options.margin(job))
    context = PricingContext(*on.shared, StepTime(), limit)
    rules = (*legality_rules(on.traits), *rules_of_grid(options.choices))
    wanted = now * (1 - LEAST_GAIN)
    near = _near(context, plan, RuleFilter(job, rules), wanted)
    if not len(near):
        return ()
    table, _ = memory_policies(Space(on), near)
    table = table.take(table.offload_modules != 0)
    ranges = fractions_of(on.traits, rules)
    legal, _ = legal_offloads(on, rules, table, ranges)
    found = PricePolicies(context, table, ranges, legal, wanted)(Unlimited())
    rows = _smallest(np.where(found.offload < 0, np.inf, found.bound), MOST_SIMULATED, wanted)
    if not len(rows):
        return ()
    best = with_fraction(table, found.offload).take(rows)
    seconds = simulated(context.with_table(best), options.margin(job)).step_time_s
    first = int(np.argmin(seconds))
    if seconds[first] > wanted:
        return ()
    modules = "+".join(best.row(first).offload_modules)
    gain = 100 * (1 - seconds[first] / now)
    return (
        f"activations stay on the GPUs: with {modules} on the host a step is at least {gain:.1f} % "
        "shorter, search it with `--fix offload_modules=free`; no published run shows what the "
        "copies cost",
    )


def _smallest(bounds: np.ndarray, number: int, wanted: float) -> np.ndarray:
    """Rows of the smallest bounds that are below what is wanted."""
    rows = np.argsort(bounds, kind="stable")[:number]
    return np.asarray(rows[bounds[rows] < wanted])


def _open(own: Context, plan: Plan, options: SearchOptions) -> bool:
    """Has the runtime modules to offload, and were they neither allowed nor refused?"""
    job = plan.job
    offloads = bool(own.traits.offloading.choices(job.model)) and job.model.trained is None
    written = job.may_offload_activations or any(
        one.field == "offload_modules" for one in options.choices
    )
    other = plan.certificate.objective.name != "time" or options.trusted
    return offloads and not written and not other and not is_heterogeneous(job.cluster)


def _without_graphs(plan: Plan, request: RuntimeOptions) -> Job:
    """Graphs exclude offload, so those that the search chose go."""
    job = plan.job
    options = job.options.model_copy(update={"cuda_graph": request.cuda_graph})
    return job.model_copy(update={"options": options, "may_offload_activations": True})


def _near(
    context: PricingContext, plan: Plan, rule_filter: RuleFilter, wanted: float
) -> LayoutTable:
    """Skeletons near the plan's layouts that may take less than `wanted` seconds.

    Those with the virtual stages of the answer have its split, too.
    """
    best = plan.best.layout
    layouts = LayoutTable.of([one.layout for one in plan.candidates])
    columns = np.concatenate(
        [[getattr(layouts, name) for name in NODE_COLUMNS], _moved(context, best)], axis=1
    )
    every = np.unique(columns, axis=1)
    nodes = LayoutTable.of_columns(every.shape[1], dict(zip(NODE_COLUMNS, every, strict=True)))
    legal = rule_filter(Rows(nodes, np.ones(len(nodes), dtype=np.int64)), (), NODE_COLUMNS).table
    bound = node_bound_seconds(context.with_table(legal))
    some = legal.take(_smallest(bound, MOST_NODES, wanted))
    found = skeletons(Space(context), rule_filter, some).table if len(some) else some
    if best.stages is not None:
        alike = found.take((found.pp == best.pp) & (found.vpp == best.vpp))
        split = objects([stage_specs(one.layers for one in best.stages)] * len(alike))
        found = LayoutTable.concat([found, alike.replaced(stages=split)])
    if not len(found):
        return found
    return found.take(_smallest(context.price(found).step_seconds, MOST_SKELETONS, wanted))


def _moved(on: Context, layout: Layout) -> IntColumn:
    """Nodes whose degrees are half, equal or double, with micro batches of up to four times."""
    degrees = ("tp", "cp", "pp", "ep")
    times = [(0.5, 1.0, 2.0)] * len(degrees) + [(1.0, 2.0, 3.0, 4.0)]
    moves = np.array(np.meshgrid(*times)).reshape(len(times), -1)
    own = [getattr(layout, name) for name in (*degrees, "micro_batch_size")]
    tp, cp, pp, ep, size = moved = np.array(own)[:, None] * moves
    rest = on.job.cluster.num_gpus / (tp * cp * pp)
    whole = np.all(moved % 1 == 0, axis=0) & (rest % 1 == 0)
    same = {
        name: np.full(len(rest), getattr(layout, name)) for name in NODE_COLUMNS if name != "dp"
    }
    parallel = (tp > 1) & (layout.sequence_parallel or layout.tp == 1)
    values = {"tp": tp, "cp": cp, "pp": pp, "ep": ep, "micro_batch_size": size, "dp": rest}
    values = same | values | {"sequence_parallel": parallel}
    return np.array([values[name][whole] for name in NODE_COLUMNS], dtype=np.int64)
