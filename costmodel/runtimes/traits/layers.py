"""What layers are made of beside attention and a feed-forward half, and who has it."""

from collections.abc import Iterator

from trainplan.costmodel.architecture import Mixer, ModelSpec

KNOWN: tuple[Mixer, ...] = ("full_attention", "sliding_attention")
"""Mixers of every runtime."""
CHUNKED = "chunked attention"
SPARSE = "sparse attention"
GATED_DELTA = "linear attention of rule gated_delta"
MAMBA_2 = "Mamba-2"
ONE_HALF = "layers of a mixer or a feed-forward alone"
GATED_OUTPUT = "a gate on attention's output"
LATENT_EXPERTS = "experts in a latent width"
OF_TRANSFORMERS = frozenset(
    (
        *(CHUNKED, GATED_DELTA, MAMBA_2, ONE_HALF, GATED_OUTPUT, f"{GATED_OUTPUT} by head"),
        *(LATENT_EXPERTS, "Mamba-1", "attention and mamba", "convolution"),
        *("bidirectional attention", "linear attention of rule kda"),
        "linear attention of rule lightning",
    )
)
"""All but sparse attention, which transformers masks: the model's own code is trained."""


def uncommon_parts(model: ModelSpec) -> frozenset[str]:
    """Parts of any layer that not every runtime has."""
    return frozenset(part for kind in model.kinds for part in _parts(kind))


def is_hybrid(model: ModelSpec) -> bool:
    """Has it Mamba layers, or layers of one half? Megatron Core builds such a model from a pattern.

    Source: NVIDIA/Megatron-LM megatron/core/models/hybrid/hybrid_model.py.
    """
    return any(
        kind.mixer == "mamba" or "none" in (kind.mixer, kind.feed_forward) for kind in model.kinds
    )


def _parts(kind: ModelSpec) -> Iterator[str]:
    if kind.mixer not in (*KNOWN, "none"):
        yield _mixer(kind)
    if "none" in (kind.mixer, kind.feed_forward):
        yield ONE_HALF
    if kind.attention_output_gate != "none":
        gate = kind.attention_output_gate
        yield GATED_OUTPUT if gate == "elementwise" else f"{GATED_OUTPUT} by {gate}"
    if kind.moe and kind.moe.latent_size:
        yield LATENT_EXPERTS


def _mixer(kind: ModelSpec) -> str:
    if kind.mixer == "linear_attention" and kind.linear_attention:
        return f"linear attention of rule {kind.linear_attention.rule}"
    if kind.mixer == "mamba" and kind.ssm:
        return "Mamba-1" if kind.ssm.time_step_rank else MAMBA_2
    names = {"chunked_attention": CHUNKED, "sparse_attention": SPARSE}
    return names.get(kind.mixer, kind.mixer.replace("_", " "))
