"""The ranks of a small pipeline on torch's own runtime.

The only file that knows the private names of torch.distributed.pipelining.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

from trainplan.costmodel.program.ops import Program

WRITTEN_FOR = "2.13 or later"


def _advice() -> str:
    try:
        found = f"torch {version('torch')}"
    except PackageNotFoundError:
        found = "none"
    return (
        f"this example drives the pipeline runtime of torch {WRITTEN_FOR} and found {found}: "
        "pip install 'torch>=2.13'"
    )


try:
    import torch
    import torch.distributed as dist
    from torch import Tensor, nn
    from torch.distributed.pipelining import PipelineStage, schedules
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime
    from torch.multiprocessing import SimpleQueue, get_context, start_processes

    _PipelineScheduleRuntime._load_csv  # noqa: B018 (it is there, or the advice is given)
except (ImportError, AttributeError) as error:
    raise SystemExit(_advice()) from error

COUNT = getattr(schedules, "analyze_pipeline_activation_liveness", None)
"""Torch's own count of activations, from 2.15 on."""
WIDTH = 16
"""Features of the input and output of every stage."""
ROWS = 2
"""Rows of one micro batch."""
PATIENCE = timedelta(seconds=60)
"""A message that takes longer ends the run."""
SLOW_STEPS = 3
"""Steps that are timed with stages that sleep; the median counts."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One schedule to run."""

    name: str
    program: Program
    csv: Path
    """The program as torch reads it."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one rank saw of one trial."""

    trial: int
    """Its number."""
    rank: int
    difference: float
    """Largest difference between a gradient and that of one process, as part of the largest
    gradient."""
    counted: int | None
    """Most activations the rank holds, as torch counts them from the order it runs."""
    in_memory: float
    """Most bytes that autograd kept at a time, in activations."""
    step_seconds: float
    """Of a step with stages that sleep; 0 where none does."""


class Ledger:
    """Bytes that autograd keeps for the backward passes of one rank."""

    def __init__(self) -> None:
        self.now_bytes = self.most_bytes = self.pass_bytes = 0

    def change(self, change_bytes: int) -> None:
        """Take note of bytes kept, or freed."""
        self.now_bytes += change_bytes
        self.most_bytes = max(self.most_bytes, self.now_bytes)


class Kept:
    """A tensor that autograd keeps; the ledger forgets it when autograd does."""

    def __init__(self, tensor: Tensor, ledger: Ledger) -> None:
        self.tensor, self.ledger = tensor, ledger
        ledger.change(tensor.nbytes)

    def __del__(self) -> None:
        self.ledger.change(-self.tensor.nbytes)


class WatchedStage(PipelineStage):
    """A stage with a ledger, whose passes can take a given time longer than they need."""

    pause_seconds = 0.0

    def __init__(self, module: nn.Module, number: int, num_stages: int, ledger: Ledger) -> None:
        super().__init__(module, number, num_stages, torch.device("cpu"))
        self.ledger = ledger
        weights = {tensor.untyped_storage().data_ptr() for tensor in module.parameters()}

        def keep(tensor: Tensor) -> Tensor | Kept:
            weight = tensor.untyped_storage().data_ptr() in weights
            return tensor if weight else Kept(tensor, ledger)

        def give(kept: Tensor | Kept) -> Tensor:
            return kept.tensor if isinstance(kept, Kept) else kept

        self.hooks = keep, give

    def forward_one_chunk(self, *given: object, **named: object) -> object:
        """F takes one pause."""
        time.sleep(self.pause_seconds)
        before = self.ledger.now_bytes
        with torch.autograd.graph.saved_tensors_hooks(*self.hooks):
            output = super().forward_one_chunk(*given, **named)
        self.ledger.pass_bytes = self.ledger.now_bytes - before
        return output

    def backward_one_chunk(
        self,
        bwd_chunk_id: int,
        loss: Tensor | None = None,
        full_backward: bool = True,  # noqa: FBT001, FBT002 (torch's signature)
        last_backward: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        """I takes one pause, B two."""
        time.sleep(self.pause_seconds * (1 + full_backward))
        super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)

    def backward_weight_one_chunk(self, *given: object, **named: object) -> None:
        """W takes one pause."""
        time.sleep(self.pause_seconds)
        super().backward_weight_one_chunk(*given, **named)


def model_stage(number: int) -> nn.Sequential:
    """Stage of the model, the same in every process."""
    stage = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
    generator = torch.Generator().manual_seed(number)
    with torch.no_grad():
        for weights in stage.parameters():
            weights.copy_(torch.randn(weights.shape, generator=generator) / 4)
    return stage


