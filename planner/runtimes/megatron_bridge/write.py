"""Megatron-Bridge: a small recipe and the arguments of Megatron-LM as keys of its configuration.

A model that Bridge builds itself comes from its Hugging Face configuration, another from keys.
Source of every key: NVIDIA-NeMo/Megatron-Bridge, commit `COMMIT`, `ConfigContainer` of
`src/megatron/bridge/training/config.py` and what it holds; the table of keys is
`planner/runtimes/key_tables/megatron_bridge.json`.
"""

from collections.abc import Iterator

from trainplan.costmodel import catalog
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.families import Bridge, bridge_of
from trainplan.costmodel.job import Dispatcher, Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes import HEAD_BYTES, RUNTIMES, RuntimeTraits
from trainplan.costmodel.shards import remade_bytes
from trainplan.planner.launch import (
    Argument,
    ConfigFile,
    LaunchConfig,
    ModuleEntry,
    RequiredVariable,
    assigned,
    option,
    summary,
    switch,
)
from trainplan.planner.runtimes.exporter import Exporter, with_traits
from trainplan.planner.runtimes.key_tables import key_table, translated
from trainplan.planner.runtimes.megatron_bridge.write_built import (
    SAMPLES,
    built_arguments,
    built_keys,
    built_notes,
    hf_model,
    without_its_own,
)
from trainplan.planner.runtimes.megatron_bridge.write_recipe import (
    MODULE,
    PRETRAINED,
    built_files,
    recipe_file,
)
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.write import MEGATRON_LM, REQUIRED, export_megatron_lm
from trainplan.planner.runtimes.megatron_lm.write.environment import environment

STORE = "model.activation_func_fp8_input_store"
NARROW_ATTENTION = "mixed_precision.fp8_dot_product_attention"
COMMIT = "067f987d"
"""Megatron-Bridge commit whose keys are written."""
CHECKED = (
    "78 plans were taken by this commit's own recipe, overrides and validation over "
    "Megatron-LM d98e8a64 (torch 2.14, transformers 5.12.1, no GPU)"
)


@with_traits
def export_megatron_bridge(job: Job, traits: RuntimeTraits, layout: Layout) -> LaunchConfig:
    """Recipe and keys of one layout.

    Raises:
        UnsupportedError: The model or the layout has something no key expresses.
    """
    _refuse(job)
    bridge = bridge_of(job.model)
    plain = _without_own_defaults(job, layout, traits)
    if bridge is None:
        base = export_megatron_lm(plain, layout)
        arguments, notes = base.arguments, base.notes
        files: tuple[ConfigFile, ...] = (recipe_file(job.model, COMMIT, CHECKED),)
    else:
        arguments = built_arguments(plain, layout, bridge)
        notes = built_notes(plain, layout, bridge)
        files = built_files(job.model, bridge, COMMIT, CHECKED)
    flags = (
        *(_spelled_out(argument, job) for argument in _by_layer(arguments, job, layout, traits)),
        *_virtual_stages(layout),
        *_own_defaults(job, traits),
    )
    keys = translated(key_table("megatron_bridge"), flags)
    if bridge is not None:
        keys = without_its_own(keys, job)
    return LaunchConfig(
        runtime="megatron-bridge",
        runtime_version=COMMIT,
        checked=CHECKED,
        summary=summary(job, layout),
        environment=environment(job, layout),
        required_environment=tuple(_required(job, bridge)),
        entry_point=ModuleEntry(MODULE),
        arguments=(*keys, *_own_keys(job, layout, bridge, traits)),
        notes=(*notes, *_notes(job, bridge)),
        files=files,
        read_back=bridge is not None or job.model.trained is None,
    )


def _required(job: Job, bridge: Bridge | None) -> Iterator[RequiredVariable]:
    if bridge is not None:
        yield hf_model(job)
    _, tokenizer, data, checkpoints = REQUIRED
    yield from (tokenizer, SAMPLES if bridge and bridge.has_tower else data, checkpoints)
    if job.model.trained is not None:
        yield PRETRAINED


