"""System files of SimuMax: `configs/system/*.json`.

`accelerator.op.<operation>.accurate_efficient_factor` holds the fraction of `tflops` reached by
text of a shape. Products count 2 m n k operations, `m` tokens in forward (layout TN) and input
gradients (NN); weight gradients (NT) have `m` outputs, `n` inputs and `k` tokens, where a profile
has `m` inputs and `n` outputs; grouped products name the forward's shape in all three stages.
Causal attention counts the whole square: 2 b s^2 h (d_qk + d_v) forward, 5/2 of it backward.
Networks and memory are linear, with GB/s of 2^30 bytes; an operation without its own
`efficient_factor` was not measured, nor was a message faster than its link.

Source: MooreThreads/SimuMax docs/system.md (formats), simu_tools/efficency_test (operations
counted, GiB).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

from trainplan.costmodel.base import MICROSECOND, TERA, Entry, SpecError, json_entry
from trainplan.costmodel.blocks import LOSS_PASSES
from trainplan.costmodel.job import Precision
from trainplan.costmodel.profiles import (
    AttentionPoint,
    CollectivePoint,
    Operation,
    ProductPoint,
    Profile,
    StreamPoint,
)
from trainplan.profiler.importers import ImportRequest, base_name, stated
from trainplan_importers.reading import GIBIBYTE

PRODUCTS: Mapping[str, Precision] = {"matmul": "bf16", "fp8_matmul": "fp8"}
GROUPED: Mapping[str, Precision] = {"group_matmul": "bf16", "fp8_group_matmul": "fp8"}
COLLECTIVES: Mapping[str, Operation] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all2all": "alltoall",
    "p2p": "p2p",
}
COLLECTIVE_BYTES = tuple(2**power for power in (24, 26, 28, 30))
"""Sizes at which fits become points: of the range of the fit, 1 MiB to 1 GiB, without the small
ones, where a line fitted to seconds is off."""
STREAM_BYTES = (2**28, 2**30)
STREAMS: Mapping[str, tuple[str, Fraction]] = {
    "permute_fwd": ("permute", Fraction(1)),
    "permute_bwd": ("permute_backward", Fraction(1)),
    "ce_fusion": ("loss", Fraction(LOSS_PASSES, 4)),
}
"""Name of a kernel in a profile, and bytes it counts there over those counted by SimuMax: four
passes over the logits for the fused loss.

