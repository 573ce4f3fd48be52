"""Steps of a layout on torch alone, and what a rank reports of them."""

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn import functional

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import num_microbatches
from trainplan.costmodel.runtimes import traits_of
from trainplan.profiler.train.data import microbatches
from trainplan.profiler.train.request import RankReport, TrainingRequest
from trainplan.profiler.train.torch_native.count import SavedBytes, SentBytes
from trainplan.profiler.train.torch_native.model import Decoder, kept_by, start, table_of
from trainplan.profiler.train.torch_native.parallel import (
    TYPES,
    Grid,
    copies,
    cut_over_tensor_ranks,
    grid_of,
    local,
    shard,
)
from trainplan.profiler.train.torch_native.pipeline import Ends, Runner, parts_of, runner
from trainplan.profiler.train.torch_native.refused import refusal

LARGEST_NORM = 1.0
LEARNING_RATE = 3e-3


@dataclass(slots=True)
class Rank:
    """One rank's part of the model, and what it has seen."""

    job: Job
    layout: Layout
    grid: Grid
    device: torch.device
    dtype: torch.dtype
    parts: dict[int, Decoder]
    optimizer: torch.optim.Optimizer
    num_microbatches: int
    runner: Runner | None = None
    """Of a pipeline."""
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def weights(self) -> Iterator[nn.Parameter]:
        """Each once."""
        for part in self.parts.values():
            yield from part.parameters()

    @property
    def has_loss(self) -> bool:
        """Has it the last stage?"""
        return any(part.head is not None for part in self.parts.values())


def train(request: TrainingRequest, rank: int, world_size: int) -> RankReport:
    """Train as one of the ranks, whose process group is there.

    Raises:
        UnsupportedError: The request cannot be trained here.
    """
    if why := refusal(request):
        raise UnsupportedError(f"torch does not run {why}")
    assert request.layout.world_size == world_size, "a process for each rank"
    logging.getLogger("torch").setLevel(logging.ERROR)
    one = prepared(request, rank)
    sent, saved = SentBytes(one.grid.groups()), SavedBytes()
    if request.count:
        for part in one.parts.values():
            saved.watch(part)
    if request.count and request.steps == 1:
        rehearse(one, request)
    for step in range(request.steps):
        tokens, labels = batch(one, request, step)
        with ExitStack() as stack:
            if request.count and step == request.steps - 1:
                saved.own(tokens, labels)
                stack.enter_context(saved.counted())
                stack.enter_context(sent)
            taken(one, tokens, labels, stack)
    return RankReport(
        rank=rank,
        losses=tuple(one.losses) if one.has_loss else (),
        grad_norms=tuple(one.norms),
        step_seconds=tuple(one.seconds),
        num_parameters=held(one) if request.count else None,
        sent=sent.volumes() if request.count else (),
        saved_bytes=saved.peak if request.count else None,
    )


def prepared(request: TrainingRequest, rank: int) -> Rank:
    """The rank's part of the model, cut and sharded, with the weights of the seed."""
    job, layout = request.job, request.layout
    cuda = dist.get_backend() == "nccl"
    device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
    grid, traits = grid_of(layout, rank, device.type), traits_of(job)
    dtype, ring = TYPES[job.training.precision], grid.ring
    table = table_of(job.model, ring.positions(job.training.seq_length), dtype)
    parts = {}
    sharded = layout.dp * layout.cp > 1 or dtype != torch.float32
    for stage, part in parts_of(job.model, layout, grid.pp_rank).items():
        made = Decoder(job.model, part, kept_by(traits), ring, table)
        start(made, request.seed)
        made.to(device)
        if layout.tp > 1:
            cut_over_tensor_ranks(made, grid.mesh["tp"], layout)
        if sharded:
            shard(made, grid.mesh, layout, traits, dtype)
        parts[stage] = made
    weights = [local(weight).detach() for part in parts.values() for weight in part.parameters()]
    one = Rank(
        job=job,
        layout=layout,
        grid=grid,
        device=device,
        dtype=dtype,
        parts=parts,
        optimizer=torch.optim.AdamW(weights, lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.1),
        num_microbatches=num_microbatches(job, layout),
    )
    if layout.pp > 1:
        group = grid.mesh.get_group("pp")
        one.runner = runner(parts, layout, group, ends(one), partial(loss_of, one))
    return one


