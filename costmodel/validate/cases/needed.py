"""What a record must state to be priced, and why one is not."""

from typing import Literal, TypeVar

T = TypeVar("T")
SkipReason = Literal[
    "incomplete",
    "gpu_unknown",
    "runtime_unknown",
    "schedule_unknown",
    "recompute_unknown",
    "stages_differ",
    "layout_impossible",
    "invalid_record",
    "model_error",
    "other_task",
]
"""Why a run is not priced: a dimension, degree or batch size is not stated; a name the model does
not know; stages with degrees of their own; degrees that cannot hold together; a record that does
not follow the schema; a layout our formulas fail on; training of something else than all weights on
given tokens."""


class Skip(Exception):  # noqa: N818 - carries an answer, not an error
    """A record is not priced."""

    def __init__(self, reason: SkipReason, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


def needed(value: T | None, name: str) -> T:
    """The value of a field.

    Raises:
        Skip: It is not stated.
    """
    if value is None:
        raise Skip("incomplete", f"{name} is not stated")
    return value
