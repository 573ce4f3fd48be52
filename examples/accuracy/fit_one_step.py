"""What one measured step buys where the constants never saw the source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict

from fit_rows import FloatColumn, Row

from trainplan.costmodel.uncertainty.intervals import names_of_runs
from trainplan.costmodel.validate.cases.names import gpu_called
from trainplan.costmodel.validate.one_step import Step, measured_step, scored


def left_out_steps(rows: Sequence[Row], residual: FloatColumn) -> list[Step]:
    """Rows beside predictions of fits that saw the other sources alone.

    `residual` is log(predicted / measured). A machine was seen where another source ran on it.
    """
    sources: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for row in rows:
        sources[names_of_runs(row.case.job, "dense")].add(row.source)
    return [
        measured_step(
            row.run.source_group,
            (row.case.job, row.case.layout),
            off,
            gpu_called(row.run.cluster.gpu),
            was_seen=sources[names_of_runs(row.case.job, "dense")] != {row.source},
        )
        for row, off in zip(rows, residual.tolist(), strict=True)
    ]


def one_step_left_out(rows: Sequence[Row], residual: FloatColumn) -> dict[str, object] | None:
    """As `plan validate --calibrate` prints it."""
    found = scored(left_out_steps(rows, residual))
    return asdict(found) if found else None
