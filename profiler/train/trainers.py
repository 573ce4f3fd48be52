"""What trains: where its code is, and what has to be installed for it."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.train.request import RankReport, TrainerName, TrainingRequest

Train = Callable[[TrainingRequest, int, int], RankReport]
"""Trains as one of some ranks, whose process group is there: request, rank, world size."""


@dataclass(frozen=True, slots=True)
class Trainer:
    """A library that trains."""

    module: str
    """Its function `train` is a `Train`; importing it imports the library."""
    refuses: str
    """Module whose function `refusal` says what of a request it cannot run; it imports none."""
    needs: tuple[str, ...]
    """Modules that have to be installed."""


TRAINERS: Mapping[TrainerName, Trainer] = {
    "megatron-core": Trainer(
        module="trainplan.profiler.train.megatron.train",
        refuses="trainplan.profiler.train.megatron.refused",
        needs=("torch", "megatron", "megatron.core"),
    ),
    "torch": Trainer(
        module="trainplan.profiler.train.torch_native.trainer",
        refuses="trainplan.profiler.train.torch_native.refused",
        needs=("torch",),
    ),
}


def need(name: TrainerName) -> Trainer:
    """A trainer whose libraries are installed; nothing of them is imported.

    Raises:
        ProfilerError: One of them is not.
    """
    if name not in TRAINERS:
        raise ProfilerError(f"nothing here trains with {name}: use {' or '.join(TRAINERS)}")
    trainer = TRAINERS[name]
    for module in trainer.needs:
        if find_spec(module) is None:
            raise ProfilerError(
                f"training with {name} needs {module}: pip install 'trainplan[train]'"
            )
    return trainer


def refusal(request: TrainingRequest) -> str | None:
    """What of a request its trainer cannot run, and why; null: it runs all of it."""
    refuse: Callable[[TrainingRequest], str | None]
    refuse = importlib.import_module(TRAINERS[request.trainer].refuses).refusal
    return refuse(request)


def train_of(name: TrainerName) -> Train:
    """The function that trains; imports the library."""
    train: Train = importlib.import_module(TRAINERS[name].module).train
    return train
