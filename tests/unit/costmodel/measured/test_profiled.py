"""A machine as its profile says it is."""

from dataclasses import replace

import numpy as np
import pytest

from trainplan.costmodel import catalog
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.blocks import blocks
from trainplan.costmodel.calibration.machine import Measured, machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import TrainingSpec
from trainplan.costmodel.kernels.memory_bound import optimizer_bytes_per_second
from trainplan.costmodel.kernels.products import Product, linear_seconds, product_seconds
from trainplan.costmodel.layout.layout import Layout, OffloadSpec
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.measured.host import cpu_adam_params_per_second
from trainplan.costmodel.measured.profile import measured_machine, plausible, profile_notes
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.profiles.profile import (
    AttentionPoint,
    CollectivePoint,
    CopyPoint,
    EndPoint,
    LayerPoint,
    MemoryPoint,
    OptimizerPoint,
    Origin,
    ProductPoint,
    Profile,
    Timing,
)
from trainplan.costmodel.residuals.kriging import NUGGET
from trainplan.costmodel.runtimes.registry import runtime_with
from trainplan.costmodel.spec.base import Sourced
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.planner.questions import estimate
from trainplan.planner.questions.best_plan import notes, search
from trainplan.profiler.fit.points import fitted

NODE = "1x8:h100-sxm"
LAYOUT = Layout(tp=2, dp=4, sequence_parallel=True, zero_stage=1)
OFFLOADED = Layout(tp=1, dp=8, zero_stage=1, offload=OffloadSpec(optimizer=1.0))
SHAPES = [(m, n, k) for m in (2048, 8192) for n in (1024, 4096) for k in (1024, 4096)]
PEAK = catalog.gpu("h100-sxm").peak_tflops["bf16"].value * 1e12


def timing(seconds):
    return Timing(seconds=seconds)


def profile(*points, gpu="h100-sxm", **more):
    bare = Profile(
        gpu=gpu, gpus_per_node=8, origins=(Origin(source="a test"),), points=points, **more
    )
    return fitted(bare, catalog.gpu(gpu))


def products(slowness=2.0, **more):
    """Products at a share of the peak."""
    groups = more.get("groups", 1)
    return [
        ProductPoint(
            m=m, n=n, k=k, time=timing(slowness * 2 * groups * m * n * k / PEAK + 5e-6), **more
        )
        for m, n, k in SHAPES
    ]


def attentions(slowness=2.0, **more):
    return [
        AttentionPoint(
            micro_batch_size=1,
            seq_length=length,
            num_heads=16,
            num_key_value_heads=4,
            head_dim=64,
            value_dim=64,
            forward=timing(slowness * 16 * length**2 * 128 / PEAK + 1e-5),
            backward=timing(3 * slowness * 16 * length**2 * 128 / PEAK + 1e-5),
            **more,
        )
        for length in (512, 1024, 2048, 4096, 8192)
    ]


def collectives(slowness=1.0, operation="all_gather", ranks=2):
    return [
        CollectivePoint(
            operation=operation,
            ranks=ranks,
            per_node=ranks,
            num_bytes=size,
            time=timing(slowness * (2e-5 + size / 1e11)),
        )
        for size in (2**16, 2**20, 2**24, 2**28)
    ]


def layer(job, forward, backward=None, **more):
    """A layer of the job's model, measured."""
    fields = {
        "model": job.model,
        "runtime": "torch-eager",
        "micro_batch_size": 1,
        "seq_length": job.training.seq_length,
        "forward": timing(forward) if forward else None,
        "backward": timing(backward) if backward else None,
    }
    return LayerPoint(**fields | more)


def steps(job, layout, *points):
    """Step time with a profile of these points."""
    return estimate(job, layout, Measured(profile=profile(*points))).step_time_s


def dense(job, profile_, layout=None):
    """Seconds of forward and backward of a dense layer, without traffic."""
    machine = machine_for(job, Measured(profile=profile_))
    table = LayoutTable.of([layout or Layout(micro_batch_size=1)])
    block = blocks(context_of(job, machine).with_table(table)).layers[0]
    return [
        float((one.total - one.tp_comm - one.cp_comm)[0]) for one in (block.forward, block.backward)
    ]


