"""Values that a search tries, as functions of the job and of what its runtime executes."""

from collections.abc import Mapping
from itertools import product
from typing import Any

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.catalog import device, host_of
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import ShardSpec
from trainplan.costmodel.layouts import EMPTY_ENDS
from trainplan.costmodel.runtimes import Offload, RuntimeTraits
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.shards import heads_to_cut

LARGEST_MICRO_BATCH = 64


def divisors(number: int) -> tuple[int, ...]:
    """All divisors in ascending order."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def degrees(job: Job, traits: RuntimeTraits) -> tuple[int, ...]:
    """Divisors of the world size."""
    return divisors(job.cluster.num_gpus)


LONG_SEQUENCE = 32_768
"""Tokens of a sequence from which heads are exchanged inside rings.

Source: measured; at 16,384 one of four jobs became faster (by 1.2 %: two sequences on 32 GPUs), and
searches took up to 1.5 times as long.
"""


def has_ring(model: ModelSpec) -> bool:
    """A ring of context ranks has no windows or sinks.

    Source: Transformer Engine @d0067d0d `context_parallel.py`, attn_forward_func_with_cp.
    """
    return not model.attention_sinks and model.num_sliding_window_layers == 0


def ring_heads(job: Job, traits: RuntimeTraits) -> tuple[int, ...]:
    """Values of cp_heads."""
    nests = traits.communication.heads_in_ring and has_ring(job.model)
    if not nests or job.training.seq_length < LONG_SEQUENCE:
        return (1,)
    heads = heads_to_cut(job.model)
    return tuple(n for n in degrees(job, traits) if heads % n == 0)


def expert_degrees(job: Job, traits: RuntimeTraits) -> tuple[int, ...]:
    """Values of ep and etp; 1 for a dense model."""
    return degrees(job, traits) if job.model.moe else (1,)


def weight_shards(job: Job, traits: RuntimeTraits) -> tuple[int, ...]:
    """Values of gtp.

    Tried where the job allows it: no published run says what it costs in time.
    """
    tried = traits.sharding.by_matrix and job.may_shard_matrices
    return degrees(job, traits) if tried else (1,)


def expert_weight_shards(job: Job, traits: RuntimeTraits) -> tuple[int, ...]:
    """Values of egtp; as `weight_shards`."""
    return weight_shards(job, traits) if job.model.moe else (1,)


def micro_batch_sizes(job: Job, traits: RuntimeTraits) -> tuple[int, ...]:
    """Every power of two and every divisor of the batch, up to `LARGEST_MICRO_BATCH`."""
    powers = {1 << n for n in range(LARGEST_MICRO_BATCH.bit_length())}
    sizes = powers | set(divisors(job.training.global_batch_size))
    return tuple(sorted(s for s in sizes if s <= LARGEST_MICRO_BATCH))


def replicas(job: Job, traits: RuntimeTraits) -> tuple[int, ...]:
    """Values of dp_replicate with any ZeRO stage."""
    return degrees(job, traits) if traits.sharding.in_groups else (1,)


def zero_stages_under(job: Job, traits: RuntimeTraits, known: Mapping[str, Any]) -> tuple[int, ...]:
    """Values of zero_stage; where ZeRO-2 and 3 are ZeRO-1 under a pipeline, not the same again."""
    whole = known["pp"] > 1 and traits.sharding.whole_under_pipeline
    return tuple(stage for stage in traits.sharding.zero_stages if not (whole and stage >= 2))


def replicas_under(job: Job, traits: RuntimeTraits, known: Mapping[str, Any]) -> tuple[int, ...]:
    """Values of dp_replicate.

    Under ZeRO-1, where every weight is sent once a step, only where the job asks: of 15 jobs one
    became faster by more than 0.1 % (by 0.3 %), and searches took up to 2.2 times as long.
    """
    stage, stages = known["zero_stage"], job.cluster.num_gpus // known["pp"]
    if stage >= 2 or (stage == 1 and job.may_replicate_shards):
        return tuple(n for n in replicas(job, traits) if stages % n == 0)
    return (1,)


def shared_optimizers(job: Job, traits: RuntimeTraits) -> tuple[bool, ...]:
    """Values of replicas_share_optimizer.

    Tried where the job asks: of 4 jobs none became faster by more than 0.3 %, and searches took up
    to 1.2 times as long.
    """
    tried = traits.sharding.over_replicas and job.may_replicate_shards
    return (False, True) if tried else (False,)


def shared_optimizers_under(
    job: Job, traits: RuntimeTraits, known: Mapping[str, Any]
) -> tuple[bool, ...]:
    """The same where there are copies of shards of weights."""
    copies = known["zero_stage"] == 3 and known["dp_replicate"] > 1
    return shared_optimizers(job, traits) if copies else (False,)


def second_copies(job: Job, traits: RuntimeTraits) -> tuple[int, ...]:
    """Values of hpz: none, and one in every node, or in every rack whose GPUs share links.

    Fewer ranks have more bytes each and the same links; more have those of the network.
    """
    if not traits.sharding.zero_plus_plus:
        return (1,)
    groups = job.cluster.groups
    sizes = {max(one.gpus_per_node, one.domain_gpus(device(one))) for one in groups}
    return (1, *(sizes if len(sizes) == 1 and 1 < min(sizes) < job.cluster.num_gpus else ()))


def second_copies_under(
    job: Job, traits: RuntimeTraits, known: Mapping[str, Any]
) -> tuple[int, ...]:
    """The same where weights are sharded."""
    return second_copies(job, traits) if known["zero_stage"] == 3 else (1,)


def shard_groups_tried(job: Job, traits: RuntimeTraits) -> tuple[ShardSpec | None, ...]:
    """Values of shard: weights and gradients inside a node, the optimizer over any ranks.

    Source: Xu et al., arXiv:2501.04266, section IV: groups are levels of the network.
    """
    if not traits.sharding.by_state:
        return (None,)
    every, node = degrees(job, traits), max(group.gpus_per_node for group in job.cluster.groups)
    inside = [one for one in every if one <= node]
    groups = product(inside, inside, every)
    chains = (one for one in groups if one[1] % one[0] == 0 and one[2] % one[1] == 0)
    specs = (ShardSpec(weights=w, gradients=g, optimizer=o) for w, g, o in chains)
    return (None, *(one for one in specs if len({n for _, n in one if n > 1}) > 1))


def shard_groups_under(
    job: Job, traits: RuntimeTraits, known: Mapping[str, Any]
) -> tuple[ShardSpec | None, ...]:
    """Those that shard what the ZeRO stage does, where nothing else says how."""
    free = known["dp_replicate"] == 1 and not known["replicas_share_optimizer"]
    tried = shard_groups_tried(job, traits) if free else (None,)
    return tuple(one for one in tried if one is None or one.zero_stage == known["zero_stage"])


def schedules_under(job: Job, traits: RuntimeTraits, known: Mapping[str, Any]) -> tuple[str, ...]:
    """Values of schedule: those that run vpp. One rank has nothing to schedule: it runs 1F1B."""
    names = traits.pipeline.schedules if known["pp"] > 1 else ("1f1b",)
    runs = {name: (SCHEDULES[name].least_vpp, SCHEDULES[name].most_vpp) for name in names}
    return tuple(name for name in names if runs[name][0] <= known["vpp"] <= runs[name][1])


def virtual_stages(job: Job, pp: int) -> tuple[int, ...]:
    """Values of vpp: those that divide a rank's layers, or all where layers do not divide."""
    layers = job.model.num_hidden_layers
    if pp > 1 and layers % pp == 0:
        return divisors(layers // pp)
    return any_virtual_stages(job, pp)


def any_virtual_stages(job: Job, pp: int) -> tuple[int, ...]:
    """Values of vpp where layers need not divide: all that leave no stage empty but the ends."""
    layers = job.model.num_hidden_layers
    if pp == 1 or pp > layers:
        return (1,)
    return tuple(range(1, (layers + EMPTY_ENDS) // pp + 1))


def all_virtual_stages(job: Job, traits: RuntimeTraits) -> tuple[int, ...]:
    """Values of vpp with any pp."""
    return tuple(sorted({vpp for pp in _pipelines(job, traits) for vpp in virtual_stages(job, pp)}))


def recomputed_layers(job: Job, traits: RuntimeTraits) -> tuple[int | None, ...]:
    """Values of recompute_num_layers with any pp and vpp."""
    largest = max(-(-job.model.num_hidden_layers // pp) for pp in _pipelines(job, traits))
    return (None, *range(1, largest + 1))


def _pipelines(job: Job, traits: RuntimeTraits) -> list[int]:
    """Values of pp that leave no rank without a layer."""
    return [pp for pp in degrees(job, traits) if pp <= job.model.num_hidden_layers]


def recompute_subsets(job: Job, traits: RuntimeTraits) -> tuple[tuple[str, ...], ...]:
    """Values of recompute_modules."""
    return traits.recompute.subsets(job.model)


def tiled_losses(job: Job, traits: RuntimeTraits) -> tuple[bool, ...]:
    """Values of tiled_loss."""
    if traits.tiling.fused_loss:
        return (job.options.liger is not None,)
    return (False, True) if traits.tiling.loss else (False,)


def tiled_mlps(job: Job, traits: RuntimeTraits) -> tuple[bool, ...]:
    """Values of tiled_mlp."""
    return (False, True) if traits.tiling.mlp else (False,)


def tiled_mlps_under(job: Job, traits: RuntimeTraits, known: Mapping[str, Any]) -> tuple[bool, ...]:
    """Values of tiled_mlp: nothing is tiled, the loss, the MLPs as well.

    A tiled loss costs little time, tiled MLPs a pass more: who lacks memory takes them in this
    order.
    """
    return tiled_mlps(job, traits) if known["tiled_loss"] else (False,)


def offloads(job: Job, traits: RuntimeTraits) -> tuple[Offload, ...]:
    """Values of offload_modules besides none, with what is recomputed beside them.

    Tried where the job allows it: no published run says what it costs in time.
    """
    return traits.offloading.choices(job.model) if job.may_offload_activations else ()


def has_drives(job: Job) -> bool:
    """May state lie on drives: does every node have some, of known speed?"""
    drives = [host.drives if (host := host_of(group)) else None for group in job.cluster.groups]
    return all(one is not None and one.read_gb_per_s is not None for one in drives)


def tiers(job: Job, traits: RuntimeTraits) -> tuple[str, ...]:
    """Values of offload.tier; of a runtime that knows drives alone, those that a rule refuses."""
    known = traits.offloading.tiers
    return tuple(one for one in known if one == "cpu" or has_drives(job)) or known


def moved_parameters(job: Job, traits: RuntimeTraits) -> tuple[str | None, ...]:
    """Values of offload.parameters; of a runtime that knows drives alone, as `tiers`."""
    known = traits.offloading.parameters
    return tuple(one for one in known if one != "nvme" or has_drives(job)) or known


def offloaded(job: Job, traits: RuntimeTraits) -> tuple[tuple[str, ...], ...]:
    """Values of offload_modules."""
    return tuple(dict.fromkeys(((), *(one.modules for one in offloads(job, traits)))))
