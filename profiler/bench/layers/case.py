"""Which layers are measured."""

from dataclasses import dataclass

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.model import met_weights
from trainplan.profiler.bench.attention import core_of
from trainplan.profiler.bench.inputs.shapes import FP32_BYTES, Caps
from trainplan.profiler.bench.layers.modules import Sharding


@dataclass(frozen=True, slots=True)
class Case:
    """One layer to measure."""

    model: ModelSpec
    moe: bool
    sharding: Sharding
    micro_batch_size: int
    seq_length: int

    @property
    def text(self) -> str:
        """For the key of a task."""
        sort = "moe" if self.moe else "dense"
        sharding = f"tp={self.sharding.tp}" + (f" ep={self.sharding.ep}" if self.moe else "")
        return f"{sort} {sharding} batch={self.micro_batch_size} seq={self.seq_length}"

    @property
    def tokens(self) -> int:
        """Of one micro batch."""
        return self.micro_batch_size * self.seq_length

    @property
    def weights(self) -> float:
        """Of matrices, on one rank, which has its part of the experts."""
        moe = self.model.moe
        return self._met(moe.num_experts / self.sharding.ep if moe else 0)

    @property
    def flop(self) -> float:
        """Forward.

        Source: a multiplication and an addition for each weight that a token meets, of its experts
        alone, and the products of the attention core.
        """
        moe = self.model.moe
        met = self._met(moe.num_experts_per_tok if moe else 0)
        core = core_of(self.model, self.sharding.tp, self.micro_batch_size, self.seq_length)
        return 2.0 * self.tokens * met + core.flop

    def _met(self, experts: float) -> float:
        """Weights of the rank with so many of its experts."""
        return met_weights(self.model, self.sharding.tp, experts if self.moe else None)


def measured_model(model: ModelSpec) -> ModelSpec:
    """The model whose layer runs: torch's kernel knows no window, no sink and no cap of logits."""
    changed = {
        "mixer": "full_attention",
        "layer_kinds": (),
        "layers": None,
        "sliding_window": None,
        "attention_sinks": False,
        "attn_logit_softcapping": None,
    }
    return ModelSpec.model_validate({**model.model_dump(), **changed})


def expert_ranks(model: ModelSpec, limit_bytes: float) -> int:
    """Least expert-parallel degree, a power of two, at which no expert tensor is too large."""
    moe = model.moe
    if moe is None:
        return 1
    matrix, ep = FP32_BYTES * model.hidden_size * moe.moe_intermediate_size, 1
    while moe.num_experts % (2 * ep) == 0 and matrix * moe.num_experts / ep > limit_bytes:
        ep *= 2
    return ep


def fits(case: Case, limit: Caps) -> bool:
    """Is the layer little enough work?"""
    model, tp = case.model, case.sharding.tp
    widest = max(model.hidden_size, 0 if case.moe else model.intermediate_size // tp)
    matrix = FP32_BYTES * widest * max(model.hidden_size, case.tokens)
    return case.flop <= limit.layer_flop and matrix <= limit.tensor_bytes
