"""What a runtime executes, as rules: schedules, stages that are not all alike, what it tiles."""

from collections.abc import Iterator, Sequence
from functools import cache, partial

import numpy as np

from trainplan.costmodel.architecture import ATTENTIONS, ModelSpec
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import RECOMPUTE_MODULES, SCHEDULE_NAMES, Layout
from trainplan.costmodel.layouts import BLOCK, LayoutTable, Rule, evenly, module_bits, stage_codes
from trainplan.costmodel.runtimes.base import RuntimeTraits
from trainplan.costmodel.runtimes.offloads import offloads_modules, offloads_states
from trainplan.costmodel.runtimes.traits.layers import GATED_DELTA, uncommon_parts


def executed(traits: RuntimeTraits) -> tuple[Rule, ...]:
    """All rules of what a runtime executes, and of what it can keep off the GPU."""
    return (
        executes_layers(traits),
        executes_schedule(traits),
        *shards_in_groups(traits),
        *executes_stages(traits),
        recomputes_modules(traits),
        *recomputes_layers(traits),
        offloads_modules(traits),
        *does_without(traits),
        *offloads_states(traits),
    )


def executes_schedule(traits: RuntimeTraits) -> Rule:
    """The rule that a layout's schedule is one of the runtime's."""
    schedules = traits.pipeline.schedules
    executed = np.array([name in schedules for name in SCHEDULE_NAMES])

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """A runtime executes what it implements."""
        return ~executed[table.schedule]

    return Rule(
        name="runtime_executes_schedule",
        columns=frozenset({"schedule"}),
        broken=broken,
        says=f"{traits.name} executes no schedule but {', '.join(schedules)}: use one; "
        "`plan schedule --kind NAME` lists who executes another",
        source=f"{traits.name} {traits.version}",
    )


def executes_layers(traits: RuntimeTraits) -> Rule:
    """The rule that all layers are made of what the runtime has."""

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """A runtime builds the layers it implements."""
        return np.full(len(table), bool(uncommon_parts(job.model) - traits.layers))

    known = ", ".join(sorted(traits.layers)) or "nothing"
    return Rule(
        name="runtime_executes_layers",
        columns=frozenset({"tp"}),
        broken=broken,
        says="layers of this model are of another kind: beyond attention and MLPs "
        f"{traits.name} has {known}: use another runtime",
        source=f"{traits.name} {traits.version}",
    )


def shards_in_groups(traits: RuntimeTraits) -> tuple[Rule, ...]:
    """The rule that states are sharded over groups of replicas where the runtime can be told to."""

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """A runtime without an option shards over all."""
        return np.asarray(table.dp_replicate > 1)

    rule = Rule(
        name="runtime_shards_over_all",
        columns=frozenset({"dp_replicate"}),
        broken=broken,
        says=f"{traits.name} shards over all replicas: leave dp_replicate at 1",
        source=f"{traits.name} {traits.version}",
    )
    return () if traits.sharding.in_groups else (rule,)


def executes_stages(traits: RuntimeTraits) -> tuple[Rule, ...]:
    """The rules that layers are split, and recomputed, as the runtime can be told to."""

    def split_by_itself(job: Job, table: LayoutTable) -> BoolColumn:
        """A runtime without an option splits layers its own way."""
        return ~evenly(table)

    def alike(job: Job, table: LayoutTable) -> BoolColumn:
        """A runtime with one number recomputes as many layers in every stage."""
        codes, splits = stage_codes(table)
        own = [any(stage.recompute_num_layers is not None for stage in s or ()) for s in splits]
        return np.array(own)[codes]

    source, stages = f"{traits.name} {traits.version}", frozenset({"stages"})
    says = f"{traits.name} splits layers evenly: leave stages out"
    split = Rule(EVEN_SPLIT, stages, split_by_itself, says, source)
    says = f"{traits.name} recomputes as many layers in every stage: give stages no own number"
    equal = Rule(EQUAL_RECOMPUTE, stages, alike, says, source)
    return (
        *(() if traits.pipeline.splits_freely else (split,)),
        *(() if traits.recompute.by_stage else (equal,)),
    )


