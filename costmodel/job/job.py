"""A job as it is stated: a model, its training with lengths of sequences, a cluster, a runtime."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PlainSerializer,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job.optimizer import OptimizerSpec, OptimizerText
from trainplan.costmodel.job.outer import OuterSpec
from trainplan.costmodel.job.routing import RoutingSpec
from trainplan.costmodel.spec import LARGEST_SIZE, OneLine, Spec

Packing = Literal["none", "greedy", "balanced"]
"""Each sequence padded to a row; rows filled by the first sequence that fits; rows filled, and run
side by side, so that their attention work is equal."""
LONGEST_MEAN, WIDEST_SIGMA = 1e9, 5.0
"""Of a lognormal distribution that is taken."""


class Lognormal(Spec):
    """Lengths whose logarithm is normal; those above a row are cut to it."""

    mean: float = Field(ge=1, le=LONGEST_MEAN)
    """Tokens, before any is cut."""
    sigma: float = Field(ge=0, le=WIDEST_SIGMA)
    """Standard deviation of the logarithm."""


class LengthSpec(Spec):
    """A histogram of sequence lengths, or a distribution."""

    counts: tuple[tuple[PositiveInt, NonNegativeFloat], ...] = ()
    """Tokens of a sequence, and how many such sequences there are."""
    lognormal: Lognormal | None = None
    """Null: as `counts` have it."""

    @model_validator(mode="after")
    def _has_mass(self) -> Self:
        if bool(self.counts) == (self.lognormal is not None):
            raise ValueError("give counts of lengths or a lognormal distribution, one of both")
        if self.counts and not sum(count for _, count in self.counts) > 0:
            raise ValueError("all counts are 0: give at least one length a count above 0")
        return self

    @property
    def longest(self) -> int:
        """Of a histogram, tokens of the longest sequence there is; 0 of a distribution."""
        return max((length for length, count in self.counts if count > 0), default=0)


Attention = Literal["flash", "flash2", "triton", "unfused"]
Graph = Literal["none", "partial", "full_iteration"]
Dispatcher = Literal["alltoall", "allgather", "deepep", "hybridep", "ncclep", "hierarchical"]
TokenType = Literal["bf16", "fp8", "mxfp8"]
Proxy = Literal["uccl", "nvshmem"]
CrossEntropy = Literal["unfused", "jit", "fused"]
DropPolicy = Literal["probs", "position"]
ExpertPlacement = Literal["order", "best", "worst_step"]
GradientType = Literal["fp32", "bf16"]
StateType = Literal["fp32", "bf16", "fp16", "fp8"]
StatePrecision = Literal["o0", "bf16", "o1", "o2", "o3"]
"""How weights, gradients and moments are stored: as the runtime does by itself, all in bf16 without
a copy in fp32, or at a level of FP8-LM, arXiv:2310.18313."""
Liger = Literal["0.5", "0.6"]
ContextExchange = Literal["p2p", "a2a", "all_gather"]


def _whole(size: float) -> float:
    """A whole number where it is one."""
    return int(size) if float(size).is_integer() else size


BucketMib = Annotated[
    PositiveFloat,
    Field(le=1 << 20),
    AfterValidator(_whole),
    PlainSerializer(_whole, return_type=int | float),
]
MicrobatchGroup = PositiveInt | Literal["least", "double"]
Float8Recipe = Literal["tensorwise", "blockwise", "rowwise", "rowwise_with_gw_hp"]


class RuntimeOptions(Spec):
    """What a run sets; null: what the runtime does by default."""

    ROUTED: ClassVar = ("routing", "expert_placement")
    """How tokens choose experts, and their order in a checkpoint: no settings of a runtime."""
    attention: Attention | None = None
    """Kernel of the attention core: the runtime's fused one, FlashAttention-2, FlashAttention in
    Triton, or products and a softmax of their own."""
    dropout: bool | None = None
    """Dropout masks exist: on attention probabilities (unfused) and on both residual branches."""
    cross_entropy: CrossEntropy | None = None
    compile: bool | None = None
    """Elementwise kernels are fused by a compiler."""
    cuda_graph: Graph | None = None
    """Kernels are launched one by one, attention and router from graphs, or the whole step."""
    overlap_grad_reduce: bool | None = None
    overlap_param_gather: bool | None = None
    bucket_mb: BucketMib | None = None
    """MiB of gradients that are reduced in one call, as the backward pass makes them; updated
    weights are gathered in the same pieces."""
    overlap_tp_comm: bool | None = None
    overlap_moe_a2a: bool | None = None
    delay_wgrad: bool | None = None
    """With `overlap_moe_a2a`: weight gradients run behind what sends the gradient of an input."""
    overlap_shared_experts: bool | None = None
    """Shared experts run on a stream of their own, overlapped with the exchange of tokens."""
    moe_chunks: Literal[1, 2, 4, 8] | None = None
    """Chunks of the tokens of a rank: while one is with its experts, others are sent."""
    microbatch_group_size: MicrobatchGroup | None = None
    """Micro batches that pass through one virtual stage in a row under the interleaved schedule:
    as few as run where they do not fill groups of pp, twice pp, or a number; null: pp."""
    fp8_recipe: Float8Recipe | None = None
    """Scales of products in fp8: one for a tensor, one for each row of an operand, or the latter
    with weight gradients in 16 bits."""
    moe_dispatcher: Dispatcher | None = None
    """`deepep`, `hybridep` and `ncclep` send a token once to each rank that needs it; `alltoall`
    once for each expert, `hierarchical` so in two steps, inside nodes and between them; `allgather`
    each to all ranks: where these are one tensor group, experts are tensor-local."""
    moe_dispatch_dtype: TokenType | None = None
    """Of tokens on their way to experts, and of the gradients that go there; null: 16 bits."""
    deepep_proxy: Proxy | None = None
    """Which proxies of the host post DeepEP's messages to other nodes where a GPU cannot (EFA)."""
    gradient_dtype: GradientType | None = None
    """Accumulated and reduced gradients."""
    weight_bits: Literal[8] | None = None
    """Of a weight that ZeRO-3 gathers: scaled group by group for its way, 16 bits at both ends."""
    gradient_bits: Literal[4] | None = None
    """Of a gradient that ZeRO-3 reduces: sent to its owner inside nodes, then between them."""
    fp8_param_gather: bool | None = None
    """Weights of products in 8 or 4 bits exist in those alone and are gathered in them; else in 16
    bits, with low-precision copies that are made anew each step."""
    fp8_transpose_cache: bool | None = None
    """Frozen weights in 8 bits alone have their transpose as well; else every backward pass
    makes it anew."""
    activation_func_fp8_input_store: bool | None = None
    """The inputs of a gated SiLU wait in 8 bits for the backward pass."""
    fp8_attention: bool | None = None
    """The core of attention multiplies in 8 bits, and its inputs wait in 8 bits."""
    moment_dtype: StateType | None = None
    """Both Adam moments."""
    fused_optimizer: bool | None = None
    """One kernel updates weights; else torch works on lists of tensors, one operation at a time."""
    offload_activation_layers: NonNegativeInt | None = None
    """Layers of each rank whose activations wait in host memory for the backward pass."""
    cp_comm_type: ContextExchange | None = None
    """Context parallelism: keys and values round a ring or all gathered, or heads exchanged."""
    fsdp_version: Literal[1, 2] | None = None
    """Of PyTorch's FSDP, where a runtime has both: the first shards layers as flat parameters."""
    adapter_dtype: GradientType | None = None
    """Of adapters: fp32, as PEFT makes them by itself, or that of the frozen weights."""
    liger: Liger | None = None
    """Norms, rotations, activations and a tiled loss by kernels of Liger; before 0.6.1 they index
    in 32 bits."""
    routing: RoutingSpec | None = None
    """Which experts tokens choose: no setting of a runtime; null: all equally often."""
    moe_capacity_factor: Annotated[PositiveFloat, Field(le=1000)] | None = None
    """Rows an expert takes of one rank, over those of balanced tokens: more are dropped."""
    moe_pad_to_capacity: bool | None = None
    """Every expert gets its capacity, and zeros where fewer tokens chose it."""
    moe_token_drop_policy: DropPolicy | None = None
    """Tokens of least probability are dropped, or those at the end."""
    moe_router_padding: bool | None = None
    """The router rounds the rows of an expert up to what quantized products take at once."""
    expert_placement: ExpertPlacement | None = None
    """Experts lie on ranks in the order of their numbers, or so that the fullest rank has least: of
    all counted tokens, or in the step where it has most. Weights in a checkpoint are permuted."""

    @model_validator(mode="after")
    def _capacity_is_stated(self) -> Self:
        without = self.moe_capacity_factor is None
        if without and (self.moe_pad_to_capacity or self.moe_token_drop_policy):
            name = "moe_pad_to_capacity" if self.moe_pad_to_capacity else "moe_token_drop_policy"
            raise ValueError(f"{name} means nothing without moe_capacity_factor: add that")
        if self.routing and self.routing.kind == "load" and not without:
            raise ValueError(
                f"routing={self.routing} states the rows that are computed: leave out "
                "moe_capacity_factor, or state how tokens choose"
            )
        return self

    @property
    def permutes_experts(self) -> bool:
        """Do experts lie in another order than that of their numbers?"""
        return self.expert_placement not in (None, "order")

    def stated(self) -> dict[str, object]:
        """Those that are set, by name."""
        return self.model_dump(mode="json", exclude_none=True)

    def settings(self) -> dict[str, object]:
        """Those that are settings of a runtime: all that are set but those of `ROUTED`."""
        return {name: value for name, value in self.stated().items() if name not in self.ROUTED}

    def arguments(self) -> dict[str, str]:
        """Those that are set, each as `--option` takes it."""
        stated = {**self.stated(), **({"routing": self.routing} if self.routing else {})}.items()
        texts = ((n, str(v).lower() if isinstance(v, bool) else str(v)) for n, v in stated)
        return {name: f"{name}={text}" for name, text in texts}