@pytest.fixture
def job(make_job):
    return make_job("small-dense", NODE)


@pytest.fixture
def moe_job(make_job):
    return make_job("small-moe", NODE)


@pytest.fixture
def eager(job):
    return job.model_copy(update={"runtime": "torch-eager"})


@pytest.mark.parametrize("model", ["small-dense", "small-moe"])
@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_an_empty_profile_prices_exactly_like_the_catalog(make_job, legal_table, model, precision):
    job = make_job(model, NODE, precision=precision)
    table = legal_table(job, 60, 5)
    plain, empty = (machine_for(job, Measured(profile=one)) for one in (None, profile()))
    assert empty.provenance == plain.provenance
    before, after = (step_seconds(context_of(job, m).with_table(table)) for m in (plain, empty))
    assert (before == after).all()
    assert estimate(job, LAYOUT, Measured(profile=profile())) == estimate(job, LAYOUT)


def test_what_was_measured_says_so(job):
    points = [*products(), *attentions(), *collectives()]
    machine = machine_for(job, Measured(profile=profile(*points)))
    kinds = {one.quantity.removeprefix("h100-sxm "): one for one in machine.provenance}
    for quantity in ("bf16 matrix products", "attention", "collectives"):
        assert kinds[quantity].kind == "measured"
        assert kinds[quantity].source.startswith("a test, ")
    assert kinds["datasheet"].kind == "datasheet"
    plain = {one.kind for one in machine_for(job).provenance}
    assert "measured" not in plain


def test_a_profile_of_another_gpu_is_refused(job, make_job):
    of_a100 = Measured(profile=profile(gpu="a100-sxm-80gb"))
    with pytest.raises(SpecError, match="profile was measured on a100-sxm-80gb"):
        machine_for(job, of_a100)
    with pytest.raises(SpecError, match="leave --profile out"):
        search(make_job("small-dense", "1x8:h100-sxm+1x8:a100-sxm-80gb"), measured=of_a100)


def test_notes_say_what_was_measured_and_what_was_not(job, make_job):
    measured = profile(*products(), notes=("one node was slow",))
    found = notes(job, Measured(profile=measured))
    assert "measured: a test" in found
    assert "one node was slow" in found
    wide = profile_notes(make_job("small-dense", "4x8:h100-sxm", precision="fp8"), measured)
    assert any("measured on 1 node, requested 4: links between nodes" in note for note in wide)
    assert any("no product was measured in fp8" in note for note in wide)
    across = CollectivePoint(
        operation="all_reduce", ranks=16, per_node=8, num_bytes=2**26, time=timing(0.01)
    )
    two = profile(across, num_nodes=2)
    wide = profile_notes(make_job("small-dense", "4x8:h100-sxm"), two)
    assert any("measured on 2 nodes, requested 4: start times" in note for note in wide)


def test_measured_products_set_the_speed_of_products(job):
    plain, slow = estimate(job, LAYOUT), estimate(job, LAYOUT, Measured(profile(*products(4.0))))
    assert slow.terms.gemm > 2 * plain.terms.gemm
    assert slow.terms.attention == pytest.approx(
        plain.terms.attention, rel=0.1
    )  # the clock's share


def fp8_linear(make_job, recipe, *points):
    """Seconds forward, and of both gradients, of a product that was measured."""
    job = make_job("small-dense", NODE, precision="fp8")
    machine = machine_for(job, Measured(profile=profile(*points)))
    product = Product(*(np.array([float(size)]) for size in SHAPES[0]))
    found = linear_seconds(machine, replace(machine.linear, recipe=recipe), [product])
    return float(found.forward[0]), float(found.backward[0])


def fp8_products(slowness, **more):
    return products(slowness, precision="fp8", **more)


