"""Options for layers that are no attention with a feed-forward half.

A model with Mamba layers, or with layers of one half, is a hybrid model: a pattern says what every
layer is and where stages end. Others are GPT models with an attention of another variant.
Source: Megatron-LM `megatron/core/models/hybrid/hybrid_layer_allocation.py`, Symbols;
`megatron/core/models/gpt/experimental_attention_variant_module_specs.py`;
`megatron/training/arguments.py:787`.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from trainplan.costmodel.architecture import IndexerSpec, LinearAttentionSpec, ModelSpec, SsmSpec
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import BLOCK, LayoutTable, rule
from trainplan.costmodel.runtimes import is_hybrid
from trainplan.planner.launch import Argument, option, switch
from trainplan.planner.runtimes.megatron_lm import keys

SPEC = ("megatron.core.models.hybrid.hybrid_layer_specs", "hybrid_stack_spec")
FEED_FORWARDS = {"mlp": "-", "moe": "E", "none": ""}
MIXERS = {"full_attention": "*", "linear_attention": "G", "mamba": "M", "none": ""}
LATENT, SPARSE = "+", "D"


def layer_pattern(model: ModelSpec, layers_per_stage: Sequence[int]) -> str:
    """Text of `--hybrid-layer-pattern`: a sign for each half of a layer, `|` between stages.

    Each multi-token-prediction module is one more layer, like the last, behind a `/`.

    Raises:
        UnsupportedError: A mixer that has no sign.
    """
    signs = [_signs(kind) for kind in model.kinds]
    layers = [signs[kind] for kind in model.kind_of_layer]
    stages, start = [], 0
    for count in layers_per_stage:
        stages.append("".join(layers[start : start + count]))
        start += count
    return "/".join(("|".join(stages), *[layers[-1]] * model.num_nextn_predict_layers))


def _signs(kind: ModelSpec) -> str:
    if kind.mixer == "sparse_attention":
        return SPARSE + FEED_FORWARDS[kind.feed_forward or "mlp"]
    if kind.mixer not in MIXERS:
        raise UnsupportedError(
            f"megatron-lm has no {kind.mixer} in hybrid models; use another runtime"
        )
    latent = kind.mixer == "full_attention" and kind.mla
    return (LATENT if latent else MIXERS[kind.mixer]) + FEED_FORWARDS[kind.feed_forward or "mlp"]


@rule(
    "recompute_method recompute_num_layers",
    "megatron-lm counts both halves of a layer of a hybrid model as layers of their own: recompute "
    "all of them (recompute_method uniform, recompute_num_layers 1) or none",
    "NVIDIA/Megatron-LM megatron/core/models/hybrid/hybrid_block.py, recompute_num_layers",
)
def halves_are_counted(job: Job, table: LayoutTable) -> BoolColumn:
    """A layer of both halves is two layers of a pattern, and one here."""
    both = any("none" not in (kind.mixer, kind.feed_forward) for kind in job.model.kinds)
    counted = (table.recompute_method == BLOCK) | (table.recompute_num_layers > 1)
    return np.asarray(counted & (both and is_hybrid(job.model)))


def variant_arguments(model: ModelSpec) -> Iterator[Argument]:
    """Sizes of mixers that are not plain attention, and which layers of a GPT model have them."""
    if model.attention_output_gate == "elementwise":
        yield switch("model", "--attention-output-gate")
    if model.ssm:
        yield from _mamba(model.ssm)
    if model.linear_attention:
        yield from _gated_delta(model, model.linear_attention)
    if model.indexer:
        yield from _sparse(model, model.indexer)


def _mamba(ssm: SsmSpec) -> Iterator[Argument]:
    yield option("model", "--mamba-num-heads", ssm.num_heads)
    yield option("model", "--mamba-head-dim", ssm.head_dim)
    yield option("model", "--mamba-state-dim", ssm.state_size)
    yield option("model", "--mamba-num-groups", ssm.num_groups)


def _gated_delta(model: ModelSpec, linear: LinearAttentionSpec) -> Iterator[Argument]:
    yield keys.VARIANT("gdn")
    linears = [int(mixer == "linear_attention") for mixer in model.mixers]
    yield option("model", "--linear-attention-freq", f"[{','.join(map(str, linears))}]")
    yield option("model", "--linear-conv-kernel-dim", linear.conv_kernel or 0)
    yield option("model", "--linear-key-head-dim", linear.key_head_dim)
    yield option("model", "--linear-value-head-dim", linear.value_head_dim)
    yield option("model", "--linear-num-key-heads", linear.num_key_heads)
    yield option("model", "--linear-num-value-heads", linear.num_value_heads)


def _sparse(model: ModelSpec, indexer: IndexerSpec) -> Iterator[Argument]:
    """The variant is that of every layer of a GPT model, each with an indexer of its own.

    Raises:
        UnsupportedError: Other layers, or keys that a layer before picked.
    """
    alone = is_hybrid(model) or set(model.mixers) == {"sparse_attention"}
    if not alone or any(kind.shares_index for kind in model.kinds):
        raise UnsupportedError(
            "this exporter writes sparse attention of megatron-lm for all layers, each with an "
            "indexer of its own: give every layer one, or use another runtime"
        )
    yield keys.VARIANT("dsa")
    yield option("model", "--dsa-indexer-n-heads", indexer.num_heads)
    yield option("model", "--dsa-indexer-head-dim", indexer.head_dim)
    yield option("model", "--dsa-indexer-topk", indexer.top_k)
