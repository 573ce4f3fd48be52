"""Sailor's OPT-350M on A100-40 GPUs, solved under its own simulator's definition.

Sailor (eth-easl/sailor, MIT, read at commit cf2c8e3) splits the layers of a model evenly over the
stages and searches stages, micro-batch size, replicas and, for each stage, tensor parallelism by
rules of thumb. Its judge (sailor/Planner/simulations/runtime_simulator.py) says, with m micro
batches on each replica, c_i seconds of forward and backward on stage i and p_i of its messages,

    T = (m - 1) max (c_i + p_i) + sum (c_i + p_i) + max update_i + max sync_i

and that a GPU of stage i of P holds 24 bytes for each parameter, the activations of P - i micro
batches in fp32, and 2 GB, or 3 GB with tensor parallelism. We choose the tensor parallelism of
every stage exactly, for every number of stages, replicas and samples of a micro batch.

Replicas of one stage share one degree: a stage of mixed degrees lasts at least as long as at the
smallest of them, sums its gradients at that one, and its slowest message goes at the speed of that
one, so all replicas there are no worse. Replicas divide the batch, which the simulator does not
ask. A message goes at the speed of the smaller of two degrees; the problem for the solver takes
that of the stage's own, so it promises no more than is true, and `seconds` judges its answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import log2
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from checkout import json_of
from relaxed import Case

from trainplan.costmodel.base.entries import Entry
from trainplan.costmodel.base.errors import SpecError
from trainplan.planner.solvers.layer_assignment import Counts, LayerAssignment

if TYPE_CHECKING:
    from trainplan.costmodel.columns import FloatColumn

FOLDER = "sailor/Planner"
GPU, ZONE, MODEL = "A100-40", "us-central1-a", "OPT-350"
DEGREES = (1, 2, 4)
"""Of tensor parallelism: a node has 4 GPUs."""
DEVICE_BYTES = 40 * 2**30
STATE_BYTES = 24
"""Of a parameter: Adam 8, weights, gradients, communication and copies of DeepSpeed 4 each."""
FLOAT_BYTES = 4
KERNEL_BYTES = {1: 2e9, 2: 3e9, 4: 3e9}
BUCKET_BYTES = 500_000_000
FEW_STAGES = 3
"""With more, the first stage counts its messages twice. Source: `estimate_p2p_pipeline_times`."""


@dataclass(frozen=True, slots=True)
class Layers:
    """Every layer of the model at one degree of tensor parallelism; one number for each."""

    parameters: FloatColumn
    activation_floats: FloatColumn
    """What one sample leaves for its backward."""
    output_floats: FloatColumn
    """Of one sample."""


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds of every layer at a degree and number of samples."""

    work: FloatColumn
    """Forward and backward."""
    update: FloatColumn


