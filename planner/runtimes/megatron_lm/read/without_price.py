"""Options that do nothing in a launch, and those that the cost model has no price for.

What is ignored is as in Megatron-LM `megatron/training/arguments.py` and
`megatron/core/transformer/transformer_config.py`.
"""

from collections.abc import Iterator

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.layout import OFFLOAD_MODULES, RECOMPUTE_MODULES
from trainplan.costmodel.runtimes import IN_MOE_LAYERS, model_modules
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.read.facts import Facts, holds, words
from trainplan.planner.runtimes.megatron_lm.read.layout import (
    nested_heads,
    offload_modules,
    recompute_modules,
)
from trainplan.planner.runtimes.megatron_lm.read.options import (
    EXCHANGES,
    OPTIMIZERS,
    graph_kind,
    graph_modules,
    narrow_tokens,
)
from trainplan.planner.runtimes.megatron_lm.write.environment import REUSES
from trainplan.planner.shell import Problem

IGNORED: tuple[tuple[str, str], ...] = (
    (keys.GROUPS, keys.GROUPED),
    (keys.SEQUENCE_PARALLEL, "tp"),
    (keys.RECOMPUTED_MODULES, "recompute=selective"),
    (keys.RECOMPUTE_METHOD, "recompute=full"),
    (keys.RECOMPUTED_LAYERS, "recompute=full"),
    (keys.OFFLOADED_MODULES, keys.OFFLOADS),
    (keys.CPU_FRACTION, keys.CPU_OPTIMIZER),
    (keys.CPU_OVERLAP, keys.CPU_OPTIMIZER),
    ("use_torch_optimizer_for_cpu_offload", keys.CPU_OPTIMIZER),
    ("pin_cpu_grads", keys.CPU_OPTIMIZER),
    ("pin_cpu_params", keys.CPU_OPTIMIZER),
    ("activation_offload_fraction", keys.OFFLOADS),
    ("delta_offload_bytes_across_pp_ranks", keys.OFFLOADS),
    (keys.IN_FLIGHT, keys.OFFLOADS),
    (keys.FSDP_STRATEGY, keys.FSDP),
    (keys.EXCHANGE, "cp"),
    (keys.GROUP, "vpp"),
    (keys.ETP, keys.EXPERTS),
    (keys.EXPERT_SHARDS, keys.EXPERTS),
    (keys.DISPATCHER, keys.EXPERTS),
    (keys.GROUPED_GEMM, keys.EXPERTS),
    (keys.BACKEND, f"{keys.DISPATCHER}=flex"),
    (keys.SHARED_OVERLAP, keys.SHARED_EXPERT),
    (keys.ROUTER_GROUPS, keys.TOP_GROUPS),
    (keys.KV_RANK, keys.LATENT),
    (keys.Q_RANK, keys.LATENT),
    (keys.FP8_RECIPE, keys.FP8),
    (keys.FP4_RECIPE, keys.FP4),
    (keys.WINDOW_SKIPS, keys.WINDOW),
    (keys.LOSS_KERNEL, keys.LOSS_FUSION),
    ("async_save", "use_persistent_ckpt_worker"),
)
"""An option, and without what it does nothing."""
NO_EFFECT = {
    "deprecated_use_mcore_models": "there is one kind of model",
    "use_flash_attn": "--attention-backend flash chooses it",
    "use_dist_ckpt_deprecated": "--ckpt-format chooses",
    "dist_ckpt_format_deprecated": "--ckpt-format chooses",
    "ckpt_fully_parallel_save_deprecated": "it is the default",
}
"""Options kept for old scripts. Source: arguments.py:2950, 3024-3034."""
UNMODELLED = {
    keys.SPEC: "a layer of your own: priced as the built-in one",
    keys.LAYER_PATTERN: "layers of other kinds: priced as attention and MLP",
    "heterogeneous_layers_config_path": "layers that differ: priced as all equal",
    "experimental_attention_variant=dsa": "sparse attention: priced as softmax attention",
    "experimental_attention_variant=gdn2": "another attention: priced as softmax attention",
    "step_batch_size_schedule": "a batch that grows: priced at one size, micro batch * dp",
    "rampup_batch_size": "a batch that grows: priced at its last size",
    "main_params_dtype=fp16": "master weights in 16 bits: priced as fp32",
    "distribute_saved_activations": "kept inputs cut over tp: priced as whole",
    "first_last_layers_bf16": "some layers in 16 bits: all are priced in the lower format",
    "fp32_residual_connection": "a residual stream in fp32: priced in 16 bits",
    keys.LATENT_EXPERTS: "experts in a narrower space: priced in the full one",
    "defer_embedding_wgrad_compute": "delayed weight gradients: priced in their place",
    "use_torch_fsdp2": "FSDP of torch: priced as Megatron-FSDP",
    "use_tp_pp_dp_mapping": "pipeline ranks before replicas: priced in the usual order of ranks",
    "overlap_param_gather_with_optimizer_step": "gathers overlapped with the step: priced after it",
    "transformer_impl=local": "kernels of the runtime's own: priced as Transformer Engine's",
    "!gradient_accumulation_fusion": "gradients added separately: priced as added in the product",
    "use_torch_optimizer_for_cpu_offload": "an update by torch on the processors: priced as fused",
    "!pin_cpu_grads": "gradients copied to pageable memory: priced as pinned",
    "!pin_cpu_params": "weights copied from pageable memory: priced as pinned",
    "delta_offload_bytes_across_pp_ranks": "later stages offload less: priced as all equal",
    "enable_mhc_connections": "several residual streams: priced as one",
}
"""An option, and what it is priced as."""


ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""Variables of torch's allocator, by their older and newer name."""


