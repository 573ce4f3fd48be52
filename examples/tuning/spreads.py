"""How far machines and layouts are from the cost model: costmodel/catalog/spreads.toml.

python examples/tuning/spreads.py           say what comes out
python examples/tuning/spreads.py --write   write it

Every group of published runs (one source, GPU, precision and runtime) is one machine, predicted by
constants fitted without its source. Of log(measured / predicted) a group has

    slopes of its runs x scalars of its machine + shared + own + trial

all normal, and the spreads are the most probable ones, each source counting alike. What is likely
before is `GUESS`, within a factor of e ** WITHIN; the speed is left free here, and its spread is
that of the medians of the groups, `SPEED_SPREAD`. Spreads of whole runs are those of
`run_spreads.py`.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from left_out import FloatColumn, Group, groups, left_out
from run_spreads import run_spreads

from trainplan.cli.files.runs import read_runs
from trainplan.costmodel.documents.measured_run import MeasuredRun
from trainplan.costmodel.measured.varied import SCALARS
from trainplan.costmodel.validate.memory_scores import peak_rows
from trainplan.costmodel.validate.predict import predict

ROOT = Path(__file__).parents[2]
NAMES = (*SCALARS[1:], "shared", "likeness", "own", "trial")
GUESS = np.log([0.1, 0.1, 0.15, 0.3, 0.2, 0.2, 0.1, 0.05, 2.0, 0.04, 0.02])
"""Scalars: ranges of the priors in constants.toml, and of networks in scalars.py; layouts: the
width `comparison` of intervals.toml, shared out."""
WITHIN = 0.4
SOURCE_COUNTS = 40.0
"""Runs that a source counts as."""
SPEED_SPREAD = 0.06
"""Half of all machines are within this of the catalog, in log units; wide tails (Cauchy).

Source: measured; medians of groups of published runs of one GPU, precision, runtime and source,
most within 0.06 and some beyond 0.4.
"""
ANY_SPEED = 0.3
"""Spread of the speed here: so wide that the other scalars do not have to explain it."""
ROUNDS = 40
NORMAL_MAD, NORMAL_MEAN = 1.4826, 1.2533
"""Standard deviation over the median and over the mean absolute deviation, of a normal variable."""


def cost(logs: FloatColumn, known: Sequence[Group], counts: Counter[str]) -> float:
    """Negative logarithm of the posterior density of the spreads."""
    size = dict(zip(NAMES, np.exp(logs).tolist(), strict=True))
    scalars = np.array([ANY_SPEED, *(size[name] for name in SCALARS[1:])])
    total = 0.5 * float((((logs - GUESS) / WITHIN) ** 2).sum())
    for one in known:
        covariance = (one.slopes * scalars**2) @ one.slopes.T
        covariance += size["shared"] ** 2 * np.exp(-one.steps / size["likeness"])
        covariance += size["own"] ** 2 * one.same + size["trial"] ** 2 * np.eye(len(one.off))
        root = np.linalg.cholesky(covariance)
        white = np.linalg.solve(root, one.off)
        density = 0.5 * float(white @ white) + float(np.log(np.diag(root)).sum())
        total += SOURCE_COUNTS / counts[one.source] * density
    return total


def most_probable(known: Sequence[Group]) -> dict[str, float]:
    """The spreads by name: one after the other is moved while that helps."""
    counts: Counter[str] = Counter()
    for one in known:
        counts[one.source] += len(one.off)
    logs, moves = GUESS.copy(), np.full(len(NAMES), 0.5)
    best = cost(logs, known, counts)
    for _ in range(ROUNDS):
        for place in range(len(NAMES)):
            for way in (moves[place], -moves[place]):
                moved = logs.copy()
                moved[place] += way
                value = cost(moved, known, counts)
                if value < best:
                    logs, best = moved, value
                    moves[place] *= 1.3
                    break
            else:
                moves[place] *= 0.6
    return dict(zip(NAMES, np.exp(logs).tolist(), strict=True))


def memory() -> tuple[float, float]:
    """Spread of log(measured / predicted peak) between machines, and between layouts of one."""
    path = ROOT / "examples" / "accuracy" / "runs.jsonl"
    runs = [run for run in read_runs(path) if isinstance(run, MeasuredRun)]
    found: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for row in peak_rows(predict(runs), everything=False):
        run = row.run
        key = run.source_group, run.cluster.gpu, run.runtime, row.kind
        found[key].append(math.log(row.measured_gib / row.predicted_gib))
    medians = [float(np.median(some)) for some in found.values()]
    inside = [float(np.median(np.abs(some - np.median(some)))) for some in found.values()]
    between = NORMAL_MEAN * float(np.mean(np.abs(medians)))
    return between, NORMAL_MAD * float(np.mean([x for x in inside if x > 0]))


def text(spreads: dict[str, float], peaks: tuple[float, float], runs: dict[str, float]) -> str:
    """The file."""
    fitted = "spreads.py: published runs, each source left out of the fit"
    lines = [
        "# Written by examples/tuning/spreads.py, which tells how;",
        "# costmodel/catalog/spreads.py says what each is.",
        "[scalars]",
        _line(
            "speed",
            SPEED_SPREAD,
            "spreads.py, SPEED_SPREAD: medians of groups of published runs; wide tails",
        ),
        *(_line(name, spreads[name], fitted) for name in SCALARS[1:]),
        "",
        "[layouts]",
        *(_line(name, spreads[name], fitted) for name in ("shared", "likeness", "own")),
        _line(
            "trial", 0.01, "assumed; repeats of one release in the same file differ by 0.4 to 2 %"
        ),
        _line("memory", peaks[0], "spreads.py: medians of groups of published peaks"),
        _line("memory_own", peaks[1], "spreads.py: published peaks of a group about its median"),
        "",
        "[runs]",
        *(
            _line(name, value, "run_spreads.py: published runs after one measured step")
            for name, value in runs.items()
        ),
    ]
    return "\n".join(lines) + "\n"


def _line(name: str, value: float, source: str) -> str:
    return f'{name} = {{ value = {value:.2g}, source = "{source}" }}'


def main() -> None:
    """Say what comes out, and write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    known = left_out()
    runs = run_spreads(known.rows, known.left_out, known.fitted)
    found = text(most_probable(groups(known)), memory(), runs)
    sys.stdout.write(found)
    if write:
        path = ROOT / "costmodel" / "catalog" / "spreads.toml"
        path.write_text(found, encoding="utf-8")


if __name__ == "__main__":
    main()
