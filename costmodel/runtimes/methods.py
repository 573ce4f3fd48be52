"""Published methods that no runtime has: priced as a runtime would run them, never exported.

Most are DeepSpeed with what the method may keep where, and the program of its step that
`copy_streams.METHODS` has; ZERO_TOPO is DeepSpeed with shard groups by state, DUALPIPE
Megatron-Bridge with another schedule, TUTEL and FSMOE Megatron-LM with other exchanges of experts.
What else a publication changes (chunks of PatrickStar, numbers of blocks of ProTrain) is no choice
of the search.
"""

from dataclasses import replace

import numpy as np

from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.copy_streams import (
    METHODS,
    OffloadPolicy,
    Place,
    Placement,
    Quantities,
    Speeds,
    Work,
    deepspeed_offload_policy,
)
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, Rule, rule
from trainplan.costmodel.runtimes.base import RuntimeTraits
from trainplan.costmodel.runtimes.deepspeed import (
    DEEPSPEED,
    OF_GROUPS,
    checkpoints_are_recomputed,
    engine_moves_shards,
)
from trainplan.costmodel.runtimes.megatron.dispatchers import links_experts
from trainplan.costmodel.runtimes.megatron_bridge import MEGATRON_BRIDGE
from trainplan.costmodel.runtimes.megatron_lm import MEGATRON_LM
from trainplan.costmodel.runtimes.traits import Offloading, Setting

STRIDES = (0, *range(2, 13))
"""Deep Optimizer States tries few: the CPUs are never more than some tens of times as slow."""


@rule(
    "offload_optimizer",
    "the method keeps the whole optimizer off the GPU: use offload.optimizer=1",
    "costmodel.copy_streams.methods; that of each",
    values=(1.0,),
)
def method_offloads_all(job: Job, table: LayoutTable) -> BoolColumn:
    """All of the optimizer, or it is another method."""
    return np.asarray(table.offload_optimizer != 1)


@rule(
    "dp micro_batch_size",
    "Adam of a layer runs during the backward pass of the only micro batch: raise micro_batch_size "
    "until there is one",
    "Liao et al., Fuyou, arXiv:2403.06504",
)
def method_has_one_micro_batch(job: Job, table: LayoutTable) -> BoolColumn:
    """Gradients of one pass alone are final."""
    samples = table.dp * table.micro_batch_size
    return np.asarray(samples != job.training.global_batch_size)


@rule(
    "ep",
    "the method fetches experts, and the model has none: choose another runtime",
    "Shen et al., SE-MoE, arXiv:2205.10034",
)
def method_needs_experts(job: Job, table: LayoutTable) -> BoolColumn:
    """It is about experts."""
    return np.full(len(table), job.model.moe is None)


@rule(
    "ep etp",
    "moe_chunks needs experts on more than one rank: use ep or etp > 1, or leave the option out",
    "derived",
)
def chunks_need_an_exchange(job: Job, table: LayoutTable) -> BoolColumn:
    """There is nothing to send while others are multiplied."""
    return np.asarray(table.ep * table.etp == 1)


def _method(name: str, offloading: Offloading, *rules: Rule) -> RuntimeTraits:
    """DeepSpeed's ZeRO-3 with what a method moves."""
    theirs = (engine_moves_shards, checkpoints_are_recomputed, *OF_GROUPS)
    own = tuple(one for one in DEEPSPEED.rules if one not in theirs)
    return replace(
        DEEPSPEED,
        name=name,
        version=METHODS[name].source,
        method=METHODS[name].what,
        offloading=offloading,
        sharding=replace(
            DEEPSPEED.sharding, zero_stages=(3,), in_groups=False, zero_plus_plus=False
        ),
        rules=(*own, *rules),
    )


def _zero3(stage: int, place: Place) -> OffloadPolicy:
    return deepspeed_offload_policy(stage, pipelined=place is Place.DRIVE)


def _interleaved(stage: int, place: Place) -> OffloadPolicy:
    return deepspeed_offload_policy(stage, pipelined=True)


def _fuyou(quantities: Quantities, speeds: Speeds, placement: Placement) -> Work:
    return METHODS["fuyou"].work(quantities, speeds, placement)


def _harmony(quantities: Quantities, speeds: Speeds, placement: Placement) -> Work:
    return METHODS["harmony"].work(quantities, speeds, placement)


def _zero_offload(stage: int, place: Place) -> OffloadPolicy:
    return METHODS["zero-offload"].policy