def unpriced(facts: Facts, model: ModelSpec | None) -> Iterator[Problem]:
    """What is ignored, and what is priced as something else."""
    for dest, without in IGNORED:
        if dest in facts.arguments and not holds(facts, without):
            says = (
                f"{words(_named(facts, dest))} does nothing without {words(without)}: take it out"
            )
            yield Problem(f"ignored_{dest}", "ignored", says, facts.arguments.place(dest))
    for dest, says in NO_EFFECT.items():
        if dest in facts.arguments:
            text = f"{facts.arguments.flag(dest)} does nothing any more, {says}: take it out"
            yield Problem(f"ignored_{dest}", "ignored", text, facts.arguments.place(dest))
    for condition, says in UNMODELLED.items():
        dest = condition.removeprefix("!").partition("=")[0]
        if dest in facts.arguments and holds(facts, condition):
            yield _other(facts, dest, f"{words(condition)}: {says}")
    yield from _captured(facts)
    yield from _dispatch(facts)
    yield from _kinds(facts)
    yield from _modules(facts)
    if model is not None:
        yield from _absent_modules(facts, model)


def _named(facts: Facts, dest: str) -> str:
    return dest if facts.arguments.value(dest) is not False else f"!{dest}"


def _other(facts: Facts, dest: str, says: str) -> Problem:
    return Problem(f"unmodelled_{dest}", "unmodelled", says, facts.arguments.place(dest))


def _captured(facts: Facts) -> Iterator[Problem]:
    """What two streams use, such as an exchange beside compute, is kept to the end of a capture."""
    allocator = (facts.environment.get(name, "") for name in ALLOCATOR)
    if facts.text(keys.GRAPH) == "full_iteration" and not any(REUSES in one for one in allocator):
        yield _other(
            facts,
            keys.GRAPH,
            "memory that two streams use is not used again while the step is captured, so the pool "
            f"may hold every micro batch: export {ALLOCATOR[0]}=expandable_segments:True,{REUSES}; "
            "priced with it",
        )


def _dispatch(facts: Facts) -> Iterator[Problem]:
    """NCCL's exchange is measured in no run; one way in 8 bits is priced as both."""
    kind, backend = map(facts.text, (keys.DISPATCHER, keys.BACKEND))
    if not facts.count(keys.EXPERTS):
        return
    if kind == "flex" and backend == "ncclep":
        yield _other(facts, keys.BACKEND, "ncclep is priced as HybridEP, whose kernels it runs")
    if len(stated := narrow_tokens(facts.arguments)) == 1:
        other = {keys.TOKENS_THERE.flag, keys.GRADIENTS_THERE.flag}.difference(stated).pop()
        yield _other(facts, keys.DISPATCHER, f"{stated[0]} mxfp8 is priced with {other} mxfp8")