def _own_keys(
    job: Job, layout: Layout, bridge: Bridge | None, traits: RuntimeTraits
) -> Iterator[Argument]:
    """Keys of what no option of Megatron-LM says."""
    if bridge is not None:
        yield from built_keys(job, layout)
    if job.options.activation_func_fp8_input_store:
        yield assigned("precision", STORE, "true")
    if job.options.fp8_attention:
        yield assigned("precision", NARROW_ATTENTION, "true")
    if remade_bytes(job, traits):
        yield assigned("precision", "model.disable_parameter_transpose_cache", "true")


def _refuse(job: Job) -> None:
    if feature := RUNTIMES["megatron-bridge"].refuses(job.model):
        raise UnsupportedError(
            f"megatron-bridge cannot express {feature}; train this model with another runtime, or "
            "change the model description"
        )
    if job.options.attention == "unfused":
        raise UnsupportedError(
            "megatron-bridge reads attention=unfused as text, not as its own type, and ignores it: "
            "leave the option out, or export to megatron-lm"
        )


def _notes(job: Job, bridge: Bridge | None) -> Iterator[str]:
    if job.model.position_embedding == "learned":
        yield "seq_length positions are learned, which is what the runtime takes for their number"
    yield "megatron.bridge and megatron.core must be installed on every node"
    if bridge is None:
        yield NESTED


NESTED = (
    "a recipe of your own takes the same keys; where its model is a `BridgeGPTModelConfig`, as of "
    "Llama, those of `model.` are under `model.transformer.`"
)


def _without_own_defaults(job: Job, layout: Layout, traits: RuntimeTraits) -> Job:
    """The job in terms of Megatron-LM's defaults, where those of the runtime differ.

    Source: `costmodel.runtimes.megatron_bridge`. The loss is written apart: Megatron-LM refuses the
    kernel of Transformer Engine.
    """
    narrow = traits.gradients.message_bytes == 2 and job.training.precision != "fp16"
    options: dict[str, object] = {
        "gradient_dtype": "bf16" if narrow else None,
        "cross_entropy": None,
        "activation_func_fp8_input_store": None,
        "fp8_attention": None,
    }
    if _whole_step_of_experts(job):
        options["cuda_graph"] = None
    if job.options.moe_dispatcher is None:
        options["moe_dispatcher"] = usual_dispatcher(job, layout)
    if job.model.mla is None:
        overlaps = traits.communication.overlaps_tensor_parallel and layout.sequence_parallel
        options["overlap_tp_comm"] = overlaps or None
    return job.model_copy(update={"options": job.options.model_copy(update=options)})


@with_traits
def usual_dispatcher(job: Job, traits: RuntimeTraits, layout: Layout) -> Dispatcher | None:
    """What its recipes take where nothing is stated; null: an all-to-all, as Megatron-LM does."""
    domain = min(one.domain_gpus(catalog.device(one)) for one in job.cluster.groups)
    experts = traits.experts
    spans = layout.ep * layout.etp > domain
    usual = experts.dispatcher_across if spans else experts.dispatcher
    return None if job.model.moe is None or usual == "alltoall" else usual


def _whole_step_of_experts(job: Job) -> bool:
    """One graph of a step with experts, which Megatron-LM's exporter does not write."""
    return job.model.moe is not None and job.options.cuda_graph == "full_iteration"


def _stash() -> Iterator[Argument]:
    """What lets a graph hold a step whose experts get other numbers of tokens each time.

    Source: Megatron-Bridge `perf_recipes/deepseek/common.py`,
    `_enable_deepseek_full_iteration_mxfp8`, with its sizes.
    """
    yield keys.GRAPH("full_iteration")
    yield keys.LOSS_CHECK.off()
    yield option("model", "--moe-expert-rank-capacity-factor", 1.5)
    yield switch("model", "--moe-paged-stash")
    yield option("model", "--moe-paged-stash-buffer-size-factor-cuda", 1.2)
    yield option("model", "--moe-paged-stash-buffer-size-factor-cpu", 1.0)
    yield switch("model", "--use-transformer-engine-op-fuser")


