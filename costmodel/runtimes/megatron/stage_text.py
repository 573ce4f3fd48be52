"""The text that tells Megatron Core which layers each virtual stage holds."""

from collections.abc import Sequence
from itertools import groupby


def pipeline_layout_string(layers_per_stage: Sequence[int], mtp_layers: int) -> str:
    """Text of `--pipeline-model-parallel-layout`.

    `E` embedding, `t` decoder layer, `m` multi-token-prediction layer, `L` head and loss, `|`
    between virtual stages; `x*n` and `(...)*n` repeat. The prediction layers sit with the loss.

    Source: Megatron-LM `megatron/core/transformer/pipeline_parallel_layer_layout.py`.
    """
    *heads, last = [
        "t" if count == 1 else f"t*{count}" if count else "" for count in layers_per_stage
    ]
    tail = last + ("" if not mtp_layers else "m" if mtp_layers == 1 else f"m*{mtp_layers}") + "L"
    if not heads:
        return "E" + tail
    first, *inner = heads
    runs = [(stage, len(list(run))) for stage, run in groupby(inner)]
    middle = "".join(f"{s}|" if count == 1 else f"({s}|)*{count}" for s, count in runs)
    return f"E{first}|{middle}{tail}"
