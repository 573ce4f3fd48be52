"""Features of gpt-oss that Megatron Core runs as torch operations of their own."""

import pytest

from trainplan.costmodel.architecture.model import RopeScaling
from trainplan.costmodel.blocks import blocks
from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.kernels.memory_bound import streaming_bytes_per_second
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.validate.cases.unstated import as_published

TABLE = LayoutTable.of([Layout(ep=8, dp=8)])
YARN = RopeScaling(rope_type="yarn", factor=32.0, original_max_position_embeddings=4096)
BIASED, CLAMPED, SCALED = {"expert_bias": True}, {"swiglu_limit": 7.0}, {"rope_scaling": YARN}


@pytest.fixture
def job_of(make_job):
    def make(runtime="megatron-bridge", *, options=None, precision="bf16", latent=False, **model):
        job = make_job("small-moe", "1x8:h100-sxm", precision=precision)
        experts = {name: model.pop(name) for name in BIASED if name in model}
        moe = job.model.moe.model_copy(update=experts)
        mla = job.model.mla if latent else None
        model = job.model.model_copy(update={**model, "moe": moe, "mla": mla})
        options = RuntimeOptions(**(options or {}))
        return job.model_copy(update={"runtime": runtime, "model": model, "options": options})

    return make


def layer(job):
    return blocks(context_of(job, machine_for(job)).with_table(TABLE)).layers[-1]


def seconds(job):
    found = layer(job)
    return float((found.forward.elementwise + found.backward.elementwise)[0])


def added(job_of, feature, runtime="megatron-bridge", **options):
    with_it = seconds(job_of(runtime, **feature, options=options))
    return with_it - seconds(job_of(runtime, options=options))


@pytest.mark.parametrize("feature", [BIASED, CLAMPED, SCALED])
def test_only_megatron_core_runs_them_apart(job_of, feature):
    assert added(job_of, feature) > 0
    assert added(job_of, feature, "megatron-lm") > 0
    assert added(job_of, feature, "torchtitan") == 0


@pytest.mark.parametrize("feature", [BIASED, CLAMPED])
def test_a_graph_of_the_whole_step_takes_the_fused_operations(job_of, feature):
    assert added(job_of, feature, cuda_graph="full_iteration") == 0


def test_a_scaled_rotation_is_not_fused_in_a_graph_either(job_of):
    assert added(job_of, SCALED, cuda_graph="full_iteration") > 0


def test_biases_cost_more_with_routing_weights_in_fp32(job_of):
    job = job_of()
    elements = job.training.seq_length * job.model.moe.num_experts_per_tok * job.model.hidden_size
    wide, narrow = added(job_of, BIASED, moe_dispatcher="deepep"), added(job_of, BIASED)
    moved = (68 - 28) * elements / streaming_bytes_per_second(machine_for(job))
    assert wide - narrow == pytest.approx(moved)
    assert added(job_of, BIASED, "megatron-lm") == pytest.approx(wide)


def test_clamped_inputs_are_kept_for_the_backward_pass(job_of):
    plain, clamped = layer(job_of()), layer(job_of(**CLAMPED))
    assert (clamped.saved_bytes > plain.saved_bytes).all()


def test_a_scale_of_one_and_latent_attention_keep_the_fused_rotation(job_of):
    for changed in ({"factor": 1.0}, {"mscale": 1.0, "mscale_all_dim": 1.0}):
        assert added(job_of, {"rope_scaling": YARN.model_copy(update=changed)}) == 0
    assert seconds(job_of(latent=True, **SCALED)) == seconds(job_of(latent=True))


def test_records_of_gpt_oss_have_its_features_and_no_others(job_of):
    model = job_of().model
    published = as_published(model.model_copy(update={"name": "GPT-OSS-120B"}))
    assert published.moe.expert_bias and published.swiglu_limit and published.rope_scaling
    assert as_published(model) == model
