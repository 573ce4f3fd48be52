"""The cure of a launch that does not fit: applied it fits, and no smaller one was missed."""

from itertools import combinations
from random import Random

import pytest

from tests.grids import number
from trainplan.costmodel.axes import AXES
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layouts.table import LayoutTable, place
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.runtimes import traits_of
from trainplan.planner.cases import Case
from trainplan.planner.comparisons import single_changes
from trainplan.planner.launch_checks.changed import Run, filling, setting_changes, with_options
from trainplan.planner.launch_checks.cures import cures
from trainplan.planner.plan import SearchOptions
from trainplan.planner.questions import estimate, estimates
from trainplan.planner.runtimes import EXPORTERS, why_unable
from trainplan.planner.space import broken_rules

WHOLE = SearchOptions(memory_margin=0.0)
MODELS = ("llama3-8b", "llama3-70b", "qwen3-30b-a3b", "mixtral-8x7b", "llama2-7b")
CLUSTERS = ("1x8:h100-sxm", "2x8:a100-sxm-80gb", "4x8:h100-sxm", "1x4:l40s", "2x8:b200")
FOLLOWS = ("dp", "schedule")
OPTIONS = {
    "attention": (None, None, "unfused"),
    "cross_entropy": (None, "unfused"),
    "gradient_dtype": (None, None, "fp32"),
    "overlap_tp_comm": (None, None, True),
    "cuda_graph": (None, None, "partial"),
}
JOBS = number(1, by_night=60)
"""Of each runtime."""


def launches(runtime):
    """Random launches that the runtime starts, and that do not fit."""
    random, found = Random(runtime), 0
    while found < JOBS:
        values = {name: random.choice(some) for name, some in OPTIONS.items()}
        job = Job(
            model=preset(random.choice(MODELS)),
            training=TrainingSpec(
                seq_length=random.choice((2048, 4096, 8192, 32768)),
                global_batch_size=random.choice((64, 96, 128)),
            ),
            cluster=parse_cluster(random.choice(CLUSTERS)),
            runtime=runtime,
            options=RuntimeOptions(**{n: v for n, v in values.items() if random.random() < 0.5}),
        )
        degrees = {name: random.choice((1, 1, 2, 4)) for name in ("tp", "pp", "cp")}
        more = {
            "zero_stage": random.choice(traits_of(job).sharding.zero_stages),
            "sequence_parallel": degrees["tp"] > 1 and random.random() < 0.5,
            "micro_batch_size": random.choice((1, 2, 4)),
            "dp_replicate": 1,
        }
        layout = filling({**degrees, **more}, job.cluster.num_gpus)
        if layout is None or why_unable(job) or broken_rules(job, LayoutTable.of([layout]))[0]:
            continue
        try:
            EXPORTERS[runtime](job, layout)
        except PlanError:
            continue
        if not estimate(job, layout).memory.fits:
            found += 1
            yield job, layout


def edits(job, layout, other, its):
    """Axes, options and types of states that have another value; Liger's kernels tile the loss."""
    axes = [a.name for a in AXES if a.name not in FOLLOWS and a.of(layout) != a.of(its)]
    options = [n for n, v in job.options if v != getattr(other.options, n)]
    if "liger" in options and "tiled_loss" in axes:
        axes.remove("tiled_loss")
    states = job.training.state_precision != other.training.state_precision
    return [*axes, *options, *(["state_precision"] * states)]


def fits(job, some):
    """Those of some layouts that run with the usual chance, and have launch files."""
    rules = broken_rules(job, LayoutTable.of(some)) if some else ()
    legal = [one for one, broken in zip(some, rules, strict=True) if not broken]
    priced = estimates(job, legal, memory_margin=SearchOptions().margin(job))
    return [one for one, good in zip(legal, priced.fits, strict=True) if good and has(job, one)]


def has(job, layout):
    try:
        return bool(EXPORTERS[job.runtime](job, layout))
    except PlanError:
        return False


def singles(job, layout):
    """Values of single axes, all that the axis tries."""
    for axis in AXES:
        if axis.name not in (*FOLLOWS, "stages", "offload.optimizer"):
            for value in axis.tried(job, traits_of(job)):
                if value != axis.of(layout):
                    yield axis, value
    if traits_of(job).offloading.optimizer_step is not None:
        yield next(axis for axis in AXES if axis.name == "offload.optimizer"), 1.0


def with_values(job, layout, changes):
    values = {}
    for axis in AXES:
        place(values, axis.name, dict(changes).get(axis.name, axis.of(layout)))
    if values["schedule"] in ("1f1b", "interleaved"):
        values["schedule"] = "interleaved" if values["vpp"] > 1 else "1f1b"
    return filling(values, job.cluster.num_gpus)


def settings(job):
    """The job with one option changed."""
    for one in traits_of(job).settings:
        other = with_options(job, {one.name: one.value})
        if other != job and one.refused(other) is None:
            yield other


def smaller(job, layout, count):
    """Layouts that run with fewer edits, of one or two."""
    each = [((axis.name, value),) for axis, value in singles(job, layout)]
    sets = list(each) if count > 1 else []
    if count > 2:
        sets += [(*a, *b) for a, b in combinations(each, 2) if a[0][0] != b[0][0]]
    made = [one for some in sets if (one := with_values(job, layout, some))]
    yield from fits(job, [one for one in made if len(edits(job, layout, job, one)) < count])
    for other in settings(job) if count > 1 else ():
        near = [layout]
        if count > 2:
            near += single_changes(Case(job, WHOLE).context, layout)
        near = [one for one in near if one.world_size == job.cluster.num_gpus]
        few = [one for one in near if len(edits(job, layout, other, one)) < count]
        if not why_unable(other):
            yield from fits(other, few)


@pytest.mark.parametrize("runtime", EXPORTERS)
def test_the_cure_fits_when_it_is_applied_and_no_smaller_one_was_missed(runtime):
    for job, layout in launches(runtime):
        found = cures(Case(job, WHOLE), layout)
        counts = [len(one.units) for one in found.found]
        assert counts == sorted(counts)
        for cure in found.found:
            assert len(edits(job, layout, cure.run.job, cure.run.layout)) == len(cure.units)
            words = dict(EXPORTERS[runtime](job, layout).settings)
            for change in setting_changes(Run(job, layout), cure.run):
                assert words.pop(change.name, None) == change.before
                words |= {change.name: change.after} if change.after is not None else {}
            assert words == dict(EXPORTERS[runtime](cure.run.job, cure.run.layout).settings)
            assert estimate(cure.run.job, cure.run.layout).memory.fits, (job, layout, cure)
        least = min(counts, default=3)
        near = list(smaller(job, layout, min(least, 3)))
        assert not near, (job.model.name, job.options, layout, near[0])