def recomputes_layers(traits: RuntimeTraits) -> tuple[Rule, ...]:
    """The rules that full recomputation covers layers as the runtime can be told to."""
    covers = traits.recompute.layers

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """Each by itself; of every k-th one, as many on all virtual stages."""
        block, number = table.recompute_method == BLOCK, table.recompute_num_layers
        share = table.pp * table.vpp * np.maximum(number, 1)
        alike = job.model.num_hidden_layers % share == 0
        some = {"some": block, "every_kth": block & alike}.get(covers, np.zeros_like(block))
        return np.asarray((block | (number > 1)) & ~some)

    def unlike(job: Job, table: LayoutTable) -> BoolColumn:
        """Every k-th layer is not as many on stages of other lengths."""
        return np.asarray((table.recompute_method == BLOCK) & ~evenly(table))

    ways = {
        "some": "any number of layers, each by itself: use the method block",
        "every_kth": "all layers or every k-th one: use the method uniform with 1, or block with a "
        "number that divides the layers of every virtual stage",
        "all": "all layers, each by itself: use the method uniform with 1",
    }
    if covers not in ways:
        return ()
    says, source = f"{traits.name} recomputes {ways[covers]}", f"{traits.name} {traits.version}"
    columns = frozenset({"recompute_method", "recompute_num_layers", "pp", "vpp"})
    rule = Rule("runtime_recomputes_layers", columns, broken, says, source)
    if covers != "every_kth":
        return (rule,)
    says = f"{traits.name} recomputes as many layers on stages of one length alone: use uniform"
    columns = frozenset({"recompute_method", "stages"})
    return rule, Rule("runtime_recomputes_stages", columns, unlike, says, source)


WITHOUT_EFFECT = frozenset({"core_attn", "layernorm", "mlp", "moe_act", "shared_experts", "moe"})
"""Recompute modules that do nothing in a model without them; others are refused there.

Source: NVIDIA/Megatron-LM @d98e8a64 `transformer_config.py`, checks of recompute_modules.
"""


def recomputes_modules(traits: RuntimeTraits) -> Rule:
    """The rule that selective recomputation names what the model has and the runtime knows."""

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """A module that is refused where it is not there, and a policy of another runtime."""
        known = {*model_modules(job.model), traits.recompute.policy}
        absent = {*RECOMPUTE_MODULES} - known - WITHOUT_EFFECT
        return np.asarray((table.recompute_modules & module_bits(absent)) != 0)

    return Rule(
        name="recompute_modules_exist",
        columns=frozenset({"recompute_modules"}),
        broken=broken,
        says="recompute_modules names a part this model does not have, or a policy of another "
        "runtime: leave it out",
        source=f"{traits.name} {traits.version}",
    )


def model_modules(model: ModelSpec) -> frozenset[str]:
    """Recompute modules that do something in this model.

    Source: Megatron Core `transformer_config.py`, allowed values of `recompute_modules`;
    `gpt_layer_specs.py`, which norms are fused into the product behind them.
    """
    present = {
        "core_attn": any(kind.mixer in ATTENTIONS for kind in model.kinds),
        "layernorm": model.mla is not None or model.moe is not None,
        "mla_up_proj": model.mla is not None,
        "mlp": model.num_dense_layers > 0,
        "moe_act": model.moe is not None,
        "shared_experts": bool(model.moe and model.moe.shared_expert_intermediate_size),
        "moe": model.moe is not None,
        "gdn_norm_out": any(GATED_DELTA in uncommon_parts(kind) for kind in model.kinds),
    }
    return frozenset(name for name, there in present.items() if there)


def _scales_otherwise(traits: RuntimeTraits) -> Rule:
    """The rule that products in fp8 scale operands as the runtime can be told to."""

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """A runtime without an option has one recipe, or names its own in another way."""
        stated = job.options.fp8_recipe
        return np.full(len(table), stated is not None and stated not in traits.fp8_recipes)

    return Rule(
        name="runtime_has_fp8_recipe",
        columns=frozenset({"tp"}),
        broken=broken,
        says=f"{traits.name} has no fp8_recipe but {', '.join(traits.fp8_recipes)}: use one, or "
        "leave it out",
        source=f"{traits.name} {traits.version}",
    )


