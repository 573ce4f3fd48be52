"""What an export approximates or leaves to the user."""

from collections.abc import Iterator

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.planner.launch import PLACEHOLDER_STEPS
from trainplan.planner.runtimes.megatron_lm.write.layout import context_exchange
from trainplan.planner.runtimes.megatron_lm.write.moe import balancing_weight
from trainplan.planner.runtimes.megatron_lm.write.optimizer import FSDP_STRATEGY
from trainplan.planner.runtimes.megatron_lm.write.rope import rope_notes


def notes(job: Job, layout: Layout, traits: RuntimeTraits) -> tuple[str, ...]:
    """One sentence each."""
    return (*training_notes(job), *_model_notes(job.model), *layout_notes(job, layout, traits))


def training_notes(job: Job) -> Iterator[str]:
    """Of the run."""
    checkpoints = "" if job.cluster.failures else " and checkpoint"
    yield (
        f"learning rate, warm-up, weight decay, Adam's betas, evaluation{checkpoints} intervals "
        "are common values, not part of the plan: change them freely"
    )
    if job.training.tokens is None:
        yield f"the job has no number of tokens: {PLACEHOLDER_STEPS} steps are a placeholder"
    yield (
        "the vocabulary is the model's; a tokenizer with more entries needs a larger one, which "
        "adds memory"
    )


def _model_notes(model: ModelSpec) -> Iterator[str]:
    yield from rope_notes(model)
    if model.activation == "gelu_tanh" and not model.mlp_bias:
        yield "without biases the runtime computes GELU exactly, not with tanh"
    if model.moe:
        weight, published = balancing_weight(model.moe)
        yield (
            f"assumed: the loss that balances the experts has the weight {weight:g} of "
            f"{published}, as the model states none: yours to change"
            if published
            else f"the loss that balances the experts has the model's own weight, {weight:g}"
        )
    if model.moe and not model.moe.router_bias and model.moe.router_score_function == "sigmoid":
        yield "the router has sigmoid scores without balancing bias: an auxiliary loss is used"
    if model.num_nextn_predict_layers:
        yield "the weight of the multi-token-prediction loss is the runtime's default"


def layout_notes(job: Job, layout: Layout, traits: RuntimeTraits) -> Iterator[str]:
    """Of degrees, offloads and number formats."""
    yield from _group_notes(job, layout)
    if layout.zero_stage in FSDP_STRATEGY:
        yield (
            "Megatron-FSDP saves checkpoints in its own format (fsdp_dtensor), which other layouts "
            "do not read without conversion"
        )
        yield "fused gradient accumulation with Megatron-FSDP needs Transformer Engine 2.10"
    if layout.gtp > 1 or layout.egtp > 1:
        yield (
            "weights cut beyond tp (gtp, egtp) need Transformer Engine 2.19, and were not measured "
            "by any published run here: compare some steps with and without"
        )
    if layout.tp > 1 or layout.cp > 1:
        yield "CUDA_DEVICE_MAX_CONNECTIONS is not needed on Blackwell and later GPUs"
    if (
        layout.cp > 1
        and context_exchange(job, layout, traits) != traits.communication.context_exchange
    ):
        yield "windows or sinks: context parallelism exchanges heads or gathers, instead of a ring"
    if layout.sequence_parallel and layout.tp == 1:
        yield "sequence_parallel has no effect with tp = 1 and is left out"
    if layout.offload.optimizer:
        yield "OMP_NUM_THREADS should be the number of CPU cores per GPU"
        yield (
            "--overlap-cpu-optimizer-d2h-h2d overlaps the offloaded update with its copies; the "
            "plan counts them one after the other, which is no less"
        )
    if layout.offload_modules:
        yield (
            "offloaded activations take pinned host memory, which is not checked, and no published "
            "run shows how well their copies overlap: compare some steps with and without them"
        )
    if job.training.precision not in {"bf16", "fp16"}:
        primary = traits.footprint.low_precision == "primary"
        kept = "in that format alone" if primary else "and gathered in 16 bits"
        yield (
            f"{job.training.precision} is used in the matrix products of the layers; weights are "
            f"kept {kept}"
        )


def _group_notes(job: Job, layout: Layout) -> Iterator[str]:
    """Ranks are numbered node after node, and pipeline ranks live in groups."""
    order = dict.fromkeys(stage.group for stage in layout.stages or ())
    if any(order):
        nodes = (job.cluster.groups[group] for group in order)
        pairs = zip(order, nodes, strict=True)
        text = ", then ".join(f"the {node.num_nodes} of group {group}" for group, node in pairs)
        yield f"start the nodes in the order of the pipeline (NODE_RANK, or the hosts): {text}"
