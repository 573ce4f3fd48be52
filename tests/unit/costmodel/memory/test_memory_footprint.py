"""What one runtime keeps in memory and another does not, against hand-made sums."""

from dataclasses import replace

import numpy as np
import pytest

from trainplan.costmodel.base.units import GIB
from trainplan.costmodel.blocks.parts import shapes
from trainplan.costmodel.blocks.residual import residual_bytes
from trainplan.costmodel.candidates.context import Candidates, context_of
from trainplan.costmodel.documents.measured_run import MeasuredRun
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.model.params import embedding_params, head_params, num_parameters
from trainplan.costmodel.runtimes.registry import runtime, traits_of
from trainplan.costmodel.step import price
from trainplan.costmodel.validate.cases.cases import Case, case_of

WORKSPACES = 64 * 2**20


def memory_of(job, layout, traits=None):
    machine = machine_of(job.cluster, job.training.precision)
    table = LayoutTable.of([layout])
    return price(Candidates(job, machine, traits or traits_of(job), table), merged=False).memory


@pytest.fixture(scope="module")
def job_of(make_job):
    def job(runtime_name, model="llama3-8b", precision="bf16", **options):
        made = make_job(model, "8x8:h100-sxm", seq_length=4096, global_batch_size=128)
        training = made.training.model_copy(update={"precision": precision})
        return made.model_copy(
            update={
                "runtime": runtime_name,
                "options": RuntimeOptions(**options),
                "training": training,
            }
        )

    return job


@pytest.mark.parametrize(
    ("name", "per_weight"),
    [("megatron-lm", 4), ("megatron-bridge", 2), ("nemo", 2), ("torchtitan", 2)],
)
def test_fp8_weights_are_copies_beside_bf16_or_stand_alone_or_are_cast_each_time(
    job_of, name, per_weight
):
    """But embedding, output projection and the norm before it have 2 bytes everywhere."""
    job = job_of(name, precision="fp8")
    memory = memory_of(job, Layout(dp=64, zero_stage=1))
    ends = embedding_params(job.model) + head_params(job.model)
    layers = num_parameters(job.model) - ends
    assert memory.weights[0, 0] == pytest.approx(per_weight * layers + 2 * ends, rel=1e-9)


def test_a_runtime_that_casts_each_time_keeps_activations_as_in_bf16(job_of):
    layout = Layout(dp=64, zero_stage=3)
    low, half = (memory_of(job_of("torchtitan", precision=p), layout) for p in ("fp8", "bf16"))
    assert low.activations == half.activations
    low, half = (memory_of(job_of("megatron-lm", precision=p), layout) for p in ("fp8", "bf16"))
    assert low.activations < half.activations


def test_fully_sharded_torch_keeps_sixteen_bytes_a_parameter_and_megatron_eighteen(job_of):
    """fp32 shard, gradient and two moments; Megatron-FSDP also shards bf16 weights."""
    for name, width in (("torchtitan", 16), ("megatron-lm", 18)):
        job = job_of(name)
        memory = memory_of(job, Layout(dp=64, zero_stage=3))
        states = memory.weights + memory.gradients + memory.optimizer
        assert states[0, 0] == pytest.approx(width * num_parameters(job.model) / 64, rel=1e-9)


def test_fp32_weights_are_their_own_master(job_of):
    """4 + 4 + 8 bytes a parameter, whatever type the runtime accumulates gradients in."""
    job = job_of("megatron-deepspeed", precision="tf32")
    memory = memory_of(job, Layout(dp=64, zero_stage=0))
    states = (memory.weights[0, 0], memory.gradients[0, 0], memory.optimizer[0, 0])
    count = num_parameters(job.model)
    assert states == pytest.approx((4 * count, 4 * count, 8 * count), rel=1e-9)


def test_bf16_moments_leave_eight_bytes_of_optimizer_state(job_of):
    plain, low = (
        memory_of(job_of("megatron-bridge", moment_dtype=moment), Layout(dp=64, zero_stage=0))
        for moment in (None, "bf16")
    )
    assert low.optimizer[0, 0] == pytest.approx(plain.optimizer[0, 0] * 8 / 12, rel=1e-9)


def test_offloaded_layers_leave_the_device_and_never_more_than_there_are(job_of):
    """32 layers: half of them halves the activations, a hundred leave none."""
    layout = Layout(dp=64, zero_stage=3)
    whole, half, none = (
        memory_of(job_of("megatron-bridge", offload_activation_layers=n), layout).activations[0, 0]
        for n in (0, 16, 100)
    )
    assert half == pytest.approx(whole / 2, rel=1e-9)
    assert none == 0


