"""Fits the constants of the cost model on the published runs beside this file.

python examples/accuracy/fit.py            say what the fit would change
python examples/accuracy/fit.py --write    write it into costmodel/catalog, and leave_one_out.json

Every constant has a prior: what physics or other people's measurements say, and how far that can
be off. The fit is the most probable set of constants given the priors and the step times of the
strict runs, with these rules:

* the unit of evidence is the source, not the row: each source counts alike, sources with fewer
  than 8 runs count together as one, and rows that repeat a layout share the weight of one;
* residuals are log(predicted / measured), with a loss that grows linearly beyond HUBER, so that a
  few odd rows do not steer; inside a group of layouts of one model the differences count again
  (RANKING), because a planner has to rank them;
* of two runs that differ in one setting the ratio counts, not their step times: what a setting
  gains is what a planner compares;
* the speed of a GPU in one precision is class + architecture + GPU, each with its own prior, so
  that a GPU measured by one publication is pulled towards its relatives.

Leave-one-source-out refits everything without each source in turn and predicts that source.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np
from fit_catalog import write
from fit_left_out import leave_one_out, per_source, score
from fit_parameters import at_catalog, parameters
from fit_predict import jacobian, pair_residuals, pair_slope, residuals
from fit_problem import Problem
from fit_profiles import profiles_left_out
from fit_rows import Pair, Row, pairs, strict_rows

LEFT_OUT = Path(__file__).parent / "leave_one_out.json"
ROUNDS, STEPS, SETTLED = 2, 6, 0.02
"""Derivatives that are taken, most steps along each, and the largest move of a logarithm at which
the fit has settled: half of the step of the derivatives."""


def say(line: str) -> None:
    """Report progress."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def fit(rows: list[Row], twins: list[Pair]) -> tuple[dict[str, float], Problem]:
    """Most probable parameters, and the problem linearised there."""
    wanted = parameters(rows)
    names = [p.name for p in wanted]
    spreads = np.array([p.spread for p in wanted])
    everything = np.ones(len(rows), dtype=bool)
    theta = np.array(at_catalog(names))
    for round_ in range(1, ROUNDS + 1):
        start = dict(zip(names, theta, strict=True))
        slope, ratio_slope = jacobian(rows, names, start), pair_slope(twins, names, start)
        for _ in range(STEPS):
            point = dict(zip(names, theta, strict=True))
            at = residuals(rows, point)
            ratios = pair_residuals(twins, point)
            problem = Problem(rows, spreads, theta, at, slope, twins, (ratio_slope, ratios))
            found = problem.solve(everything)
            moves = np.abs(found - theta)
            most = names[int(moves.argmax())]
            error, miss = score(rows, at), 100 * float(np.abs(ratios).mean())
            say(
                f"round {round_}: mean of medians {error:.2f} %, ratios {miss:.1f} %; "
                f"{most} moves by {moves.max():.3f}"
            )
            if moves.max() < SETTLED:
                break
            theta = found
    return point, problem


def main() -> None:
    """Fit, say what came out, and write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    rows = strict_rows()
    theta, problem = fit(rows, pairs())
    for name, value in per_source(rows, problem.residual).items():
        own = [r for row, r in zip(rows, problem.residual, strict=True) if row.source == name]
        bias = 100 * math.expm1(float(np.median(own)))
        say(f"{name:10} {value:6.2f} % (bias {bias:+.1f})")
    for name, value in theta.items():
        if abs(value) > 0.02:
            say(f"  {name:45} x {math.exp(value):.3f}")
    held_out = leave_one_out(problem, list(theta), say)
    held_out["profiles"] = profiles_left_out(problem, list(theta))
    say(f"leave one source out: {100 * held_out['mean_of_medians']:.2f} %")
    say(
        "{numbers} numbers on {runs} runs; the runs say {effective} of them".format(
            **held_out["fitted"]
        )
    )
    if arguments.write:
        write(theta, rows)
        text = json.dumps(held_out, indent=1, sort_keys=True)
        LEFT_OUT.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
