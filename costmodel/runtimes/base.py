"""What a runtime does that another does not, as named traits: read by rules and formulas alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from costmodel.rules import Rule
from costmodel.spec.layout import Schedule
from costmodel.spec.model import ModelSpec


@dataclass(frozen=True, slots=True)
class RuntimeTraits:
    """Behaviour of one training runtime with the options our exporter writes."""

    name: str
    version: str
    """Release or commit the flags and rules were checked against."""
    schedules: tuple[Schedule, ...]
    zero_stages: tuple[int, ...]
    offload_fractions: tuple[float, ...]
    """Optimizer offload fractions the search tries."""
    recompute_subsets: Callable[[ModelSpec], tuple[tuple[str, ...], ...]]
    """Module sets that selective recomputation may drop in this model."""
    gradient_bytes: int
    """Bytes of one accumulated gradient."""
    gradient_message_bytes: int
    """Bytes of one gradient on the wire."""
    overlaps_data_parallel: bool
    """Gradient and parameter traffic runs beside compute."""
    tensor_parallel_overlap: float
    """Share of tensor-parallel traffic hidden behind matrix products."""
    expert_overlap: float
    """Share of the expert all-to-all hidden behind compute."""
    head_bytes_per_logit: float
    """Peak bytes of logits, their fp32 copy and gradient, for each logit of the last stage."""
    host_seconds_dense: float
    """Time the host needs to launch the forward pass of one dense layer."""
    host_seconds_moe: float
    host_backward_dense: float
    """Host time of a backward pass over that of a forward pass."""
    host_backward_moe: float
    caches_dummy_weight_gradients: bool
    """Keeps one buffer for each weight shape (Transformer Engine with fused accumulation)."""
    rules: tuple[Rule, ...]
    refuses: Callable[[ModelSpec], str | None]
    """What of a model no option of the runtime expresses, as a noun phrase; null: nothing."""