def test_kept_gathered_inputs_cost_two_whole_inputs_less_two_slices_a_layer(job_of):
    """2 x 2 h (1 - 1 / tp) bytes per token and layer. Source: nanotron, tp_mode REDUCE_SCATTER."""
    job = job_of("nanotron")
    traits = traits_of(job)
    layout = Layout(tp=8, dp=8, sequence_parallel=True)
    kept = memory_of(job, layout, traits).activations[0, 0]
    plain = memory_of(job, layout, without(traits, keeps_gathered_inputs=False)).activations[0, 0]
    assert kept - plain == pytest.approx(32 * 4096 * 4 * 4096 * 7 / 8, rel=1e-9)


def test_a_batch_first_kernel_keeps_its_output_twice_only_where_there_is_a_batch(job_of):
    job = job_of("megatron-lm")
    traits = traits_of(job)
    plain = without(traits, batch_first_attention=False)
    for size, twice in ((1, 0), (2, 1)):
        layout = Layout(dp=64, micro_batch_size=size)
        more = (
            memory_of(job, layout, traits).activations - memory_of(job, layout, plain).activations
        )
        assert more[0, 0] == pytest.approx(twice * 32 * size * 4096 * 2 * 4096, rel=1e-9)


def test_routing_weights_inside_the_expert_save_its_output(job_of):
    """2 h bytes for each of two routed rows of a token. Source: Megatron Core experts.py."""
    job = job_of("megatron-lm", model="mixtral-8x7b")
    traits = traits_of(job)
    layout = Layout(dp=64, ep=8)
    inside = memory_of(job, layout, traits).activations[0, 0]
    outside = memory_of(job, layout, without(traits, weighted_experts=False)).activations[0, 0]
    assert outside - inside == pytest.approx(32 * 2 * 4096 * 2 * 4096, rel=1e-9)


def test_unfused_attention_holds_gradients_of_its_scores_while_a_layer_runs_backward(job_of):
    """One tensor of a s b elements, two with dropout; softmax runs backward in place."""
    job = job_of("megatron-deepspeed")
    layout = Layout(dp=8, pp=8, zero_stage=1, micro_batch_size=1)
    middle = [
        memory_of(job.model_copy(update={"options": RuntimeOptions(dropout=drops)}), layout)
        for drops in (False, True)
    ]
    scores = 2 * 32 * 4096 * 4096
    hidden = 2 * 4096 * 4096
    assert middle[0].transients[4, 0] == pytest.approx(scores + hidden, rel=1e-9)
    assert middle[1].transients[4, 0] == pytest.approx(2 * scores + hidden, rel=1e-9)


def test_scratch_memory_of_matrix_products_is_smaller_before_hopper(make_job):
    """32 MiB for each library, 8 MiB on older GPUs."""
    found = []
    for cluster in ("1x8:h100-sxm", "1x8:a100-sxm-80gb"):
        job = make_job("llama3-8b", cluster, global_batch_size=8)
        with_scratch = memory_of(job, Layout(dp=8), traits_of(job))
        plain = memory_of(job, Layout(dp=8), without(traits_of(job), workspaces=0))
        found.append(float((with_scratch.transients - plain.transients)[0, 0]))
    assert found == pytest.approx([WORKSPACES, WORKSPACES / 4])


def test_device_memory_outside_the_allocator_is_a_trait_of_the_runtime(job_of):
    memory = memory_of(job_of("megatron-deepspeed"), Layout(dp=64, zero_stage=0))
    assert memory.outside_bytes == 4 * GIB == runtime("megatron-deepspeed").footprint.outside_bytes
    assert np.allclose(memory.used, memory.reserved.max(axis=0) + 4 * GIB)


def without(traits, **footprint):
    """The traits with some of their footprint replaced."""
    return replace(traits, footprint=replace(traits.footprint, **footprint))