WHOLE = Offloading(optimizer_step=1.0, gradients=True, offload_policy=_zero3)
"""The whole optimizer on the host."""
_DELAYED = _method(
    "zero-offload-delayed",
    replace(WHOLE, delays=True, offload_policy=_zero_offload),
    method_offloads_all,
)
ZERO_OFFLOAD_DELAYED = replace(
    _DELAYED, sharding=replace(_DELAYED.sharding, zero_stages=(2,)), changes="delayed update"
)
DEEP_OPTIMIZER_STATES = _method(
    "deep-optimizer-states",
    replace(
        WHOLE,
        strides=STRIDES,
        subgroup_params=METHODS["deep-optimizer-states"].policy.subgroup_params,
        offload_policy=_interleaved,
    ),
    method_offloads_all,
)
FUYOU = _method(
    "fuyou",
    replace(
        WHOLE,
        tiers=("nvme",),
        parameters=("nvme",),
        checkpoints=(0.0, 0.25, 0.5, 0.75, 1.0),
        checkpoints_tier="nvme",
        work=_fuyou,
    ),
    method_offloads_all,
    method_has_one_micro_batch,
)
SSDTRAIN = _method(
    "ssdtrain",
    Offloading(
        checkpoints=(0.0, 0.25, 0.5, 0.75, 1.0), checkpoints_tier="nvme", offload_policy=_zero3
    ),
)
PROTRAIN = _method(
    "protrain",
    replace(WHOLE, parameters=(None, "cpu"), checkpoints=(0.0, 0.5, 1.0)),
    method_offloads_all,
)
PATRICKSTAR = _method("patrickstar", replace(WHOLE, optimizer_step=0.001, parameters=("cpu",)))
HARMONY = _method(
    "harmony",
    replace(WHOLE, parameters=("cpu",), by_layer=True, work=_harmony),
    method_offloads_all,
)
SE_MOE = _method(
    "se-moe",
    replace(WHOLE, tiers=("cpu", "nvme"), parameters=("cpu", "nvme")),
    method_offloads_all,
    method_needs_experts,
)
ZERO_TOPO = replace(
    DEEPSPEED,
    name="zero-topo",
    version="Xu et al., arXiv:2501.04266",
    method="weights, gradients and optimizer in shard groups of their own levels of the network",
    sharding=replace(
        DEEPSPEED.sharding, over_replicas=True, by_state=True, reduces_whole_gradients=False
    ),
    rules=tuple(one for one in DEEPSPEED.rules if one not in OF_GROUPS),
)
REPLACED = ("moe_dispatcher", "overlap_moe_a2a", "delay_wgrad", "overlap_shared_experts")
"""Exchanges and overlaps of Megatron Core that those of Tutel take the place of."""
DUALPIPE = replace(
    MEGATRON_BRIDGE,
    name="megatron-dualpipe",
    version="deepseek-ai/DualPipe @3da1bbea",
    method="passes of both directions of a pipeline in pairs, as DualPipeV on half the ranks",
    # deepseek-ai/DeepEP README: dispatch of tokens in fp8, which Megatron hands none
    experts=replace(MEGATRON_BRIDGE.experts, narrow=(("fp8", "deepep"),)),
    pipeline=replace(
        MEGATRON_BRIDGE.pipeline, schedules=(*MEGATRON_BRIDGE.pipeline.schedules, "dualpipe-v")
    ),
)
"""With `overlap_moe_a2a` the exchange of a pass runs beside the other pass of its pair, as in
Megatron's interleaved passes; those that warm up and drain without a partner hide nothing."""
TUTEL = replace(
    MEGATRON_LM,
    name="tutel",
    version="microsoft/tutel @82af7aad",
    method="experts of some chunks of the tokens during the exchange of others, in two steps",
    experts=replace(MEGATRON_LM.experts, starts_by_rank=True, narrow=()),
    settings=(
        *(one for one in MEGATRON_LM.settings if one.name not in REPLACED),
        Setting("moe_dispatcher", "hierarchical", "--use_2dh", links_experts, rank=None),
        *(
            Setting(
                "moe_chunks",
                chunks,
                "--a2a_ffn_overlap_degree",
                links_experts,
                rank=None,
                idle=chunks_need_an_exchange,
            )
            for chunks in (2, 4, 8)
        ),
    ),
    stated=tuple(one for one in MEGATRON_LM.stated if one.name != "moe_dispatcher"),
)
"""Tutel's exchange in Megatron-LM's layers, in chunks and inside nodes before it goes between them;
the starts of exchanges between nodes grow with the ranks that they join, which is what two steps
save."""
FSMOE = replace(
    TUTEL,
    name="fsmoe",
    version="Pan et al., arXiv:2501.10714",
    method="as Tutel, with gathers inside nodes during the all-to-all of other chunks",
    experts=replace(TUTEL.experts, gathers_on_own_lane=True),
)
METHOD_RUNTIMES = (
    ZERO_TOPO,
    ZERO_OFFLOAD_DELAYED,
    DEEP_OPTIMIZER_STATES,
    FUYOU,
    SSDTRAIN,
    PROTRAIN,
    PATRICKSTAR,
    HARMONY,
    SE_MOE,
    DUALPIPE,
    TUTEL,
    FSMOE,
)
"""Those that no runtime has."""
