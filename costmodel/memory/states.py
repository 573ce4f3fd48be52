"""Weights, gradients and optimizer state of one rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import BYTES_BF16, BYTES_FP32
from trainplan.costmodel.candidates import Candidates, remembered
from trainplan.costmodel.columns import BoolColumn, ClassRows, FloatColumn, IntColumn, Rows
from trainplan.costmodel.job import Job
from trainplan.costmodel.kernels import sum_columns
from trainplan.costmodel.layout import SCHEDULE_NAMES
from trainplan.costmodel.layouts import LayoutTable, num_microbatches
from trainplan.costmodel.memory.tower_params import TowerParams, tower_rank_params
from trainplan.costmodel.model import (
    MIXER_COUNTS,
    latent_params,
    norm_params,
    norms_per_layer,
    router_params,
    side_params,
)
from trainplan.costmodel.optimizers import optimizer_of, updates_by_layer
from trainplan.costmodel.pipeline import Ranks
from trainplan.costmodel.runtimes import RuntimeTraits
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.shard_groups import ShardGroups, groups_of
from trainplan.costmodel.shards import (
    cast_weight_bytes,
    dense_mlp_params,
    experts_params,
    shared_experts_params,
    table_weights,
)

MTP_NORMS = 3
"""Of a multi-token-prediction module, more than its layer's: of the embedding, of the hidden
states, and the last. Source: DeepSeek-V3, arXiv:2412.19437, section 2.2; Megatron-LM
`core/transformer/multi_token_prediction.py`, enorm, hnorm and final_layernorm."""

STAGE_BY_STAGE, IN_ONE_GROUP = (
    np.array([SCHEDULES[name].stage_by_stage == when for name in SCHEDULE_NAMES])
    for when in ("always", "in one group")
)
"""Schedules by number: do the virtual stages of a rank run backward one after the other?"""


@dataclass(frozen=True, slots=True)
class BlockParams:
    """Parameters of one block on one rank, before ZeRO sharding.

    Of a matrix that `gtp` cuts the part of the rank. `expert` ones are replicated over the expert
    data parallelism, all others over `dp * cp`.
    """

    layers: tuple[Rows, ...]
    """A layer of each kind, without its routed experts."""
    experts: tuple[Rows, ...]
    """Routed experts of one layer of each kind."""
    embedding: Rows
    head: Rows
    mtp: Rows
    """One multi-token-prediction module without its routed experts."""
    mtp_experts: Rows
    tower: TowerParams
    """Next to the embedding; not in it."""
    trained: BlockParams | None = None
    """Those of them that are trained; null: all."""

    def take(self, rows: IntColumn) -> BlockParams:
        """The rows picked by an index."""
        return BlockParams(
            tuple(one[rows] for one in self.layers),
            tuple(one[rows] for one in self.experts),
            self.embedding[rows],
            self.head[rows],
            self.mtp[rows],
            self.mtp_experts[rows],
            self.tower.take(rows),
            self.trained and self.trained.take(rows),
        )

    @property
    def with_gradients(self) -> BlockParams:
        """Those that are trained."""
        return self.trained or self

    @property
    def largest_layer(self) -> Rows:
        """Most parameters of a layer without its routed experts. Source: `layer_rank_params`."""
        return np.asarray(np.max(self.layers, axis=0))

    @property
    def most_experts(self) -> Rows:
        """Most parameters of the routed experts of one layer. Source: `layer_rank_params`."""
        return np.asarray(np.max(self.experts, axis=0))


@dataclass(frozen=True, slots=True)
class RankParams:
    """Parameters of each rank class."""

    shared: ClassRows
    """Replicated over dp and cp."""
    expert: ClassRows
    """Replicated over the expert data parallelism."""
    has_experts: bool = True
    trained: RankParams | None = None
    """Those of them that are trained; null: all."""

    def take(self, rows: IntColumn) -> RankParams:
        """The rows picked by an index."""
        expert = self.expert[:, rows] if self.has_experts else self.expert
        trained = self.trained and self.trained.take(rows)
        return RankParams(self.shared[:, rows], expert, self.has_experts, trained)

    @property
    def with_gradients(self) -> RankParams:
        """Those that are trained."""
        return self.trained or self

    @property
    def frozen(self) -> RankParams:
        """Those that are not trained.

        Source: derived; a rank holds what is trained and what is not, so the rest is frozen.
        """
        own = self.with_gradients
        return RankParams(self.shared - own.shared, self.expert - own.expert)

    def weighted(self, shared: FloatColumn, expert: FloatColumn) -> FloatColumn:
        """Sum over the parameters of a weight for either sort.

        Source: parameters of one sort are equal, so each sort adds its number times its own weight,
        and the sum of both is that of all.
        """
        total = self.shared * shared
        return total + self.expert * expert if self.has_experts else total


def mixer_rank_params(model: ModelSpec, table: LayoutTable) -> FloatColumn:
    """What mixes tokens in one layer, and its norms, on one rank.

    Source: Shoeybi et al., arXiv:1909.08053, section 3; norms and MLA down-projections are whole;
    of other mixers `MIXER_COUNTS`.
    """
    mixer = MIXER_COUNTS[model.mixer]
    whole = mixer.whole(model) + norms_per_layer(model) * norm_params(model)
    return mixer.divided(model) / (table.tp * table.gtp) + whole + side_params(model)


def layer_rank_params(model: ModelSpec, table: LayoutTable) -> tuple[FloatColumn, FloatColumn]:
    """A layer of a model with one kind on one rank, and its routed experts separate.

    Source: derived from `model.params` and the two mappings of arXiv:2504.14960, section 3.
    """
    mixer, moe = mixer_rank_params(model, table), model.moe
    if model.own_weights is not None:
        return np.full(len(table), float(model.own_weights)), np.zeros(len(table))
    if moe is None:
        return mixer + dense_mlp_params(model, table, table.gtp), np.zeros(len(table))
    shared = shared_experts_params(model, moe, table, table.gtp) + latent_params(model, moe)
    routed = experts_params(model, moe, table, table.egtp)
    return mixer + router_params(model, moe) + shared, routed


def modules_alike(model: ModelSpec) -> int:
    """Multi-token-prediction modules that have the same weights."""
    return max(1, model.num_nextn_predict_layers) if model.nextn_shared else 1


def block_params(job: Job, table: LayoutTable) -> BlockParams:
    """Parameters of every kind of block on one rank, no adapters.

    Source: as `layer_rank_params`.
    """
    model = job.model
    layers, experts = zip(*(layer_rank_params(kind, table) for kind in model.kinds), strict=True)
    rows = table_weights(model, table) / table.gtp
    learned = model.position_embedding == "learned"
    positions = model.max_position_embeddings * model.hidden_size if learned else 0
    tied_copy = np.where(table.pp > 1, rows, 0.0)
    modules = max(1, model.num_nextn_predict_layers)
    mtp_embedding = tied_copy / modules
    alike = modules_alike(model)
    mtp = sum_columns(layers[kind] for kind in model.kinds_of_module)
    mtp = mtp + 2 * model.hidden_size**2 / (table.tp * table.gtp)
    mtp = mtp + MTP_NORMS * norm_params(model)
    normed = norm_params(model) if model.embedding_norm else 0
    bias = model.vocab_size / table.tp if model.head_bias else 0
    return BlockParams(
        layers=layers,
        experts=experts,
        embedding=rows + positions + normed + model.embedding_weights / table.tp,
        head=(tied_copy if model.tie_word_embeddings else rows) + norm_params(model) + bias,
        mtp=mtp / alike + mtp_embedding,
        mtp_experts=sum_columns(experts[kind] for kind in model.kinds_of_module) / alike,
        tower=tower_rank_params(model.tower, table),
    )


def rank_params(ranks: Ranks, params: BlockParams) -> RankParams:
    """Parameters of each rank class.

    Source: a rank holds whole blocks, so its parameters are for each kind the number of its blocks
    times the parameters of one, experts separate.
    """
    first = params.embedding + params.tower.trained
    shared = ranks.embedding * first + ranks.head * params.head
    expert = np.zeros((1, 1))
    for count, layer, experts in zip(ranks.layers, params.layers, params.experts, strict=True):
        if count.any():
            shared += count * layer
            expert = expert + count * experts if experts.any() else expert
    if ranks.mtp.any():
        shared += ranks.mtp * params.mtp
        expert = expert + ranks.mtp * params.mtp_experts
    trained = rank_params(ranks, params.trained) if params.trained else None
    return RankParams(shared, expert, bool(expert.any()), trained)


def updated_params(table: LayoutTable, params: RankParams) -> FloatColumn:
    """Parameters each rank updates after sharding. Source: ZeRO, arXiv:1910.02054, section 5.1."""
    dense, expert = groups_of(table)
    return params.with_gradients.weighted(1 / dense.optimizer, 1 / expert.optimizer)


@remembered
def weight_bytes_per_param(candidates: Candidates, groups: ShardGroups) -> FloatColumn:
    """Bytes of weights one rank keeps for a parameter of its part.

    Source: ZeRO, arXiv:1910.02054, section 5.3 (stage 3 shards weights); PyTorch FSDP,
    arXiv:2304.11277, section 3.2 (the fp32 shard is the master weight, counted with the optimizer);
    ZeRO++, arXiv:2306.10013, section 3.2 (a second copy over `hpz` ranks).
    """
    job, traits = candidates.job, candidates.traits
    copies: float = job.training.storage_bytes
    if traits.footprint.weight_bytes is not None:
        copies = traits.footprint.weight_bytes
    elif job.training.casts:
        copies = low_precision_weight_bytes(job, traits)
    sharded = 0 if traits.footprint.sharded_weights_are_master else copies / groups.weights
    hpz = candidates.table.hpz
    second = np.where(hpz > 1, copies / hpz, 0.0)
    return np.where(candidates.table.zero_stage == 3, sharded + second, copies)


def low_precision_weight_bytes(job: Job, traits: RuntimeTraits) -> float:
    """Bytes of one weight of a product in low precision, by `LowPrecision`.

    Source: `cast_weight_bytes`; Megatron-LM `--fp8-param-gather` for weights that exist in low
    precision only.
    """
    kept = traits.footprint.low_precision
    copies = 0.0 if kept == "cast" else cast_weight_bytes(job)
    return copies + (0 if kept == "primary" else BYTES_BF16)


def gradients_follow(traits: RuntimeTraits, table: LayoutTable) -> Rows:
    """1 where gradients are offloaded with the optimizer: sharded ones, where a runtime does so.

    Source: `Offloading.gradients`; Rajbhandari et al., ZeRO-Infinity, arXiv:2104.07857.
    """
    return np.asarray(1.0 * (traits.offloading.gradients & (table.zero_stage >= 2)))


def whole_sum_bytes(job: Job, traits: RuntimeTraits, table: LayoutTable) -> FloatColumn:
    """Bytes of one accumulated gradient where none is sharded.

    Source: `Gradients.narrow` and `Gradients.widened_by_pipeline`; DeepSpeed v0.6.2
    `runtime/pipe/engine.py`: bf16 under a pipeline has the bf16 optimizer alone.
    """
    gradients, storage = traits.gradients, job.training.storage_bytes
    usual = gradients.accumulated_bytes if gradients.narrow else storage
    usual = max(usual, gradients.accumulated_bytes)
    wide = gradients.widened_by_pipeline and job.training.precision == "bf16"
    return np.where(wide & (table.pp > 1), max(usual, BYTES_FP32), usual)


@remembered
def gradient_bytes_per_param(candidates: Candidates, groups: ShardGroups) -> FloatColumn:
    """Bytes of accumulated gradients, never fewer than those of a weight unless stored in 8 bits.

    None wait for the step where every layer is updated by itself; next to wider sums those of one
    micro batch may wait too.
    Source: ZeRO, arXiv:1910.02054, section 5.2 (stage 2); `Gradients.kept_with_sums` and
    `keeps_buckets`;
    `Sharding.whole_under_pipeline`:
    whole sums of the virtual stages that run backward, next to their shards, which have memory of
    their own: PyTorch `_fsdp_collectives.py`, foreach_reduce, makes them on another stream.
    """
    job, traits, table = candidates.job, candidates.traits, candidates.table
    gradient = max(traits.gradients.accumulated_bytes, job.training.storage_bytes)
    if traits.gradients.narrow:
        gradient = traits.gradients.accumulated_bytes
    if updates_by_layer(job):
        gradient = 0
    sharded = gradient / groups.gradients
    plain = traits.adapting.replicated(job, table)
    sums = whole_sum_bytes(job, traits, table) * (gradient > 0)
    alongside = traits.gradients.kept_with_sums & (sums > job.training.storage_bytes)
    waiting = job.training.storage_bytes * alongside
    whole_bytes = np.where(plain, job.training.storage_bytes, sums + waiting)
    twice = traits.gradients.keeps_buckets & (table.zero_stage == 0) & (table.dp > 1)
    whole_bytes = np.where(twice, 2 * whole_bytes, whole_bytes)
    kept = 1 - gradients_follow(traits, table) * table.offload_optimizer
    usual = np.where(table.zero_stage >= 2, sharded * kept, whole_bytes)
    if not traits.sharding.whole_under_pipeline:
        return usual
    whole = gradient / stages_one_by_one(job, table) + gradient / groups.optimizer
    return np.where(sums_whole(traits, table, groups), whole, usual)


def sums_whole(traits: RuntimeTraits, table: LayoutTable, groups: ShardGroups) -> BoolColumn:
    """Are sharded gradients summed whole? Source: `Sharding.whole_under_pipeline`."""
    sharded = (groups.optimizer > 1) & (table.pp > 1)
    return np.asarray(sharded & traits.sharding.whole_under_pipeline)


def stages_one_by_one(job: Job, table: LayoutTable) -> FloatColumn:
    """Virtual stages of a rank, if each ends all of its backward passes before the next begins.

    They do breadth first, and interleaved where all micro batches are one group; else 1.
    Source: torch.distributed.pipelining `schedules.py`, `ScheduleInterleaved1F1B`: the stages of a
    rank take turns group by group, and there are num_microbatches // pp groups.
    """
    one_group = num_microbatches(job, table) < 2 * table.pp
    alone = STAGE_BY_STAGE[table.schedule] | (IN_ONE_GROUP[table.schedule] & one_group)
    return np.where(alone, table.vpp, 1.0)


@remembered
def optimizer_bytes_per_param(candidates: Candidates, groups: ShardGroups) -> FloatColumn:
    """Bytes of optimizer state on the GPU: an fp32 master weight and moments, two of Adam.

    Weights that are fp32 themselves, or updated in the type they have, need no master, nor do
    `Adapting.plain_replicas`; moments of an
    optimizer whose state depends on the shapes of matrices are `block_state_bytes`.
    Source: ZeRO, arXiv:1910.02054, sections 3.1 (K = 12) and 5.1 (stage 1); ZeRO-Offload,
    arXiv:2101.06840, section 3.
    """
    (job, _, traits), table = candidates.shared, candidates.table
    low = job.training.storage_bytes < BYTES_FP32
    plain = traits.adapting.replicated(job, table)
    footprint, whole = traits.footprint, table.zero_stage == 0
    alike = footprint.master_bytes == job.training.storage_bytes
    updated = footprint.sharded_weights_are_master and alike
    master = np.where(low & ~plain & ~(whole & updated), footprint.master_bytes, 0)
    moments = optimizer_of(job.training.optimizer).moments or 0
    state = master + moments * footprint.moment_bytes
    return np.asarray(state * (1 - table.offload_optimizer) / groups.optimizer)
