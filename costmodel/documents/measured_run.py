"""One measured training run, or one "it fits" / "it does not" label, as `runs/v1` files hold them.

Null means that the publication does not state it. Files carry more than the model reads
(quotations, remarks, per-line addresses): `NOT_READ` names what the schema has beyond it,
`unknown_names` finds what neither has, such as a misspelt option.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Literal, get_args

from pydantic import (
    ConfigDict,
    Field,
    model_validator,
)

from trainplan.costmodel.job import Attention, CrossEntropy, StatePrecision
from trainplan.costmodel.spec import Amount, Degree, OneLine, Spec, Whole, WholeOrZero

MemoryKind = Literal["allocated", "reserved", "device"]
MemoryRank = Literal["max", "first", "last", "logged_node"]
NOT_READ = frozenset(
    {
        "notes",
        "cluster.nominal_intra_gb_per_s",
        "layout.grad_accum",
        "layout.layer_split",
        "layout.overlap.fsdp_prefetch",
        "layout.overlap.p2p",
        "layout.overlap_note",
        "layout.per_stage.checkpoint_activations",
        "layout.per_stage.dp_hist",
        "layout.per_stage.gpus",
        "layout.per_stage.recompute_ops",
        "layout.per_stage.tp_hist",
        "layout.recompute_uncertain",
        "measured.derived",
        "measured.peak_memory_note",
    }
)
"""Names of `runs/v1` that no prediction depends on: remarks, and what other fields state."""


Name = OneLine
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class _Record(Spec):
    model_config = ConfigDict(extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _null_is_not_stated(cls, values: object) -> object:
        """A null is what a missing key is, whatever a field is without one."""
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if value is not None}


class RunMla(_Record):
    """Multi-head latent attention."""

    q_lora_rank: Whole | None = None
    kv_lora_rank: Whole
    qk_nope_head_dim: Whole
    qk_rope_head_dim: Whole
    v_head_dim: Whole


class RunMoe(_Record):
    """Mixture of experts."""

    num_experts: Whole
    top_k: Whole
    expert_intermediate_size: Whole
    shared_expert_intermediate_size: WholeOrZero | None = None
    num_dense_layers: WholeOrZero | None = None


class RunModel(_Record):
    """Dimensions of the model."""

    name: Name = "custom"
    num_layers: Whole | None = None
    hidden_size: Whole | None = None
    intermediate_size: Whole | None = None
    num_attention_heads: Whole | None = None
    num_key_value_heads: Whole | None = None
    head_dim: Whole | None = None
    vocab_size: Whole | None = None
    gated_mlp: bool | None = None
    tie_word_embeddings: bool | None = None
    mla: RunMla | None = None
    sliding_window_layers: str | int | None = None
    moe: RunMoe | None = None
    mtp_layers: WholeOrZero | None = None


class RunWide(_Record):
    """Products that multiply in 16 bits where the others multiply in fewer."""

    layers_at_start: WholeOrZero = 0
    layers_at_end: WholeOrZero = 0
    attention: bool = False
    """Those of every layer that attends."""
    mtp: bool = False
    """Those of multi-token prediction."""
    latent: bool = False
    """Those between the hidden size and the width of experts."""


class RunAdapters(_Record):
    """Adapters that were trained with frozen weights, as `--train` states them."""

    method: Literal["lora", "qlora"] = "lora"
    rank: Whole
    modules: tuple[str, ...] = ("all",)
    """Ours or the runtime's names, such as linear_qkv and linear_proj."""


class RunTraining(_Record):
    """How it was trained."""

    seq_length: Whole | None = None
    global_batch_size: Whole | None = None
    precision: Literal["bf16", "fp16", "fp32", "fp8", "mxfp8", "nvfp4"] | None = None
    precision_detail: str | None = None
    wide: RunWide | None = None
    state_precision: StatePrecision | None = None
    """What weights, gradients and moments are stored in; null: as the runtime does by itself."""
    optimizer: Name | None = None
    """As `--optimizer` takes it; null: AdamW."""
    fused_optimizer: bool | None = None
    """One kernel updates weights; null: as runs of the runtime do."""
    task: Literal["pretrain", "sft", "lora"] = "pretrain"
    adapters: RunAdapters | None = None
    """Of task lora; null: as the runtime's recipes have them."""


class RunCluster(_Record):
    """Where; bandwidths are datasheet GB/s of one GPU in one direction, or a remark."""

    gpu: str | None = None
    num_gpus: Degree | None = None
    gpus_per_node: Degree | None = None
    nvlink_domain: Degree | None = None
    memory_gib: Amount | None = None
    nominal_inter_gb_per_s: float | str | None = None
    transport: Name | None = None
    """What carries messages between nodes, such as infiniband, roce or efa; null: not stated."""
    power_limit_w: Amount | None = None
    """Watts that one GPU may draw; null: as in its data sheet."""


