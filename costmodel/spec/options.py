"""Settings of a runtime that change time or memory but not the layout."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeInt

from trainplan.costmodel.spec.base import Spec

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