def _own_defaults(job: Job, traits: RuntimeTraits) -> Iterator[Argument]:
    """What Megatron-LM does only where asked, or not at all."""
    head = traits.kernels.head_bytes_per_logit
    if head != HEAD_BYTES["unfused"]:
        yield keys.LOSS_FUSION()
        kernel = "te" if head == HEAD_BYTES["fused"] else "native"
        yield keys.LOSS_KERNEL(kernel)
    if _whole_step_of_experts(job):
        yield from _stash()
    if _scaled_positions(job.model):
        yield switch("model", "--no-rope-fusion")


def _scaled_positions(model: ModelSpec) -> bool:
    """Positions whose rotation Megatron-LM does not fuse, by itself.

    Source: Megatron-LM `training/arguments.py`, `validate_args`, of other positions than `rope`.
    """
    scaling = model.rope_scaling
    yarn = scaling is not None and scaling.rope_type == "yarn"
    return model.position_embedding != "rope" or (yarn and model.mla is None)


def _spelled_out(argument: Argument, job: Job) -> Argument:
    """An expression that Megatron-LM evaluates, as the list it stands for."""
    if argument.flag != keys.EXPERT_LAYERS.flag:
        return argument
    kinds = (str(int(kind)) for kind in job.model.moe_layers)
    return keys.EXPERT_LAYERS(*kinds)


def _by_layer(
    arguments: tuple[Argument, ...], job: Job, layout: Layout, traits: RuntimeTraits
) -> Iterator[Argument]:
    """Sharding by whole matrices is a name of its own here, and not beside the usual sharding.

    Source: `training/optim.py`, layer_wise_distributed_optimizer, and
    `recipes/kimi/h100/kimi_k2.py`, _apply_kimi_k2_optimizer.
    """
    name = job.training.optimizer.name
    if name in USUAL or layout.zero_stage == 0:
        yield from arguments
        return
    word = dict(traits.optimizers)[name]
    for argument in arguments:
        if argument.flag == keys.OPTIMIZER.flag:
            yield option("optimizer", argument.flag, f"dist_{word.removeprefix('dist_')}")
        elif argument.flag not in SHARDED:
            yield argument


USUAL = ("adamw", "sgd")
"""Optimizers that the usual sharding cuts anywhere, or none does."""
SHARDED = (keys.DISTRIBUTED.flag, keys.GATHER_OVERLAP.flag)


def _virtual_stages(layout: Layout) -> Iterator[Argument]:
    """Megatron-LM takes their number from the stages; here both are keys.

    Source: Megatron-LM `training/arguments.py`, `validate_args`; transformer_config.py.
    """
    if layout.vpp > 1:
        yield keys.VPP(layout.vpp)


MEGATRON_BRIDGE = Exporter(
    runtime="megatron-bridge",
    export=export_megatron_bridge,
    writes=MEGATRON_LM.writes - {"gtp", "egtp"},
    packs=(
        "dataset.inter_document_masking masks between the documents of a pretraining dataset; for "
        "fine-tuning, GPTSFTDatasetConfig.offline_packing_specs packs by first fit and needs "
        "micro_batch_size 1; rows equal in work come from a dataset of yours"
    ),
    optimizers=MEGATRON_LM.optimizers,
    trains=frozenset({"lora"}),
    refuses=MEGATRON_LM.refuses,
    source_patterns=(
        "src/megatron/bridge/training/config.py",
        "src/megatron/bridge/training/*.py",
        "src/megatron/bridge/models/*.py",
        "3rdparty/Megatron-LM/megatron/core/**/*config*.py",
        "3rdparty/Megatron-LM/megatron/training/config/*.py",
    ),
    by_words=True,
    recorded_flags="megatron_bridge/options.json",
)
