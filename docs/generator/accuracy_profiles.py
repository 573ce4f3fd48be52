"""Measured parts against measured steps: profiles of machines that whole runs are known of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from accuracy_tables import table

from trainplan.cli.files.documents import read_document
from trainplan.cli.files.profiles import profile_of
from trainplan.cli.words import percent
from trainplan.costmodel.calibration.machine import Measured
from trainplan.costmodel.profiles.profile import Profile
from trainplan.costmodel.validate.predict import Prediction, predict
from trainplan.costmodel.validate.steps import timed_rows
from trainplan.profiler.fit.merge import spec_of
from trainplan.profiler.fit.points import fitted

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
    half: tuple[float, ...]
    """With curves through every second point of the profile alone."""

    @property
    def means(self) -> tuple[float, float]:
        """Mean error with the catalog alone and with the profile."""
        return fmean(self.catalog), fmean(self.profile)


def closed_loops(predictions: Sequence[Prediction]) -> tuple[Loop, ...]:
    """Every profile of `examples/accuracy/profiles` that complete runs are known of.

    `predictions` are those of the catalog alone.
    """
    loops = (
        _loop(path.stem, profile_of(read_document(path)), predictions)
        for path in sorted(FOLDER.glob("*.json"))
    )
    return tuple(loop for loop in loops if loop.catalog)


def _loop(name: str, profile: Profile, predictions: Sequence[Prediction]) -> Loop:
    group = SOURCES.get(name, "mist")
    strict = [one for one in predictions if one.run.is_strict]
    mine = [
        one
        for one in strict
        if one.run.source_group == group and one.run.cluster.gpu == profile.gpu
    ]
    runs = [one.run for one in mine]
    kinds = [point.kind for point in profile.points]
    counts = sorted(set(kinds), key=lambda kind: (-kinds.count(kind), kind))
    return Loop(
        name=name,
        what=", ".join(f"{kinds.count(kind)} {kind}" for kind in counts),
        catalog=_errors(mine),
        profile=_errors(predict(runs, measured=Measured(profile=profile))),
        half=_errors(predict(runs, measured=Measured(profile=_half(profile)))),
    )


def _half(profile: Profile) -> Profile:
    """The profile of every second point of each kind."""
    ordered = sorted(profile.points, key=lambda point: point.kind)
    bare = profile.model_copy(update={"points": tuple(ordered[::2]), "constants": {}, "notes": ()})
    return fitted(bare, spec_of(bare))


def _errors(predictions: Iterable[Prediction]) -> tuple[float, ...]:
    return tuple(abs(row.error_fraction) for row in timed_rows(predictions, everything=False))


def section(loops: Sequence[Loop], left_out: Mapping[str, Any] | None = None) -> str:
    """The section of the page; `left_out` is `leave_one_out.json`."""
    kept = (left_out or {}).get("profiles", {})
    rows = [
        (
            loop.name,
            loop.what,
            str(len(loop.catalog)),
            *(percent(fmean(errors)) for errors in (loop.catalog, loop.profile, loop.half)),
            *(
                percent(kept[loop.name][of]) if loop.name in kept else ""
                for of in ("catalog", "profile")
            ),
        )
        for loop in loops
    ]
    head = (
        "profile",
        "points",
        "runs",
        "catalog",
        "with it",
        "with half of it",
        "catalog that never saw them",
        "with it",
    )
    return f"""\
## From measured parts to steps

`plan validate --profile` on machines whose parts others measured, with the complete runs of the
same machine ([the profiles](../examples/accuracy/README.md)): mean error with the catalog alone,
whose constants were fitted on these very runs; with the profile; with curves through every second
of its points; and the same with a catalog fitted without the source of the runs, which forgets
what its authors measured of the speed of products, too.

{table(head, rows)}

A part that was measured alone counts with the catalog's by its evidence
([how](explanation/constants.md#measured-parts-and-the-catalog)): little where the constants were
fitted on runs of that GPU, most of the way where they were not, alone where the catalog has
nothing. So a profile changes little of what was fitted on these very runs, and repairs most of
what was not.

What the profiles do not hold:

* SimuMax timed single operations in a loop on the same operands. Products and attention of a
  training step are slower than that by some per cent; the error is largest with tensor
  parallelism. Its collectives and streams are lines of its own, whose points are not published.
* Of GH200 only layers of OPT-350M are known; what GPT-Neo 2.7B does on it is extrapolated. Half of
  the error is in one run of it, a single sequence through the pipeline. The program that ran it has
  no output projection: its pipeline ends with a norm (eth-easl/sailor@cf2c8e3c
  `megatron/model/gpt_neo_model.py`). The records do not state it, and a projection is priced: 3.5 %
  of those steps with micro batches of 4.
* Of Mist's A10G the catalog has the very products and collectives of the profile, so that it shows
  nothing new. On both of Mist's machines tensor-parallel layers were timed in one group on an idle
  node, whose PCIe switches a job's groups share: no level is taken from them."""
