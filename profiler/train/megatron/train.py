"""Trains with megatron-core: one rank of it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from megatron.core import parallel_state as groups
from megatron.core.pipeline_parallel import get_forward_backward_func

from trainplan.costmodel.layouts import num_microbatches
from trainplan.profiler.torch_on_use import dist, torch
from trainplan.profiler.train.comm_volume import counting
from trainplan.profiler.train.data import microbatches
from trainplan.profiler.train.megatron.engine import stand_in_for_engine
from trainplan.profiler.train.megatron.groups import group_names
from trainplan.profiler.train.megatron.model import Trained, build, connect, padded_bytes
from trainplan.profiler.train.megatron.stand_ins import stand_in_for_cuda
from trainplan.profiler.train.rank import NotANumberError, uses_gpus
from trainplan.profiler.train.request import RankReport, Sent, TrainingRequest
from trainplan.profiler.train.saved import SavedBytes, saving


@dataclass(slots=True)
class Steps:
    """What one rank sees of its steps."""

    losses: list[float] = field(default_factory=list)
    grad_norms: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def train(request: TrainingRequest, rank: int, world_size: int) -> RankReport:
    """Train some steps as one of the ranks."""
    if not uses_gpus(world_size):
        stand_in_for_cuda()
    stand_in_for_engine()
    connect(request)
    trained = build(request)
    seen = Steps()
    counted: dict[str, Any] = {}
    for step in range(request.steps):
        if request.count and step == request.steps - 1:
            losses, counted = _counted_step(request, trained, step, seen)
        else:
            losses = _step(request, trained, step, seen)
        if losses:
            mean = torch.stack([one["loss"] for one in losses]).mean()
            dist.all_reduce(mean, group=groups.get_data_parallel_group())
            seen.losses.append(_number(mean / request.layout.dp, step))
    return RankReport(
        rank=rank,
        losses=tuple(seen.losses),
        grad_norms=tuple(seen.grad_norms),
        step_seconds=tuple(seen.seconds),
        **counted,
    )


def _counted_step(
    request: TrainingRequest, trained: Trained, step: int, seen: Steps
) -> tuple[list[Any], dict[str, Any]]:
    """A step of which bytes are counted, and the weights: its losses, and fields of the report."""
    parameters = [one for stage in trained.stages for one in stage.parameters()]
    with counting(group_names()) as sent, saving(parameters) as saved:
        for stage in trained.stages:
            watch_layers(stage.module, saved)
        losses = _step(request, trained, step, seen)
    return losses, {
        "num_parameters": trained.num_parameters,
        "sent": without_padding(request, sent.sent(), trained.stages),
        # on GPUs other kernels run than those whose graphs the memory model knows
        "saved_bytes": None if uses_gpus(dist.get_world_size()) else saved.most,
    }


def watch_layers(model: Any, saved: SavedBytes) -> None:  # noqa: ANN401 (a GPTModel)
    """Tell when the layers of a stage begin and end; the final norm is one of the head."""
    model.decoder.register_forward_pre_hook(saved.enter, with_kwargs=True)
    model.decoder.register_forward_hook(saved.leave)
    if model.decoder.final_layernorm is not None:
        model.decoder.final_layernorm.register_forward_pre_hook(saved.leave)
    for layer in model.decoder.layers:
        if hasattr(layer.mlp, "experts"):
            layer.mlp.experts.register_forward_pre_hook(saved.enter_experts)
            layer.mlp.experts.register_forward_hook(saved.leave_experts)


def without_padding(
    request: TrainingRequest, sent: tuple[Sent, ...], stages: Sequence[Any]
) -> tuple[Sent, ...]:
    """Gradients and weights without the zeros at the ends of their buckets."""
    padding = padded_bytes(request, stages)
    return tuple(
        one.model_copy(update={"bytes": one.bytes - padding.get(one.group, 0)}) for one in sent
    )


def _step(request: TrainingRequest, trained: Trained, step: int, seen: Steps) -> list[Any]:
    """One step on the clock: from when all ranks are there to when this one is done."""
    data = list(microbatches(request, groups.get_data_parallel_rank(), step))
    dist.barrier()
    torch.cuda.synchronize()
    start = perf_counter()
    losses = _passes(request, trained, data)
    _, grad_norm, _ = trained.optimizer.step()
    torch.cuda.synchronize()
    seen.seconds.append(perf_counter() - start)
    seen.grad_norms.append(_number(grad_norm, step))
    return losses


def _number(value: Any, step: int) -> float:  # noqa: ANN401 (a number or a tensor)
    """It, if it is finite.

    Raises:
        NotANumberError: It is not.
    """
    number = float(value)
    if not math.isfinite(number):
        raise NotANumberError(f"{number} in step {step + 1}")
    return number


def _passes(request: TrainingRequest, trained: Trained, data: list[Any]) -> list[Any]:
    """Forward and backward passes of all micro batches; losses where the last stage is."""
    stages = list(trained.stages)
    for stage in stages:
        stage.zero_grad_buffer()
    trained.optimizer.zero_grad()
    virtual = request.layout.vpp > 1
    result: list[Any] = get_forward_backward_func()(
        forward_step_func=_Forward(request),
        data_iterator=[iter(data) for _ in stages] if virtual else iter(data),
        model=stages if virtual else stages[0],
        num_microbatches=num_microbatches(request.job, request.layout),
        seq_length=request.job.training.seq_length,
        micro_batch_size=request.layout.micro_batch_size,
        forward_only=False,
    )
    return result


class _Forward:
    """A forward pass, as the schedules of megatron-core call it."""

    def __init__(self, request: TrainingRequest) -> None:
        length = request.job.training.seq_length
        self.positions = torch.arange(length, device=torch.cuda.current_device())
        self.positions = self.positions.expand(request.layout.micro_batch_size, -1)
        ones = torch.ones(1, 1, length, length, device=torch.cuda.current_device())
        self.hidden = torch.triu(ones, 1).bool()

    def __call__(self, data: Iterator[Any], model: Any, *_: object) -> tuple[Any, Any]:  # noqa: ANN401
        tokens = next(data).to(torch.cuda.current_device())
        output = model(
            tokens[:, :-1].contiguous(),
            self.positions,
            self.hidden,
            labels=tokens[:, 1:].contiguous(),
        )
        return output, _loss


def _loss(output: Any) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401 (tensors)
    loss = output.float().mean()
    return loss, {"loss": loss.detach().clone()}