def test_forward_products_in_fp8_have_the_speed_of_fast_accumulation(make_job):
    split, fast = fp8_products(4.0), fp8_products(2.0, fast_accumulation=True)
    forward, backward = fp8_linear(make_job, "tensorwise", *split)
    fast_forward, same = fp8_linear(make_job, "tensorwise", *split, *fast)
    assert same == backward, "gradients add up in fp32"
    assert fast_forward < 0.7 * forward


def test_measured_scales_of_rows_stand_in_for_their_constant(make_job):
    split, fast = fp8_products(4.0), fp8_products(2.0, fast_accumulation=True)
    rows = fp8_products(3.0, fast_accumulation=True, recipe="rowwise")
    constant = catalog.constants().rowwise_product
    plain, _ = fp8_linear(make_job, "tensorwise", *split, *fast, *rows)
    assumed, _ = fp8_linear(make_job, "rowwise", *split, *fast)
    assert assumed == pytest.approx(constant * plain)
    measured, _ = fp8_linear(make_job, "rowwise", *split, *fast, *rows)
    like_rows = fp8_products(3.0, fast_accumulation=True)
    same, _ = fp8_linear(make_job, "tensorwise", *split, *like_rows)
    assert measured == pytest.approx(same)


def test_the_curve_of_fp8_goes_through_products_that_add_up_in_fp32():
    split, fast = fp8_products(4.0), fp8_products(2.0, fast_accumulation=True)
    assert profile(*split, *fast).fitted == profile(*split).fitted
    assert profile(*fast).fitted.gemm["fp8"], "where there are no others, through these"


def test_experts_without_grouped_products_in_fp8_are_forward_as_fast_as_others(make_job):
    job = make_job("small-moe", NODE, precision="fp8")
    split, fast = fp8_products(4.0), fp8_products(2.0, fast_accumulation=True)
    table = LayoutTable.of([Layout(micro_batch_size=1)])

    def forward(*points):
        machine = machine_for(job, Measured(profile=profile(*points)))
        return float(blocks(context_of(job, machine).with_table(table)).layers[-1].forward.gemm[0])

    assert forward(*split, *fast) < 0.7 * forward(*split)


def test_grouped_products_change_only_mixtures_of_experts(job, moe_job):
    grouped = products(200.0, groups=8)
    assert steps(job, LAYOUT, *grouped) == estimate(job, LAYOUT).step_time_s
    assert steps(moe_job, LAYOUT, *grouped) > 1.05 * estimate(moe_job, LAYOUT).step_time_s


def test_measured_attention_sets_the_speed_of_attention(job):
    plain = estimate(job, LAYOUT).terms
    slow = estimate(job, LAYOUT, Measured(profile(*attentions(20.0)))).terms
    assert slow.attention > 2 * plain.attention
    assert slow.gemm == pytest.approx(plain.gemm, rel=0.05)


def test_attention_of_another_precision_changes_nothing(job):
    mine = attentions()
    other = attentions(30.0, precision="tf32")
    both = measured_machine(job.cluster, "bf16", profile(*mine, *other[:3]))
    alone = measured_machine(job.cluster, "bf16", profile(*mine))
    sizes = np.array([2048.0]), np.array([16.0]), np.array([128.0])
    assert both.attention_residuals.factor(*sizes) == pytest.approx(
        alone.attention_residuals.factor(*sizes)
    )
    plain = estimate(job, LAYOUT).step_time_s
    assert steps(job, LAYOUT, *other[:2]) == plain


def test_a_measured_layer_makes_that_layer_take_what_was_measured(eager):
    one = profile(layer(eager, 0.003, 0.007))
    assert dense(eager, one) == pytest.approx([0.003, 0.007], rel=1e-9)


def test_a_layer_that_python_launches_slower_than_it_runs_takes_as_long_as_that(eager):
    passes = {
        "forward": Timing(seconds=0.003, host_seconds=0.005),
        "backward": Timing(seconds=0.007, host_seconds=0.006),
    }
    point = layer(eager, 0.003, 0.007).model_copy(update=passes)
    assert dense(eager, profile(point)) == pytest.approx([0.005, 0.007], rel=1e-9)


