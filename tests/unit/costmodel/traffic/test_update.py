"""Seconds of an update beyond AdamW's: bytes, products and what tensor ranks exchange."""

from dataclasses import replace

import numpy as np
import pytest

from trainplan.costmodel.block_costs import block_costs
from trainplan.costmodel.candidates.context import Candidates
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.kernels.memory_bound import optimizer_bytes_per_second
from trainplan.costmodel.kernels.products import Product, product_seconds
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.model.params import num_parameters
from trainplan.costmodel.optimizers import Matrix
from trainplan.costmodel.runtimes import runtime_with, traits_of
from trainplan.costmodel.step import price
from trainplan.costmodel.traffic.update import FACTOR_FLOP_PER_SECOND, tensor_seconds


@pytest.fixture(scope="module")
def of(make_job):
    def candidates(optimizer, *layouts, model="small-dense", cluster="1x8:h100-sxm"):
        job = make_job(model, cluster, global_batch_size=64, optimizer=optimizer)
        job = job.model_copy(update={"runtime": runtime_with(job.training)})
        machine = machine_of(job.cluster, job.training.precision)
        return Candidates(job, machine, traits_of(job), LayoutTable.of([*layouts]))

    return candidates


def matrix(rows, columns, **more):
    return Matrix(np.asarray(float(rows)), np.asarray(float(columns)), **more)


@pytest.mark.parametrize(
    ("optimizer", "moved_per_element"),
    [("lion", 26 + 8), ("sgd", 26 + 8), ("adamw8bit", 26 + 2 * 2 * (1 + 4 / 256)),
     ("adafactor", 26 + 2 * 4 * 2 / 1024)],
)  # fmt: skip
def test_an_update_moves_its_states_twice_and_26_bytes_beside_them(
    of, optimizer, moved_per_element
):
    """AdamW moves 42, which is 26 and twice its 8."""
    candidates = of(optimizer, Layout(dp=8))
    found = tensor_seconds(candidates, candidates.machine, matrix(1024, 1024))
    speed = optimizer_bytes_per_second(candidates.machine)
    assert found * speed == pytest.approx((moved_per_element - 42) * 1024**2)


@pytest.mark.parametrize("zero_stage", [0, 1])
def test_adamw_takes_what_it_took(of, zero_stage):
    """42 bytes a parameter of a shard, and 4 to zero a gradient."""
    candidates = of("adamw", Layout(dp=8, zero_stage=zero_stage))
    params = num_parameters(candidates.job.model)
    shard = 8 if zero_stage else 1
    moved = params * (42 / shard + 4)
    assert price(candidates).optimizer[0] == pytest.approx(
        moved / optimizer_bytes_per_second(candidates.machine)
    )


def test_fewer_moments_make_a_shorter_step(of):
    seconds = [float(price(of(name, Layout(dp=8))).optimizer[0]) for name in ("lion", "adamw")]
    assert 0 < seconds[0] < seconds[1]


def test_muon_multiplies_15_times_in_16_bits(of):
    candidates = of("muon", Layout(dp=8))
    machine = candidates.machine
    found = tensor_seconds(candidates, machine, matrix(1024, 4096))
    products = sum(
        5 * product_seconds(machine, machine.half, Product(*map(np.asarray, sizes)), 2)
        for sizes in ((1024.0, 1024.0, 4096.0), (1024.0, 1024.0, 1024.0), (1024.0, 4096.0, 1024.0))
    )
    bytes_less = 8 * 1024 * 4096 / optimizer_bytes_per_second(machine)
    assert found == pytest.approx(products - bytes_less)


def test_what_a_measured_step_takes_longer_is_its_own(of):
    """Of Lion 12 bytes and a moment of 4 twice, of the 34 beside AdamW's 42."""
    candidates = of("lion", Layout(dp=8))
    machine, one = candidates.machine, matrix(1024, 1024)
    slow = replace(machine, optimizer_slowness=3.0)
    longer = tensor_seconds(candidates, slow, one) - tensor_seconds(candidates, machine, one)
    assert longer * optimizer_bytes_per_second(machine) == pytest.approx(2 * 20 * 1024**2)


def test_tensor_ranks_gather_the_matrix_they_hold_parts_of(of):
    """In fp32, and only those of a matrix that is cut."""
    candidates = of("muon", Layout(tp=4, dp=2, sequence_parallel=True))
    machine = candidates.machine
    cut, whole = (
        tensor_seconds(candidates, machine, matrix(256, 4096, cut_rows=ranks)) for ranks in (4, 1)
    )
    four = group(machine, np.array([4]), np.array([1]))
    gathered = collective_seconds(machine, "all_gather", np.array([4.0 * 1024 * 4096]), four)
    alone = tensor_seconds(of("muon", Layout(dp=8)), machine, matrix(1024, 4096))
    less = 3 * 256 * 4096 * 8 / optimizer_bytes_per_second(machine)  # of the other three parts
    assert cut == pytest.approx(alone + gathered + less)
    assert whole < cut


def test_replicas_share_the_products(of):
    """Half of what is beyond AdamW's with twice the replicas, so the whole falls."""
    whole, shared = (
        float(price(of("muon", Layout(dp=8, zero_stage=stage))).optimizer[0]) for stage in (0, 1)
    )
    assert shared < whole / 4


def test_galore_pays_for_singular_vectors(of):
    """Mean over 200 steps; beside them two products, and 12 bytes a weight and its state twice."""
    candidates = of("galore:rank=64,update=step", Layout(), cluster="1x1:h100-sxm")
    machine, one = candidates.machine, matrix(1024, 4096)
    flop = (14 * 4096 + 8 * 1024) * 1024**2 / 200
    products = sum(
        product_seconds(machine, machine.half, Product(*map(np.asarray, sizes)), 2)
        for sizes in ((4096.0, 64.0, 1024.0), (4096.0, 1024.0, 64.0))
    )
    state = 2 * (64 * 1024 + 2 * 64 * 4096)
    moved = (12 - 42) * 1024 * 4096 + 2 * state
    expected = flop / FACTOR_FLOP_PER_SECOND + products
    expected += moved / optimizer_bytes_per_second(machine)
    assert tensor_seconds(candidates, machine, one) == pytest.approx(expected)


@pytest.mark.parametrize(
    "optimizer", ["muon", "soap", "lion", "shampoo", "galore:rank=64", "apollo-mini"]
)
def test_the_costs_of_blocks_add_up_to_those_of_a_rank(of, optimizer):
    """A search over stages sums blocks, an estimate sums ranks: seconds and bytes are the same."""
    one = "1x1:h100-sxm"
    cluster = one if runtime_of(of, optimizer) == "torch-eager" else "1x8:h100-sxm"
    candidates = of(optimizer, Layout(dp=1 if cluster == one else 8), cluster=cluster)
    priced = price(candidates, merged=False)
    costs = block_costs(priced)
    blocks = np.array([6.0, 1.0, 1.0, 0.0])
    assert blocks @ costs.optimizer[:, 0] == pytest.approx(priced.optimizer[0])
    assert blocks @ costs.optimizer_bytes[:, 0] == pytest.approx(priced.memory.optimizer[0, 0])


def runtime_of(of, optimizer):
    return of(optimizer, Layout()).job.runtime
