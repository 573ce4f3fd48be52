"""The host of a node: its memory, the speed of its processors, its drives."""

from __future__ import annotations

from typing import Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from trainplan.costmodel.spec import Spec

LEAST_GB_PER_S = 1e-6
"""Slower copies are a typing slip, and their seconds would be no numbers."""


class DriveSpec(Spec):
    """Drives of one node that a training may write to; figures are of each drive."""

    count: PositiveInt = Field(default=1, le=1 << 10)
    """Drives."""
    tb: PositiveFloat
    """Space in TB of 10^12 bytes."""
    read_gb_per_s: float | None = Field(default=None, ge=LEAST_GB_PER_S)
    """Sequential GB/s that each sustains; both ways or neither."""
    write_gb_per_s: float | None = Field(default=None, ge=LEAST_GB_PER_S)
    """Sequential GB/s that it sustains; null: not known, and nothing is kept there."""
    tb_written: PositiveFloat | None = None
    """TB that may be written in its life, as its maker warrants; null: not known."""

    @model_validator(mode="after")
    def _both_ways(self) -> Self:
        if (self.read_gb_per_s is None) != (self.write_gb_per_s is None):
            raise ValueError("read_gb_per_s and write_gb_per_s go together: give both or neither")
        return self


class HostSpec(Spec):
    """The host of one node. What is left out is that of `like`, else not known."""

    like: str | None = None
    """A host of the catalog, for instance `dgx-h100`."""
    memory_gib: PositiveFloat | None = None
    """Memory that the training may use; null: not known, so not checked."""
    memory_gb_per_s: float | None = Field(default=None, ge=LEAST_GB_PER_S)
    """Memory bandwidth of all processors together; null: no limit beside the GPUs' own links."""
    adam_params_per_s: float | None = Field(default=None, ge=1.0)
    """Parameters that all processors update in a second; null: as published."""
    gpus_per_switch: PositiveInt | None = Field(default=None, le=1 << 10)
    """GPUs that share one link to the processors; null or 1: each has its own."""
    drives: DriveSpec | None = None
    """Null: none that may be written to."""