@pytest.mark.parametrize("kind", ["embedding", "head"])
def test_an_end_takes_the_longer_of_running_and_of_being_queued(eager, kind):
    def passes(forward, backward):
        point = EndPoint(
            kind=kind,
            tokens=eager.training.seq_length,
            hidden_size=eager.model.hidden_size,
            vocab_size=eager.model.vocab_size,
            forward=forward,
            backward=backward,
        )
        machine = machine_for(eager, Measured(profile=profile(point)))
        table = LayoutTable.of([Layout(micro_batch_size=1)])
        end = getattr(blocks(context_of(eager, machine).with_table(table)), kind)
        return [float(one.total[0]) for one in (end.forward, end.backward)]

    queued = Timing(seconds=0.003, host_seconds=0.005), Timing(seconds=0.006, host_seconds=0.007)
    assert passes(*queued) == pytest.approx(passes(timing(0.005), timing(0.007)), rel=1e-9)
    assert passes(*queued)[0] == pytest.approx(0.005, rel=1e-9)


def test_a_measured_layer_at_an_eighth_sets_the_level_of_a_tensor_parallel_layer(eager):
    point = layer(eager, 0.002, 0.004, tp=4)
    found = dense(eager, profile(point), Layout(tp=4, micro_batch_size=1))
    assert found == pytest.approx([0.002, 0.004], rel=1e-9)


def test_several_measured_layers_are_met_within_the_nugget(eager):
    times = {1: (0.003, 0.007), 2: (0.0045, 0.011), 4: (0.010, 0.022)}
    points = [layer(eager, *pair, micro_batch_size=n) for n, pair in times.items()]
    bare = [dense(eager, profile(), Layout(micro_batch_size=n)) for n in times]
    ratios = np.log(np.array(list(times.values())) / np.array(bare))
    widest = np.ptp(ratios, axis=0).max()
    for n, pair in times.items():
        found = dense(eager, profile(*points), Layout(micro_batch_size=n))
        assert np.abs(np.log(np.array(found) / pair)).max() < NUGGET * widest


def test_both_passes_measured_together_keep_the_share_of_each(eager):
    before = dense(eager, profile())
    together = layer(eager, None, both=timing(3 * sum(before)))
    assert dense(eager, profile(together)) == pytest.approx([3 * one for one in before])


def test_a_layer_of_which_only_the_forward_pass_is_known_sets_both(eager):
    before = dense(eager, profile())
    found = dense(eager, profile(layer(eager, 2 * before[0])))
    assert found == pytest.approx([2 * one for one in before])


def test_layers_measured_with_their_traffic_set_its_level_too(make_job):
    job = make_job("small-dense", NODE).model_copy(update={"runtime": "megatron-deepspeed"})
    table = LayoutTable.of([Layout(tp=4, micro_batch_size=1)])

    def layer_seconds(measured):
        machine = machine_for(job, Measured(profile=measured))
        one = blocks(context_of(job, machine).with_table(table)).layers[0].forward
        return float(one.total[0]), float(one.tp_comm[0])

    total, traffic = layer_seconds(None)
    point = layer(
        job,
        3 * total,
        0.02,
        runtime="megatron-deepspeed",
        kernels="legacy",
        attention="unfused",
        tp=4,
        collectives_inside=True,
    )
    assert layer_seconds(profile(point)) == pytest.approx((3 * total, 3 * traffic))


@pytest.mark.parametrize("runtime", ["torch-eager", "megatron-deepspeed", "galvatron"])
def test_layers_of_other_kernels_change_nothing(job, runtime):
    assert job.runtime == "megatron-lm"
    other = layer(job, 1.0, 2.0, runtime=runtime)
    assert steps(job, LAYOUT, other) == estimate(job, LAYOUT).step_time_s


def test_of_layers_with_the_same_kernels_those_of_the_library_tell(job):
    """Megatron-Bridge trains Megatron Core's layers; of torchtitan's both know nothing better."""
    bridge = job.model_copy(update={"runtime": "megatron-bridge"})
    own, other = (
        layer(job, seconds, 2 * seconds, runtime=runtime, kernels="fused")
        for seconds, runtime in ((0.02, "megatron-lm"), (0.5, "another"))
    )
    assert dense(bridge, profile(own, other)) == pytest.approx([0.02, 0.04], rel=1e-9)
    assert dense(bridge, profile(other)) == pytest.approx([0.5, 1.0], rel=0.01)


