"""Published ways to use host, drives and links, by name.

Most are the offload policy of a runtime and a placement, which `step_work` prices. Deep Optimizer
States, Fuyou and Harmony run programs of their own (`method_steps`). One without a living runtime
(`Method.runtime` is none) is priced as a method and never exported.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from trainplan.costmodel.copy_streams.method_steps import fuyou_step, harmony_step, interleaved_step
from trainplan.costmodel.copy_streams.offloaded_step import step_work
from trainplan.costmodel.copy_streams.placement import (
    Accumulation,
    Column,
    Offloaded,
    OffloadPolicy,
    Place,
    Placement,
    Quantities,
    Speeds,
    deepspeed_offload_policy,
    megatron_offload_policy,
)
from trainplan.costmodel.copy_streams.work import Work


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes that lie somewhere for each parameter, before they are divided by ranks that share."""

    place: Place
    term: str
    bytes_per_parameter: float


WEIGHTS_16, GRADIENTS_16 = ("weights in 16 bits", 2.0), ("gradients in 16 bits", 2.0)
WEIGHTS_32, GRADIENTS_32 = ("weights in 32 bits", 4.0), ("gradients in 32 bits", 4.0)
MOMENTS = ("moments", 8.0)
"""Of Adam, in 32 bits."""


def kept(place: Place, *terms: tuple[str, float]) -> tuple[Kept, ...]:
    """Some terms that lie in one place."""
    return tuple(Kept(place, *term) for term in terms)


@dataclass(frozen=True, slots=True)
class Method:
    """A named policy. Without a runtime it is priced as a method, and nothing exports it."""

    name: str
    what: str
    """In one line."""
    source: str
    policy: OffloadPolicy
    """What it copies, when, and what it waits for."""
    placed: Callable[[Placement], Placement]
    """What it places where, some of it as a placement says."""
    program: Callable[[Offloaded], Work] = step_work
    """A step of a single row so placed."""
    runtime: str | None = None
    """A living runtime that has it, with its option."""
    keeps: tuple[Kept, ...] = ()
    """As the publication has it; empty where it leaves states where they were."""

    def work(self, quantities: Quantities, speeds: Speeds, placement: Placement) -> Work:
        """A step of a single row; the placement says what the method leaves open."""
        return self.program(Offloaded(quantities, speeds, self.placed(placement), self.policy))

    def bytes_per_parameter(self, place: Place) -> float:
        """All that lies in one place. Source: `keeps`."""
        return sum(kept.bytes_per_parameter for kept in self.keeps if kept.place is place)


def _or_all(share: Column) -> Column:
    """The share of a placement; all where it says none."""
    return share if np.any(share) else 1.0


ZERO_3 = deepspeed_offload_policy(3)
ZERO_3_PIPELINED = deepspeed_offload_policy(3, pipelined=True)
"""With pipeline_read and pipeline_write. Source: `deepspeed_offload_policy`."""
ZERO_OFFLOAD_POLICY = replace(
    deepspeed_offload_policy(2, overlap_comm=True, fp32_sums=True),
    gradient_bytes=2.0,
    keeps_last=False,
)
"""Gradients leave in 16 bits while the backward pass runs.

Source: Ren et al., ZeRO-Offload, arXiv:2101.06840 (2 bytes a parameter each way).
"""
FUYOU_POLICY = replace(
    deepspeed_offload_policy(3),
    accumulation=Accumulation.OFF_IF_SEVERAL,
    gradient_bytes=2.0,
    keeps_last=False,
)
"""Gradients leave in 16 bits. Source: Liao et al., Fuyou, arXiv:2403.06504."""
SUBGROUPS_POLICY = deepspeed_offload_policy(3, pipelined=True, subgroup_params=100_000_000)
"""Source: Maurya et al., Deep Optimizer States, arXiv:2410.21316: subgroups of 100 M."""