def ends(rank: Rank) -> Ends:
    """Shapes of what goes through the stages."""
    model, layout = rank.job.model, rank.layout
    rows, length = layout.micro_batch_size, rank.job.training.seq_length // layout.cp
    cut = layout.tp if layout.sequence_parallel else 1

    def like(*shape: int, dtype: torch.dtype = rank.dtype) -> Tensor:
        made = torch.empty(rows, *shape, dtype=dtype, device="meta")
        return made.requires_grad_(dtype.is_floating_point)

    return Ends(
        tokens=like(length, dtype=torch.int64),
        hidden=like(length // cut, model.hidden_size),
        logits=like(length, model.vocab_size // layout.tp),
        device=rank.device,
        num_microbatches=rank.num_microbatches,
    )


def loss_of(rank: Rank, logits: Tensor, labels: Tensor) -> Tensor:
    """Of a micro batch, as a share of the mean over all of them."""
    if rank.layout.tp > 1:
        mesh = rank.grid.mesh["tp"]
        logits = DTensor.from_local(logits, mesh, [Shard(-1)], run_check=False)
    loss = functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
    return loss / rank.num_microbatches


def taken(rank: Rank, tokens: Tensor, labels: Tensor, counts: ExitStack) -> None:
    """One step; `counts` ends behind the passes."""
    dist.barrier()
    began = time.perf_counter()
    with loss_parallel() if rank.layout.tp > 1 else nullcontext():
        losses = passes(rank, tokens, labels)
        settle(rank)
    counts.close()
    own = sum((local(one.detach()) for one in losses), torch.zeros((), device=rank.device))
    squares = torch.stack((own, square(rank)))
    dist.all_reduce(squares)
    loss, norm = float(squares[0]), float(squares[1]) ** 0.5
    update(rank, min(1.0, LARGEST_NORM / (norm + 1e-6)))
    if rank.device.type == "cuda":
        torch.cuda.synchronize()
    rank.losses.append(loss * rank.layout.pp / dist.get_world_size())
    rank.norms.append(norm)
    rank.seconds.append(time.perf_counter() - began)


def batch(rank: Rank, request: TrainingRequest, step: int) -> tuple[Tensor, Tensor]:
    """Tokens of this rank's sequences, and of each the one behind it."""
    tokens = torch.cat(list(microbatches(request, rank.grid.replica, step)))
    at = rank.grid.ring.positions(request.job.training.seq_length)
    return tokens[:, at].to(rank.device), tokens[:, at + 1].to(rank.device)


def passes(rank: Rank, tokens: Tensor, labels: Tensor) -> list[Tensor]:
    """Forward and backward passes of a step; its losses."""
    losses: list[Tensor] = []
    if rank.runner is not None:
        given = (tokens,) if 0 in rank.parts else ()
        target = labels if rank.has_loss else None
        rank.runner.step(*given, target=target, losses=losses)
        return losses
    (part,) = rank.parts.values()
    count = rank.num_microbatches
    pairs = zip(tokens.chunk(count), labels.chunk(count), strict=True)
    for number, (some, wanted) in enumerate(pairs):
        if isinstance(part, FSDPModule):
            now = rank.layout.zero_stage >= 2 or number == count - 1
            part.set_requires_gradient_sync(now)
            part.set_reshard_after_backward(now)
        losses.append(loss_of(rank, part(some), wanted))
        losses[-1].backward()
    return losses


def rehearse(rank: Rank, request: TrainingRequest) -> None:
    """Passes that change nothing: in the first ones pipelines open connections by small messages.

    Source: torch.distributed.pipelining `stage.py`, _get_init_p2p_neighbors_ops.
    """
    if rank.runner is not None:
        tokens, labels = batch(rank, request, 0)
        with loss_parallel() if rank.layout.tp > 1 else nullcontext():
            passes(rank, tokens, labels)
        for weight in rank.weights:
            weight.grad = None


def settle(rank: Rank) -> None:
    """Sum gradients that tensor ranks have parts of; FSDP has done so where it is."""
    for weight in rank.weights:
        if isinstance(weight, DTensor) and weight.grad.placements != weight.placements:
            weight.grad = weight.grad.redistribute(placements=weight.placements)


def square(rank: Rank) -> Tensor:
    """This rank's share of the squared norm of all gradients: sums over the ranks make it whole."""
    total = torch.zeros((), device=rank.device)
    for weight in rank.weights:
        share = local(weight.grad).float().square().sum()
        total = total + share / copies(weight, rank.grid.mesh)
    return total


def update(rank: Rank, factor: float) -> None:
    """Step of the optimizer with scaled gradients, which are gone then."""
    owned = [weight for group in rank.optimizer.param_groups for weight in group["params"]]
    for weight, mine in zip(rank.weights, owned, strict=True):
        mine.grad = local(weight.grad) * factor
        weight.grad = None
    rank.optimizer.step()
    rank.optimizer.zero_grad()


def held(rank: Rank) -> int:
    """Parameters of a rank before its states are sharded."""
    total = 0
    for weight in rank.weights:
        shards = 1
        if isinstance(weight, DTensor):
            names = weight.device_mesh.mesh_dim_names or ()
            for name, placement, size in zip(
                names, weight.placements, weight.device_mesh.shape, strict=True
            ):
                shards *= size if name == "tp" and not placement.is_replicate() else 1
        total += weight.numel() // shards
    return total
