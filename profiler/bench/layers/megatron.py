"""Layers, embedding and head of Megatron-LM, as its own ranks train them.

A model of some layers runs forward and backward with all that a step has: tensor-parallel traffic
of real ranks, all of them at once, and gradients that are added in fp32 buffers. With Transformer
Engine where it is installed.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.hardware import parse_cluster
from trainplan.costmodel.job import Job, Precision, TrainingSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.runtimes.megatron_lm import MEGATRON_LM
from trainplan.profiler.bench.layers.case import Case
from trainplan.profiler.task import Place
from trainplan.profiler.torch_on_use import torch
from trainplan.profiler.train.megatron.refused import refusal
from trainplan.profiler.train.request import TrainingRequest
from trainplan.profiler.train.trainers import TRAINERS

RUNTIME = MEGATRON_LM.name
MOST_RANKS = 64
"""Source: derived; the library makes every group of all ranks on every rank, some dozens for each,
and has to be done long before a task's time is up."""
ANY_GPU = "h100-sxm"
"""A job has to name one; none of its numbers is read here."""
FEW_WORDS = 1024
"""Of a model whose embedding and head are not measured."""


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


def why_not(case: Case, place: Place, precision: Precision) -> str | None:
    """Why its layer is not measured; null where it is."""
    if not is_installed():
        return "it needs megatron-core: pip install 'trainplan[train]'"
    if place.world_size > MOST_RANKS:
        return f"its groups are made for up to {MOST_RANKS} ranks: profile fewer nodes as well"
    return refusal(asked(case, place, 1, precision))


def asked(
    case: Case, place: Place, depth: int, precision: Precision, *, whole_vocabulary: bool = False
) -> TrainingRequest:
    """A job of some layers alike, on all ranks."""
    tp = case.sharding.tp
    model = model_of(case, depth)
    if not whole_vocabulary:
        model = model.model_copy(update={"vocab_size": FEW_WORDS})
    dp, size = place.world_size // tp, case.micro_batch_size
    training = TrainingSpec(
        seq_length=case.seq_length, global_batch_size=dp * size, precision=precision
    )
    cluster = parse_cluster(f"{place.num_nodes}x{place.local_world_size}:{ANY_GPU}")
    layout = Layout(tp=tp, dp=dp, micro_batch_size=size, sequence_parallel=tp > 1, zero_stage=0)
    job = Job(model=model, training=training, cluster=cluster, runtime=RUNTIME)
    return TrainingRequest(trainer="megatron-core", job=job, layout=layout, steps=1)


def model_of(case: Case, depth: int) -> ModelSpec:
    """Layers of the case's sort alone, with the experts of one rank.

    As many rows as the rank would send come back to it: it has fewer experts, each has more rows.
    """
    changed: dict[str, object] = {"num_hidden_layers": depth, "moe": None}
    moe = case.model.moe
    if case.moe and moe:
        local = {"num_experts": max(moe.num_experts_per_tok, moe.num_experts // case.sharding.ep)}
        every = {"first_k_dense_replace": 0, "moe_layer_freq": 1, "n_group": None}
        changed["moe"] = {**moe.model_dump(), **local, **every, "topk_group": None}
    return ModelSpec.model_validate({**case.model.model_dump(), **changed})


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
