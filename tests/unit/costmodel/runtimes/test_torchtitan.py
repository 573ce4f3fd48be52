"""What torchtitan keeps, sums and sends that other runtimes do not, against hand-made sums."""

from dataclasses import replace

import numpy as np
import pytest

from trainplan.costmodel.candidates.context import Candidates, context_of
from trainplan.costmodel.documents.measured_run import MeasuredRun
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.kernels.memory_bound import elementwise_seconds
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.memory.states import rank_params
from trainplan.costmodel.memory.transients import layer_backward_bytes
from trainplan.costmodel.model.params import num_parameters
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.costmodel.step import explicit, price
from trainplan.costmodel.traffic.data_parallel import step_traffic
from trainplan.costmodel.validate.cases.unstated import options_of

SELECTED = {"recompute": "selective", "recompute_modules": ("torchtitan_selective_op",)}


@pytest.fixture(scope="module")
def job_of(make_job):
    def job(cluster="2x8:h100-sxm", global_batch_size=64, **options):
        made = make_job("llama3-8b", cluster, global_batch_size, 4096)
        return made.model_copy(
            update={"runtime": "torchtitan", "options": RuntimeOptions(**options)}
        )

    return job


def changed(job, group, **fields):
    traits = traits_of(job)
    return replace(traits, **{group: replace(getattr(traits, group), **fields)})


def memory_of(job, traits=None, **layout):
    machine = machine_of(job.cluster, job.training.precision)
    table = LayoutTable.of([Layout(**layout)])
    return price(Candidates(job, machine, traits or traits_of(job), table), merged=False).memory


def estimate(job, traits=None, **layout):
    machine = machine_of(job.cluster, job.training.precision)
    (found,) = explicit(
        Candidates(job, machine, traits or traits_of(job), LayoutTable.of([Layout(**layout)]))
    )
    return found


def test_single_operations_keep_the_output_of_every_selected_layer(job_of):
    layout = {"dp": 16, "zero_stage": 3, "micro_batch_size": 2, **SELECTED}
    eager, compiled = (
        memory_of(job_of(compile=way), **layout).activations[0, 0] for way in (False, True)
    )
    model = job_of().model
    tokens = 2 * 4096
    assert eager - compiled == model.num_hidden_layers * tokens * model.hidden_size * 2


def test_what_tensor_ranks_reduced_is_kept_beside_the_input(job_of):
    """bf16 rows of 4096: two of a shard; single operations also one more, and one whole."""
    layout = {"dp": 2, "tp": 8, "zero_stage": 3, "sequence_parallel": True, **SELECTED}
    eager, compiled = (
        memory_of(job_of(compile=way), **layout).activations[0, 0] for way in (False, True)
    )
    inside = 4096 + 1024 + 14336 + 2 * 32  # queries, output: 4096 each; values; one branch
    layers = 32 * 4096
    assert compiled == pytest.approx(layers * 2 * (2 * 4096 + inside + 4096) / 8)
    assert eager - compiled == pytest.approx(layers * 2 * 4096 * (1 + 1 / 8))


def test_nothing_that_is_gathered_is_dropped_twice(job_of):
    layout = {"dp": 2, "tp": 8, "zero_stage": 3, "sequence_parallel": True}
    whole = memory_of(job_of(), **layout).activations
    selected = memory_of(job_of(), **layout, **SELECTED).activations
    assert (selected > 0).all()
    assert (selected < whole).all()


def test_gathered_inputs_are_kept_in_the_precision_they_travel_in(job_of):
    job = job_of()
    layout = {"dp": 2, "tp": 8, "zero_stage": 3, "sequence_parallel": True}
    traits = traits_of(job)
    footprint = replace(traits.footprint, keeps_gathered_inputs=False)
    without = replace(traits, footprint=footprint)
    for precision, size in (("bf16", 2), ("fp8", 1)):
        training = job.training.model_copy(update={"precision": precision})
        run = job.model_copy(update={"training": training})
        kept = memory_of(run, traits, **layout).activations[0, 0]
        fewer = memory_of(run, without, **layout).activations[0, 0]
        assert kept - fewer == pytest.approx(32 * 2 * size * 4096 * 4096 * 7 / 8)


def test_gradients_under_a_pipeline_are_summed_whole_beside_their_shards(job_of):
    job = job_of()
    memory = memory_of(job, pp=2, dp=8, zero_stage=3)
    each = 4 + 4 / 8
    assert memory.gradients.sum() == pytest.approx(each * num_parameters(job.model), rel=1e-6)
    assert memory_of(job, pp=2, dp=8, zero_stage=0).gradients.sum() == pytest.approx(
        4 * num_parameters(job.model), rel=1e-6
    )


