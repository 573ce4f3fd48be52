"""A published run whose step time is scored, in the terms in which layouts are compared with it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """What is compared of a run and of an answer: machine, model, layout and settings."""

    gpu: str
    """As in the catalog; the kinds of a mixed cluster with blanks between."""
    runtime: str
    precision: str
    kind: tuple[str, ...]
    """`dense`, or what its layers have: `moe`, `mla`."""
    parameters: int
    num_gpus: int
    seq_length: int
    tp: int
    pp: int
    vpp: int
    cp: int
    dp: int
    ep: int
    etp: int
    dp_replicate: int
    micro_batch_size: int
    zero_stage: int
    schedule: str
    recompute: tuple[str, ...]
    """Modules that are recomputed, `full` for whole layers; empty: nothing."""
    offload_optimizer: float
    """Fraction of the optimizer in host memory."""
    offload_modules: tuple[str, ...]
    settings: tuple[str, ...]
    """What the runtime does as it was set, NAME=VALUE; only what this layout can notice."""


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """A measured run with the error of its estimate."""

    id: str
    """Its name in `examples/accuracy/runs.jsonl`, which has the address of its source."""
    source: str
    """Repository or paper."""
    model: str
    step_time_s: float
    """Measured."""
    error_fraction: float
    """Estimate over measured step time, minus one."""
    shape: Shape
