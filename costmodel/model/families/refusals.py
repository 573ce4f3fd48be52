"""Real architectures that this project does not model, by Hugging Face `model_type`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from trainplan.costmodel.base import UnsupportedError, unknown_name

_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "has state-space layers": (
        *("mamba", "mamba2", "falcon_mamba", "jamba", "falcon_h1", "bamba", "nemotron_h"),
        *("zamba", "zamba2", "granitemoehybrid"),
    ),
    "has recurrent or linear-attention layers": (
        *("rwkv", "rwkv5", "rwkv6", "rwkv7", "recurrent_gemma", "xlstm", "qwen3_next"),
        *("kimi_linear", "minimax"),
    ),
    "is a vision encoder": (
        *("vit", "clip", "clip_vision_model", "siglip", "siglip_vision_model", "siglip2"),
        *("dinov2", "swin"),
    ),
    "is an encoder-decoder": (
        *("t5", "mt5", "umt5", "longt5", "bart", "mbart", "pegasus", "marian", "m2m_100"),
        "whisper",
    ),
    "is an encoder without a decoder": (
        *("bert", "roberta", "xlm-roberta", "albert", "electra", "distilbert", "deberta"),
        *("deberta-v2", "modernbert"),
    ),
}

NOT_MODELLED: Final[Mapping[str, str]] = {
    name: what for what, names in _KINDS.items() for name in names
}
"""`model_type` -> what it is."""


def refusal(model_type: str, known: Iterable[str]) -> UnsupportedError:
    """The error for a `model_type` that has no family."""
    names = sorted(known)
    listed = f"known model types: {', '.join(names)}"
    if model_type in NOT_MODELLED:
        return UnsupportedError(
            f"model_type {model_type!r} {NOT_MODELLED[model_type]}, which is not modelled; "
            f"give a decoder-only transformer ({listed})"
        )
    hint = f"a decoder of another family goes into a YAML file with its sizes ({listed})"
    text = str(unknown_name("model_type", model_type[:60], names, hint=hint))
    return UnsupportedError(text)
