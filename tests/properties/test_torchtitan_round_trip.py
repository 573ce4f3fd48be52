"""What is exported to torchtitan is read back: job and layout, field by field."""

import random
from dataclasses import replace

import pytest
from pydantic import ValidationError

from tests.grids import number
from tests.torchtitan_jobs import launch_of
from trainplan.costmodel.base.errors import PlanError
from trainplan.costmodel.hardware.cluster import BetweenGroups, parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.job.outer import OuterSpec
from trainplan.costmodel.layout.layout import Layout, OffloadSpec, stage_specs
from trainplan.costmodel.layouts.table import stage_layers
from trainplan.costmodel.outer import island_job
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.questions import check
from trainplan.planner.runtimes import EXPORTERS
from trainplan.planner.runtimes.torchtitan.read import TORCHTITAN

MODELS = (
    "llama2-7b",
    "llama3-8b",
    "llama3.1-8b",
    "llama3.2-1b",
    "qwen3-8b",
    "qwen3-30b-a3b",
    "mixtral-8x7b",
    "deepseek-v2-lite",
    "deepseek-v3",
    "gpt-oss-20b",
)
SCHEDULES = ("1f1b", "gpipe", "zb-h1", "zb-h2", "interleaved", "breadth-first", "zb-h1", "zb-v",
             "dualpipe-v", "v-half", "v-min")  # fmt: skip
RECIPES = (None, "rowwise", "rowwise_with_gw_hp")
DRAWS = number(60, by_night=150)


def drawn(rng):
    """A job and a layout for 16 GPUs; many are illegal."""
    model = preset(rng.choice(MODELS))
    pp, tp, cp = (rng.choice([1, 1, 2, 4]) for _ in range(3))
    dp = max(1, 16 // (pp * tp * cp))
    vpp = rng.choice([1, 2, 2, 4]) if pp > 1 else 1
    ep = rng.choice([1, 2, 4]) if model.moe else 1
    recompute = rng.choice(
        [
            {},
            {"recompute": "selective", "recompute_modules": ("torchtitan_selective_op",)},
            {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
            {
                "recompute": "full",
                "recompute_method": "block",
                "recompute_num_layers": rng.choice([1, 2, 4]),
            },
        ]
    )
    stages = None
    if pp > 1 and rng.random() < 0.3:
        counts = list(stage_layers(model, Layout(pp=pp, vpp=vpp)))
        counts[0] -= 1
        counts[-1] += 1
        stages = stage_specs(counts) if min(counts) >= 0 else None
    layout = Layout(
        tp=tp,
        pp=pp,
        vpp=vpp,
        cp=cp,
        dp=dp,
        ep=ep,
        etp=tp if model.moe and ep == 1 else 1,
        dp_replicate=rng.choice([1, 1, 2]) if dp % 2 == 0 else 1,
        zero_stage=rng.choice([0, 1]) if pp > 1 else rng.choice([0, 2, 3]),
        sequence_parallel=tp > 1 and rng.random() < 0.7,
        micro_batch_size=rng.choice([1, 1, 2]),
        schedule=rng.choice(SCHEDULES) if pp > 1 else "1f1b",
        stages=stages,
        tiled_loss=rng.random() < 0.3,
        offload=OffloadSpec(optimizer=1, parameters="cpu") if rng.random() < 0.2 else OffloadSpec(),
        **recompute,
    )
    training = TrainingSpec(
        seq_length=rng.choice([1024, 4096]),
        global_batch_size=rng.choice([32, 64, 128]),
        precision=rng.choice(["bf16", "bf16", "fp8", "mxfp8", "fp32"]),
    )
    compiled = rng.choice([None, False])
    options = RuntimeOptions(
        compile=compiled,
        cross_entropy=rng.choice([None, "jit" if compiled is False else "unfused"]),
        cuda_graph=rng.choice([None, "full_iteration"]),
        moe_dispatcher=rng.choice([None, "deepep"]) if model.moe else None,
        fp8_recipe=rng.choice(RECIPES) if training.precision == "fp8" else None,
    )
    cluster = parse_cluster("2x8:h100-sxm")
    job = Job(
        model=model, training=training, cluster=cluster, runtime="torchtitan", options=options
    )
    return job, layout


def same_launch(job, layout):
    """The layout that a reader has to find: of equal ones the one with the fewest words."""
    changes = {}
    if layout.dp * layout.cp == 1:
        changes["zero_stage"] = 0
    layers = stage_layers(job.model, layout)
    if layout.recompute_method == "block" and layout.recompute_num_layers == layers[0]:
        changes |= {"recompute_method": "uniform", "recompute_num_layers": 1}
    return layout.model_copy(update=changes)


@pytest.mark.parametrize("seed", [20261125])
def test_what_is_exported_is_read_back(seed):
    rng, found, tables = random.Random(seed), 0, 0
    while found < DRAWS:
        job, layout = drawn(rng)
        try:
            check(job, layout)
            config = EXPORTERS["torchtitan"](job, layout)
        except PlanError:
            continue
        found += 1
        tables += len(config.files) > 1
        launch, question = launch_of(config, job.cluster)
        reading = TORCHTITAN.read(launch, question)
        assert not reading.problems, (job.model.name, layout, reading.problems)
        wanted = same_launch(job, layout)
        if len(config.files) > 1 and reading.layout != wanted:  # two schedules with one table
            again = EXPORTERS["torchtitan"](job, reading.layout)
            assert again.files[1] == config.files[1]
            wanted = wanted.model_copy(update={"schedule": reading.layout.schedule})
        assert reading.layout == wanted, job.model.name
        assert reading.job == job
    assert tables >= 4


def outer_drawn(rng, job):
    """Outer steps that torchft may take."""
    fragments = rng.choice([1, 1, 2, 4])
    return OuterSpec(
        islands=rng.choice([2, 2, 3]),
        every=fragments * rng.choice([1, 10, 125]),
        dtype=rng.choice(["fp32", "fp8"]),
        overlap=rng.choice(["none", "none", 1, 5]),
        fragments=fragments,
    )


def test_islands_are_read_back_with_the_cluster_of_all_of_them():
    rng, found, in_parts = random.Random(20261130), 0, 0
    while found < DRAWS // 6:
        job, layout = drawn(rng)
        try:
            outer = outer_drawn(rng, job)
            groups = job.cluster.groups * outer.islands
            between = BetweenGroups(gb_per_s=rng.choice([0.125, 12.5]), latency_us=500)
            cluster = job.cluster.model_copy(update={"groups": groups, "between_groups": between})
            size = outer.islands * job.training.global_batch_size
            training = job.training.model_copy(update={"global_batch_size": size})
            whole = {"cluster": cluster, "training": training, "outer": outer}
            island = island_job(job.model_copy(update=whole))
            check(island, layout)
            config = EXPORTERS["torchtitan"](island, layout)
        except (PlanError, ValidationError):
            continue
        found += 1
        in_parts += outer.fragments > 1
        launch, question = launch_of(config, island.cluster)
        reading = TORCHTITAN.read(launch, replace(question, cluster=cluster))
        assert not reading.problems, (job.model.name, layout, reading.problems)
        assert reading.job == island
        alone = TORCHTITAN.read(launch, replace(question, cluster=island.cluster))
        assert [one.cause for one in alone.problems] == ["outer_links"]
        unlinked = {"gb_per_s": 400.0, "latency_us": 0.0}  # its eight adapters
        assert alone.job.outer == island.outer.model_copy(update=unlinked)
        assert alone.job.training == island.training
    assert in_parts >= 2