def _sends_otherwise(traits: RuntimeTraits) -> Rule:
    """Tokens in fewer bits than 16 are one dispatcher's, or none's."""
    narrow = traits.experts.narrow

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """Source: the dispatchers of the runtime's traits, `narrow`."""
        kind, carrier = job.options.moe_dispatch_dtype, job.options.moe_dispatcher
        narrowed = kind not in (None, "bf16") and job.model.moe is not None
        return np.full(len(table), narrowed and (kind, carrier) not in narrow)

    ways = (f"moe_dispatch_dtype={kind} with moe_dispatcher={one}" for kind, one in narrow)
    return Rule(
        name="runtime_narrows_tokens",
        columns=frozenset({"ep"}),
        broken=broken,
        says=f"{traits.name} sends tokens to experts in 16 bits: "
        + "".join(f"use {way}, or " for way in ways)
        + "leave moe_dispatch_dtype out",
        source=f"{traits.name} {traits.version}",
    )


SHARED = "replicas_share_optimizer"
IN_BITS = ("weight_bits", "gradient_bits")
FP8_COPIES = ("fp8_transpose_cache", "activation_func_fp8_input_store", "fp8_attention")


def does_without(traits: RuntimeTraits) -> Iterator[Rule]:
    """The rules that nothing is asked of a runtime which it has no option for."""
    own = traits.sharding
    yield _scales_otherwise(traits)
    yield _sends_otherwise(traits)
    no_tiles = "has no tiled {0}: leave out tiled_{0}, or use deepspeed"
    no_liger = "has kernels of its own: leave out the option liger, or use deepspeed"
    no_lists = "has an optimizer of its own: leave out fused_optimizer, or use accelerate"
    no_sizes = "has no size of buckets: leave bucket_mb out"
    no_versions = "has no choice of fsdp_version: leave it out, or use accelerate"
    no_copies = "has no choice of what it keeps in fp8: leave that out, or use megatron-bridge"
    no_sharing = f"keeps the optimizer of a shard on every copy of it: leave {SHARED} out"
    no_zeropp = "has no ZeRO++: leave out hpz, weight_bits and gradient_bits, or use deepspeed"
    no_states = "shards all states over the same ranks: give zero_stage and dp_replicate, not shard"
    no_shards = "cuts matrices over tp alone: leave {} at 1"
    no_nesting = "exchanges one way over all context ranks: leave cp_heads at 1"
    for has, name, column, options, says in (
        (traits.tiling.loss, "tiles_loss", "tiled_loss", (), no_tiles.format("loss")),
        (traits.tiling.mlp, "tiles_mlp", "tiled_mlp", (), no_tiles.format("mlp")),
        (traits.has_liger, "runs_liger", "", ("liger",), no_liger),
        (traits.on_torch, "updates_lists", "", ("fused_optimizer",), no_lists),
        (own.version > 0, "has_versions_of_fsdp", "", ("fsdp_version",), no_versions),
        (own.bucket_elements > 0, "sizes_buckets", "", ("bucket_mb",), no_sizes),
        (traits.on_megatron_core, "chooses_fp8_copies", "", FP8_COPIES, no_copies),
        (traits.communication.heads_in_ring, "nests_exchanges", "cp_heads", (), no_nesting),
        (own.by_matrix, "cuts_matrices", "gtp", (), no_shards.format("gtp")),
        (own.over_replicas, "shares_optimizers", SHARED, (), no_sharing),
        (own.zero_plus_plus, "copies_weights", "hpz", IN_BITS, no_zeropp),
        (own.by_state, "shards_by_state", "shard", (), no_states),
        (own.by_matrix, "cuts_experts", "egtp", (), no_shards.format("egtp")),
    ):
        if not has:
            yield Rule(
                name=f"runtime_{name}",
                columns=frozenset({column or "tp"}),
                broken=partial(_uses, column, options),
                says=f"{traits.name} {says}",
                source=f"{traits.name} {traits.version}",
            )


def _uses(column: str, options: Sequence[str], job: Job, table: LayoutTable) -> BoolColumn:
    """Is a column other than off, where one is named, or an option stated?"""
    stated = any(getattr(job.options, one) is not None for one in options)
    used = getattr(table, column) != getattr(_off(), column) if column else False
    return np.full(len(table), stated) | used


@cache
def _off() -> LayoutTable:
    """Every column as it is where nothing uses it."""
    return LayoutTable.of([Layout()])


EVEN_SPLIT = "runtime_splits_evenly"
EQUAL_RECOMPUTE = "runtime_recomputes_alike"
