"""What is asked: a model, how it is trained, where, and with which runtime and options."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from trainplan.costmodel.spec.base import Spec
from trainplan.costmodel.spec.cluster import ClusterSpec
from trainplan.costmodel.spec.model import ModelSpec

Attention = Literal["flash", "unfused"]
Graph = Literal["none", "partial", "full_iteration"]
Dispatcher = Literal["alltoall", "deepep", "hybridep"]
CrossEntropy = Literal["unfused", "jit", "fused"]
StateType = Literal["fp32", "bf16"]
ContextExchange = Literal["p2p", "a2a", "all_gather"]


class RuntimeOptions(Spec):
    """What a run sets; null: what the runtime does by default."""

    attention: Attention | None = None
    """Kernel of the attention core: one fused kernel, or products and a softmax of their own."""
    dropout: bool | None = None
    """Dropout masks exist: on attention probabilities (unfused) and on both residual branches."""
    cross_entropy: CrossEntropy | None = None
    compile: bool | None = None
    """Elementwise kernels are fused by a compiler."""
    cuda_graph: Graph | None = None
    """Kernels are launched one by one, attention and router from graphs, or the whole step."""
    overlap_grad_reduce: bool | None = None
    overlap_param_gather: bool | None = None
    overlap_tp_comm: bool | None = None
    overlap_moe_a2a: bool | None = None
    moe_dispatcher: Dispatcher | None = None
    """`deepep` and `hybridep` send a token once to each rank that needs it; `alltoall` once for
    each expert."""
    gradient_dtype: StateType | None = None
    """Accumulated and reduced gradients."""
    moment_dtype: StateType | None = None
    """Both Adam moments."""
    offload_activation_layers: NonNegativeInt | None = None
    """Layers of each rank whose activations wait in host memory for the backward pass."""
    cp_comm_type: ContextExchange | None = None
    """Context parallelism: keys and values round a ring or all gathered, or heads exchanged."""

    def stated(self) -> dict[str, object]:
        """Those that are set, by name."""
        return self.model_dump(mode="json", exclude_none=True)

    def arguments(self) -> dict[str, str]:
        """Those that are set, each as `--option` takes it."""
        stated = self.stated().items()
        texts = ((n, str(v).lower() if isinstance(v, bool) else str(v)) for n, v in stated)
        return {name: f"{name}={text}" for name, text in texts}


LARGEST_SIZE = 1 << 30
"""Of a batch and of a sequence."""
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
    """Tokens per sequence."""
    global_batch_size: PositiveInt = Field(le=LARGEST_SIZE)
    """Sequences per optimizer step, over all replicas."""
    precision: Precision = "bf16"
    loss_tokens: PositiveFloat = Field(default=1.0, le=1.0)
    """Share of the tokens that count in the loss; the rest has labels that are ignored."""
    tokens: PositiveInt | None = None
    """Length of the whole run; only used to report days, GPU-hours and money."""

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
        """Tokens consumed by one optimizer step."""
        return self.seq_length * self.global_batch_size


DEFAULT_RUNTIME = "megatron-lm"
"""Of a job that names none."""


class Job(Spec):
    """The question a plan answers."""

    model: ModelSpec
    training: TrainingSpec
    cluster: ClusterSpec
    runtime: str = DEFAULT_RUNTIME
    options: RuntimeOptions = RuntimeOptions()
    may_offload_activations: bool = False
    """A search tries `offload_modules`, too."""
    may_replicate_shards: bool = False
    """A search tries `dp_replicate` under ZeRO-1, too."""