def test_gradients_of_one_rank_alone_are_no_shards(job_of):
    job = job_of("1x2:h100-sxm")
    memory = memory_of(job, pp=2, dp=1, zero_stage=3)
    assert memory.gradients.sum() == pytest.approx(4 * num_parameters(job.model), rel=1e-6)


@pytest.mark.parametrize(
    ("schedule", "microbatches", "at_once"),
    [
        ("interleaved", 4, 1),
        ("interleaved", 8, 2),
        ("breadth-first", 8, 1),
        ("zb-v", 4, 2),
    ],
)
def test_stages_that_run_backward_one_by_one_hold_the_gradients_of_one(
    job_of, schedule, microbatches, at_once
):
    """Two virtual stages a rank, four ranks: one group of micro batches or two."""
    job = job_of(global_batch_size=4 * microbatches)
    memory = memory_of(job, pp=4, vpp=2, dp=4, schedule=schedule, zero_stage=3)
    each = 4 * at_once / 2 + 4 / 4
    assert memory.gradients.sum() == pytest.approx(each * num_parameters(job.model), rel=1e-6)


def test_a_layer_under_a_pipeline_has_gradients_of_its_own_before_they_are_added(job_of):
    job = job_of()
    whole = changed(job, "sharding", whole_under_pipeline=False)
    layout = {"pp": 2, "dp": 8, "zero_stage": 1}
    more = memory_of(job, **layout).transients - memory_of(job, whole, **layout).transients
    layer = 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336) + 2 * 4096
    assert more == pytest.approx(np.full((2, 1), 2.0 * layer))


