"""Metis' shipped sample, solved so that every device holds what it is given.

Metis (SamsungLabs/Metis) is under CC-BY-NC: its files are read from the user's own checkout, and
neither its code nor a number of its data is here. It is asked for 8 GPUs of one kind and states the
time of a step so: with B micro batches, t_i profiled seconds of stage i on one micro batch,
`s` those the profile has besides its layers, and g those that make a batch,

    T = (B - 1) max t_i + sum t_i + B s + B g + max optimizer_i + max gradients_i + sum messages_i

where the optimizer is shared by layers and tensor parallelism, the gradients of a stage with d
replicas move 2 (d - 1) / d of its bytes, and a message counts numbers, not bytes. All of them move
at the speed inside a node. Stages take a power of two of the GPUs each, in any order, each with its
own replicas and tensor parallelism, and any number of layers.

Its test of memory sets a multiple of the need of one replica against the memory of all GPUs of a
stage. Ours asks every GPU: the profiled memory of its layers is no more than the memory of the GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from checkout import json_of, text_of
from relaxed import Best, Case

from trainplan.costmodel.base.errors import SpecError
from trainplan.planner.solvers.layer_assignment import Counts, LayerAssignment

if TYPE_CHECKING:
    from trainplan.costmodel.columns import FloatColumn

MEBIBYTE, MILLISECOND = 2**20, 1e-3

PROFILES = "profile_data_samples"
PROFILE = re.compile(r"DeviceType\.(?P<gpu>\w+)_tp(?P<tp>\d+)_bs(?P<samples>\d+)\.json")
SCRIPT, CLUSTER = "scripts/cost_het_cluster.sh", "results/hetero_cost_model"
GPU = "A100"
BALANCER = "model/load_balancer.py"


class Stage(NamedTuple):
    """Degrees of a stage."""

    dp: int
    tp: int


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of Metis."""

    gpus: int = 8
    batch: int = 128
    by_group: bool = False
    """Test memory as Metis does, not GPU by GPU?"""

    def room_mib(self, of: Measured, stage: Stage) -> float:
        """What the layers of a stage may need on one GPU."""
        group = of.device_mib * stage.dp * stage.tp / of.group_factor
        return group if self.by_group else of.device_mib


class Key(NamedTuple):
    """What a profile was taken at."""

    tp: int
    samples: int


@dataclass(frozen=True, slots=True)
class Profile:
    """Layers of one micro batch on one GPU."""

    seconds: FloatColumn
    mebibytes: FloatColumn
    besides: float
    """Seconds of a micro batch that are no layer's."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a checkout ships."""

    profiles: Mapping[Key, Profile]
    parameter_bytes: FloatColumn
    optimizer_seconds: float
    batch_seconds: float
    """To make one batch."""
    inputs: int
    outputs: int
    """Numbers of a sample between layers, and before the head."""
    per_second: float
    """Bytes, or numbers, that a link moves in a second."""
    device_mib: float
    group_factor: float
    """Metis lets a stage be whose need times this is no more than the memory of its GPUs."""


