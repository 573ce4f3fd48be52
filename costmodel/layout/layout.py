"""One answer: how the training job is cut over the ranks."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Literal, Self, get_args

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from trainplan.costmodel.spec import Degree, Spec, Whole, WholeOrZero

Recompute = Literal["none", "selective", "full"]
Schedule = Literal[
    "1f1b",
    "interleaved",
    "zb-1p",
    "zb-2p",
    "gpipe",
    "breadth-first",
    "zb-h1",
    "zb-h2",
    "zb-v",
    "v-half",
    "v-min",
    "dualpipe-v",
]

RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
SCHEDULE_NAMES: tuple[Schedule, ...] = get_args(Schedule)
"""Schedules a layout may name; their places are codes, so new ones go to the end."""
RECOMPUTE_METHODS: tuple[Literal["uniform", "block"] | None, ...] = (None, "uniform", "block")
RECOMPUTE_MODULES = (
    "core_attn",
    "layernorm",
    "mla_up_proj",
    "mlp",
    "moe_act",
    "shared_experts",
    "moe",
    "torchtitan_selective_op",
    "maxtext_save_qkv_proj",
    "gdn_norm_out",
)
"""Parts of a layer that selective recomputation may drop; names as in Megatron Core, and two for
policies over operations, one of torchtitan and one of MaxText."""


OFFLOAD_MODULES = ("qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act")
"""Parts of a layer whose inputs may wait in host memory for the backward pass; names as in Megatron
Core."""


Tier = Literal["cpu", "nvme"]
TIERS: tuple[Tier, ...] = get_args(Tier)
"""Where offloaded states lie: in host memory, or on the drives of the node."""
PARAMETER_TIERS: tuple[Tier | None, ...] = (None, *TIERS)


class OffloadSpec(Spec):
    """What is kept outside GPU memory."""

    optimizer: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of the optimizer's states that the processors update."""
    tier: Tier = "cpu"
    """Where that share lies."""
    parameters: Tier | None = None
    """Where weights lie between passes; null: on the GPU."""
    checkpoints: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of what is kept from forward to backward passes that is off the GPU between them: of a
    recomputed layer its input."""
    stride: WholeOrZero = 0
    """Of the subgroups of an offloaded optimizer every `stride`-th is updated on the GPU; 0: none.
    """

    @model_validator(mode="before")
    @classmethod
    def _read(cls, values: object) -> object:
        """Documents state `parameters_tier`; `parameters` of a plan is a share."""
        if not isinstance(values, dict) or "parameters_tier" not in values:
            return values
        rest = {name: value for name, value in values.items() if name != "parameters_tier"}
        return {**rest, "parameters": values["parameters_tier"]}

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        """As `_read` reads it."""
        values = dict(handler(self))
        if "parameters" in values:  # not where defaults are left out
            values["parameters_tier"] = values.pop("parameters")
        return values

    @model_validator(mode="after")
    def _stride_leaves_some(self) -> Self:
        if self.stride == 1:
            raise ValueError("offload.stride = 1 would update all on the GPU: use 0, or 2 and more")
        return self


class StageSpec(Spec):
    """What one virtual stage holds, where stages are not all equal."""

    layers: WholeOrZero
    """Decoder layers, the next of the model after those of the stage before."""
    recompute_num_layers: WholeOrZero | None = None
    """The first so many of them are recomputed in full; null: as many as the layout states. Belongs
    to `recompute="full"` with the block method."""
    group: WholeOrZero = 0
    """Node group that runs it, by its place in the cluster; all 0: groups are not distinguished."""


class ShardSpec(Spec):
    """Ranks that share one copy of each state: neighbours among the `dp * cp` of a layout."""

    weights: Degree = 1
    gradients: Degree = 1
    optimizer: Degree = 1

    @model_validator(mode="after")
    def _each_in_the_next(self) -> Self:
        if self.gradients % self.weights or self.optimizer % self.gradients:
            raise ValueError(
                f"{self.text}: gradients take a multiple of the ranks of weights, and the "
                "optimizer of those of gradients"
            )
        return self

    @property
    def text(self) -> str:
        """As `--layout` takes it."""
        return "+".join(f"{name}:{ranks}" for name, ranks in self)

    @property
    def zero_stage(self) -> int:
        """The stage that shards the same states."""
        return sum(ranks > 1 for _, ranks in self)

    def by_stage(self, ranks: int) -> dict[str, int | bool] | None:
        """Fields of a layout with so many ranks that mean the same; None where none do."""
        sizes = {one for _, one in self if one > 1} or {ranks}
        found: dict[str, int | bool] = {"zero_stage": self.zero_stage}
        if len(sizes) == 1:
            return {**found, "dp_replicate": ranks // min(sizes)}
        if self.weights == self.gradients and self.optimizer == ranks:
            copies = ranks // self.weights
            return {**found, "dp_replicate": copies, "replicas_share_optimizer": True}
        return None


def stage_specs(layers: Iterable[int]) -> tuple[StageSpec, ...]:
    """Virtual stages that differ in nothing but their number of layers."""
    return tuple(StageSpec(layers=count) for count in layers)


class Layout(Spec):
    """One complete parallel layout.

    Two mappings share only `pp`: attention (`tp`, `cp`, `dp`) and experts (`etp`, `ep`, and the
    expert data parallelism `tp * cp * dp / (etp * ep)`). World size is `tp * cp * pp * dp`.
    """

    tp: Degree = 1
    """Tensor parallelism of attention and dense MLP."""
    pp: Degree = 1
    """Pipeline ranks."""
    vpp: Degree = 1
    """Virtual stages on one pipeline rank."""
    cp: Degree = 1
    """Context parallelism: the sequence is cut in `cp` pieces."""
    cp_heads: Degree = 1
    """Of the context ranks so many neighbours exchange heads for sequence, inside a ring of the
    others; 1: one way of exchange for all."""
    dp: Degree = 1
    """Data parallelism."""
    ep: Degree = 1
    """Expert parallelism."""
    etp: Degree = 1
    """Tensor parallelism inside an expert."""
    gtp: Degree = 1
    """Generalised tensor parallelism: of the `dp` ranks so many neighbours cut the matrices of a
    tensor rank, and gather each for every use."""
    egtp: Degree = 1
    """The same of experts, over so many ranks of the expert data parallelism."""
    dp_replicate: Degree = 1
    """HSDP: states are sharded over `dp / dp_replicate` replicas and replicated over the rest."""
    replicas_share_optimizer: bool = False
    """HFSDP: the `dp_replicate` copies of a shard share out its optimizer among them."""
    hpz: Degree = 1
    """Under ZeRO-3 so many neighbours share a second copy of the weights, from which all passes of
    a step but the first forward pass gather them; 1: there is none."""
    shard: ShardSpec | None = None
    """States sharded over different numbers of ranks; null: as ZeRO stage and copies have it."""
    zero_stage: int = Field(default=1, ge=0, le=3)
    """0: replicated; 1: optimizer sharded; 2: also gradients; 3: also weights (FSDP)."""
    sequence_parallel: bool = False
    """Norms and residual stream are cut along the sequence over the `tp` ranks."""
    micro_batch_size: Whole = 1
    """Sequences per micro batch on one replica."""
    schedule: Schedule = "1f1b"
    """`1f1b`, `interleaved`, or another that the runtime executes: `gpipe`, `breadth-first`,
    `zb-h1`, `zb-h2`, `zb-1p`, `zb-2p`, `zb-v`, `v-half`, `v-min`, `dualpipe-v`."""
    recompute: Recompute = "none"
    """`none`, `selective` (some modules) or `full` (whole layers)."""
    recompute_modules: tuple[str, ...] = ()
    """What `recompute="selective"` recomputes."""
    recompute_method: Literal["uniform", "block"] | None = None
    """How `recompute="full"` is laid: every group of layers, or the first layers of each stage."""
    recompute_num_layers: Whole | None = None
    """Layers per group (uniform), or recomputed layers per virtual stage (block)."""
    offload: OffloadSpec = OffloadSpec()
    """What is kept off the GPU."""
    offload_modules: tuple[str, ...] = ()
    """Parts of every layer whose activations are copied to host memory and back."""
    tiled_loss: bool = False
    """Output projection and loss run on one tile of tokens at a time; the runtime sets how many."""
    tiled_mlp: bool = False
    """So do MLPs."""
    stages: tuple[StageSpec, ...] | None = None
    """Virtual stages in pipeline order; null: the even split of `costmodel.layouts.even_split`."""

    @model_validator(mode="before")
    @classmethod
    def _shards_by_stage(cls, values: object) -> object:
        """`shard` as ZeRO stage and copies of shards where these mean the same."""
        if not isinstance(values, dict) or values.get("shard") is None:
            return values
        shard = ShardSpec.model_validate(values["shard"])
        degrees = values.get("dp", 1), values.get("cp", 1)
        if not all(isinstance(one, int) and one > 0 for one in degrees):
            return values  # of which others complain
        ranks = prod(degrees)
        if ranks % shard.optimizer:
            raise ValueError(f"shard: {shard.optimizer} ranks do not divide dp * cp = {ranks}")
        said = {
            "zero_stage": shard.zero_stage,
            "dp_replicate": 1,
            "replicas_share_optimizer": False,
        }
        same = shard.by_stage(ranks)
        for name, value in said.items():
            if values.get(name, value) not in (value, (same or {}).get(name)):
                raise ValueError(f"shard = {shard.text} states who shares what: leave {name} out")
        whole = {**values, "shard": shard, **said}
        return {**whole, "shard": None, **same} if same else whole

    @field_validator("schedule", mode="before")
    @classmethod
    def _two_directions_fold(cls, name: object) -> object:
        """Source: `costmodel.schedules.programs.bidirectional`, DUALPIPE."""
        if name == "dualpipe":
            raise ValueError(
                "dualpipe is the same step as dualpipe-v on half the ranks of a pipeline: "
                "use schedule=dualpipe-v with half of pp, vpp=2 and twice dp"
            )
        return name

    @model_validator(mode="after")
    def _policy_is_whole(self) -> Self:
        unknown = set(self.recompute_modules) - set(RECOMPUTE_MODULES)
        if unknown:
            raise ValueError(
                f"recompute_modules {sorted(unknown)} unknown: use {', '.join(RECOMPUTE_MODULES)}"
            )
        unknown = set(self.offload_modules) - set(OFFLOAD_MODULES)
        if unknown:
            raise ValueError(
                f"offload_modules {sorted(unknown)} unknown: use {', '.join(OFFLOAD_MODULES)}"
            )
        if (self.recompute == "selective") != bool(self.recompute_modules):
            raise ValueError("recompute_modules belong to recompute=selective, and it needs some")
        details = (self.recompute_method is not None, self.recompute_num_layers is not None)
        if details != ((self.recompute == "full"),) * 2:
            raise ValueError(
                "recompute_method and recompute_num_layers belong to recompute=full: give both"
            )
        if self.dp % self.dp_replicate:
            raise ValueError(f"dp_replicate = {self.dp_replicate} does not divide dp = {self.dp}")
        return self

    @model_validator(mode="after")
    def _stages_are_whole(self) -> Self:
        if self.stages is None:
            return self
        if len(self.stages) != self.pp * self.vpp:
            raise ValueError(
                f"stages has {len(self.stages)} entries, pp * vpp is {self.pp * self.vpp}"
            )
        own = any(stage.recompute_num_layers is not None for stage in self.stages)
        if own and self.recompute_method != "block":
            raise ValueError(
                "recompute_num_layers of stages belong to recompute=full with the block method"
            )
        return self

    @property
    def world_size(self) -> int:
        """GPUs it needs."""
        return self.tp * self.cp * self.pp * self.dp

    def resized(self, num_gpus: int) -> Layout | None:
        """The same on other GPUs, data parallelism filling them; None where it cannot."""
        dp, rest = divmod(num_gpus, self.world_size // self.dp)
        if rest or dp == 0 or dp % self.dp_replicate or dp % self.gtp:
            return None
        return self.model_copy(update={"dp": dp})

    @property
    def dp_shard(self) -> int:
        """Replicas one copy of the states is sharded over."""
        return self.dp // self.dp_replicate
