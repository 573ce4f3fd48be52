"""The pipeline: which part of the model each rank has, and torch's schedule that runs them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.pipelining import PipelineStage, schedules
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, _PipelineScheduleRuntime

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import stage_layers
from trainplan.costmodel.program import Shape, op_text, placed
from trainplan.costmodel.schedules import SCHEDULES, program_for, torch_class
from trainplan.profiler.train.torch_native.model import Decoder, Part

Loss = Callable[[Tensor, Tensor], Tensor]


class Runner(Protocol):
    """A schedule of torch with the stages of a rank."""

    def step(self, *given: Tensor, target: Tensor | None, losses: list[Tensor]) -> object:
        """Run a step on the tokens and labels of all micro batches, where a rank has the ends."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Like what goes in and out of the stages for one micro batch, on the device `meta`."""

    tokens: Tensor
    hidden: Tensor
    logits: Tensor
    device: torch.device
    """Where stages run."""
    num_microbatches: int


def recomputed(layers: range, layout: Layout) -> frozenset[int]:
    """Those of a stage's layers that run again: all, or the first ones."""
    if layout.recompute != "full":
        return frozenset()
    some = layout.recompute_num_layers if layout.recompute_method == "block" else None
    return frozenset(layers[:some])


def parts_of(model: ModelSpec, layout: Layout, pp_rank: int) -> dict[int, Part]:
    """The virtual stages of a rank, by their numbers."""
    counts = stage_layers(model, layout)
    mine = placed(SCHEDULES[layout.schedule].placement, layout.pp, layout.vpp)[pp_rank].tolist()
    result = {}
    for stage in mine:
        layers = range(sum(counts[:stage]), sum(counts[: stage + 1]))
        result[stage] = Part(
            layers=tuple(layers),
            first=stage == 0,
            last=stage == len(counts) - 1,
            recomputed=recomputed(layers, layout),
        )
    return result


def runner(
    parts: Mapping[int, Decoder], layout: Layout, group: ProcessGroup, ends: Ends, loss: Loss
) -> Runner:
    """What runs a step of the stages of a rank."""
    last = layout.pp * layout.vpp - 1
    stages = [
        PipelineStage(
            part,
            number,
            last + 1,
            ends.device,
            input_args=ends.tokens if number == 0 else ends.hidden,
            output_args=ends.logits if number == last else ends.hidden,
            group=group,
        )
        for number, part in parts.items()
    ]
    return scheduled(stages, layout, ends.num_microbatches, loss)


def scheduled(
    stages: Sequence[PipelineStage], layout: Layout, num_microbatches: int, loss: Loss
) -> Runner:
    """Torch's own class of a schedule, or its runtime with a table of our ops."""
    name = torch_class(layout)
    if name is not None:
        kind = getattr(schedules, f"Schedule{name}")
        given = list(stages) if issubclass(kind, PipelineScheduleMulti) else stages[0]
        made: Runner = kind(given, num_microbatches, loss_fn=loss, scale_grads=False)
        return made
    by_table = _PipelineScheduleRuntime(
        list(stages), num_microbatches, loss_fn=loss, scale_grads=False
    )
    program = program_for(layout.schedule, Shape(layout.pp, layout.vpp, num_microbatches))
    action = schedules._Action.from_str
    by_table._prepare_schedule_with_comms(
        {
            row: [action(op_text(program, row, place)) for place in range(length)]
            for row, length in enumerate(program.lengths.tolist())
        }
    )
    made = by_table
    return made