class RunStage(_Record):
    """One stage of a plan whose stages differ."""

    tp: Degree | None = None
    dp: Degree | None = None
    ops: Whole | None = None
    recompute_frac: Share | None = None


class RunOverlap(_Record):
    """What overlapped compute; null: not stated."""

    grad_reduce: bool | None = None
    param_gather: bool | None = None
    tp_comm: bool | None = None
    moe_a2a: bool | None = None


class RunLayout(_Record):
    """How the job was cut over the ranks."""

    tp: Degree | None = None
    pp: Degree | None = None
    vpp: Degree | None = None
    dp: Degree | None = None
    dp_replicate: Degree | None = None
    cp: Degree | None = None
    ep: Degree | None = None
    etp: Degree | None = None
    sequence_parallel: bool | None = None
    zero_stage: int | None = Field(default=None, ge=0, le=3)
    distributed_optimizer: bool | None = None
    fsdp: bool | None = None
    micro_batch_size: Whole | None = None
    schedule: str | None = None
    recompute: Literal["none", "selective", "partial", "full"] | None = None
    recompute_modules: tuple[str, ...] | None = None
    recompute_fraction_per_stage: tuple[Share, ...] | None = None
    recompute_detail: str | None = None
    offload: object = None
    overlap: RunOverlap | None = None
    cuda_graph: bool | str | tuple[str, ...] | None = None
    moe_dispatcher: str | None = None
    gradient_dtype: Literal["bf16", "fp32"] | None = None
    fp8_param_gather: bool | None = None
    activation_func_fp8_input_store: bool | None = None
    per_stage: tuple[RunStage, ...] | None = None
    layers_per_stage: tuple[WholeOrZero, ...] | None = None
    """Layers of every stage; where they are two more than the model has, the first counts the
    embedding as one, the last the head."""
    pp_layout: str | None = None
    """Stages in Megatron's letters: E embedding, t layer, m multi-token prediction, L loss."""
    cp_comm_type: str | None = None
    compile: bool | None = None
    cross_entropy: CrossEntropy | None = None
    tiled_loss: bool | None = None


class Measured(_Record):
    """What was measured."""

    step_time_s: Amount | None = None
    tokens_per_s_per_gpu: Amount | None = None
    peak_memory_gib: Amount | None = None
    peak_memory_kind: MemoryKind | None = None
    peak_memory_rank: MemoryRank | None = None
    peak_reserved_gib: Amount | None = None


class RunTwin(_Record):
    """Membership of runs that differ in one setting."""

    name: Name
    kind: Name = "setting"
    """What differs, such as `recompute` or `micro batch`."""
    base: bool = False
    """The others are compared with it."""
    relative_step: Amount | None = None
    """Time of a token over that of the base; null: by the measured rates."""


class MeasuredRun(_Record):
    """One line of a runs file: a measured run, or a label that states whether it fitted."""

    id: Name
    model: RunModel
    training: RunTraining
    cluster: RunCluster
    layout: RunLayout
    runtime: Name
    release: Name | None = None
    """Software that ran, as `--runtime-version` takes it; null: not stated."""
    twins: tuple[RunTwin, ...] = ()
    attention_backend: Attention | None = None
    measured: Measured = Measured()
    fits: bool | None = None
    device_memory_gib: Amount | None = None
    evidence: str | None = None
    source_group: Name = "user"
    source: object = None
    """Where it was published; a month in the name of its file dates the software."""
    use: tuple[str, ...] = ()
    strict: bool = True
    """Everything that decides the step time is known; what is left out is the runtime's default."""
    suspect: bool | str | None = None

    @property
    def is_strict(self) -> bool:
        """Does its step time count? Unless the record states no, or is suspect."""
        return self.strict and not self.suspect

    @classmethod
    def unknown_names(cls, values: Mapping[str, object]) -> frozenset[str]:
        """Dotted names in a record that `runs/v1` does not have."""
        return frozenset(_unread(cls, values, "")) - NOT_READ


def _unread(record: type[Spec], values: Mapping[str, object], place: str) -> Iterator[str]:
    for name, value in values.items():
        inner = _record_of(record, name)
        if name not in record.model_fields:
            yield f"{place}{name}"
        elif inner:
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, dict):
                    yield from _unread(inner, item, f"{place}{name}.")


@cache
def _record_of(record: type[Spec], name: str) -> type[Spec] | None:
    field = record.model_fields.get(name)
    return _record_in(field.annotation) if field else None


def _record_in(annotation: object) -> type[Spec] | None:
    """The record a field holds: itself, optional, or as items of a tuple."""
    if isinstance(annotation, type) and issubclass(annotation, _Record):
        return annotation
    return next(filter(None, map(_record_in, get_args(annotation))), None)