Precision = Literal["bf16", "fp16", "fp32", "tf32", "fp8", "mxfp8", "nvfp4"]
"""Number format of the matrix products; the attention core, the router and the head stay bf16
where it is lower. `fp32` and `tf32` keep weights, activations and gradients in fp32; matrix units
multiply `tf32`, a CPU `fp32`."""
FULL_WIDTH: tuple[Precision, ...] = ("fp32", "tf32")
"""Formats whose weights and activations are stored in 4 bytes."""


LOW_PRECISION: tuple[Precision, ...] = ("fp8", "mxfp8", "nvfp4")
"""Formats whose products need their operands cast; all else of the model stays in 16 bits."""


def storage_bytes(precision: Precision) -> int:
    """Bytes of one activation or working weight."""
    return 4 if precision in FULL_WIDTH else 2


class TrainingSpec(Spec):
    """One training job."""

    seq_length: PositiveInt = Field(le=LARGEST_SIZE)
    """Tokens per sequence; with `lengths`, of a row that holds one sequence or, packed, several."""
    global_batch_size: PositiveInt = Field(le=LARGEST_SIZE)
    """Sequences per optimizer step, over all replicas; with `packing`, rows."""
    precision: Precision = "bf16"
    """`bf16`, `fp16`, `fp8`, `mxfp8` or `nvfp4`."""
    loss_tokens: float = Field(default=1.0, ge=1e-6, le=1.0)
    """Share of the tokens that count in the loss; the rest has labels that are ignored."""
    tokens: PositiveInt | None = None
    """Length of the whole run; only used to report days, GPU-hours and money."""
    optimizer: OptimizerText = OptimizerSpec()
    """Name with its settings, as `--optimizer` takes it: `galore:rank=1024`."""
    state_precision: StatePrecision = "o0"
    """`o0`: as the runtime stores its states by itself."""
    lengths: LengthSpec | None = None
    """Null: every sequence has `seq_length` tokens."""
    packing: Packing = "none"
    """How sequences fill rows: `none` pads each to one, `greedy` is first fit, `balanced` makes
    rows equal in attention work."""

    @model_validator(mode="after")
    def _rows_hold_the_sequences(self) -> Self:
        if self.lengths is None and self.packing != "none":
            raise ValueError(f"packing={self.packing} needs lengths: state how long sequences are")
        longest = self.lengths.longest if self.lengths else 0
        if longest > self.seq_length:
            raise ValueError(
                f"a sequence of {longest} tokens does not fit a row of seq_length = "
                f"{self.seq_length}: raise seq_length to {longest}, or cut or drop the longer ones"
            )
        return self

    @property
    def storage_bytes(self) -> int:
        """Bytes of one activation or working weight."""
        return storage_bytes(self.precision)

    @property
    def casts(self) -> bool:
        """Do matrix products need their operands cast to a lower precision?"""
        return self.precision in LOW_PRECISION

    @property
    def tokens_per_step(self) -> int:
        """Tokens consumed by one optimizer step, padding included."""
        return self.seq_length * self.global_batch_size