def test_gradients_under_a_pipeline_take_time_to_add(job_of):
    """Ten bytes a weight and micro batch: read bf16 and fp32, write fp32."""
    job = job_of()
    machine = machine_of(job.cluster, job.training.precision)
    weights = 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336)
    tables = [LayoutTable.of([Layout(pp=pp, dp=16 // pp, zero_stage=3)]) for pp in (1, 2)]
    alone, added = (
        price(context_of(job, machine).with_table(table)).blocks.layers[0].backward.elementwise[0]
        for table in tables
    )
    assert added - alone == pytest.approx(elementwise_seconds(machine, 10.0 * weights))


@pytest.mark.parametrize(("micro_batch_size", "copied"), [(1, 1), (2, 2 * 2)])
def test_what_is_scattered_is_copied_and_what_is_gathered_if_sequences_are_several(
    job_of, micro_batch_size, copied
):
    """Rows of 4096 in bf16, read and written, around each half of a layer."""
    job = job_of()
    machine = machine_of(job.cluster, job.training.precision)
    plain = changed(job, "communication", reorders_sequences=False)
    layout = {"dp": 2, "tp": 8, "zero_stage": 3, "sequence_parallel": True}
    table = LayoutTable.of([Layout(**layout, micro_batch_size=micro_batch_size)])
    with_copies, without = (
        price(Candidates(job, machine, traits, table)).blocks.layers[0].forward.tp_comm[0]
        for traits in (traits_of(job), plain)
    )
    rows = 2 * 2 * 4096 * 4096 * copied
    assert with_copies - without == pytest.approx(2 * elementwise_seconds(machine, 1.0 * rows))


@pytest.mark.parametrize(
    ("layout", "options"),
    [
        ({"dp": 16}, {}),
        ({"dp": 2, "tp": 8}, {}),
        ({"dp": 2, "tp": 8, "sequence_parallel": True}, {"overlap_tp_comm": True}),
    ],
)
def test_nothing_is_copied_where_nothing_is_scattered_or_one_kernel_does_it(
    job_of, layout, options
):
    job = job_of(**options)
    plain = changed(job, "communication", reorders_sequences=False)
    one, other = (
        estimate(job, traits, **layout, zero_stage=3, micro_batch_size=2)
        for traits in (None, plain)
    )
    assert one.step_time_s == other.step_time_s


def test_a_gathered_context_costs_nothing_where_there_is_one_rank(job_of):
    assert estimate(job_of(), dp=16, zero_stage=3).terms.cp_comm == 0


@pytest.mark.parametrize("cp", [2, 4, 8])
def test_a_slower_link_never_helps_a_gathered_context(job_of, cp):
    job = job_of("16x1:h100-sxm")
    machine = machine_of(parse_cluster("16x1:h100-sxm"), "bf16")
    table = LayoutTable.of([Layout(dp=16 // cp, cp=cp, zero_stage=3)])
    times = [
        explicit(
            context_of(
                job, replace(machine, nic_bytes_per_second=machine.nic_bytes_per_second * share)
            ).with_table(table),
        )[0].terms.cp_comm
        for share in (1.0, 0.5, 0.1)
    ]
    assert times == sorted(times)
    assert times[0] > 0


def test_a_gathered_context_waits_for_more_than_a_ring_between_nodes(job_of):
    """All heads of the queries travel, and nothing but the first chunk hides them."""
    job = job_of("16x1:h100-sxm")
    ring = changed(job, "communication", context_exchange="p2p")
    gathered, passed = (
        estimate(job, traits, dp=2, cp=8, zero_stage=3).terms.cp_comm for traits in (None, ring)
    )
    assert gathered > passed


def test_gradients_summed_whole_under_a_pipeline_hide_behind_no_pass(job_of):
    """The last reduce-scatters begin when the backward pass has ended: all their seconds show."""
    job = job_of("4x8:h100-sxm", global_batch_size=256)
    machine = machine_of(job.cluster, job.training.precision)
    table = LayoutTable.of([Layout(pp=4, dp=8, zero_stage=1)])
    priced = price(context_of(job, machine).with_table(table), merged=False)
    held = rank_params(priced.ranks, priced.params)
    wire = step_traffic(context_of(job, machine).with_table(table), held)
    alongside = price(
        Candidates(job, machine, changed(job, "sharding", whole_under_pipeline=False), table),
        merged=False,
    )
    assert (priced.traffic > wire.reduce).all()
    slowed = machine.constants.overlap_contention
    assert (alongside.traffic < (0.1 + slowed) * (wire.reduce + wire.gather)).all()


@pytest.mark.parametrize("stated", ["fused", None])
def test_a_record_may_say_how_the_loss_is_computed(stated):
    parts = {name: {} for name in ("model", "training", "cluster")}
    layout = {"cross_entropy": stated} if stated else {}
    run = MeasuredRun.model_validate(
        {"id": "one", **parts, "layout": layout, "runtime": "torchtitan"}
    )
    assert options_of(run).cross_entropy == stated


@pytest.mark.parametrize(
    ("runtime", "tp"),
    [("torchtitan", 1), ("torchtitan", 8), ("fms-fsdp", 1), ("megatron-deepspeed", 8)],
)
def test_every_repeated_head_of_keys_and_values_is_kept(job_of, runtime, tp):
    """24 heads of 128 are copies of another, keys and values of 2 bytes, in each of 32 layers."""
    job, plain = job_of(), {"tp": tp, "dp": 16 // tp, "zero_stage": 3}
    copies = 2 * 2 * 4096 * 32 * 24 * 128 / tp
    found = _without_copies(job.model_copy(update={"runtime": runtime}), **plain)
    assert found == pytest.approx(-copies)


def test_what_repeats_products_repeats_heads_again(job_of):
    """Copies are kept of no layer, and are there when one runs backward."""
    job, selected = job_of(), {"dp": 16, "zero_stage": 3, **SELECTED}
    small = job.model.model_copy(update={"vocab_size": 1024})  # the loss is not the fullest moment
    job = job.model_copy(update={"model": small})
    assert _without_copies(job, **selected) == 0
    copies = 2 * 2 * 4096 * 24 * 128
    assert _without_copies(job, "transients", **selected) == pytest.approx(-copies)


def _without_copies(job, term="activations", **layout):
    """What a term takes more where keys and values are not repeated."""
    traits = traits_of(job)
    plain = replace(traits, footprint=replace(traits.footprint, repeats_key_values=False))
    with_copies, without = (memory_of(job, made, **layout) for made in (traits, plain))
    return (getattr(without, term) - getattr(with_copies, term)).item()


def test_attention_is_the_fullest_moment_of_a_layer_over_many_context_ranks(job_of):
    """22 tensors of its sums and 2 of each rank's, 4096 wide, less 3 of 14336 that are free again,
    stand against two of the latter."""
    tokens, more = 2 * 4096 / 16, (22 + 2 * 16) * 4096 - 3 * 14336 - 2 * 14336
    job, table = job_of(), LayoutTable.of([Layout(cp=16, micro_batch_size=2, zero_stage=3)])
    one = LayoutTable.of([Layout(dp=16, micro_batch_size=2, zero_stage=3)])
    here = context_of(job, machine_of(job.cluster, job.training.precision))
    many, few = (
        layer_backward_bytes(here.with_table(made), np.array([tokens]))[0] for made in (table, one)
    )
    assert many - few == 2 * tokens * more
