"""Jobs that tests share, tables of random legal layouts, and samples of large grids."""

import gc
import os
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import settings

from tests.fractions import QUARTER, steps_of
from tests.grids import Request, sampled
from trainplan.cli.main import COLLECTED_EVERY
from trainplan.costmodel.architecture.layers import MlaSpec
from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.architecture.moe import MoeSpec
from trainplan.costmodel.architecture.tower import LinearSpec, ProjectorSpec, TowerSpec
from trainplan.costmodel.axes import RULES
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import OFFLOAD_MODULES, SCHEDULE_NAMES
from trainplan.costmodel.layouts.table import FULL, SELECTIVE, LayoutTable, module_bits
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.runtimes.registry import traits_of

# Continuous integration draws the same examples every time; at a desk each run draws new ones.
settings.register_profile("trainplan", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("trainplan")


def pytest_addoption(parser):
    parser.addoption(
        "--full", action="store_true", help="run every cell of every grid and all examples"
    )


def pytest_configure(config):
    """Before tests are imported: their decorators ask."""
    Request.full = config.getoption("--full")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Modules and tests stay to the end: the collector of garbage need not look at them again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(COLLECTED_EVERY)  # as in a process of `plan`
        gc.enable()


class Backwards(pytest.Dir):
    """A folder whose last entry is collected first."""

    def collect(self):
        return reversed(list(super().collect()))


def pytest_collect_directory(path, parent):
    """Every second worker begins at the end: what one has compiled, the other loads."""
    worker = getattr(parent.config, "workerinput", {"workerid": "gw0"})["workerid"]
    return Backwards.from_parent(parent, path=path) if int(worker[2:]) % 2 else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """All workers have one order. Of a grid, only a sample is run without `--full`."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.path.parts)
    if config.getoption("--full"):
        return
    grids = defaultdict(list)
    for item in items:
        if item.get_closest_marker("grid"):
            grids[item.path, item.originalname].append(item)
    cells = {item for grid in grids.values() for item in grid}
    left_out = cells - {item for grid in grids.values() for item in sampled(grid)}
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


SMALL_DENSE = ModelSpec(
    name="small-dense",
    num_hidden_layers=6,
    hidden_size=1024,
    intermediate_size=4096,
    num_attention_heads=16,
    num_key_value_heads=4,
    head_dim=64,
    vocab_size=32_000,
    max_position_embeddings=8192,
)
SMALL_MOE = ModelSpec(
    name="small-moe",
    num_hidden_layers=5,
    hidden_size=1024,
    intermediate_size=4096,
    num_attention_heads=16,
    num_key_value_heads=16,
    head_dim=64,
    vocab_size=32_000,
    max_position_embeddings=8192,
    mla=MlaSpec(
        q_lora_rank=384, kv_lora_rank=128, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64
    ),
    moe=MoeSpec(
        num_experts=16,
        num_experts_per_tok=4,
        moe_intermediate_size=512,
        shared_expert_intermediate_size=512,
        first_k_dense_replace=1,
    ),
    num_nextn_predict_layers=1,
)
TOWER = TowerSpec(
    num_hidden_layers=4,
    hidden_size=512,
    intermediate_size=2048,
    num_attention_heads=8,
    patch_size=14,
    position_rows=577,
    class_tokens=1,
    norms_outside=2,
    window_patches=64,
    full_attention_layers=(3,),
    merged_patches=4,
    projectors=(
        ProjectorSpec(
            linears=(
                LinearSpec(in_features=2048, out_features=2048),
                LinearSpec(in_features=2048, out_features=1024),
            ),
            norm_size=2048,
        ),
    ),
    samples_per_sequence=4,
    patches_per_sample=1024,
    tensor_parallel=True,
)
SMALL_SEEING = SMALL_DENSE.model_copy(update={"name": "small-seeing", "tower": TOWER})
FROZEN_EYES = SMALL_MOE.model_copy(
    update={
        "name": "frozen-eyes",
        "tower": TOWER.model_copy(update={"frozen": "encoder", "tensor_parallel": False}),
    }
)
MODELS = {one.name: one for one in (SMALL_DENSE, SMALL_MOE, SMALL_SEEING, FROZEN_EYES)}


@pytest.fixture(scope="session")
def make_job():
    """(model, cluster, global batch, sequence) -> Job; small models by name, or any preset."""

    def make(model, cluster, global_batch_size=32, seq_length=2048, **training):
        spec = MODELS.get(model) or preset(model)
        return Job(
            model=spec,
            training=TrainingSpec(
                seq_length=seq_length, global_batch_size=global_batch_size, **training
            ),
            cluster=parse_cluster(cluster),
        )

    return make


def random_rows(job, size, rng):
    """Random layouts that use all GPUs; most of them are illegal."""
    world, layers = job.cluster.num_gpus, job.model.num_hidden_layers
    divisors = [d for d in range(1, world + 1) if world % d == 0]

    def pick(values):
        return np.array(values)[rng.integers(len(values), size=size)]

    tp, cp = pick([d for d in divisors if d <= 16]), pick([1, 1, 1, 2, 4])
    pp = pick([d for d in divisors if d <= layers])
    vpp = np.where(pp > 1, pick([1, 1, 2, 3, 4]), 1)
    kind = pick(["none", "selective", "selective", "full", "full"])
    subsets = [module_bits(s) for s in traits_of(job).recompute.subsets(job.model)]
    offloaded = [
        module_bits(one.modules, OFFLOAD_MODULES)
        for one in traits_of(job).offloading.choices(job.model)
    ]
    number = 1 + rng.integers(0, 1000, size) % np.maximum(1, -(-layers // (pp * vpp)))
    columns = {
        "tp": tp,
        "cp": cp,
        "pp": pp,
        "vpp": vpp,
        "dp": np.maximum(1, world // (tp * cp * pp)),
        "ep": pick([d for d in divisors if d <= 256] if job.model.moe else [1]),
        "etp": pick([1, 1, 2] if job.model.moe else [1]),
        "zero_stage": np.where(pp == 1, pick([0, 1, 2, 3]), pick([0, 1, 1])),
        "sequence_parallel": np.where(tp > 1, pick([0, 1, 1]), 0),
        "micro_batch_size": pick([1, 1, 2, 3, 4, 8]),
        "schedule": (vpp > 1).astype(np.int64),
        "recompute": np.where(kind == "full", FULL, np.where(kind == "none", 0, SELECTIVE)),
        "recompute_modules": np.where(kind == "selective", pick(subsets), 0),
        "recompute_method": np.where(kind == "full", pick([1, 2]), 0),
        "recompute_num_layers": np.where(kind == "full", number, 0),
        "offload_optimizer": pick([0.0, 0.0, 0.5, 1.0]),
        "offload_modules": np.where(kind == "full", 0, pick([0, 0, *offloaded])),
    }
    table = LayoutTable.of_columns(size, columns)
    return table.take(table.tp * table.cp * table.pp * table.dp == world)


def legal(job, table):
    """The rows that break no rule."""
    for rule in (*RULES, *traits_of(job).rules):
        broken = rule.broken(job, table)
        table = table.take(~broken) if broken.any() else table
    return table


@pytest.fixture(scope="module")
def quarters():
    """Offload in quarters of the optimizer, as few as brute force can list."""
    with steps_of(QUARTER):
        yield


@pytest.fixture(scope="session")
def under_any_schedule():
    """(job, table, rng) -> the rows under random schedules, as far as those run them."""

    def make(job, table, rng):
        table = table.take(table.pp > 1)
        codes = rng.integers(len(SCHEDULE_NAMES), size=len(table))
        return legal(job, table.replaced(schedule=codes))

    return make


@pytest.fixture(scope="session")
def legal_table():
    """(job, size, seed) -> random legal layouts; the same for the same seed."""

    def make(job, size, seed):
        rng, parts, found = np.random.default_rng(seed), [], 0
        while found < size:
            parts.append(legal(job, random_rows(job, 2000 + 30 * size, rng)))
            found += len(parts[-1])
        return LayoutTable.concat(parts).take(np.arange(size))

    return make
