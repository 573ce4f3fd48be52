"""Measured parts against measured steps: profiles of machines that whole runs are known of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from accuracy_tables import table

from trainplan.cli.files.documents import read_document
from trainplan.cli.files.profiles import profile_of
from trainplan.cli.render.parts.text import percent
from trainplan.costmodel.measured import Measured
from trainplan.costmodel.spec.evidence.measured_run import MeasuredRun
from trainplan.costmodel.spec.evidence.profile import Profile
from trainplan.costmodel.validate.predict import predict
from trainplan.costmodel.validate.steps import timed_rows

FOLDER = Path(__file__).parents[2] / "examples" / "accuracy" / "profiles"
SOURCES = {"simumax-b200": "simumax", "sailor-gh200": "sailor"}
"""Group of runs that each profile's machine ran; those of Mist are named `mist`."""


@dataclass(frozen=True, slots=True)
class Loop:
    """Steps of one machine, priced from the catalog and from what was measured of its parts."""

    name: str
    what: str
    """Sorts of points, most first."""
    catalog: tuple[float, ...]
    """|predicted / measured - 1| of every complete run."""
    profile: tuple[float, ...]

    @property
    def means(self) -> tuple[float, float]:
        """Mean error with the catalog alone and with the profile."""
        return fmean(self.catalog), fmean(self.profile)


def closed_loops(runs: Sequence[MeasuredRun]) -> tuple[Loop, ...]:
    """Every profile of `examples/accuracy/profiles` that complete runs are known of."""
    loops = (
        _loop(path.stem, profile_of(read_document(path)), runs)
        for path in sorted(FOLDER.glob("*.json"))
    )
    return tuple(loop for loop in loops if loop.catalog)


def _loop(name: str, profile: Profile, runs: Sequence[MeasuredRun]) -> Loop:
    group = SOURCES.get(name, "mist")
    strict = [run for run in runs if run.is_strict]
    mine = [run for run in strict if run.source_group == group and run.cluster.gpu == profile.gpu]
    kinds = [point.kind for point in profile.points]
    counts = sorted(set(kinds), key=lambda kind: (-kinds.count(kind), kind))
    return Loop(
        name=name,
        what=", ".join(f"{kinds.count(kind)} {kind}" for kind in counts),
        catalog=_errors(mine),
        profile=_errors(mine, Measured(profile=profile)),
    )


def _errors(runs: Sequence[MeasuredRun], measured: Measured | None = None) -> tuple[float, ...]:
    predictions = predict(runs, measured=measured or Measured())
    return tuple(abs(row.error_fraction) for row in timed_rows(predictions, everything=False))


def section(loops: Sequence[Loop]) -> str:
    """The section of the page."""
    rows = [
        (
            loop.name,
            loop.what,
            str(len(loop.catalog)),
            *(percent(mean) for mean in loop.means),
            *(percent(median(errors)) for errors in (loop.catalog, loop.profile)),
        )
        for loop in loops
    ]
    head = ("profile", "points", "runs", "catalog", "profile", "median", "with it")
    return f"""\
## From measured parts to steps

`plan validate --profile` on machines whose parts others measured, with the complete runs of the
same machine ([the profiles](../examples/accuracy/README.md)): mean error with the catalog alone,
whose constants were fitted on these very runs, and with the profile, whose curves have seen none
of them.

{table(head, rows)}

What the profiles do not hold:

* SimuMax timed single operations in a loop on the same operands. Products and attention of a
  training step are slower than that by some per cent; the error is largest with tensor
  parallelism.
* Of GH200 only layers of OPT-350M are known; what GPT-Neo 2.7B does on it is extrapolated. Half of
  the error is in one run of it, a single sequence through the pipeline. The program that ran it has
  no output projection: its pipeline ends with a norm (eth-easl/sailor@cf2c8e3c
  `megatron/model/gpt_neo_model.py`). The records do not say so, and a projection is priced: 3.5 %
  of those steps with micro batches of 4.
* Of Mist's A10G, tensor-parallel layers were timed on an idle node. In the run of 40 B parameters
  sixteen groups share its PCIe switches, and its layers take twice as long; its collectives on 4
  GPUs contradict each other by half, so their curves are refused."""
