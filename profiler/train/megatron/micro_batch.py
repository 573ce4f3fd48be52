"""A micro batch of a small megatron-core model of this rank, with marks between its parts."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from trainplan.profiler.task import Place
from trainplan.profiler.torch_on_use import torch
from trainplan.profiler.train.request import TrainingRequest
from trainplan.profiler.train.trainers import TRAINERS


def is_installed() -> bool:
    """Can its layers run here?"""
    return all(find_spec(module) is not None for module in TRAINERS["megatron-core"].needs)


def has_engine(place: Place) -> bool:
    """Does Transformer Engine run its layers?"""
    return place.device == "cuda" and find_spec("transformer_engine") is not None


def versions(*, engine: bool) -> str:
    """What runs its layers, for the user."""
    core = f"megatron-core {version('megatron-core')}"
    return (
        f"{core} with Transformer Engine {version('transformer-engine')}"
        if engine
        else (f"{core} without Transformer Engine")
    )


PARTS = ("embedding", "forward", "head", "head_backward", "backward", "embedding_backward")
"""Between the marks of a micro batch."""


def nothing() -> None:
    """Marks no part."""


@dataclass(slots=True)
class MicroBatch:
    """A model of some layers with its data: one micro batch, forward and backward."""

    stage: Any  # of the library, which is optional
    """Its DistributedDataParallel."""
    arguments: tuple[Any, ...]
    labels: Any
    mark: Callable[[], None] = nothing

    def micro_batch(self, mark: Callable[[], None]) -> None:
        """Run, and mark the end of each of `PARTS`."""
        self.mark = mark
        output = self.stage(*self.arguments, labels=self.labels)
        loss = output.float().mean()
        mark()
        loss.backward()
        mark()

    @property
    def model(self) -> Any:  # noqa: ANN401 (a GPTModel)
        """What is trained."""
        return self.stage.module

    def watch(self) -> None:
        """Mark where layers begin and end; the last norm is one of the head."""
        decoder = self.model.decoder
        decoder.register_forward_pre_hook(self._passed, with_kwargs=True)
        decoder.final_layernorm.register_forward_pre_hook(self._passed, with_kwargs=True)

    def _passed(self, _: object, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Hidden states come by, as their gradient will."""
        hidden = arguments[0] if arguments else named["hidden_states"]
        self.mark()
        hidden.register_hook(lambda _: self.mark())

    def train(self, *, weights: bool) -> None:
        """From now on layers compute gradients of weights, or only those of inputs."""
        for weight in self.model.decoder.layers.parameters():
            weight.requires_grad_(weights)

    def saved_bytes(self) -> int:
        """Kept by all layers for the backward pass."""
        from trainplan.profiler.train.megatron.train import watch_layers  # noqa: PLC0415
        from trainplan.profiler.train.saved import saving  # noqa: PLC0415

        with saving(self.model.parameters()) as saved:
            watch_layers(self.model, saved)
            self.micro_batch(nothing)
        return saved.most


@contextmanager
def micro_batch(request: TrainingRequest, place: Place) -> Iterator[MicroBatch]:
    """The model of this rank, connected to the others until the block ends."""
    engine = has_engine(place)
    with _environment(place, engine=engine):
        from trainplan.profiler.train.megatron import model  # noqa: PLC0415 (optional library)
        from trainplan.profiler.train.megatron.config import config_of  # noqa: PLC0415

        model.forget()  # of a micro batch that failed
        model.connect(request, gloo=False)
        config = config_of(request, engine=engine, balanced=True)
        stages = model.stages_of(request, config, engine=engine)
        (stage,) = model.replicas(request, config, stages)
        made = MicroBatch(stage, *_data(request, masked=not engine))
        made.watch()
        yield made
        model.disconnect()


@contextmanager
def _environment(place: Place, *, engine: bool) -> Iterator[None]:
    """What megatron-core needs where CUDA or Transformer Engine is absent."""
    on_cpu = place.device == "cpu"
    if on_cpu:
        # nothing is compiled, as where `profiler.train` trains; read when the library is imported
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries that are absent, once for each of them
        from trainplan.profiler.train.megatron import stand_ins  # noqa: PLC0415
        from trainplan.profiler.train.megatron.engine import (  # noqa: PLC0415
            stand_in_for_engine,
        )

        with stand_ins.standing_in_for_cuda() if on_cpu else nullcontext():
            if not engine:
                stand_in_for_engine()
            yield


def _data(request: TrainingRequest, *, masked: bool) -> tuple[tuple[Any, ...], Any]:
    """Tokens, positions and mask, and labels."""
    length, rows = request.job.training.seq_length, request.layout.micro_batch_size
    device = torch.cuda.current_device()
    words = request.job.model.vocab_size
    tokens = torch.randint(0, words, (rows, length + 1), device=device)
    positions = torch.arange(length, device=device).expand(rows, -1)
    hidden = None
    if masked:  # Transformer Engine knows that attention is causal
        hidden = torch.triu(torch.ones(1, 1, length, length, device=device), 1).bool()
    return (tokens[:, :-1].contiguous(), positions, hidden), tokens[:, 1:].contiguous()
