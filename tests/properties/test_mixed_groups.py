"""What holds for every pipeline whose ranks live in unlike node groups."""

import random
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import MODELS
from tests.grids import examples
from trainplan.costmodel.calibration import context_for, machine_for
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.hardware.cluster import BetweenGroups, parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout, StageSpec, stage_specs
from trainplan.costmodel.layouts import layers_per_stage
from trainplan.costmodel.layouts.table import BLOCK, FULL, SELECTIVE, LayoutTable
from trainplan.costmodel.program.ops import placed
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.step import explicit
from trainplan.costmodel.step.heterogeneous import price_heterogeneous
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.costmodel.step.timelines import rank_ends
from trainplan.costmodel.timeline.clock import StageSeconds
from trainplan.planner.space import Space
from trainplan.planner.space.choices import broken_rules
from trainplan.planner.space.grid import NODE_COLUMNS
from trainplan.planner.stages.bounds.layer_capacity import layer_capacities, may_fit
from trainplan.planner.stages.bounds.mean_paths import PathPool
from trainplan.planner.stages.bounds.priced_groups import PricedGroups
from trainplan.planner.stages.bounds.rank_windows import (
    path_bound,
    speed_bound,
    throughput_bound,
    window_bound,
)
from trainplan.planner.stages.contexts import GroupsContext
from trainplan.planner.tree.memory_bounds import class_extremes

RUNTIMES = ("megatron-lm", "megatron-zero-bubble", "torchtitan")
CLUSTERS = ("1x8:h100-sxm+2x4:a100-sxm-80gb", "1x8:a100-sxm-80gb+1x8:h100-sxm")
ETHERNET = BetweenGroups(gb_per_s=3.125, latency_us=30)


@lru_cache(maxsize=64)
def job_on(model, text, runtime, joined):
    cluster = parse_cluster(text).model_copy(update={"between_groups": joined})
    training = TrainingSpec(global_batch_size=32, seq_length=1024)
    return Job(model=MODELS[model], training=training, cluster=cluster, runtime=runtime)


@lru_cache(maxsize=64)
def machine_on(*question):
    return machine_for(job_on(*question))


@lru_cache(maxsize=512)
def requested_with(seed, adapting):
    """A job on two groups of eight GPUs, a legal layout of whole ranks in each, their order."""
    rng = random.Random(seed)
    while True:
        question = (
            rng.choice(sorted(MODELS)),
            rng.choice(CLUSTERS),
            rng.choice(RUNTIMES),
            rng.choice([None, ETHERNET]),
        )
        job, order = job_on(*question), rng.choice([(0, 1), (1, 0)])
        layout = some_layout(job, rng, adapting=adapting)
        if layout is not None:
            layout = in_order(layout, order)
            if not broken_rules(job, LayoutTable.of([layout]))[0]:
                return question, layout, order


def some_layout(job, rng, *, adapting):
    traits, layers = traits_of(job), job.model.num_hidden_layers
    gpus, tp, vpp = rng.choice([2, 4, 8]), rng.choice([1, 2]), rng.choice([1, 1, 2, 3])
    name, pp = rng.choice(traits.pipeline.schedules), 16 // gpus
    schedule, stages = SCHEDULES[name], pp * vpp
    if not schedule.least_vpp <= vpp <= schedule.most_vpp or stages > layers + 2:
        return None
    if schedule.adapts and not adapting:
        return None
    counts = np.array(layers_per_stage(layers, stages))
    if traits.pipeline.splits_freely:
        counts = np.ones(stages, dtype=int)
        counts[[0, -1]] = 0
        np.add.at(counts, [rng.randrange(stages) for _ in range(layers - counts.sum())], 1)
    again = rng.choice([{}, {"recompute_method": "block", "recompute_num_layers": 1}])
    return Layout(
        tp=tp,
        dp=gpus // tp,
        pp=pp,
        vpp=vpp,
        schedule=name,
        sequence_parallel=tp > 1,
        micro_batch_size=rng.choice([1, 2]),
        zero_stage=rng.choice(traits.sharding.zero_stages),
        recompute="full" if again else "none",
        **again,
        stages=stage_specs(counts.tolist()),
    )


def questions(*, adapting=True):
    return st.integers(0, 255).map(lambda seed: requested_with(seed, adapting))


