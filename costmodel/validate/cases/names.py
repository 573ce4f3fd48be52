"""What records call things, in the words of the model."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import get_args

from trainplan.costmodel import catalog
from trainplan.costmodel.architecture import Mixer
from trainplan.costmodel.hardware import Transport
from trainplan.costmodel.job import ContextExchange, Dispatcher, Precision, Proxy
from trainplan.costmodel.layout import SCHEDULE_NAMES

SCHEDULES: Mapping[str, str] = MappingProxyType(
    {
        "afab": "gpipe",
        "interleaved1f1b": "interleaved",
        "loopedbfs": "breadth-first",
        "zbvzerobubble": "zb-v",
        "dualpipev": "dualpipe-v",
    }
)
"""What runtimes call a schedule, in lower case -> its name here.

Source: pytorch/pytorch `torch/distributed/pipelining/schedules.py`, get_schedule_class;
huggingface/nanotron `src/nanotron/parallel/pipeline_parallel/engine.py`.
"""
EXCHANGES: Mapping[str, ContextExchange] = MappingProxyType(
    {"a2a+p2p": "p2p", **{name: name for name in get_args(ContextExchange)}}
)
"""How context parallelism sends, as Megatron Core's `cp_comm_type` has it. Of a hierarchical
exchange the part between the nodes is the ring, which is the slower of the two."""
DISPATCHERS: Mapping[str, Dispatcher] = MappingProxyType(
    {
        "nccl-alltoall": "alltoall",
        "flex": "deepep",
        **{f"deepep-{x}": "deepep" for x in get_args(Proxy)},
        **{name: name for name in get_args(Dispatcher)},
    }
)
"""Source of `flex`: Megatron-LM `--moe-flex-dispatcher-backend`, whose default is deepep."""
TRANSPORTS: Mapping[str, Transport] = MappingProxyType({x: x for x in get_args(Transport)})
PROXIES: Mapping[str, Proxy] = MappingProxyType({f"deepep-{x}": x for x in get_args(Proxy)})
WINDOW = re.compile(r"sliding window (\d+)")
SHARE = re.compile(r"(\d+) ?(?:(of|/)|(:|to)) ?(\d+)")


def gpu_called(stated: str | None) -> str | None:
    """The catalog's name of the GPU a record names; what it says where there is none."""
    return catalog.gpu_named(stated or "") or stated


def schedule_called(stated: str | None, vpp: int) -> str | None:
    """The schedule a record names, or the usual one; null: it is not known."""
    name = (stated or "1f1b").lower()
    name = SCHEDULES.get(name, name)
    if name in ("1f1b", "interleaved"):
        return "interleaved" if vpp > 1 else "1f1b"
    return name if name in SCHEDULE_NAMES else None


def precision_called(stated: str | None, gpu: str) -> Precision:
    """Number format of the products; 16 bits where nothing is stated.

    Runs in fp32 multiply in TF32 on GPUs whose matrix units do, in fp32 on those of before.
    """
    names: dict[str, Precision] = {name: name for name in get_args(Precision)}
    old = stated == "fp32" and "fp32" in catalog.gpu(gpu).peak_tflops
    return "tf32" if stated == "fp32" and not old else names[stated or "bf16"]


def windows_called(
    stated: str | int | None, num_layers: int
) -> tuple[int | None, tuple[Mixer, ...]]:
    """Tokens of a sliding window, and the mixer of every layer: every other one has it if not said.

    As many layers as the text says, the others spread evenly, as published models have them.

    Text such as "sliding window 1024 on 5 of 6 layers", "sliding window 512, 5:1" or "sliding
    window 4096 on all layers".
    """
    text = str(stated or "")
    window = WINDOW.search(text)
    if not window:
        return None, _spread(num_layers, 0)
    rest = text[window.end() :]
    share = SHARE.search(rest)
    if share:
        sliding, others = int(share[1]), int(share[4])
        whole = sliding + others if share[3] else others
        some = min(num_layers, num_layers * sliding // max(1, whole))
        return int(window[1]), _spread(num_layers, some)
    every = re.search(r"\b(all|every) layers?\b", rest)
    return int(window[1]), _spread(num_layers, num_layers if every else num_layers // 2)


def _spread(layers: int, sliding: int) -> tuple[Mixer, ...]:
    """So many sliding layers, with those that see all spread evenly among them."""
    full = layers - sliding
    return tuple(
        "sliding_attention" if (i + 1) * full // layers == i * full // layers else "full_attention"
        for i in range(layers)
    )