ZERO_OFFLOAD = Method(
    name="zero-offload",
    what="optimizer and gradients on the host, Adam on its CPUs, copies out during backward passes",
    source="Ren et al., ZeRO-Offload, arXiv:2101.06840",
    policy=ZERO_OFFLOAD_POLICY,
    placed=lambda p: Placement(optimizer=1.0, delayed=p.delayed),
    runtime="DeepSpeed offload_optimizer.device=cpu (without the delayed update)",
    keeps=(*kept(Place.DEVICE, WEIGHTS_16), *kept(Place.HOST, GRADIENTS_16, WEIGHTS_32, MOMENTS)),
)
METHODS = {
    method.name: method
    for method in (
        ZERO_OFFLOAD,
        replace(
            ZERO_OFFLOAD,
            name="zero-offload-delayed",
            what="as zero-offload, its update during the next step's passes: changes the training",
            placed=lambda p: Placement(optimizer=1.0, delayed=True),
            runtime=None,
        ),
        Method(
            name="twin-flow",
            what="CPUs and GPU each update a share of the optimizer at the same time",
            source="DeepSpeed blogs/deepspeed-offloadpp (ZeRO-Offload++, offload_optimizer.ratio)",
            policy=ZERO_3,
            placed=lambda p: Placement(optimizer=p.optimizer, parameters=p.parameters),
            runtime="DeepSpeed offload_optimizer.ratio; Megatron-LM --optimizer-offload-fraction",
            keeps=kept(Place.DEVICE, WEIGHTS_16),
        ),
        Method(
            name="deep-optimizer-states",
            what="every k-th subgroup of the host's optimizer goes to the GPU for its update and "
            "back",
            source="Maurya et al., Deep Optimizer States, arXiv:2410.21316",
            policy=SUBGROUPS_POLICY,
            placed=lambda p: replace(p, optimizer=1.0, optimizer_place=Place.HOST),
            program=interleaved_step,
            keeps=(
                *kept(Place.DEVICE, WEIGHTS_16),
                *kept(Place.HOST, GRADIENTS_32, WEIGHTS_32, MOMENTS),
            ),
        ),
        Method(
            name="zero-infinity",
            what="weights, gradients and optimizer on drives; each rank fetches its share of a "
            "layer",
            source="Rajbhandari et al., ZeRO-Infinity, arXiv:2104.07857",
            policy=ZERO_3_PIPELINED,
            placed=lambda p: replace(
                Placement(checkpoints=p.checkpoints, checkpoints_place=p.checkpoints_place),
                optimizer=1.0,
                optimizer_place=Place.DRIVE,
                parameters=Place.DRIVE,
            ),
            runtime="DeepSpeed offload_param.device=nvme, offload_optimizer.device=nvme",
            keeps=kept(Place.DRIVE, WEIGHTS_16, GRADIENTS_16, WEIGHTS_32, GRADIENTS_32, MOMENTS),
        ),
        Method(
            name="fuyou",
            what="Adam of a layer during the backward pass of the next; activations swapped to "
            "drives",
            source="Liao et al., Fuyou, arXiv:2403.06504",
            policy=FUYOU_POLICY,
            placed=lambda p: Placement(
                optimizer=1.0,
                parameters=Place.DRIVE,
                checkpoints=p.checkpoints,
                checkpoints_place=Place.DRIVE,
            ),
            program=fuyou_step,
            keeps=kept(Place.DRIVE, WEIGHTS_16, WEIGHTS_32, MOMENTS),
        ),
        Method(
            name="ssdtrain",
            what="activations to drives during the forward pass, back ahead of the backward pass",
            source="Wu et al., SSDTrain, arXiv:2408.10013",
            policy=ZERO_3,
            placed=lambda p: Placement(
                checkpoints=_or_all(p.checkpoints), checkpoints_place=Place.DRIVE
            ),
        ),
        Method(
            name="pipeoffload",
            what="activations of the stages that hold them longest on the host between their two "
            "passes",
            source="Wan et al., PipeOffload, arXiv:2503.01328",
            policy=megatron_offload_policy(overlap=False),
            placed=lambda p: Placement(checkpoints=_or_all(p.checkpoints)),
            runtime="Megatron-LM --fine-grained-activation-offloading",
        ),
        Method(
            name="protrain",
            what="numbers of blocks that stay, are buffered, swapped and computed again: the best "
            "of all",
            source="Yang et al., ProTrain, arXiv:2406.08334",
            policy=ZERO_3,
            placed=lambda p: Placement(
                optimizer=1.0, parameters=Place.HOST, checkpoints=p.checkpoints
            ),
            keeps=kept(Place.HOST, WEIGHTS_16, GRADIENTS_16, WEIGHTS_32, MOMENTS),
        ),
        Method(
            name="patrickstar",
            what="states in chunks that move between host and GPU, the one needed last leaves "
            "first",
            source="Fang et al., PatrickStar, arXiv:2108.05818",
            policy=ZERO_3,
            placed=lambda p: Placement(optimizer=_or_all(p.optimizer), parameters=Place.HOST),
            keeps=(
                Kept(Place.HOST, "weights in 16 bits, their chunks hold gradients later", 2.0),
                *kept(Place.HOST, WEIGHTS_32, MOMENTS),
            ),
        ),
        Method(
            name="harmony",
            what="all micro batches of a layer before the next: weights are swapped once a pass",
            source="Li et al., Harmony, arXiv:2202.01306",
            policy=ZERO_3,
            placed=lambda p: p,
            program=harmony_step,
            keeps=(Kept(Place.HOST, "weights, gradients and moments in 32 bits", 16.0),),
        ),
        Method(
            name="se-moe",
            what="experts on host or drives, those of the next layer fetched while this one runs",
            source="Shen et al., SE-MoE, arXiv:2205.10034",
            policy=ZERO_3,
            placed=lambda p: replace(
                Placement(optimizer=p.optimizer, optimizer_place=p.optimizer_place),
                parameters=p.parameters if np.any(p.parameters) else Place.DRIVE,
            ),
            keeps=(
                *kept(Place.DRIVE, WEIGHTS_32, MOMENTS),
                *kept(Place.DEVICE, WEIGHTS_16, GRADIENTS_16),
            ),
        ),
    )
}
"""Every method by its name: `Kept` bytes are those of its publication."""