def test_layers_in_the_order_of_a_step_tell_more_than_those_alone(eager):
    alone, in_step = layer(eager, 0.5, 1.0), layer(eager, 0.02, 0.04, in_step=True)
    assert dense(eager, profile(alone, in_step)) == dense(eager, profile(in_step))


def test_ends_of_the_library_tell_too(job):
    end = {"tokens": 2048, "hidden_size": job.model.hidden_size, "kernels": "fused"}
    own, other = (
        EndPoint(
            kind="head",
            vocab_size=job.model.vocab_size,
            runtime=runtime,
            forward=timing(seconds),
            backward=timing(seconds),
            **end,
        )
        for seconds, runtime in ((0.02, "megatron-lm"), (0.5, "another"))
    )
    assert steps(job, LAYOUT, own, other) == steps(job, LAYOUT, own)
    assert steps(job, LAYOUT, other) > 2 * steps(job, LAYOUT, own)


def test_in_a_step_the_sums_of_gradients_are_in_the_measured_time_and_alone_are_not(eager):
    """A job of many micro batches adds them in all but the first; what was measured holds that."""
    many = TrainingSpec(
        **eager.training.model_dump(exclude={"global_batch_size"}), global_batch_size=8 * 10**6
    )
    eager = eager.model_copy(update={"training": many})
    busy = Layout(micro_batch_size=8)  # so that nothing waits for the host
    bare = dense(eager, profile(), busy)
    in_step = layer(eager, *bare, in_step=True, micro_batch_size=8)
    assert dense(eager, profile(in_step), busy) == pytest.approx(bare, rel=1e-6)
    alone = dense(eager, profile(layer(eager, *bare, micro_batch_size=8)), busy)
    assert alone[0] == pytest.approx(bare[0])
    assert alone[1] > 1.001 * bare[1]


def test_a_layer_measured_under_sequence_parallelism_sets_the_level_of_such_layers(make_job):
    job = make_job("small-dense", NODE)
    table = LayoutTable.of([Layout(tp=4, micro_batch_size=1, sequence_parallel=True)])

    def total(measured):
        machine = machine_for(job, Measured(profile=measured))
        one = blocks(context_of(job, machine).with_table(table)).layers[0].backward
        return float(one.total[0])

    alike = {"runtime": "megatron-lm", "kernels": "fused", "tp": 4, "collectives_inside": True}
    point = layer(job, 0.01, 3 * total(None), sequence_parallel=True, **alike)
    assert total(profile(point)) == pytest.approx(3 * total(None))


def test_layers_of_another_precision_or_sort_change_nothing(eager):
    before = dense(eager, profile())
    for point in (
        layer(eager, 1.0, 2.0, precision="fp16"),
        layer(eager, 1.0, 2.0, moe=True),
    ):
        assert dense(eager, profile(point)) == before


def test_a_layer_slower_than_the_same_on_a_larger_micro_batch_is_dropped(job):
    good = [layer(job, 0.01 * n, 0.02 * n, micro_batch_size=n) for n in (1, 4)]
    odd = layer(job, 0.05, 0.09, micro_batch_size=2)
    others = [
        layer(job, 0.5, 0.9, micro_batch_size=2, tp=2),
        layer(job, 0.5, 0.9, micro_batch_size=2, runtime="megatron-lm"),
        layer(job, 0.5, 0.9, micro_batch_size=2, seq_length=8192),
        layer(job, 0.5, 0.9, micro_batch_size=2, in_step=True),
        layer(job, 0.5, 0.9, micro_batch_size=2, alone=True),
    ]
    assert plausible([good[0], odd, good[1], *others]) == (*good, *others)
    assert plausible([]) == ()