def _kinds(facts: Facts) -> Iterator[Problem]:
    """Values of an option of which the cost model knows some."""
    exchanges, nested = facts.arguments.texts(keys.EXCHANGE), nested_heads(facts.arguments) > 1
    if facts.cp > 1 and not nested and (len(set(exchanges)) > 1 or set(exchanges) - set(EXCHANGES)):
        yield _other(
            facts, keys.EXCHANGE, "exchanges of context ranks that differ or nest: priced as one"
        )
    priced = ("tensorwise", "mxfp8", "blockwise")
    if facts.text(keys.FP8) and facts.text(keys.FP8_RECIPE) not in priced:
        yield _other(
            facts,
            keys.FP8_RECIPE,
            f"--fp8-recipe {facts.text(keys.FP8_RECIPE)}: priced as tensorwise",
        )
    if facts.text(keys.OPTIMIZER) not in OPTIMIZERS:
        yield _other(
            facts, keys.OPTIMIZER, f"--optimizer {facts.text(keys.OPTIMIZER)}: priced as adam"
        )
    if graph_kind(facts.arguments) in ("local", "transformer_engine"):
        router = facts.count(keys.EXPERTS) and not facts.recomputes_module("moe")
        wanted = {"attn"} | ({"moe_router"} if router else set())
        if set(graph_modules(facts.arguments)) - {"moe_preprocess"} != wanted:
            says = "graphs are priced as of attn and moe_router"
            yield _other(facts, keys.GRAPH_MODULES, says)
    zero = [
        not facts.arguments.number(key) for key in (keys.ATTENTION_DROPOUT, keys.HIDDEN_DROPOUT)
    ]
    if any(zero) != all(zero):
        yield _other(facts, keys.HIDDEN_DROPOUT, "one of two dropouts: priced as both")


def _absent_modules(facts: Facts, model: ModelSpec) -> Iterator[Problem]:
    """Parts that this model does not have."""
    stated = {*recompute_modules(facts.arguments)} & {*RECOMPUTE_MODULES}
    if (none := stated - model_modules(model)) and facts.recomputes == "selective":
        says = f"{', '.join(sorted(none))}: this model has none to recompute, take it out"
        place = facts.arguments.place(keys.RECOMPUTED_MODULES)
        yield Problem("ignored_recompute_modules", "ignored", says, place)
    if model.moe is None and (none := {*offload_modules(facts.arguments)} & {*IN_MOE_LAYERS}):
        says = f"{', '.join(sorted(none))}: this model has none to offload, take it out"
        place = facts.arguments.place(keys.OFFLOADED_MODULES)
        yield Problem("ignored_offload_modules", "ignored", says, place)


def _modules(facts: Facts) -> Iterator[Problem]:
    """Modules without a price: nothing is recomputed or offloaded there."""
    more = set(recompute_modules(facts.arguments)) - set(RECOMPUTE_MODULES)
    if more and facts.recomputes == "selective":
        says = f"{', '.join(sorted(more))}: priced as not recomputed"
        yield _other(facts, keys.RECOMPUTED_MODULES, says)
    if facts.on(keys.OFFLOADS):
        if more := set(facts.arguments.texts(keys.OFFLOADED_MODULES)) - set(OFFLOAD_MODULES):
            yield _other(
                facts, keys.OFFLOADED_MODULES, f"{', '.join(sorted(more))}: priced as kept"
            )
        if (facts.arguments.number("activation_offload_fraction") or 0.0) < 1.0:
            yield _other(facts, "activation_offload_fraction", "a part of them: priced as all")
        if keys.IN_FLIGHT in facts.arguments and facts.arguments.number(keys.IN_FLIGHT) != 1:
            yield _other(
                facts, keys.IN_FLIGHT, "several copies of a module under way: priced as one"
            )
