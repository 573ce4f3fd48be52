"""Profiles of machines beside a catalog that never saw a run of their source."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from unittest.mock import patch

import numpy as np
from fit_parameters import ATTENTION_PRIOR, constants_at, spreads_without, sustained
from fit_problem import Problem
from fit_rows import speed_key

from trainplan.cli.files.documents import read_document
from trainplan.cli.files.profiles import profile_of
from trainplan.costmodel import catalog
from trainplan.costmodel.calibration.machine import Measured
from trainplan.costmodel.documents.measured_run import MeasuredRun
from trainplan.costmodel.hardware.gpu import FittedConstants, SustainedFit
from trainplan.costmodel.validate.predict import predict
from trainplan.costmodel.validate.steps import timed_rows

FOLDER = Path(__file__).parent / "profiles"
SOURCES = {"simumax-b200": "simumax", "sailor-gh200": "sailor"}
"""Source of the runs of each profile's machine; those of Mist are named `mist`."""


def profiles_left_out(problem: Problem, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Mean errors of a catalog without the source of the runs, alone and with the profile."""
    found = {}
    for path in sorted(FOLDER.glob("*.json")):
        source = SOURCES.get(path.stem, "mist")
        profile = profile_of(read_document(path))
        mine = [
            row.run
            for row in problem.rows
            if row.source == source and speed_key(row.case)[0] == profile.gpu
        ]
        if not mine:
            continue
        with catalog_without(problem, names, source):
            pair = [_mean_error(mine, one) for one in (Measured(), Measured(profile=profile))]
        found[path.stem] = {"runs": len(mine), "catalog": pair[0], "profile": pair[1]}
    return found


def _mean_error(runs: Sequence[MeasuredRun], measured: Measured) -> float:
    rows = timed_rows(predict(runs, measured=measured), everything=False)
    return fmean(abs(row.error_fraction) for row in rows)


@contextmanager
def catalog_without(problem: Problem, names: Sequence[str], source: str) -> Iterator[None]:
    """The catalog as a fit without one source would have written it, and what it then rests on."""
    keep = np.array([row.source != source for row in problem.rows])
    spreads = np.array(spreads_without(names, list(problem.spreads), source))
    theta = dict(
        zip(names, replace(problem, spreads=spreads).solve(keep, largest=math.inf), strict=True)
    )
    ran = {speed_key(row.case) for row in problem.rows if row.source != source}
    known, constants = catalog.fitted, constants_at(theta)

    def fitted(gpu: str) -> FittedConstants:
        return _without(known(gpu), gpu, theta, ran, source)

    with (
        patch.object(catalog, "fitted", fitted),
        patch.object(catalog, "constants", lambda: constants),
    ):
        yield


def _without(
    fits: FittedConstants,
    gpu: str,
    theta: Mapping[str, float],
    ran: set[tuple[str, str]],
    source: str,
) -> FittedConstants:
    speeds = dict(fits.sustained)
    for name in theta:
        kind, *words = name.split()
        if kind == "speed" and words[0] == gpu:
            speeds[words[1]] = SustainedFit(
                value=sustained(theta, gpu, words[1], source),
                kind="measured" if (gpu, words[1]) in ran else "stand-in",
                source=f"fitted without {source}",
            )
    attention, architecture = fits.attention, catalog.gpu(gpu).architecture
    if attention and architecture in ATTENTION_PRIOR:
        best = ATTENTION_PRIOR[architecture] * math.exp(theta.get(f"attention {architecture}", 0))
        attention = attention.model_copy(update={"max_efficiency": best})
    return fits.model_copy(update={"sustained": speeds, "attention": attention})