def test_the_measured_optimizer_reaches_the_step(job):
    fast, slow = (OptimizerPoint(num_params=10**8, time=timing(seconds)) for seconds in (0.01, 0.1))
    terms = [estimate(job, LAYOUT, Measured(profile(one))).terms.optimizer for one in (fast, slow)]
    assert terms[1] == pytest.approx(10 * terms[0], rel=1e-6)
    small = OptimizerPoint(num_params=10**3, time=timing(1.0))
    assert steps(job, LAYOUT, small, slow) == steps(job, LAYOUT, slow)


def of_squares(name, seconds, side=4096, count=4):
    return OptimizerPoint(name=name, num_params=count * side**2, side=side, time=timing(seconds))


def optimizer_term(make_job, name, *points):
    job = make_job("small-dense", NODE, optimizer=name)
    job = job.model_copy(update={"runtime": runtime_with(job.training)})
    return estimate(job, Layout(dp=8, zero_stage=0), Measured(profile(*points))).terms.optimizer


def test_a_step_of_another_optimizer_prices_that_alone(make_job):
    slow = of_squares("sgd", 1.0)
    for name in ("adamw", "lion"):
        assert optimizer_term(make_job, name, slow) == optimizer_term(make_job, name)
    assert optimizer_term(make_job, "sgd", slow) > 10 * optimizer_term(make_job, "sgd")
    on_host = slow.model_copy(update={"place": "cpu"})
    assert cpu_adam_params_per_second(8, [on_host]) is None


def test_a_note_says_where_an_optimizer_was_not_measured(make_job):
    adam = OptimizerPoint(num_params=10**8, time=timing(0.01))

    def written(name, *points):
        found = profile_notes(make_job("small-dense", NODE, optimizer=name), profile(*points))
        return [note for note in found if "step of" in note]

    (note,) = written("dist-muon", adam)
    assert note == "no step of muon was measured: its bytes have the speed of AdamW's"
    assert not written("dist-muon", adam, of_squares("muon", 0.1))
    assert not written("adamw", adam)
    assert not written("muon")


@pytest.mark.parametrize("name", ["sgd", "muon", "dist-muon"])
def test_a_step_is_told_over_what_is_derived_of_it(make_job, name):
    """12 bytes a parameter and its fp32 state twice; of Muon 15 products in 16 bits beside it."""
    job = make_job("small-dense", NODE, optimizer=name)
    machine = machine_for(job)
    speed = optimizer_bytes_per_second(machine)
    square = Product(*(np.array([4096.0]) for _ in range(3)))
    products = 15 * float(product_seconds(machine, machine.half, square, 2)[0])
    seconds = 4 * (20 * 4096**2 / speed + products * (name != "sgd"))
    measured = of_squares(name.removeprefix("dist-"), 3 * seconds)
    assert machine.optimizer_slowness == 1
    found = machine_for(job, Measured(profile(measured, of_squares("sgd", 9.0, side=64))))
    assert found.optimizer_slowness == pytest.approx(3)


def test_measured_copies_and_updates_on_the_host_reach_offloading(job):
    plain = estimate(job, OFFLOADED).terms.offload

    def offload(*points):
        return estimate(job, OFFLOADED, Measured(profile(*points))).terms.offload

    copies = [
        CopyPoint(direction=way, num_bytes=2**30, concurrent=n, time=timing(n * seconds))
        for way, seconds in (("host_to_device", 0.2), ("device_to_host", 0.4))
        for n in (1, 8)
    ]
    assert offload(*copies) > 5 * plain
    assert offload(*copies) > offload(copies[0]) > plain
    reads = CopyPoint(direction="nvme_read", num_bytes=2**30, time=timing(9.0))
    assert offload(reads) == plain
    slow = OptimizerPoint(num_params=10**8, place="cpu", threads=8, time=timing(5.0))
    assert offload(slow) > 5 * plain