class Frame(NamedTuple):
    """Everything but the layers of the stages."""

    stages: tuple[Stage, ...]
    num_microbatches: int
    batch: int
    room_mib: tuple[float, ...]
    """What the layers of each stage may need on one GPU."""

    def key(self, stage: int) -> Key:
        """What its layers cost."""
        dp, tp = self.stages[stage]
        return Key(tp, self.batch // dp // self.num_microbatches)

    @property
    def text(self) -> str:
        """In words."""
        degrees = ", ".join(f"dp{dp} tp{tp}" for dp, tp in self.stages)
        return f"{self.num_microbatches} micro batches; {degrees}"


def read(checkout: Path) -> Measured:
    """The problem's numbers; those of no layer are of the profile of one GPU and one sample."""
    files = {path.name for path in (checkout / PROFILES).glob("*.json")}
    found = {
        Key(int(match["tp"]), int(match["samples"])): json_of(checkout, f"{PROFILES}/{name}")
        for name in sorted(files)
        if (match := PROFILE.fullmatch(name)) and match["gpu"] == GPU
    }
    if Key(1, 1) not in found:
        raise SpecError(f"{checkout / PROFILES}: no profile of one {GPU} and one sample is here")
    first, script = found[Key(1, 1)], text_of(checkout, SCRIPT)
    times = first["execution_time"]
    profiles = {}
    for key, top in found.items():
        layers = [
            e.positive(MILLISECOND)
            for e in top["execution_time"]["layer_compute_total_ms"].elements()
        ]
        memory = [e.number() for e in top["execution_memory"]["layer_memory_total_mb"].elements()]
        whole = top["execution_time"]["forward_backward_time_ms"].positive(MILLISECOND)
        profiles[key] = Profile(np.array(layers), np.array(memory), whole - sum(layers))
    parameters = first["model"]["parameters"]["parameters_per_layer_bytes"].elements()
    length = _number(script, "SEQUENCE_LENGTH=")
    cluster = text_of(checkout, CLUSTER).split(f'"{GPU}"')[-1]
    return Measured(
        profiles=profiles,
        parameter_bytes=np.array([each.number() for each in parameters]),
        optimizer_seconds=2 * times["optimizer_time_ms"].positive(MILLISECOND),
        batch_seconds=times["batch_generator_time_ms"].positive(MILLISECOND),
        inputs=length * _number(script, "HIDDEN_SIZE="),
        outputs=length * _number(script, "VOCAB_SIZE="),
        per_second=_number(cluster, '"intra_bandwidth": ') * MEBIBYTE / MILLISECOND,
        device_mib=_number(cluster, '"memory": ') * 1024,
        group_factor=_number(text_of(checkout, BALANCER), "mem_coef: float = "),
    )


def _number(text: str, name: str) -> int:
    """A whole number behind its name."""
    found = re.search(rf"{re.escape(name)}(\d+)", text)
    if found is None:
        raise SpecError(f"{name} is not where Metis has it: give --checkout its repository")
    return int(found[1])


def frames(of: Measured, question: Question) -> Iterator[Frame]:
    """All degrees whose times were profiled."""
    most = max(key.tp for key in of.profiles)
    num_layers = len(of.parameter_bytes)
    divisors = [b for b in range(1, question.batch + 1) if question.batch % b == 0]
    for sizes in _sums(question.gpus):
        if len(sizes) > num_layers:
            continue
        ways = [[Stage(n // tp, tp) for tp in (1, 2, 4, 8) if tp <= min(n, most)] for n in sizes]
        for stages in product(*ways):
            for b in divisors:
                room = tuple(question.room_mib(of, stage) for stage in stages)
                frame = Frame(stages, b, question.batch, room)
                if all(frame.key(i) in of.profiles for i in range(len(stages))):
                    yield frame


def _sums(total: int) -> Iterator[tuple[int, ...]]:
    """Powers of two that add up to a number, in every order."""
    if total == 0:
        yield ()
    size = 1
    while size <= total:
        for rest in _sums(total - size):
            yield (size, *rest)
        size *= 2


def filling(of: Measured, frame: Frame) -> LayerAssignment:
    """Layers of stages, with the messages of a head that does not stand alone."""
    pp, others = len(frame.stages), frame.num_microbatches - 1
    kinds = _kinds(of)
    first = [kinds.index(kind) for kind in range(max(kinds) + 1)]
    keys = [of.profiles[frame.key(i)] for i in range(pp)]
    work = np.array([key.seconds[first] for key in keys])
    memory = np.array([key.mebibytes[first] for key in keys])
    dp, tp = np.array(frame.stages, float).T
    optimizer = np.repeat(of.optimizer_seconds / len(kinds) / tp[:, None], len(first), axis=1)
    moved = of.parameter_bytes[first] / of.per_second
    gradients = (2 * (dp - 1) / dp / tp)[:, None] * moved
    own = np.eye(pp)[:, :, None]
    samples = [frame.key(i).samples for i in range(pp)]
    rest = frame.num_microbatches * (keys[-1].besides + of.batch_seconds)
    rest += sum(samples[:-1]) * of.inputs / of.per_second
    return LayerAssignment(
        layers=tuple(kinds),
        kind_of_way=tuple(range(len(first))),
        costs=np.concatenate([work * (others * own + 1), optimizer * own, gradients * own]),
        constants=np.repeat([rest, 0.0, 0.0], pp),
        group=np.repeat([0, 1, 2], pp),
        needs=memory * own,
        capacities=np.array(frame.room_mib),
        least=np.ones(pp, np.int64),
        most=np.full(pp, len(kinds)),
    )


def _kinds(of: Measured) -> list[int]:
    """The kind of every layer: those alike in all profiles are of one."""
    columns = [np.stack([p.seconds, p.mebibytes]) for p in of.profiles.values()]
    rows = [tuple(row) for row in np.vstack([*columns, of.parameter_bytes]).T.tolist()]
    distinct = list(dict.fromkeys(rows))
    return [distinct.index(row) for row in rows]


def seconds(of: Measured, frame: Frame, counts: Counts) -> float:
    """Of a step: the formula of the module."""
    value = filling(of, frame).value(counts)
    if len(frame.stages) > 1 and counts[-1].sum() == 1:
        tp = frame.stages[-2].tp
        samples = frame.key(len(frame.stages) - 2).samples
        value += samples * (of.outputs / tp - of.inputs) / of.per_second
    return value


def most_mib(best: Best) -> float:
    """On the fullest GPU of an answer; infinite without one."""
    if best.case is None or best.counts is None:
        return np.inf
    return float(np.einsum("jsw,sw->j", best.case.filling.needs, best.counts).max())


def least_value(of: LayerAssignment) -> float:
    """No answer has a smaller value, whatever the memory.

    Source: derived. Every layer takes its least time once, and the most frequent kind is spread
    over the stages as their speeds are.
    """
    counts = np.bincount(of.layers)
    pp = of.costs.shape[1]
    rows = of.costs[:pp]
    once = np.array([rows[(i + 1) % pp, i] if pp > 1 else rows[0, 0] * 0 for i in range(pp)])
    more = np.array([rows[i, i] for i in range(pp)]) - once
    frequent = int(counts.argmax())
    slowest = counts[frequent] / (1 / more[:, frequent]).sum() if (more > 0).all() else 0.0
    return float(once.min(axis=0) @ counts + slowest + of.constants[0])


def cases(of: Measured, question: Question) -> list[Case]:
    """All of them, each with its bound."""
    found = []
    for frame in frames(of, question):
        problem = filling(of, frame)
        evaluate = partial(seconds, of, frame)
        words = tuple(f"x kind {kind}" for kind in problem.kind_of_way)
        found.append(Case(frame.text, problem, least_value(problem), words, evaluate))
    return found
