"""ZeRO-Infinity: weights, gradients and optimizer on drives, fetched layer by layer."""

from __future__ import annotations

from trainplan.costmodel.lanes.habits import deepspeed_habits
from trainplan.costmodel.lanes.methods.method import Kept, Method
from trainplan.costmodel.lanes.offloaded_step import step_work
from trainplan.costmodel.lanes.placed import Place, Placement, Quantities, Speeds
from trainplan.costmodel.lanes.work import Work

HABITS = deepspeed_habits(3, pipelined=True)
"""DeepSpeed's own, with pipeline_read and pipeline_write. Source: `deepspeed_habits`."""


def arithmetic_intensity(tokens: float, *, of: str, hidden: int = 0, interval: int = 1) -> float:
    """FLOP a GPU does for each byte that moves, `tokens` being sequence length times batch.

    Source: Rajbhandari et al., ZeRO-Infinity, arXiv:2104.07857 (arithmetic intensity): seq
    bsz for weights and gradients, seq bsz / 4 for the optimizer, 24 hd ci for checkpoints.
    """
    by_what = {
        "weights": tokens,
        "optimizer": tokens / 4,
        "checkpoints": 24.0 * hidden * interval,
    }
    return by_what[of]


def efficiency(intensity: float, bandwidth: float, peak: float) -> float:
    """Share of its time that a GPU computes if nothing overlaps.

    Source: Rajbhandari et al., ZeRO-Infinity, arXiv:2104.07857 (efficiency by bandwidth).
    """
    return intensity * bandwidth / (intensity * bandwidth + peak)


def bandwidth_for(share: float, intensity: float, peak: float) -> float:
    """Bytes a second at which a GPU computes a share of its time.

    Source: derived, `efficiency` solved for them: share (ait bw + peak) = ait bw.
    """
    return share / (1.0 - share) * peak / intensity


def live_weight_bytes(params: float, tiles: int = 1) -> float:
    """Weights and gradients in 16 bits of the largest operator while it runs, in tiles.

    Source: Rajbhandari et al., ZeRO-Infinity, arXiv:2104.07857 (memory-centric tiling): 4
    bytes for each of its parameters, of one tile at a time.
    """
    return 4.0 * params / tiles


def _work(quantities: Quantities, speeds: Speeds, placement: Placement) -> Work:
    """All states on the drive, checkpoints as placed."""
    placed = Placement(
        optimizer=1.0,
        optimizer_place=Place.DRIVE,
        parameters=Place.DRIVE,
        checkpoints=placement.checkpoints,
        checkpoints_place=placement.checkpoints_place,
    )
    return step_work(quantities, speeds, placed, HABITS)


METHOD = Method(
    name="zero-infinity",
    what="weights, gradients and optimizer on drives; each rank fetches its share of a layer",
    source="Rajbhandari et al., ZeRO-Infinity, arXiv:2104.07857",
    work=_work,
    runtime="DeepSpeed offload_param.device=nvme, offload_optimizer.device=nvme",
    keeps=(
        Kept(Place.DRIVE, "weights in 16 bits", 2.0),
        Kept(Place.DRIVE, "gradients in 16 bits", 2.0),
        Kept(Place.DRIVE, "weights in 32 bits", 4.0),
        Kept(Place.DRIVE, "gradients in 32 bits", 4.0),
        Kept(Place.DRIVE, "moments", 8.0),
    ),
)