def test_measured_memory_outside_the_allocator_reaches_the_estimate(job):
    gib = 2**30
    context, communicators = (
        MemoryPoint(name="context_bytes", value=3 * gib),
        MemoryPoint(name="communicator_bytes", value=2 * gib),
    )
    plain, both = (
        estimate(job, LAYOUT, Measured(profile(*points))).memory
        for points in ((), (context, communicators))
    )
    assert both.peak_allocated_bytes == plain.peak_allocated_bytes
    assert both != plain
    outside = measured_machine(job.cluster, "bf16", profile(context, communicators)).outside_bytes
    assert outside == 5 * gib
    assert estimate(job, LAYOUT, Measured(profile(context))).memory == plain


def test_constants_of_a_profile_replace_those_of_the_catalog(job):
    constants = {"softmax_passes": Sourced(value=9.0, source="a test")}
    slow = measured_machine(job.cluster, "bf16", profile(constants=constants))
    assert slow.constants.softmax_passes == 9.0
    kept = slow.constants.model_dump() | {"softmax_passes": catalog.constants().softmax_passes}
    assert kept == catalog.constants().model_dump()


def test_measured_collectives_count_inside_one_domain_only(make_job):
    job = make_job("small-dense", "2x8:h100-sxm")
    wide = Layout(tp=16, dp=1, sequence_parallel=True)
    points = [
        point
        for operation in ("all_gather", "reduce_scatter")
        for point in collectives(50.0, operation)
    ]
    assert steps(job, wide, *points) == pytest.approx(estimate(job, wide).step_time_s)
    narrow = Layout(tp=2, dp=8, sequence_parallel=True, zero_stage=1)
    found = estimate(job, narrow, Measured(profile(*points))).terms
    assert found.tp_comm > 5 * estimate(job, narrow).terms.tp_comm


def test_a_device_the_catalog_lacks_is_priced_by_its_own_numbers():
    device = catalog.gpu("l4")
    group = parse_cluster("1x4:l4").groups[0].model_copy(update={"gpu": "mine", "device": device})
    cluster = parse_cluster("1x4:l4").model_copy(update={"groups": (group,)})
    machine = measured_machine(cluster, "bf16")
    assert machine.memory_bytes_per_second == device.memory_gb_per_s.value * 1e9
    assert machine.provenance[0].kind == "measured"


def test_the_model_of_a_layer_need_not_be_that_of_the_job(eager):
    other = preset("gpt2")
    point = layer(eager, 0.004, 0.009, model=other, seq_length=1024)
    found = dense(eager, profile(point))
    before = dense(eager, profile())
    assert all(now != then for now, then in zip(found, before, strict=True))
    assert np.isfinite(found).all()


@pytest.mark.parametrize(("ep", "passes"), [(16, 2), (8, 2 + 4)])
def test_rows_for_one_expert_are_copied_and_rows_for_several_also_sorted(make_job, ep, passes):
    """Both copies read or write a token once; a sort there and back moves rows four times more."""
    job = make_job("small-moe", "2x8:h100-sxm")
    table = LayoutTable.of([Layout(dp=16, ep=ep, micro_batch_size=1)])
    machine = machine_for(job)
    slow, fast = (
        blocks(
            context_of(job, replace(machine, permute_bytes_per_second=speed)).with_table(table)
        ).layers[-1]
        for speed in (1e9, 2e9)
    )
    routed, tokens = 2048 * 4 * 1024 * 2, 2048 * 1024 * 2
    moved = passes * routed + 2 * tokens
    for one, other in ((slow.forward, fast.forward), (slow.backward, fast.backward)):
        assert one.elementwise - other.elementwise == pytest.approx(moved / 2e9, rel=1e-9)


def test_products_of_a_precision_count_by_how_they_differ_from_its_own_curve(make_job):
    """In fp8 some run at a third of the speed of bf16: their share is that of fp8 alone."""
    job = make_job("small-dense", NODE, precision="fp8")

    def ratio(*points):
        return machine_for(job, Measured(profile=profile(*points))).shares.products.ratio

    fp8, half = fp8_products(4.0), products(1.5)
    alone, other = ratio(*fp8), ratio(*half)
    assert ratio(*fp8, *half) == pytest.approx(alone)
    assert other == 1.0
    assert alone > 2.0
