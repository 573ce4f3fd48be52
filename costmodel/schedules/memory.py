"""Activations in flight along a program: its order alone decides, not its clock."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from costmodel.schedules.program import EQUAL, IntMatrix, Op, Program, RelativeSeconds, Shape
from costmodel.table import FloatColumn


def held_along(program: Program, layers: IntMatrix) -> FloatColumn:
    """Passes in flight on each rank when it holds most layers; shape (rank, chunk).

    `layers` has shape (rank, chunk). A pass is in flight from its forward op to the op that frees
    its activations. Source: derived, counted op by op.
    """
    change = program.starts_pass.astype(np.int64) - program.frees
    chunks = np.arange(layers.shape[1])
    chunk = program.stage // program.pp
    passes = np.cumsum(change[..., None] * (chunk[..., None] == chunks), axis=1)
    fullest = np.argmax(np.einsum("rpc,rc->rp", passes, layers), axis=1)
    return np.asarray(passes[np.arange(program.pp), fullest], dtype=np.float64)


def peak_activations(program: Program, *, at_input_grad: bool = False) -> FloatColumn:
    """Most activations each rank ever holds, of one micro batch through one virtual stage each.

    They are freed at the end of the weight gradient, or `at_input_grad`, at the end of the input
    gradient. Without copies to the host. Source: derived, counted op by op.
    """
    ones, none = np.ones(program.num_stages), np.zeros(program.num_stages)
    return peak_activation_bytes(program, *((ones, none) if at_input_grad else (none, ones)))


def peak_activation_bytes(
    program: Program, at_input_grad: FloatColumn, at_weight_grad: FloatColumn
) -> FloatColumn:
    """Most bytes of activations each rank ever holds; shape (rank,).

    Both arguments hold bytes of one micro batch for each virtual stage: what the end of the input
    gradient frees, and what the weight gradient still needs. A whole backward pass frees both.
    Without copies to the host. Source: derived, counted op by op.
    """
    stage, kind = program.stage % program.num_stages, program.kind
    early, late = at_input_grad[stage], at_weight_grad[stage]
    whole = kind == Op.WHOLE
    change = (kind == Op.FORWARD) * (early + late)
    change = change - ((kind == Op.BACKWARD) | whole) * early - program.frees * late
    held = np.cumsum(change, axis=1)[: program.pp].max(axis=1)
    return np.asarray(held / program.sequence_chunks)


def held_by(
    program: Callable[[Shape, RelativeSeconds], Program],
) -> Callable[[int, IntMatrix], FloatColumn]:
    """`held_along` for a schedule whose order ignores relative durations."""

    @lru_cache(maxsize=64)
    def built(pp: int, vpp: int, num_microbatches: int) -> Program:
        return program(Shape(pp, vpp, num_microbatches), EQUAL)

    def held(num_microbatches: int, layers: IntMatrix) -> FloatColumn:
        return held_along(built(*layers.shape, num_microbatches), layers)

    return held
