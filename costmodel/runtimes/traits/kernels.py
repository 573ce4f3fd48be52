"""Which kernels compute a layer and the loss, and how the host launches them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from trainplan.costmodel.catalog import Release, release_of
from trainplan.costmodel.job import Attention, CrossEntropy, Float8Recipe, Graph, RuntimeOptions
from trainplan.costmodel.runtimes.traits.settings import stated_or

AttentionKernel = Literal["flash", "flash2", "triton", "unfused"]


@dataclass(frozen=True, slots=True)
class Kernels:
    """Kernels of a layer and of the loss."""

    attention: AttentionKernel
    """Fused and written for the GPU, FlashAttention-2, FlashAttention in Triton, or unfused."""
    elementwise: Literal["fused", "legacy", "eager"]
    """Elementwise kernels: fused, those of 2021 (fused in part), or one for each operation."""
    head_bytes_per_logit: float
    """Peak bytes of logits, their fp32 copy and gradient, for each logit of the last stage."""
    eager_loss_bytes: float | None = None
    """As above, where torch's own loss (`unfused`) is compiled with the layers or apart (`jit`),
    which leaves logits and gradient; null: the loss is another."""
    tuned_products: bool = False
    """The kernel of each product is chosen by timing; else by the library's rule of thumb."""
    dropout: bool = False
    """Masks of attention (unfused) and residual dropout are kept."""
    skips_ignored_tokens: bool = False
    """The output projection and the loss run on the tokens that count in the loss alone; else on
    all, and what the others add is masked."""
    pads_vocabulary: bool = False
    """Rows without a token fill the vocabulary up to a multiple of 128 tp."""
    fp8_recipe: Float8Recipe = "tensorwise"
    """How products in fp8 scale their operands."""
    separate_operations: bool = False
    """Biases of experts, clamped units and rotations with scaled cosines are torch operations of
    their own, each a pass over memory (costmodel/blocks/operations.py)."""

    @property
    def of_2021(self) -> bool:
        """Do its layers run on the libraries of 2021?"""
        return self.elementwise == "legacy"

    def with_options(self, options: RuntimeOptions) -> Kernels:
        """Those of a run: attention core, masks, compiler and loss."""
        compiled, loss = options.compile, options.cross_entropy
        elementwise = self.elementwise if compiled is None else "fused" if compiled else "eager"
        per_logit = dict(HEAD_BYTES)
        if (eager := self.eager_loss_bytes) is not None:
            per_logit |= {"unfused": eager, "jit": HEAD_BYTES["fused"]}
            loss = "unfused" if loss is None and compiled is False else loss
        return replace(
            self,
            attention=attention_with(self.attention, options.attention),
            dropout=stated_or(options.dropout, self.dropout),
            fp8_recipe=stated_or(options.fp8_recipe, self.fp8_recipe),
            elementwise="fused" if options.liger else elementwise,
            head_bytes_per_logit=per_logit[loss] if loss else self.head_bytes_per_logit,
        )


STASH_FACTOR, RANK_CAPACITY = 1.2, 1.5
"""Rows that the stash of experts' activations holds, and that buffers of a rank's experts take,
over those of balanced tokens, where one graph holds a step with experts.

Source: NVIDIA-NeMo/Megatron-Bridge @067f987d `perf_recipes/qwen/common.py`, `gpt_oss/common.py` and
`deepseek/common.py`: moe_paged_stash_buffer_size_factor_cuda, moe_expert_rank_capacity_factor.
"""


@dataclass(frozen=True, slots=True)
class Host:
    """What the host does before a kernel runs."""

    layer: Literal["fused", "legacy", "fsdp"]
    """Which fitted host time a layer takes."""
    cuda_graph: Graph = "none"
    """What is launched from a CUDA graph: nothing, attention and router, or the whole step."""
    release: Release = field(default_factory=partial(release_of, "25.11"))
    """Of Megatron Core: what a layer of experts takes of the host; of other runtimes the release
    that the constant is of."""

    def with_options(self, options: RuntimeOptions) -> Host:
        """That of a run that may state its graphs."""
        return replace(self, cuda_graph=stated_or(options.cuda_graph, self.cuda_graph))


HEAD_BYTES: dict[CrossEntropy | Literal["eager"], float] = {
    "unfused": 6.0, "jit": 12.0, "fused": 4.0, "eager": 12.0,
}  # fmt: skip
"""Peak bytes per logit by kernel of the loss, logits in 16 bits.

Source: derived: Megatron-LM `vocab_parallel_cross_entropy.py` works in place on one fp32 copy (4)
beside the logits, then beside their gradient (2); fused, logits and gradient (2 + 2). The kernel
that `jit` compiles keeps two fp32 copies: 10.0 and 14.1 in four continuous-integration runs. Eager
is `torch.nn.functional.cross_entropy` on fp32 logits, without a compiler: the log-softmax it keeps,
its gradient, and that of the logits, 4 bytes each.
"""


def attention_with(default: AttentionKernel, stated: Attention | None) -> AttentionKernel:
    """The attention core of a run that states one, or none."""
    if stated in ("flash2", "triton", "unfused"):
        return stated
    return "flash" if stated == "flash" and default == "unfused" else default