DEFAULT_RUNTIME = "megatron-lm"
"""Of a job that names none."""


class Job(Spec):
    """The question a plan answers."""

    model: ModelSpec
    training: TrainingSpec
    cluster: ClusterSpec
    runtime: str = DEFAULT_RUNTIME
    release: OneLine | None = None
    """Software that runs, as it is stated: a container, a version of the runtime's library or a
    month; null: the newest known."""
    options: RuntimeOptions = RuntimeOptions()
    reserve_bytes: NonNegativeInt = Field(default=0, le=1 << 50)
    """Memory of every GPU that is left to another tenant, such as a rollout engine."""
    reserve_host_bytes: NonNegativeInt = Field(default=0, le=1 << 60)
    """Memory of the host of every node that is left to it."""
    may_offload_activations: bool = False
    """A search tries `offload_modules`, too."""
    may_replicate_shards: bool = False
    """A search tries `dp_replicate` under ZeRO-1 and `replicas_share_optimizer`, too."""
    may_shard_matrices: bool = False
    """A search tries `gtp` and `egtp`, too."""
    outer: OuterSpec | None = None
    """Islands that train alone between outer steps; null: there is one cluster."""

    @property
    def islands(self) -> int:
        """Clusters like `cluster` that train together, each with a batch of its own."""
        return ((self.outer.is_parted and self.outer.islands) or 1) if self.outer else 1

    @property
    def num_gpus(self) -> int:
        """GPUs of all islands."""
        return self.islands * self.cluster.num_gpus

    @property
    def rows_shift(self) -> bool:
        """Have expert ranks other rows in every step? Memory is then priced by an upper bound."""
        routing, fixed = self.options.routing, self.options.moe_pad_to_capacity
        stated = routing is not None and routing.kind not in {"balanced", "load"}
        return self.model.moe is not None and not fixed and stated

    @property
    def reserves(self) -> bool:
        """Is any memory left to another tenant?"""
        return bool(self.reserve_bytes or self.reserve_host_bytes)
