"""Errors, units, and how pydantic's complaints are put in our words.

Everything may import this room and it imports nothing of ours. Inside the program quantities are
bytes, seconds and FLOP; conversions stand in `units` alone. An error is a child of `PlanError` and
says what, where and what to do.
"""

from trainplan.costmodel.base.errors import PlanError, SpecError, UnsupportedError, unknown_name
from trainplan.costmodel.base.units import (
    BYTES_BF16,
    BYTES_FP8,
    BYTES_FP32,
    GB,
    GIB,
    MICROSECOND,
    TERA,
)

__all__ = [
    "BYTES_BF16",
    "BYTES_FP8",
    "BYTES_FP32",
    "GB",
    "GIB",
    "MICROSECOND",
    "TERA",
    "PlanError",
    "SpecError",
    "UnsupportedError",
    "unknown_name",
]
