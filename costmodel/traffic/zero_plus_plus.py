"""ZeRO++: weights and gradients of ZeRO-3 in fewer bits, and weights from a second copy.

Weights go in 8 bits (qwZ), from all ranks in the first forward pass of a step and else from the
`hpz` neighbours of a second copy (hpZ), which each rank cuts from what it has gathered and drops
when weights are updated. Gradients go in 4 bits by two exchanges (qgZ): to their owners in the
node, summed there, and to their owners among nodes. Bytes of scales are left out: 4 for
thousands of elements.
Source: Wang et al., arXiv:2306.10013, section 3; deepspeedai/DeepSpeed @edaa7221, below `deepspeed`
`runtime/zero/partition_parameters.py` (CUDAQuantizer, all_gather_coalesced, _partition_param_sec),
`runtime/zero/stage3.py` (invalidate_secondary_tensor) and `runtime/comm/coalesced_collectives.py`
(all_to_all_quant_reduce), which of one node scatters gradients as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.base import BYTES_BF16
from trainplan.costmodel.candidates import Candidates, Context
from trainplan.costmodel.columns import FloatColumn
from trainplan.costmodel.comm import Rate, choose, collective_rate, group
from trainplan.costmodel.kernels import streaming_bytes_per_second
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import num_microbatches
from trainplan.costmodel.traffic.copies import Copies
from trainplan.costmodel.traffic.data_parallel import Wires, gradient_message_bytes

BITS = 8 * BYTES_BF16
"""Of weights and gradients that are not quantised."""
CALLS = 1 + 2.7 / 14
"""Latency of a collective with that of its scales, over that of a collective.

Source: NVIDIA/nccl v2.19.3 `src/graph/tuning.cc`, hwLat of Ring: a hop of small messages (LL) takes
2.7 us between nodes and 0.6 us inside, one of large ones (Simple) 14 us and 3.4 us.
"""


@dataclass(frozen=True, slots=True)
class SortRates:
    """Collectives in the passes of one sort of states, and the copies around them."""

    first: Rate
    """Gathers in the first forward pass of a step."""
    gather: Rate
    """In all other passes."""
    reduction: Rate
    copies: Copies
    rails: FloatColumn
    """As `Wires.rails`."""


def zero_plus_plus(candidates: Candidates, wires: Wires, plain: SortRates) -> SortRates:
    """What a run has of it, with plain rates of the wires of a sort of states in ZeRO-3.

    A rank quantises its own part before the gather and all of it behind, where passes wait; both
    read and write each element once, and once more where the kernel's fp16 is not the type.
    Source: as this module; `AllGatherCoalescedHandle.wait` dequantises on the stream of the passes.
    """
    job, machine, table = candidates.job, candidates.machine, candidates.table
    speed = streaming_bytes_per_second(machine)
    first, reduction, copies = plain.first, plain.reduction, plain.copies
    second = collective_rate(machine, "all_gather", group(machine, table.hpz, table.tp))
    again = choose(table.hpz > 1, second, plain.gather)
    if bits := job.options.weight_bits:
        cast = 2 * BYTES_BF16 * (job.training.precision == "bf16")
        filled = (bits / 8 + BYTES_BF16 + cast) / speed
        shares = np.where(table.hpz > 1, table.hpz, wires.gathered)
        first = _quantised(first, bits, filled / wires.gathered)
        again = _quantised(again, bits, filled / shares)
        copies = replace(copies, gather=copies.gather + filled)
    if few := job.options.gradient_bits:
        several = wires.shards > machine.gpus_per_node
        reduction = choose(several, _two_hops(candidates, few, wires.shards), reduction)
    return replace(plain, first=first, gather=again, reduction=reduction, copies=copies)


def _quantised(rate: Rate, bits: int, seconds: FloatColumn) -> Rate:
    """In so many bits of an element, and with so many seconds for each of them."""
    sent = rate.of_part(np.asarray(BITS / bits))
    return replace(
        sent,
        start_seconds=CALLS * sent.start_seconds,
        seconds_per_byte=sent.seconds_per_byte + seconds / BYTES_BF16,
    )


def _two_hops(candidates: Candidates, bits: int, ranks: FloatColumn) -> Rate:
    """Exchanges inside a node and between nodes, one after the other.

    All gradients are read and written in few bits; those of the node are read and summed to one
    part, which is written, sent, read again and summed over nodes in fp16.
    Source: as this module: swizzle_quant, quantized_reduction, dequantize, sum.
    """
    machine, inside = candidates.machine, candidates.machine.gpus_per_node
    stride = candidates.table.tp
    local = group(machine, np.full_like(stride, inside), stride)
    across = group(machine, np.maximum(1, ranks // inside).astype(np.int64), stride * inside)
    few = bits / 8
    part = few + few + 2 * BYTES_BF16 + BYTES_BF16 * inside / ranks
    moved = BYTES_BF16 + few + few + part / inside
    first = collective_rate(machine, "alltoall", local)
    then = collective_rate(machine, "alltoall", across).of_part(np.asarray(float(inside)))
    both = Rate(
        first.start_seconds + then.start_seconds,
        first.seconds_per_byte + then.seconds_per_byte,
        first.seconds_per_root_byte + then.seconds_per_root_byte,
    )
    return _quantised(both, bits, moved / streaming_bytes_per_second(machine))


def engine_sent_bytes(
    on: Context, layout: Layout, params: float
) -> Mapping[tuple[str, str], float]:
    """Bytes that a rank hands to each operation of a group in a step, under ZeRO-3.

    `params` weights are gathered in both passes of every micro batch, scales left out. Source: as
    this module; tests/runtimes/test_zero_plus_plus.py counts them under the engine itself.
    """
    options, node = on.job.options, on.machine.gpus_per_node
    often = num_microbatches(on.job, layout)
    width = gradient_message_bytes(on.machine, on.traits)
    gathered = params * (options.weight_bits or 8 * on.machine.storage_bytes) / 8
    first = 1 if layout.hpz > 1 else 2 * often
    sent = {("dp", "all_gather"): first * gathered}
    if layout.hpz > 1:
        sent["hpz", "all_gather"] = (2 * often - 1) * gathered
    if options.gradient_bits and layout.dp * layout.cp > node:
        exchanged = often * params * options.gradient_bits / 8
        sent["dp in nodes", "all_to_all"] = exchanged
        return {**sent, ("dp of nodes", "all_to_all"): exchanged / node}
    return {**sent, ("dp", "reduce_scatter"): often * params * width}
