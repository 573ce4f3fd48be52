"""Scales of rows against one scale for a tensor, in products and in what ranks gather."""

from dataclasses import replace

import numpy as np
import pytest

from trainplan.costmodel.blocks.parts import shapes
from trainplan.costmodel.candidates.context import context_of
from trainplan.costmodel.comm import collective_seconds, group
from trainplan.costmodel.documents.measured_run import MeasuredRun
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.kernels.memory_bound import elementwise_seconds
from trainplan.costmodel.kernels.products import Product, linear_seconds, product_seconds
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.runtimes.executes import executed
from trainplan.costmodel.runtimes.registry import RUNTIMES, traits_of
from trainplan.costmodel.step import explicit
from trainplan.costmodel.validate.cases.unstated import options_of

M, N, K = 8192.0, 7168.0, 4096.0
SEQUENCES = {"tp": 8, "dp": 1, "zero_stage": 0, "sequence_parallel": True, "micro_batch_size": 1}


@pytest.fixture(scope="module")
def job_of(make_job):
    def job(runtime="torchtitan", precision="fp8", **options):
        made = make_job("llama3-8b", "1x8:h100-sxm", 1, 8192, precision=precision)
        return made.model_copy(update={"runtime": runtime, "options": RuntimeOptions(**options)})

    return job


@pytest.fixture(scope="module")
def machine(job_of):
    return machine_of(job_of().cluster, "fp8")


def linear(machine, recipe):
    product = Product(np.array([M]), np.array([N]), np.array([K]))
    return linear_seconds(machine, replace(machine.linear, recipe=recipe), [product], 2)


def seconds(machine, moved):
    return elementwise_seconds(machine, np.array([moved]))


def terms(job, **layout):
    context = context_of(job, machine_of(job.cluster, job.training.precision))
    (found,) = explicit(context.with_table(LayoutTable.of([Layout(**SEQUENCES | layout)])))
    return found.terms


def test_scales_of_rows_slow_the_forward_product_alone_of_all_kernels(machine):
    plain, rows = linear(machine, "tensorwise"), linear(machine, "rowwise")
    assert rows.forward == pytest.approx(machine.constants.rowwise_product * plain.forward)
    assert machine.constants.rowwise_product > 1


def test_both_gradients_are_scaled_by_a_kernel_and_the_weights_cast_once_more(machine):
    """Scaled: 4 bytes each of M K and K N; transposed: 2 more of M K, 5 of M N."""
    plain, rows = linear(machine, "tensorwise"), linear(machine, "rowwise")
    weight = 2 * M * K + 5 * M * N + 4 * K * N
    assert rows.weight - plain.weight == pytest.approx(seconds(machine, weight))
    inputs = (rows.backward - rows.weight) - (plain.backward - plain.weight)
    assert inputs == pytest.approx(seconds(machine, 4 * M * K))


def test_weight_gradients_in_high_precision_are_products_in_16_bits(machine):
    wide = linear(machine, "rowwise_with_gw_hp")
    product = Product(np.array([K]), np.array([N]), np.array([M]))
    assert wide.weight == pytest.approx(product_seconds(machine, machine.half, product, 2))
    assert wide.forward == pytest.approx(linear(machine, "rowwise").forward)


def test_scales_of_rows_are_gathered_in_16_bits_and_those_of_tensors_in_8(job_of, machine):
    """Two halves of 32 layers and the head gather forward and backward, 8,192 x 4,096 each."""
    rows, plain = (terms(job_of(fp8_recipe=name)) for name in ("rowwise", "tensorwise"))
    links = group(machine, np.array([8]), np.array([1]))

    def gather(element):
        moved = np.array([element * 8192.0 * 4096])
        return collective_seconds(machine, "all_gather", moved, links)[0]

    more = rows.tp_comm - plain.tp_comm
    assert more == pytest.approx((2 * 2 * 32 + 2 * 0.5 + 1) * (gather(2) - gather(1)), rel=0.03)


@pytest.mark.parametrize(("recipe", "element"), [("tensorwise", 1), ("rowwise", 2)])
def test_an_overlap_hides_the_scatter_but_no_gather_of_scaled_rows(job_of, recipe, element):
    job = job_of(fp8_recipe=recipe, overlap_tp_comm=True)
    context = context_of(job, machine_of(job.cluster, "fp8"))
    found = shapes(context.with_table(LayoutTable.of([Layout(**SEQUENCES)])))
    links = group(context.machine, np.array([8]), np.array([1]))
    stored = np.array([2 * 8192.0 * 4096])
    gather = collective_seconds(context.machine, "all_gather", stored * element / 2, links)
    scatter = collective_seconds(context.machine, "reduce_scatter", stored, links)
    exposed = context.machine.constants.async_tp_exposed
    left = exposed if recipe == "tensorwise" else 1
    assert found.tp_exchange == pytest.approx(left * gather + exposed * scatter)


def test_chunks_between_copies_hide_less_than_products_that_send(job_of, machine):
    assert machine.constants.async_tp_exposed > machine.constants.tp_overlap_exposed
    titan, megatron = (
        traits_of(job_of(runtime=name)).communication.overlap_method
        for name in ("torchtitan", "megatron-lm")
    )
    assert (titan, megatron) == ("async_tp", "user_buffers")


def test_torchtitan_scales_rows_unless_told_otherwise(job_of):
    assert terms(job_of()) == terms(job_of(fp8_recipe="rowwise"))
    assert terms(job_of()).gemm > terms(job_of(fp8_recipe="tensorwise")).gemm


@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_a_recipe_means_nothing_in_other_precisions(job_of, precision):
    plain = job_of(precision=precision)
    assert terms(plain) == terms(job_of(precision=precision, fp8_recipe="rowwise"))


@pytest.mark.parametrize("runtime", ["megatron-lm", "nemo", "deepspeed", "maxtext"])
def test_other_runtimes_have_no_scales_of_rows(job_of, runtime):
    table = LayoutTable.of([Layout(**SEQUENCES)])
    (rule,) = (r for r in executed(RUNTIMES[runtime]) if r.name == "runtime_has_fp8_recipe")
    assert rule.broken(job_of(runtime, fp8_recipe="rowwise"), table).all()
    assert not rule.broken(job_of(runtime, fp8_recipe="tensorwise"), table).any()
    assert not rule.broken(job_of(runtime), table).any()


@pytest.mark.parametrize(
    ("runtime", "precision", "detail", "recipe"),
    [
        ("torchtitan", "fp8", "fp8-rowwise", "rowwise"),
        ("torchtitan", "fp8", "fp8-rowwise_with_gw_hp", "rowwise_with_gw_hp"),
        ("torchtitan", "fp8", "fp8-tensorwise", "tensorwise"),
        ("torchtitan", "fp8", "fp8-float8-linear+fp8-allgather", "tensorwise"),
        ("torchtitan", "fp8", None, "tensorwise"),
        ("torchtitan", "bf16", "rowwise", None),
        ("nemo", "fp8", "fp8-rowwise", None),
    ],
)
def test_a_record_says_how_its_products_scale(runtime, precision, detail, recipe):
    run = MeasuredRun.model_validate(
        {
            "id": "one",
            "model": {},
            "cluster": {},
            "layout": {},
            "measured": {},
            "training": {"precision": precision, "precision_detail": detail},
            "runtime": runtime,
        }
    )
    assert options_of(run).fp8_recipe == recipe
