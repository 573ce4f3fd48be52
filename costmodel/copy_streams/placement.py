"""What a rank computes and holds, where it lies, and how fast it moves: what a step is made of.

All are columns over rows: (row,) or (kind, row), where a number stands for the same in every row.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from trainplan.costmodel.copy_streams.offload_policies import OffloadPolicy
from trainplan.costmodel.copy_streams.transfer_volume import FloatColumn

BoolColumn = NDArray[np.bool_]
IntColumn = NDArray[np.int64]
Column = FloatColumn | float
Columns = TypeVar("Columns", "Quantities", "Speeds", "Placement")
Indices = NDArray[np.intp] | NDArray[np.bool_] | list[int]
KindRows = NDArray[np.float64]
"""Axes (kind of layer, row)."""


class Place(IntEnum):
    """Where something lies while it is not in use."""

    DEVICE = 0
    HOST = 1
    DRIVE = 2


@dataclass(frozen=True, slots=True)
class Quantities:
    """What one rank does in a step if everything lies on the device, and what could lie elsewhere.

    Kinds of layers are in the order in which the rank runs them; embedding and head are kinds of
    their own with one layer (or none) if their weights are fetched like those of layers.
    """

    micro_batches: IntColumn | int
    layers: KindRows
    """Layers of each kind on the rank."""
    forward: KindRows
    """Seconds of the forward pass of one layer and micro batch, with its collectives."""
    backward: KindRows
    """Of the backward pass, with its collectives and what is recomputed."""
    weight_bytes: KindRows
    """Of one layer that this rank fetches for a pass: its share of the weights (2 p / d)."""
    gradient_bytes: KindRows
    """Of one layer that this rank sends for a micro batch: its share, as accumulated (2 p / d)."""
    checkpoint_bytes: KindRows
    """Kept of one layer and micro batch from the forward to the backward pass."""
    updated: FloatColumn
    """Parameters this rank updates, S."""
    update_seconds: FloatColumn
    """Of the update of all of them on the GPU."""

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self.forward.shape[1])

    def take(self, rows: Indices) -> Quantities:
        """Some rows alone."""
        return _taken(self, rows, self.rows)


@dataclass(frozen=True, slots=True)
class Speeds:
    """Bytes a second of one GPU's share while all GPUs of its node do the same.

    That is the least of its own link and of what the node has, divided by its GPUs.
    """

    h2d: Column
    d2h: Column
    drive_read: Column = np.inf
    """Infinite where nothing lies on drives."""
    drive_write: Column = np.inf
    cpu_params: Column = np.inf
    """Parameters a second that the CPUs update for one GPU: those of the node over its GPUs."""
    drive_both: Column = np.inf
    """Each way of the drives while as much goes the other way; infinite: ways are apart."""

    def take(self, rows: Indices, of: int) -> Speeds:
        """Some of so many rows alone."""
        return _taken(self, rows, of)


@dataclass(frozen=True, slots=True)
class Placement:
    """What lies where, and what a runtime copies beside what."""

    optimizer: Column = 0.0
    """Share of the optimizer's states that lies off the GPU and is updated by the CPUs."""
    optimizer_place: IntColumn | Place = Place.HOST
    """Where that share lies."""
    parameters: IntColumn | Place = Place.DEVICE
    """Where the weights of layers lie between passes."""
    checkpoints: Column = 0.0
    """Share of the kept activations that leaves the GPU."""
    checkpoints_place: IntColumn | Place = Place.HOST
    stride: IntColumn | int = 0
    """Every `stride`-th subgroup of the offloaded optimizer is updated on the GPU; 0: none is."""
    delayed: BoolColumn | bool = False
    """The update runs beside the passes of the next step: changes the training."""

    @property
    def moves(self) -> BoolColumn:
        """Rows in which anything leaves the GPU."""
        return np.asarray(
            (np.asarray(self.optimizer) > 0)
            | (np.asarray(self.checkpoints) > 0)
            | (np.asarray(self.parameters) != Place.DEVICE)
        )

    @property
    def updates_off(self) -> BoolColumn:
        """Rows in which the CPUs update something."""
        return np.asarray(np.asarray(self.optimizer) > 0)

    def take(self, rows: Indices, of: int) -> Placement:
        """Some of so many rows alone."""
        return _taken(self, rows, of)


@dataclass(frozen=True, slots=True)
class Offloaded:
    """A step of some rows with something off the GPU."""

    quantities: Quantities
    speeds: Speeds
    placement: Placement
    policy: OffloadPolicy

    @property
    def parts(self) -> tuple[Quantities, Speeds, Placement, OffloadPolicy]:
        """Its fields."""
        return self.quantities, self.speeds, self.placement, self.policy

    def take(self, rows: Indices) -> Offloaded:
        """Some rows alone."""
        of = self.quantities.rows
        some = self.quantities.take(rows), self.speeds.take(rows, of), self.placement.take(rows, of)
        return Offloaded(*some, self.policy)


def _taken(columns: Columns, rows: Indices, of: int) -> Columns:
    """Every column at some of its rows; what is one number for all stays."""
    taken = {}
    for field in fields(columns):
        value = getattr(columns, field.name)
        if isinstance(value, np.ndarray) and value.ndim and value.shape[-1] == of:
            taken[field.name] = value[..., rows]
    return replace(columns, **taken)