def batch(num_microbatches: int) -> tuple[Tensor, Tensor]:
    """Input and target of a step, the same in every process."""
    generator = torch.Generator().manual_seed(0)
    given, wanted = torch.randn(2, num_microbatches * ROWS, WIDTH, generator=generator)
    return given, wanted


def squared_error(output: Tensor, target: Tensor) -> Tensor:
    """Loss of one micro batch."""
    return ((output - target) ** 2).mean()


def gradients(stages: Sequence[nn.Module]) -> Tensor:
    """All gradients of some stages, end to end."""
    return torch.cat([weights.grad.flatten() for s in stages for weights in s.parameters()])


def true_gradients(program: Program, mine: Sequence[int]) -> Tensor:
    """Gradients of this rank's stages, from autograd in one process without any schedule."""
    stages = [model_stage(number) for number in range(program.num_stages)]
    given, wanted = batch(program.num_microbatches)
    count = program.num_microbatches
    for x, y in zip(given.chunk(count), wanted.chunk(count), strict=True):
        (squared_error(nn.Sequential(*stages)(x), y) / count).backward()
    return gradients([stages[number] for number in mine])


class Rank:
    """One rank ready to run one trial."""

    def __init__(self, rank: int, trial: Trial) -> None:
        program = trial.program
        self.rank, self.program = rank, program
        self.mine = [s for s, home in enumerate(program.rank_of_stage) if home == rank]
        self.modules = [model_stage(number) for number in self.mine]
        self.ledger = Ledger()
        self.stages = [
            WatchedStage(module, number, program.num_stages, self.ledger)
            for module, number in zip(self.modules, self.mine, strict=True)
        ]
        self.runtime = _PipelineScheduleRuntime(
            self.stages, program.num_microbatches, loss_fn=squared_error, scale_grads=True
        )
        self.runtime._load_csv(str(trial.csv), format="compute_only")

    def step(self) -> float:
        """Seconds of one step, all ranks together."""
        for module in self.modules:
            module.zero_grad(set_to_none=True)
        given, wanted = batch(self.program.num_microbatches)
        dist.barrier()
        before = time.perf_counter()
        self.runtime.step(
            *([given] if 0 in self.mine else []),
            target=wanted if self.program.num_stages - 1 in self.mine else None,
        )
        dist.barrier()
        return time.perf_counter() - before

    def difference(self) -> float:
        """Of the gradients of the last step from those of one process."""
        wanted = true_gradients(self.program, self.mine)
        largest = (gradients(self.modules) - wanted).abs().max() / wanted.abs().max()
        return float(largest)

    def in_memory(self) -> float:
        """Most activations that were kept, of one micro batch through one stage each."""
        return self.ledger.most_bytes / self.ledger.pass_bytes

    def counted(self) -> int | None:
        """As `in_memory`, counted by torch from the order; null: this torch cannot."""
        if COUNT is None:
            return None
        liveness = COUNT(
            self.runtime,
            pp_rank=self.rank,
            stage_indices=self.mine,
            granularity="stage_microbatch",
        )
        return int(liveness.num_slots)

    def slow_step_seconds(self, pause_seconds: float) -> float:
        """Seconds of a step whose passes pause."""
        for stage in self.stages:
            stage.pause_seconds = pause_seconds
        return median(self.step() for _ in range(SLOW_STEPS)) if pause_seconds else 0.0


def run_rank(
    rank: int, trials: Sequence[Trial], folder: Path, pause_seconds: float, reports: SimpleQueue
) -> None:
    """Run all trials in one process group."""
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    dist.init_process_group(
        "gloo",
        init_method=(folder / "rendezvous").as_uri(),
        rank=rank,
        world_size=trials[0].program.pp,
        timeout=PATIENCE,
    )
    for number, trial in enumerate(trials):
        one = Rank(rank, trial)
        one.step()
        seen = one.difference(), one.counted(), one.in_memory()
        reports.put(Report(number, rank, *seen, one.slow_step_seconds(pause_seconds)))
    dist.destroy_process_group()


def run_all(trials: Sequence[Trial], folder: Path, pause_seconds: float) -> list[Report]:
    """Run trials of one number of ranks on this machine, one process a rank."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed.pipelining.schedules"])  # once, not per rank
    reports, ranks = context.SimpleQueue(), trials[0].program.pp
    given = (trials, folder, pause_seconds, reports)
    start_processes(run_rank, given, nprocs=ranks, start_method="forkserver")
    return sorted(
        (reports.get() for _ in range(ranks * len(trials))),
        key=lambda report: (report.trial, report.rank),
    )