Source: simumax/core/transformer/dense_module.py, ParallelCE.
"""
PCIE = re.compile(r"intra_node_pcie_([1-9]\d{0,2})x")


class _Shape:
    """The numbers and words of the text of a shape."""

    def __init__(self, entry: Entry, text: str) -> None:
        self.where = f"{entry.file}: {text!r}"
        self.parts = dict(p.strip().partition("=")[::2] for p in text.split(","))

    def word(self, key: str) -> str:
        """A word.

        Raises:
            SpecError: It is missing.
        """
        if key not in self.parts:
            raise SpecError(
                f"{self.where}: no {key!r} in the shape: is this a SimuMax system file?"
            )
        return self.parts[key]

    def size(self, key: str) -> int:
        """A dimension.

        Raises:
            SpecError: It is none.
        """
        text = self.word(key)
        if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text)):
            raise SpecError(f"{self.where}: {key}={text!r} is no dimension: correct the shape")
        return int(text)


def read(texts: Mapping[str, str], request: ImportRequest) -> Profile:
    """Products, attention, streams and collectives of one system.

    Raises:
        SpecError: Not exactly one file, or one that is no system file.
    """
    if len(texts) != 1:
        names = ", ".join(sorted(base_name(file) for file in texts))
        raise SpecError(f"{len(texts)} files ({names}): give one system file of SimuMax")
    ((file, text),) = texts.items()
    top = json_entry(file, text)
    operations, node = top["accelerator"]["op"], top["num_per_node"].count()
    return Profile(
        gpu=request.gpu,
        gpus_per_node=node,
        origins=request.origins("SimuMax", texts),
        points=(
            *(
                point
                for name, kind in PRODUCTS.items()
                for point in _products(operations, name, kind)
            ),
            *(
                point
                for name, kind in GROUPED.items()
                for point in _grouped(operations, name, kind)
            ),
            *_attention(operations),
            *_streams(top["accelerator"].get("bandwidth")),
            *dict.fromkeys(_networks(top.get("networks"), node)),
        ),
        notes=(
            "Times are 75 calls in a row on the same operands, by the clock of the host.",
            "Collectives and streams come from lines fitted by SimuMax, not from measured sizes.",
        ),
    )


def _measured(operations: Entry, name: str) -> Iterator[tuple[_Shape, float]]:
    """Shapes of an operation and the FLOP/s they reach."""
    operation = operations.get(name)
    factors = operation and operation.get("accurate_efficient_factor")
    if not operation or not factors:
        return
    peak = operation["tflops"].positive(TERA)
    for text, factor in factors.items():
        yield _Shape(factor, text), factor.positive() * peak


def _products(operations: Entry, name: str, precision: Precision) -> Iterator[ProductPoint]:
    for shape, speed in _measured(operations, name):
        m, n, k, batch = (shape.size(key) for key in ("m", "n", "k", "b"))
        weights = shape.word("layout") == "NT"
        yield ProductPoint(
            m=n if weights else m * batch,
            n=m if weights else n,
            k=k * batch if weights else k,
            precision=precision,
            weight_gradient=weights,
            time=stated(2 * batch * m * n * k / speed),
        )


def _grouped(operations: Entry, name: str, precision: Precision) -> Iterator[ProductPoint]:
    for shape, speed in _measured(operations, name):
        rows, outputs, inputs = (shape.size(key) for key in ("M", "N", "K"))
        groups, stage = shape.size("ng"), shape.word("stage")
        sizes = {
            "fwd": (rows, outputs, inputs),
            "bwd_grad_act": (rows, inputs, outputs),
            "bwd_grad_w": (inputs, outputs, rows),
        }
        if stage not in sizes:
            raise SpecError(f"{shape.where}: stage {stage!r} is unknown: use {', '.join(sizes)}")
        m, n, k = sizes[stage]
        yield ProductPoint(
            m=m,
            n=n,
            k=k,
            groups=groups,
            precision=precision,
            weight_gradient=stage == "bwd_grad_w",
            time=stated(2 * groups * rows * outputs * inputs / speed),
        )


def _attention(operations: Entry) -> Iterator[AttentionPoint]:
    """Forward with the backward of the same shape, operands in one piece first."""
    backward = {tuple(s.parts.items()): speed for s, speed in _measured(operations, "sdp_bwd")}
    for shape, speed in _measured(operations, "sdp_fwd"):
        batch, length, heads = (shape.size(key) for key in ("batch", "seq_len", "head_num"))
        key_dim, value_dim = shape.size("qk_head_dim"), shape.size("v_head_dim")
        square = batch * length**2 * heads * (key_dim + value_dim)
        speed_back = backward.get(tuple(shape.parts.items()))
        yield AttentionPoint(
            micro_batch_size=batch,
            seq_length=length,
            num_heads=heads,
            num_key_value_heads=shape.size("kv_head_num"),
            head_dim=key_dim,
            value_dim=value_dim,
            forward=stated(2 * square / speed),
            backward=stated(5 * square / speed_back) if speed_back else None,
        )


def _streams(bandwidth: Entry | None) -> Iterator[StreamPoint]:
    """Kernels with a bandwidth of their own: `default` is a starting value."""
    for name, entry in bandwidth.items() if bandwidth else ():
        if name == "default":
            continue
        speed = entry["gbps"].positive(GIBIBYTE) * entry["efficient_factor"].positive()
        latency = _microseconds(entry.get("latency_us"))
        ours, share = STREAMS.get(name, (name, Fraction(1)))
        for moved in STREAM_BYTES:
            seconds = stated(moved / speed + latency)
            yield StreamPoint(name=ours, moved_bytes=int(moved * share), time=seconds)


def _networks(networks: Entry | None, node: int) -> Iterator[CollectivePoint]:
    """Collectives inside a node: the whole node is `high`, a part of it `low`."""
    for name, network in networks.items() if networks else ():
        pcie = PCIE.fullmatch(name)
        if pcie:
            groups = [int(pcie[1])]
        elif name == "high_intra_node":
            groups = [node]
        elif name == "low_intra_node":
            groups = [ranks for ranks in (2, 4) if ranks < node]
        else:
            continue
        speed = network["bandwidth"]["gbps"].positive(GIBIBYTE)
        for key, entry in network["op"].items():
            factor = entry.get("efficient_factor")
            trusted = factor and (key != "p2p" or factor.positive() <= 1)
            if factor and trusted and key in COLLECTIVES:
                for ranks in [2] if key == "p2p" else groups:
                    yield from _line(
                        entry, COLLECTIVES[key], ranks, speed * factor.positive(), node
                    )


def _line(
    entry: Entry, operation: Operation, ranks: int, speed: float, node: int
) -> Iterator[CollectivePoint]:
    """Points of `latency + steps * hop + traffic / speed`."""
    scale = entry["scale"].positive()
    steps = ranks + entry["offset"].number()
    hops = scale * steps if node == 8 and operation != "p2p" else 1
    of_group = entry.get("fixed_latency_us_by_comm_num")
    fixed = (of_group and of_group.get(str(ranks))) or entry.get("fixed_latency_us")
    latency = hops * _microseconds(entry.get("latency_us")) + _microseconds(fixed)
    for num_bytes in COLLECTIVE_BYTES:
        seconds = scale * num_bytes * steps / ranks / speed + latency
        yield CollectivePoint(
            operation=operation,
            ranks=ranks,
            per_node=ranks,
            num_bytes=num_bytes,
            time=stated(seconds),
        )


def _microseconds(entry: Entry | None) -> float:
    """Seconds; absent: none."""
    if entry is None:
        return 0.0
    number = entry.number()
    if number < 0:
        raise entry.wrong("microseconds, not below 0")
    return number * MICROSECOND
