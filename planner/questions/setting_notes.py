"""Notes on settings of a job: those that mean nothing, and those not priced in full."""

from collections.abc import Iterator

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.catalog import device
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import model_modules, stated_needs
from trainplan.costmodel.shards import remade_bytes
from trainplan.planner.questions.length_notes import length_notes

OF_EXPERTS = (
    "moe_dispatcher",
    "moe_dispatch_dtype",
    "deepep_proxy",
    "overlap_moe_a2a",
    "overlap_shared_experts",
    "delay_wgrad",
    "moe_chunks",
    "routing",
    "moe_capacity_factor",
    "moe_pad_to_capacity",
    "moe_token_drop_policy",
    "moe_router_padding",
    "expert_placement",
)
"""Options that mean nothing without experts."""


def model_notes(model: ModelSpec) -> Iterator[str]:
    """Fields of a model of one's own that are easily taken for others."""
    if model.moe and model.moe.expert_bias and model.model_type is None:
        yield (
            "moe.expert_bias: the products of experts add biases, as in gpt-oss; the balancing "
            "bias of a router (DeepSeek-V3, GLM-4.5: e_score_correction_bias) is moe.router_bias"
        )


def module_notes(on: Context, layout: Layout) -> Iterator[str]:
    """Recompute modules that the model does not have, which the runtime takes and ignores."""
    known = {*model_modules(on.job.model), on.traits.recompute.policy}
    if none := [name for name in layout.recompute_modules if name not in known]:
        yield (
            f"recompute_modules {', '.join(none)}: this model has none to recompute, so nothing "
            f"changes; {on.job.runtime} takes it all the same"
        )


def bucket_notes(on: Context, layout: Layout) -> Iterator[str]:
    """Where a size of buckets means nothing. Source: `costmodel.traffic.buckets`."""
    sharding, zero = on.traits.sharding, layout.zero_stage
    if on.job.options.bucket_mb is None:
        return
    if sharding.stated_bucket_bytes is None:
        yield "bucket_mb changes nothing: without overlap_grad_reduce gradients go in one piece"
    elif zero >= 2 and not on.traits.footprint.reduce_bucket_elements:
        yield f"bucket_mb changes nothing: ZeRO-{zero} of {on.job.runtime} reduces layer by layer"
    elif layout.pp > 1 and sharding.whole_stages:
        yield ("bucket_mb is priced as left out: under a pipeline the first rank alone has buckets")
    else:
        usual = on.traits.usual_bucket_mb(layout.dp * layout.cp)
        yield (
            f"bucket_mb: compare sizes with each other ({usual:.4g} is {on.job.runtime}'s own); "
            "without one a share fitted to runs of all sizes is used"
        )


def _release_notes(on: Context) -> Iterator[str]:
    """A stated release that the catalog has not, where the price depends on it."""
    if on.job.release and on.job.model.moe and on.traits.on_megatron_core:
        yield from on.traits.host.release.notes(on.job.release)


def _scaling_notes(job: Job) -> Iterator[str]:
    recipe, precision = job.options.fp8_recipe, job.training.precision
    if recipe and precision != "fp8":
        yield f"fp8_recipe changes nothing: products are in {precision}, not in fp8"
    elif recipe == "blockwise":
        yield "fp8_recipe=blockwise: products are priced as fast as with one scale for a tensor"


def setting_notes(on: Context) -> Iterator[str]:
    """One sentence each."""
    yield from length_notes(on)
    yield from _release_notes(on)
    job = on.job
    options, moe = job.options, job.model.moe
    if job.training.loss_tokens < 1 and not on.traits.kernels.skips_ignored_tokens:
        yield (
            f"loss_tokens={job.training.loss_tokens:g} changes no step: {job.runtime} computes the "
            "logits of all tokens and masks the loss of those that do not count"
        )
    yield from _scaling_notes(job)
    if options.offload_activation_layers:
        yield "offloaded activations: the copies to and from the host are taken as free"
    if job.model.trained and on.traits.adapting.widens and options.adapter_dtype is None:
        yield (
            "adapters have the type of the frozen weights, as `plan export` makes them; peft by "
            "itself has them in fp32, which costs casts: adapter_dtype=fp32"
        )
    if job.model.trained and on.traits.adapting.local:
        yield (
            f"adapters of {job.runtime} are those that ms-swift adds (megatron sft --tuner_type "
            "lora); megatron-bridge has its own, and launch files"
        )
    if options.fp8_transpose_cache is not None and job.model.trained is None:
        yield "fp8_transpose_cache changes nothing: no weight is frozen, all keep their copies"
    elif options.fp8_transpose_cache is None and remade_bytes(job, on.traits):
        yield (
            "transposes of frozen fp8 weights are not kept: assumed from the adapter recipes of "
            f"{job.runtime}; fp8_transpose_cache=true keeps them"
        )
    yield from _narrow_attention(job)
    yield from stated_needs(job)
    yield from _expert_notes(on)
    named = [name for name in OF_EXPERTS if getattr(options, name) is not None and not moe]
    if named:
        yield f"{' and '.join(named)} changes nothing: {job.model.name} has no experts"


def _expert_notes(on: Context) -> Iterator[str]:
    """Of settings of experts, where the model has some."""
    options = on.job.options
    if on.job.model.moe is None:
        return
    if options.moe_dispatcher == "deepep" and on.machine.domain_gpus > 8:
        yield (
            "DeepEP joins 8 GPUs by NVLink: larger groups send by the NICs, and are priced as if "
            "they did not inside a domain"
        )
    if options.cuda_graph == "full_iteration":
        yield (
            "a graph of the whole step: experts get buffers of fixed size, whose padding is not "
            "counted, and a step whose tokens do not fit is run again"
        )
    unequal = options.routing and options.routing.has_popular_experts
    if options.permutes_experts and not unequal:
        yield (
            f"expert_placement={options.expert_placement} changes nothing: no expert is known "
            "to have more rows than others; count them, --option routing=FILE"
        )


def _narrow_attention(job: Job) -> Iterator[str]:
    """What is not known of attention in 8 bits."""
    if not job.options.fp8_attention:
        return
    yield (
        "fp8_attention: no kernel of attention in 8 bits is measured, so it is priced as in 16 "
        "bits, with its casts; queries, keys and values wait in 8 bits"
    )
    if any(device(one).architecture == "hopper" for one in job.cluster.groups):
        yield (
            "fp8_attention: Transformer Engine has no kernel for tensorwise scales on Hopper "
            "(get_attention_backend): NVTE_DPA_FP8_RECIPE=DelayedScaling has one"
        )