class Key(NamedTuple):
    """What times were measured at."""

    samples: int
    tp: int


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of the model and the machine."""

    batch: int
    layers: Mapping[int, Layers]
    """By degree."""
    timed: Mapping[Key, Timed]
    link: Mapping[int, tuple[float, ...]]
    """By the smaller degree of its ends: coefficients of the speed, GB/s, in powers of log2 of MB,
    the highest first."""

    def send_seconds(self, num_bytes: float, tp: int = 1) -> float:
        """Of one message. Source: providers/gcp/model_networking.py, `get_time_on_config`."""
        return num_bytes / 1e9 / float(np.polyval(self.link[tp], log2(num_bytes / 1e6)))

    def sum_seconds(self, num_bytes: float, replicas: int) -> float:
        """Of gradients over replicas, in buckets. Source: `get_ar_time_with_buckets`."""
        whole, rest = divmod(num_bytes, BUCKET_BYTES)
        buckets = [BUCKET_BYTES] * int(whole) + [rest] * int(rest > 0)
        if replicas == 1:
            return 0.0
        return sum(2 * (replicas - 1) * self.send_seconds(b / replicas) for b in buckets)


class Grid(NamedTuple):
    """What all stages have in common."""

    pp: int
    dp: int
    samples: int
    """Of a micro batch."""
    gpus: int
    """That may be used."""

    @property
    def text(self) -> str:
        """In words."""
        return f"pp {self.pp}, dp {self.dp}, micro batch {self.samples}"


def read(checkout: Path) -> Measured:
    """The problem's numbers."""
    info = json_of(checkout, f"{FOLDER}/llm_info.json")[MODEL]
    profile = json_of(checkout, f"{FOLDER}/simulations/profiles_tmp.json")[MODEL][GPU]
    wanted = json_of(checkout, f"{FOLDER}/simulations/configs/training_config_opt_350.json")
    links = json_of(checkout, "sailor/providers/multizone_bandwidths_het.json")[ZONE][GPU]
    link = {
        (a, b): tuple(each.number() for each in _pair(links, a, b).elements()[0].elements())
        for a in DEGREES
        for b in DEGREES
    }
    if any(link[a, b] != link[min(a, b), min(a, b)] for a, b in link):
        raise SpecError(f"{links.where}: the smaller end does not set the speed: not this problem")
    return Measured(
        batch=wanted["global_batch_size"].count(),
        layers={tp: _layers(info[str(tp)]) for tp in DEGREES},
        timed={
            Key(int(samples), int(tp)): _timed(entry)
            for samples, degrees in profile.items()
            for tp, entry in degrees.items()
            if int(tp) in DEGREES
        },
        link={tp: link[tp, tp] for tp in DEGREES},
    )


def _pair(links: Entry, sender: int, receiver: int) -> Entry:
    return links[str(sender)][ZONE][GPU][str(receiver)]


def _layers(entry: Entry) -> Layers:
    layers = [layer for _, layer in sorted(entry.items(), key=lambda item: int(item[0]))]
    return Layers(
        np.array([layer["params_floats"].number() for layer in layers]),
        np.array([layer["act_mem_floats"].number() for layer in layers]),
        np.array([layer["act_output_floats"].number() for layer in layers]),
    )


def _timed(entry: Entry) -> Timed:
    rows = [layer.elements() for _, layer in sorted(entry.items(), key=lambda item: int(item[0]))]
    work = np.array([row[0].number() + row[1].number() for row in rows])
    return Timed(work, np.array([row[2].number() for row in rows]))


def stage_ends(num_layers: int, pp: int) -> list[slice]:
    """Layers of each stage: even, the first stages one more. Source: `partition_uniform`."""
    each, more = divmod(num_layers, pp)
    starts = [i * each + min(i, more) for i in range(pp + 1)]
    return [slice(a, b) for a, b in pairwise(starts)]


def message_seconds(of: Measured, grid: Grid, degrees: Sequence[int]) -> FloatColumn:
    """Of each stage and micro batch. Source: `estimate_p2p_pipeline_times`.

    Args:
        of: What was measured.
        grid: What the stages have in common.
        degrees: Of tensor parallelism, of each stage.
    """
    if grid.pp == 1:
        return np.zeros(1)
    layers = of.layers[1].output_floats * FLOAT_BYTES * grid.samples
    held = stage_ends(len(layers), grid.pp)
    speeds = [min(pair) for pair in pairwise(degrees)]
    down = [of.send_seconds(layers[held[i]][-1], tp) for i, tp in enumerate(speeds)]
    up = [of.send_seconds(layers[held[i + 1]][0], tp) for i, tp in enumerate(speeds)]
    middle = [down[i] + up[i - 1] for i in range(1, grid.pp - 1)]
    first = down[0] * (1 if grid.pp <= FEW_STAGES else 2)
    return np.array([first, *middle, 2 * up[-1]])


def stage_bytes(of: Measured, grid: Grid, stage: int, tp: int) -> float:
    """On one GPU. Source: `check_config_fits`."""
    layers = of.layers[tp]
    held = stage_ends(len(layers.parameters), grid.pp)[stage]
    activations = layers.activation_floats[held].sum() * grid.samples * FLOAT_BYTES
    states = layers.parameters[held].sum() * STATE_BYTES
    return float(states + activations * (grid.pp - stage) + KERNEL_BYTES[tp])