def in_order(layout, order):
    """The layout with its ranks in the groups, in an order."""
    stage_of = placed(SCHEDULES[layout.schedule].placement, layout.pp, layout.vpp)
    group = np.empty(stage_of.size, dtype=int)
    group[stage_of] = np.repeat(order, layout.pp // 2)[:, None]
    pairs = zip((one.layers for one in layout.stages), group.tolist(), strict=True)
    stages = tuple(StageSpec(layers=count, group=where) for count, where in pairs)
    return layout.model_copy(update={"stages": stages})


def in_groups(question, layout):
    job = job_on(*question)
    table = LayoutTable.of([layout])
    return job, machine_on(*question), traits_of(job), table


@examples(5, by_night=40)
@given(questions())
def test_the_bound_of_a_split_is_never_above_its_step(wanted):
    question, layout, _ = wanted
    found = explicit(Candidates(*in_groups(question, layout)))[0]
    assert found.lower_bound_s <= found.step_time_s * (1 + 1e-9)


@examples(5, by_night=40)
@given(questions())
def test_no_split_is_faster_than_the_bounds_of_its_layout(wanted):
    question, layout, order = wanted
    job, machine, traits, table = in_groups(question, layout)
    seconds = float(step_seconds(Candidates(job, machine, traits, table))[0])
    plain = LayoutTable.of([layout.model_copy(update={"stages": None})])
    of = priced(Candidates(job, machine, traits, plain), order)
    longest = max(stage.layers for stage in layout.stages)
    again = of.recomputed_share_of(np.array([float(longest)]))
    assert speed_bound(of, again)[0] <= seconds * (1 + 1e-9)


@examples(5, by_night=40)
@given(questions(), st.booleans(), st.booleans())
def test_a_split_that_fits_is_no_faster_than_what_its_windows_allow(wanted, hurried, updates):
    question, layout, order = wanted
    job, machine, traits, table = in_groups(question, layout)
    if not alike(layout):
        return
    seconds = float(step_seconds(Candidates(job, machine, traits, table))[0])
    cutoff = seconds * (1 + 1e-9) if hurried else np.inf
    margin = tightest(price_heterogeneous(Candidates(job, machine, traits, table)), machine)
    of = priced(Candidates(job, machine, traits, without_stages(layout)), order, margin)
    for bound in (window_bound, path_bound):
        found = bound(of, of.recomputed_share(cutoff), cutoff, updates=updates)
        assert found[0] <= seconds * (1 + 1e-9)


@examples(4, by_night=30)
@given(questions(adapting=False))
def test_paths_and_windows_bound_no_less_than_windows_and_the_optimizer_step_adds(wanted):
    question, layout, order = wanted
    job, machine, traits, _ = in_groups(question, layout)
    of = priced(Candidates(job, machine, traits, without_stages(layout)), order)
    again = of.recomputed_share(np.inf)
    window, path = (
        bound(of, again, np.inf, updates=True)[0] for bound in (window_bound, path_bound)
    )
    assert window <= path
    assert window_bound(of, again, np.inf, updates=False)[0] < window or np.isinf(window)


@examples(4, by_night=30)
@given(questions())
def test_no_layout_below_a_node_is_faster_than_the_node(wanted):
    question, layout, order = wanted
    job, machine, traits, table = in_groups(question, layout)
    node = {name: getattr(layout, name) for name in NODE_COLUMNS}
    floor = throughput_bound(
        priced(Candidates(job, machine, traits, LayoutTable.of([Layout(**node)])), order)
    )
    of = priced(Candidates(job, machine, traits, without_stages(layout)), order)
    assert floor[0] <= speed_bound(of, of.recomputed_share(np.inf))[0] * (1 + 1e-9)
    assert floor[0] <= float(step_seconds(Candidates(job, machine, traits, table))[0]) * (1 + 1e-9)


def priced(candidates, order, margin=0.0):
    """Layouts on the machine of each group, so much of the memory of each left free."""
    usable = [one.memory_bytes * (1 - margin) for one in candidates.machine.groups]
    return PricedGroups.of(candidates, usable, order=order)


def alike(layout):
    """Do the virtual stages of a rank differ by one layer at most?"""
    stage_of = placed(SCHEDULES[layout.schedule].placement, layout.pp, layout.vpp)
    counts = np.array([stage.layers for stage in layout.stages])[stage_of]
    return bool((np.ptp(counts, axis=1) <= 1).all())


def without_stages(layout):
    return LayoutTable.of([layout.model_copy(update={"stages": None})])


def tightest(mixed, machine):
    """The largest share of memory that a layout leaves free."""
    shares = (0.0, 0.3, 0.6, 0.8, 0.9, 0.93, 0.96)
    return max(one for one in shares if mixed.fits(one)[0])


@examples(4, by_night=30)
@given(questions())
def test_the_order_of_the_groups_in_the_file_changes_nothing(wanted):
    (model, text, runtime, joined), layout, _ = wanted
    other = (model, "+".join(reversed(text.split("+"))), runtime, joined)
    stages = tuple(s.model_copy(update={"group": 1 - s.group}) for s in layout.stages)
    here = explicit(Candidates(*in_groups((model, text, runtime, joined), layout)))[0]
    there = explicit(Candidates(*in_groups(other, layout.model_copy(update={"stages": stages}))))[0]
    assert there.step_time_s == pytest.approx(here.step_time_s, rel=1e-12)
    assert there.memory == here.memory


@examples(4, by_night=30)
@given(questions(adapting=False), st.floats(0.1, 1.0))
def test_a_slower_join_never_helps(wanted, factor):
    (model, text, runtime, _), layout, _ = wanted
    slow = BetweenGroups(gb_per_s=ETHERNET.gb_per_s * factor, latency_us=30)
    fast = explicit(Candidates(*in_groups((model, text, runtime, ETHERNET), layout)))[0]
    slower = explicit(Candidates(*in_groups((model, text, runtime, slow), layout)))[0]
    assert slower.step_time_s >= fast.step_time_s * (1 - 1e-9)


@examples(4, by_night=30)
@given(questions(adapting=False))
def test_a_faster_group_never_hurts(wanted):
    question, layout, order = wanted
    job, machine, traits, table = in_groups(question, layout)
    (ran,) = price_heterogeneous(Candidates(job, machine, traits, table)).pipelines
    share = np.where([stage.group == order[0] for stage in layout.stages], 1 / 1.5, 1.0)
    quicker = StageSeconds(
        ran.seconds.forward * share, ran.seconds.backward * share, ran.seconds.weight * share
    )
    apart = np.zeros(1, dtype=bool)
    slow, fast = (rank_ends(ran.shape, one, ran.p2p, apart) for one in (ran.seconds, quicker))
    assert (fast[0] <= slow[0] * (1 + 1e-9)).all()


@examples(4, by_night=30)
@given(questions())
def test_a_split_that_fits_is_not_refused_for_its_memory(wanted):
    question, layout, order = wanted
    job, machine, traits, table = in_groups(question, layout)
    mixed = price_heterogeneous(Candidates(job, machine, traits, table))
    plain = LayoutTable.of([layout.model_copy(update={"stages": None})])
    of = priced(Candidates(job, machine, traits, plain), order)
    alike = np.ptp([stage.layers for stage in layout.stages]) <= 1 or layout.vpp == 1
    if mixed.fits(0.0)[0] and alike:
        assert may_fit(of.kinds, layer_capacities(of, np.array([0]), np.inf, alike=True))[0]


@examples(4, by_night=30)
@given(questions())
def test_the_class_of_a_layout_that_fits_and_wins_is_kept(wanted):
    question, layout, order = wanted
    job, machine, traits, table = in_groups(question, layout)
    seconds = float(step_seconds(Candidates(job, machine, traits, table))[0])
    mixed = price_heterogeneous(Candidates(job, machine, traits, table))
    margin = tightest(mixed, machine)
    plain = {"stages": None, "recompute": "none", "recompute_method": None}
    skeleton = layout.model_copy(update={**plain, "recompute_num_layers": None})
    least = class_extremes(Space(context_for(job)), LayoutTable.of([skeleton]))[1]
    full = layout.recompute == "full"
    own = (least.recompute == FULL) & (least.recompute_method == BLOCK)
    own = own if full else (least.recompute == SELECTIVE) & (least.offload_modules == 0)
    of = GroupsContext(job, machine, traits, np.inf, order=order, margin=margin)
    (bound,) = of.classes(least.take(own), seconds * (1 + 1e-9), PathPool())
    assert bound <= seconds * (1 + 1e-9)
