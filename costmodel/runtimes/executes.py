"""What a runtime executes, as rules: schedules, stages that are not all alike, offload."""

from __future__ import annotations

import numpy as np

from trainplan.costmodel.layouts import BoolColumn, LayoutTable, Rule
from trainplan.costmodel.layouts.table import BLOCK, FIELDS, evenly, module_bits, stage_codes
from trainplan.costmodel.runtimes.base import RuntimeTraits
from trainplan.costmodel.runtimes.traits.layers import GATED_DELTA, uncommon_parts
from trainplan.costmodel.spec import Job, ModelSpec
from trainplan.costmodel.spec.layers import ATTENTIONS
from trainplan.costmodel.spec.layout import OFFLOAD_MODULES, RECOMPUTE_MODULES, SCHEDULE_NAMES


def executed(traits: RuntimeTraits) -> tuple[Rule, ...]:
    """All rules of this module."""
    return (
        executes_layers(traits),
        executes_schedule(traits),
        *shards_in_groups(traits),
        *executes_stages(traits),
        recomputes_modules(traits),
        *recomputes_layers(traits),
        offloads_modules(traits),
        *tiles(traits),
        *runs_liger(traits),
        *nests_exchanges(traits),
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
        "`plan schedule --kind NAME` says who executes another",
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
        says="layers of this model are of another kind: beside attention and MLPs "
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


def recomputes_modules(traits: RuntimeTraits) -> Rule:
    """The rule that selective recomputation names what the model has and the runtime knows."""

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """What is not there is not recomputed."""
        absent = {*RECOMPUTE_MODULES} - {*model_modules(job.model), traits.recompute.policy}
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


def offloads_modules(traits: RuntimeTraits) -> Rule:
    """The rule that only modules wait on the host that the runtime copies there."""
    known = module_bits(traits.offloading.modules, OFFLOAD_MODULES)

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """A runtime copies what it has an option for."""
        return np.asarray((table.offload_modules & ~known) != 0)

    some = f"no modules but {', '.join(traits.offloading.modules)}: use some of these"
    none = "no activations: leave offload_modules out"
    return Rule(
        name="runtime_offloads_modules",
        columns=frozenset({"offload_modules"}),
        broken=broken,
        says=f"{traits.name} offloads {some if known else none}",
        source=f"{traits.name} {traits.version}",
    )


def nests_exchanges(traits: RuntimeTraits) -> tuple[Rule, ...]:
    """The rule that heads are exchanged inside a ring where the runtime can be told to."""

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """A runtime without an option exchanges one way over all context ranks."""
        return np.asarray(table.cp_heads > 1)

    rule = Rule(
        name="runtime_nests_exchanges",
        columns=frozenset({"cp_heads"}),
        broken=broken,
        says=f"{traits.name} exchanges one way over all context ranks: leave cp_heads at 1",
        source=f"{traits.name} {traits.version}",
    )
    return () if traits.communication.heads_in_ring else (rule,)


def runs_liger(traits: RuntimeTraits) -> tuple[Rule, ...]:
    """The rule that kernels of Liger run where models of transformers do."""

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """Layers of other runtimes have kernels of their own."""
        return np.full(len(table), job.options.liger is not None)

    rule = Rule(
        name="runtime_runs_liger",
        columns=frozenset({"tp"}),
        broken=broken,
        says=f"{traits.name} has kernels of its own: leave out the option liger, or use deepspeed",
        source=f"{traits.name} {traits.version}",
    )
    return () if traits.has_liger else (rule,)


def tiles(traits: RuntimeTraits) -> tuple[Rule, ...]:
    """The rules that only what the runtime can tile is tiled."""

    def loss(job: Job, table: LayoutTable) -> BoolColumn:
        """A runtime without tiles makes all logits."""
        return np.asarray(table.tiled_loss == 1)

    def mlp(job: Job, table: LayoutTable) -> BoolColumn:
        """A runtime without tiles runs an MLP on all tokens."""
        return np.asarray(table.tiled_mlp == 1)

    source = f"{traits.name} {traits.version}"
    parts = (("loss", traits.tiling.loss, loss), ("mlp", traits.tiling.mlp, mlp))
    return tuple(
        Rule(
            name=f"runtime_tiles_{part}",
            columns=frozenset({f"tiled_{part}"}),
            broken=broken,
            says=f"{traits.name} has no tiled {part}: leave out tiled_{part}, or use deepspeed",
            source=source,
        )
        for part, has, broken in parts
        if not has
    )


def offloads_states(traits: RuntimeTraits) -> tuple[Rule, ...]:
    """The rules that states leave the GPU as the runtime can move them."""
    can = traits.offloading
    known: dict[str, tuple[object, ...]] = {
        "offload_tier": can.tiers,
        "offload_parameters": can.parameters,
        "offload_checkpoints": can.checkpoints,
        "offload_stride": can.strides,
    }
    return (
        *(_keeps(traits, column, values) for column, values in known.items()),
        *(() if can.in_series or can.habits is None else (_moves_on_equal_nodes(traits),)),
    )


def _moves_on_equal_nodes(traits: RuntimeTraits) -> Rule:
    """The rule that nothing moves beside the passes where node groups differ."""

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """The lanes of one machine are priced."""
        moved = (table.offload_optimizer > 0) | (table.offload_parameters > 0)
        moved = moved | (table.offload_checkpoints > 0)
        return np.asarray(moved & (len(job.cluster.groups) > 1))

    return Rule(
        name="states_move_on_equal_nodes",
        columns=frozenset({"offload_optimizer", "offload_parameters", "offload_checkpoints"}),
        broken=broken,
        says="copies beside the passes are not priced on unlike node groups: keep states on the "
        "GPUs, or plan one group",
        source="costmodel/step/offloaded.py",
    )


def _keeps(traits: RuntimeTraits, column: str, values: tuple[object, ...]) -> Rule:
    """The rule that a column holds one of some values."""
    codec, name = FIELDS[column].codec, FIELDS[column].path
    codes = np.array([codec.code(value) for value in values])

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """A runtime moves what it has an option for."""
        return ~np.isin(getattr(table, column), codes)

    some = ", ".join(codec.text(value) for value in values)
    return Rule(
        name=f"runtime_keeps_{column.removeprefix('offload_')}",
        columns=frozenset({column}),
        broken=broken,
        says=f"{traits.name} has no {name} but {some}: use {'one' if len(values) > 1 else 'it'}",
        source=f"{traits.name} {traits.version}",
    )


EVEN_SPLIT = "runtime_splits_evenly"
EQUAL_RECOMPUTE = "runtime_recomputes_alike"