def degrees_of(of: Measured, grid: Grid) -> list[int]:
    """Degrees whose times were measured."""
    return [tp for tp in DEGREES if Key(grid.samples, tp) in of.timed]


def filling(of: Measured, grid: Grid) -> LayerAssignment:
    """Every stage is a layer, and its degree the way it is run."""
    stages, degrees = range(grid.pp), degrees_of(of, grid)
    held = stage_ends(len(of.layers[1].parameters), grid.pp)
    timed = [of.timed[Key(grid.samples, tp)] for tp in degrees]
    work = np.array([[each.work[held[i]].sum() for each in timed] for i in stages])
    update = np.array([[each.update[held[i]][0] for each in timed] for i in stages])
    sizes = [of.layers[1].parameters[held[i]].sum() * FLOAT_BYTES for i in stages]
    sync = np.array([[of.sum_seconds(s / tp, grid.dp) for tp in degrees] for s in sizes])
    fits = [[stage_bytes(of, grid, i, tp) <= DEVICE_BYTES for tp in degrees] for i in stages]
    messages = np.array([message_seconds(of, grid, [tp] * grid.pp) for tp in degrees]).T
    others = of.batch // (grid.samples * grid.dp) - 1
    own = np.eye(grid.pp)[:, :, None]
    return LayerAssignment(
        layers=(0,) * grid.pp,
        kind_of_way=(0,) * len(degrees),
        costs=np.concatenate([(work + messages) * (others * own + 1), update * own, sync * own]),
        constants=np.zeros(3 * grid.pp),
        group=np.repeat([0, 1, 2], grid.pp),
        needs=np.stack([np.array([degrees] * grid.pp) * grid.dp, ~np.array(fits)]).astype(float),
        capacities=np.array([float(grid.gpus), 0.0]),
        least=np.ones(grid.pp, np.int64),
        most=np.ones(grid.pp, np.int64),
    )


def seconds(of: Measured, grid: Grid, counts: Counts) -> float:
    """Of a step, with every message at its own speed: the formula of the module."""
    problem, degrees = filling(of, grid), degrees_of(of, grid)
    chosen = [degrees[way] for way in counts.argmax(axis=1)]
    true = message_seconds(of, grid, chosen)
    own = np.array([message_seconds(of, grid, [tp] * grid.pp)[i] for i, tp in enumerate(chosen)])
    others = of.batch // (grid.samples * grid.dp) - 1
    slower = true - own
    constants = problem.constants.copy()
    constants[: grid.pp] += others * slower + slower.sum()
    return replace(problem, constants=constants).value(counts)


def step_seconds(of: Measured, grid: Grid, tp: int) -> float:
    """Of a step with one degree on all stages."""
    chosen = [degree == tp for degree in degrees_of(of, grid)]
    return seconds(of, grid, np.array([chosen] * grid.pp, np.int64))


def least_value(of: LayerAssignment) -> float:
    """No answer has a smaller value: every stage at its best degree that fits, whatever the GPUs.

    Source: derived; a maximum is no less than what each of its rows is at least.
    """
    allowed = np.where(of.needs[1] > 0, np.inf, 0.0)
    rows = (of.costs + allowed).min(axis=2).sum(axis=1) + of.constants
    return float(sum(rows[of.group == g].max() for g in np.unique(of.group)))


def grids(of: Measured, gpus: int) -> Iterator[Grid]:
    """Everything but the degrees."""
    num_layers = len(of.layers[1].parameters)
    for samples in sorted({key.samples for key in of.timed}):
        for dp in (d for d in range(1, gpus + 1) if of.batch % (d * samples) == 0):
            for pp in range(1, min(num_layers, gpus // dp) + 1):
                yield Grid(pp, dp, samples, gpus)


def cases(of: Measured, gpus: int) -> list[Case]:
    """All of them, each with its bound."""
    found = []
    for grid in grids(of, gpus):
        problem = filling(of, grid)
        words = tuple(f"tp{tp}" for tp in degrees_of(of, grid))
        evaluate = partial(seconds, of, grid)
        found.append(Case(grid.text, problem, least_value(problem), words, evaluate))
    return found