@pytest.mark.parametrize(
    ("name", "hidden", "heads", "cut"),
    [("GPT-Neo-2.7B", 2560, 20, 73_400_320), ("OPT-350M", 1024, 16, 41_943_040)],
)
def test_tensor_parallelism_cuts_as_many_kept_numbers_as_the_program_that_ran_counted(
    name, hidden, heads, cut
):
    """eth-easl/sailor `sailor/Planner/llm_info.json`: act_mem_floats of a layer, tp=1 less tp=2."""
    sections = {
        "model": {
            "name": name,
            "num_layers": 32,
            "hidden_size": hidden,
            "intermediate_size": 4 * hidden,
            "num_attention_heads": heads,
            "gated_mlp": False,
        },
        "training": {"seq_length": 2048, "global_batch_size": 8, "precision": "fp32"},
        "cluster": {"gpu": "gh200-96gb", "num_gpus": 4, "gpus_per_node": 4},
        "attention_backend": "unfused",
    }

    def kept(tp):
        layout = {"tp": tp, "pp": 1, "dp": 4 // tp, "micro_batch_size": 1}
        record = {"id": name, "runtime": "megatron-deepspeed", "layout": layout, **sections}
        case = case_of(MeasuredRun.model_validate(record))
        assert isinstance(case, Case), case
        job, table = case.job, LayoutTable.of([case.layout])
        machine = machine_of(job.cluster, job.training.precision)
        return price(context_of(job, machine).with_table(table)).blocks.layers[0].saved_bytes[0]

    assert kept(1) - kept(2) == 4 * cut


@pytest.mark.parametrize(("stage", "buffers"), [(0, 0), (1, 0), (2, 1), (3, 1)])
def test_deepspeed_reduces_sharded_gradients_from_a_buffer_of_its_own(job_of, stage, buffers):
    """500 million elements of 16 bits, whatever the model: DeepSpeed's default."""
    job, layout = job_of("megatron-deepspeed"), Layout(tp=8, dp=8, zero_stage=stage)
    traits = traits_of(job)
    none = replace(traits, footprint=replace(traits.footprint, reduce_bucket_elements=0))
    more = memory_of(job, layout).transients - memory_of(job, layout, none).transients
    assert more == pytest.approx(buffers * 2 * 500e6)


def test_a_gate_of_shared_experts_keeps_what_it_multiplies_and_its_score(job_of):
    job = job_of("megatron-lm", "mixtral-8x7b")
    kept = []
    for gate in (False, True):
        shared = {"shared_expert_intermediate_size": 4096, "shared_expert_gate": gate}
        moe = job.model.moe.model_copy(update=shared)
        own = job.model_copy(update={"model": job.model.model_copy(update={"moe": moe})})
        layout = Layout(tp=4, dp=16, ep=8, etp=1, sequence_parallel=True)
        again = {"recompute": "selective", "recompute_modules": ("shared_experts",)}
        every = (layout, layout.model_copy(update=again))
        kept.append([float(memory_of(own, one).activations[0, 0]) for one in every])
    gated = 32 * 4096 / 4 * 2 * (job.model.hidden_size + 1)
    assert kept[1][0] - kept[0][0] == pytest.approx(gated)
    assert kept[1][1] == pytest.approx(kept[0][1])


@pytest.mark.parametrize(("norm", "drops", "size"), [(True, False, 2), (False, True, 1)])
def test_behind_the_token_table_the_input_of_a_norm_and_the_mask_of_a_dropout_are_kept(
    job_of, norm, drops, size
):
    """Of every micro batch in flight on the first rank, whatever is recomputed."""
    job = job_of("megatron-deepspeed", dropout=drops)
    model = job.model.model_copy(update={"embedding_norm": norm})
    plain = job_of("megatron-deepspeed", dropout=False)
    layout = Layout(
        tp=2,
        pp=4,
        dp=8,
        zero_stage=1,
        recompute="full",
        recompute_method="uniform",
        recompute_num_layers=1,
    )
    kept = memory_of(job.model_copy(update={"model": model}), layout).activations
    beyond = kept[:, 0] - memory_of(plain, layout).activations[:, 0]
    first = 4 * size * 4096 * job.model.hidden_size  # pp micro batches of 4096 tokens
    assert beyond == pytest.approx([first, 0, 0, 0])


@pytest.mark.parametrize(("precision", "size"), [("fp8", 1.0), ("nvfp4", 1 / 2 + 1 / 16)])
def test_inputs_of_products_are_kept_as_they_were_cast(make_job, precision, size):
    """Two of the four rows of the residual stream that a layer keeps, each half an input."""
    job = make_job("llama3-8b", "8x8:b200", seq_length=4096, global_batch_size=128)
    training = job.training.model_copy(update={"precision": precision})
    job = job.model_copy(update={"runtime": "megatron-lm", "training": training})
    machine = machine_of(job.cluster, precision)
    table = LayoutTable.of([Layout(dp=64, zero_stage=1)])
    columns = shapes(Candidates(job, machine, traits_of(job), table))
    assert residual_bytes(columns) == pytest.approx((2 * 2 + 2 * size) * job.model.hidden_size)


def test_nanotron_holds_fp32_logits_beside_what_the_loss_makes_of_them(job_of):
    """And before the rotation of plain heads queries, keys and values, beside those behind it."""
    traits = traits_of(job_of("nanotron"))
    assert traits.kernels.head_bytes_per_logit == 4 + 4
    job = job_of("nanotron", model="llama2-7b")
    layout = Layout(dp=64, zero_stage=1)
    autograd = replace(traits.autograd, rotated_copies=False)
    fewer = memory_of(job, layout, replace(traits_of(job), autograd=autograd)).activations
    layer = 2 * (2 * job.model.hidden_size + 4 * job.model.head_dim)  # and cosines and sines
    more = memory_of(job, layout).activations[0, 0] - fewer[0, 0]
    assert more == pytest.approx(4096 * job.model.num_hidden_layers * layer)
