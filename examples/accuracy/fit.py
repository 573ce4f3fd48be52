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
* the speed of a GPU in one precision is class + architecture + GPU, each with its own prior, so
  that a GPU measured by one publication is pulled towards its relatives.

Leave-one-source-out refits everything without each source in turn and predicts that source.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from costmodel import catalog
from costmodel.estimate import price
from costmodel.explicit import step_seconds
from costmodel.hardware import sustained_speed
from costmodel.machine import Machine, machine_of
from costmodel.runtimes import traits_of
from costmodel.spec.constants import Constants
from costmodel.spec.measured_run import MeasuredRun
from costmodel.table import LayoutTable
from costmodel.uncertainty import LEVEL
from costmodel.validate.cases import Case, case_of
from costmodel.validate.steps import POOLED, SMALL_SOURCE

FloatColumn = NDArray[np.float64]

HERE = Path(__file__).parent
CATALOG = Path(catalog.__file__).parent
HUBER = 0.04
"""Log residual beyond which the loss grows linearly."""
NOT_FITTED = ("mcore",)
"""Sources that say nothing of production speed: Megatron's continuous integration runs
deterministic kernels and one NCCL algorithm. They are scored, not fitted."""
SIGMA = 0.08
"""Spread of a source's residuals that counts as one unit."""
EVIDENCE = 8.0
"""Independent observations one source is worth."""
RANKING = 1.0
"""Weight of differences inside a group of layouts over that of the residuals themselves."""
CLASS_SPREAD, ARCHITECTURE_SPREAD, GPU_SPREAD = 0.12, 0.08, 0.08
ATTENTION_SPREAD = 0.12
CLASS_PRIOR = {"half": 0.85, "low": 1.05}
"""Sustained over burst speed before any run of a GPU is seen; `low` with the flop factors of
`gemm.fp8_training`.

Source: what an earlier release fitted on these runs, rounded, so not independent of them: the fit
moves both classes by less than 5 %.
"""
MEASURED_SPEED = {("b200", "bf16"): 0.70, ("a10g", "bf16"): 1.0}
"""Sustained over burst speed where somebody measured products in long loops.

Source: b200, 0.49 of peak over 514 shapes against 0.70 in bursts, MooreThreads/SimuMax@4dcaae51
configs/system/b200_bf16_ceperm.json; a10g, whose products were fitted on such loops.
"""
MEASURED_BY = {("b200", "bf16"): "simumax", ("a10g", "bf16"): "mist"}
"""Source whose authors measured them too: left out together with it."""
MEASURED_SPREAD = 0.05
STEP = 0.04
"""Change of a logarithm for the numerical derivative."""
LARGEST_MOVE = 0.25
ITERATIONS = 3


def say(line: str) -> None:
    """Report progress."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class Parameter:
    """One number to fit, as a logarithm relative to its prior."""

    name: str
    spread: float


@dataclass(frozen=True)
class Row:
    """A run, its case and how much it counts."""

    run: MeasuredRun
    case: Case
    source: str
    """Source, small ones pooled."""
    key: str
    """Equal for runs the model cannot tell apart."""
    group: str
    """Runs that differ in layout alone."""
    weight: float


def strict_rows() -> list[Row]:
    """Strict runs with a step time that the model prices."""
    lines = (HERE / "runs.jsonl").read_text(encoding="utf-8").splitlines()
    runs = [MeasuredRun.model_validate(json.loads(line)) for line in lines]
    cases = [
        case
        for case in map(case_of, runs)
        if isinstance(case, Case) and case.timed and case.run.is_strict
        if case.run.measured.step_time_s
    ]
    sizes: dict[str, int] = defaultdict(int)
    repeats: dict[tuple[str, str], int] = defaultdict(int)
    for case in cases:
        sizes[case.run.source_group] += 1
    names = [
        case.run.source_group if sizes[case.run.source_group] >= SMALL_SOURCE else POOLED
        for case in cases
    ]
    keys = [(name, _layout_key(case)) for name, case in zip(names, cases, strict=True)]
    for key in keys:
        repeats[key] += 1
    distinct: dict[str, float] = defaultdict(float)
    for key in keys:
        distinct[key[0]] += 1 / repeats[key]
    return [
        Row(
            case.run,
            case,
            name,
            key[1],
            _group_key(case),
            0.0 if case.run.source_group in NOT_FITTED else 1 / repeats[key] / distinct[name],
        )
        for name, case, key in zip(names, cases, keys, strict=True)
    ]


def _layout_key(case: Case) -> str:
    job = case.job
    return f"{_group_key(case)} {case.layout} {job.options}"


def _group_key(case: Case) -> str:
    job, run = case.job, case.run
    return f"{run.model.name} {run.cluster.gpu} {job.cluster.num_gpus} {job.training} {job.runtime}"


def speed_key(case: Case) -> tuple[str, str]:
    """GPU and precision class of a run: one sustained speed."""
    precision = case.job.training.precision
    gpu = case.job.cluster.groups[0].gpu
    return gpu, precision if case.job.training.casts else "tf32" if precision == "tf32" else "bf16"


def parameters(rows: Sequence[Row]) -> list[Parameter]:
    """Everything that is fitted."""
    constants = [Parameter(n, c.spread) for n, c in catalog.fitted_constants().items()]
    speeds = {speed_key(row.case) for row in rows}
    speeds |= {(gpu, "bf16") for gpu, precision in speeds if precision != "tf32"}
    architectures = sorted({catalog.gpu(gpu).architecture for gpu, _ in speeds})
    classes = [Parameter(f"class {c}", CLASS_SPREAD) for c in CLASS_PRIOR]
    families = [
        Parameter(f"architecture {a} {c}", ARCHITECTURE_SPREAD)
        for a in architectures
        for c in CLASS_PRIOR
    ]
    gpus = [
        Parameter(f"speed {g} {p}", MEASURED_SPREAD if (g, p) in MEASURED_SPEED else GPU_SPREAD)
        for g, p in sorted(speeds)
    ]
    attention = [Parameter(f"attention {a}", ATTENTION_SPREAD) for a in architectures]
    return constants + classes + families + gpus + attention


def sustained(
    theta: Mapping[str, float], gpu: str, precision: str, left_out: str | None = None
) -> float:
    """Sustained speed of a GPU in one precision under the parameters.

    What the authors of a source that is left out measured of it is not known.
    """
    name = f"speed {gpu} {precision}"
    known = (gpu, precision) in MEASURED_SPEED
    if known and (left_out is None or MEASURED_BY[gpu, precision] != left_out):
        return MEASURED_SPEED[gpu, precision] * math.exp(theta.get(name, 0.0))
    kind = "half" if precision in ("bf16", "tf32") else "low"
    architecture = catalog.gpu(gpu).architecture
    names = (f"class {kind}", f"architecture {architecture} {kind}", name)
    return CLASS_PRIOR[kind] * math.exp(sum(theta.get(name, 0.0) for name in names))


def constants_at(theta: Mapping[str, float]) -> Constants:
    """Constants of the formulas under the parameters."""
    return Constants(
        **{
            name: entry.prior * math.exp(theta.get(name, 0.0))
            for name, entry in catalog.fitted_constants().items()
        }
    )


ATTENTION_PRIOR = {"ampere": 0.572, "ada": 0.572, "hopper": 0.688, "blackwell": 0.685}
"""Largest share of peak that fused attention reaches at burst clocks, before any run is seen.

Source: `e s / (s + s_half)` through the median forward kernels of 1k, 2k, 4k, 8k and 16k tokens of
ai-dynamo/aiconfigurator@095f58a51c4ca8e61b66ec108d86f223f8d559ce (A100 0.30 to 0.47 of peak, H100
0.23 to 0.53, B200 0.15 to 0.49), over the prior of the sustained speed.
"""


def _machine(case: Case, theta: Mapping[str, float], left_out: str | None) -> Machine:
    """The machine of a run with the parameters in place of the catalog's values."""
    machine = machine_of(case.job.cluster, case.job.training.precision)
    gpu, precision = speed_key(case)
    half = "tf32" if precision == "tf32" else "bf16"
    half_speed = sustained(theta, gpu, half, left_out)
    slower = sustained_speed(gpu, half) / half_speed
    linear_slower = sustained_speed(gpu, precision) / sustained(theta, gpu, precision, left_out)
    architecture = catalog.gpu(gpu).architecture
    attention = ATTENTION_PRIOR[architecture] * math.exp(theta.get(f"attention {architecture}", 0))
    return replace(
        machine,
        constants=constants_at(theta),
        half=replace(machine.half, flop_factor=machine.half.flop_factor * slower),
        linear=replace(machine.linear, flop_factor=machine.linear.flop_factor * linear_slower),
        attention_max_efficiency=attention * half_speed,
    )


def log_step(
    case: Case, theta: Mapping[str, float], *, simulate: bool, left_out: str | None = None
) -> float:
    """Logarithm of the predicted step time: simulated, or its closed-form bound."""
    machine = _machine(case, theta, left_out)
    table, traits = LayoutTable.of([case.layout]), traits_of(case.job)
    if simulate:
        return math.log(float(step_seconds(case.job, machine, traits, table)[0]))
    return math.log(float(price(case.job, machine, traits, table).step_seconds[0]))


def log_steps(
    rows: Sequence[Row],
    theta: Mapping[str, float],
    *,
    simulate: bool = True,
    left_out: str | None = None,
) -> FloatColumn:
    """Of all rows; equal layouts are priced once."""
    seen: dict[str, float] = {}
    for row in rows:
        if row.key not in seen:
            seen[row.key] = log_step(row.case, theta, simulate=simulate, left_out=left_out)
    return np.array([seen[row.key] for row in rows])


def residuals(
    rows: Sequence[Row], theta: Mapping[str, float], left_out: str | None = None
) -> FloatColumn:
    """log(predicted / measured) of all rows."""
    measured = np.log([row.run.measured.step_time_s or 1.0 for row in rows])
    return log_steps(rows, theta, left_out=left_out) - measured


def _touches(name: str, row: Row) -> bool:
    """Can a parameter change the prediction of a row at all?"""
    words = name.split()
    gpu, precision = speed_key(row.case)
    architecture = catalog.gpu(gpu).architecture
    if words[0] == "speed":
        return words[1] == gpu and words[2] in (precision, "bf16")
    if words[0] in ("architecture", "attention"):
        return words[1] == architecture
    return True


def _derivative(
    name: str, rows: Sequence[Row], theta: Mapping[str, float], at: FloatColumn
) -> FloatColumn:
    column = np.zeros(len(rows))
    touched = [i for i, row in enumerate(rows) if _touches(name, row)]
    moved = {**theta, name: theta[name] + STEP}
    some = log_steps([rows[i] for i in touched], moved, simulate=False)
    column[touched] = (some - at[touched]) / STEP
    return column


def jacobian(rows: Sequence[Row], names: Sequence[str], theta: Mapping[str, float]) -> FloatColumn:
    """Derivative of every residual by every parameter, of the bound of the step time."""
    at = log_steps(rows, theta, simulate=False)
    with ProcessPoolExecutor() as pool:
        columns = pool.map(partial(_derivative, rows=rows, theta=theta, at=at), names)
        return np.stack(list(columns), axis=1)


@dataclass(frozen=True)
class Problem:
    """Residuals at a point and their derivative there."""

    rows: list[Row]
    spreads: FloatColumn
    theta: FloatColumn
    residual: FloatColumn
    slope: FloatColumn

    def solve(self, keep: NDArray[np.bool_]) -> FloatColumn:
        """Most probable parameters, linearised at `theta`, from the rows kept."""
        weights, groups = _weights(self.rows, keep), _groups(self.rows, keep)
        point = self.theta.copy()
        for _ in range(30):
            now = self.residual + self.slope @ (point - self.theta)
            matrix = np.diag(1 / self.spreads**2)
            vector = -point / self.spreads**2
            parts = [(self.slope, now, weights)]
            if groups:
                inside = np.zeros_like(now)
                slope = np.zeros_like(self.slope)
                share = np.zeros_like(now)
                for members in groups:
                    inside[members] = now[members] - now[members].mean()
                    slope[members] = self.slope[members] - self.slope[members].mean(axis=0)
                    share[members] = RANKING * EVIDENCE / SIGMA**2 / len(groups) / len(members)
                parts.append((slope, inside, share))
            for slope_of, value, weight in parts:
                robust = weight / np.maximum(1.0, np.abs(value) / HUBER)
                matrix += slope_of.T @ (robust[:, None] * slope_of)
                vector -= slope_of.T @ (robust * value)
            step = np.linalg.solve(matrix, vector)
            point = point + step
            if np.abs(step).max() < 1e-4:
                break
        return np.clip(point, self.theta - LARGEST_MOVE, self.theta + LARGEST_MOVE)


def _weights(rows: Sequence[Row], keep: NDArray[np.bool_]) -> FloatColumn:
    kept = np.array([row.weight for row in rows]) * keep
    return EVIDENCE / SIGMA**2 * kept


def _groups(rows: Sequence[Row], keep: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    members: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        if keep[index]:
            members[row.group].append(index)
    return [np.array(group) for group in members.values() if len({rows[i].key for i in group}) >= 4]


def fit(rows: list[Row]) -> tuple[dict[str, float], Problem]:
    """Most probable parameters, and the problem linearised there."""
    wanted = parameters(rows)
    names = [p.name for p in wanted]
    spreads = np.array([p.spread for p in wanted])
    theta = np.zeros(len(names))
    problem = None
    for round_ in range(ITERATIONS + 1):
        point = dict(zip(names, theta, strict=True))
        at = residuals(rows, point)
        say(f"round {round_}: mean of per-source medians {score(rows, at):.2f} %")
        problem = Problem(rows, spreads, theta, at, jacobian(rows, names, point))
        if round_ < ITERATIONS:
            theta = problem.solve(np.ones(len(rows), dtype=bool))
    assert problem
    return dict(zip(names, theta, strict=True)), problem


def per_source(rows: Sequence[Row], residual: FloatColumn) -> dict[str, float]:
    """Median absolute error of every source, in per cent."""
    errors: dict[str, list[float]] = defaultdict(list)
    for row, value in zip(rows, residual, strict=True):
        errors[row.source].append(abs(math.exp(value) - 1) * 100)
    return {name: float(np.median(values)) for name, values in sorted(errors.items())}


def score(rows: Sequence[Row], residual: FloatColumn) -> float:
    """Mean of the per-source medians, in per cent."""
    return float(np.mean(list(per_source(rows, residual).values())))


def leave_one_out(problem: Problem, names: Sequence[str]) -> dict[str, object]:
    """Every source predicted by a fit that never saw it."""
    rows, sources = problem.rows, sorted({row.source for row in problem.rows})
    result: dict[str, dict[str, float]] = {}
    misses: list[tuple[str, str, float]] = []
    values: dict[str, list[float]] = defaultdict(list)
    for source in sources:
        keep = np.array([row.source != source for row in rows])
        theta = dict(zip(names, problem.solve(keep), strict=True))
        left = [row for row in rows if row.source == source]
        residual = residuals(left, theta, source)
        result[source] = {"n": len(left), "median_error": per_source(left, residual)[source] / 100}
        for row, miss in zip(left, residual, strict=True):
            kind = "unseen_mixture_of_experts" if row.case.job.model.moe else "unseen_dense"
            misses.append((source, kind, abs(miss)))
        say(f"without {source:10} {100 * result[source]['median_error']:6.2f} %")
        fixed = constants_at(theta)
        for name in catalog.fitted_constants():
            values[name].append(getattr(fixed, name))
    mean = float(np.mean([one["median_error"] for one in result.values()]))
    at = constants_at(dict(zip(names, problem.theta, strict=True)))
    return {
        "sources": result,
        "mean_of_medians": mean,
        "intervals": {
            kind: {
                "half_width": _width(misses, kind, None),
                "runs": sum(k == kind for _, k, _ in misses),
            }
            for kind in sorted({kind for _, kind, _ in misses})
        },
        "coverage": {source: _coverage(misses, source) for source in sources},
        "constants": {
            name: {"value": getattr(at, name), "min": min(some), "max": max(some)}
            for name, some in values.items()
        },
    }


def _width(misses: Sequence[tuple[str, str, float]], kind: str, without: str | None) -> float:
    """Width that holds LEVEL of the residuals of sources left out, each source weighing alike."""
    some = [(miss, source) for source, k, miss in misses if k == kind and source != without]
    counts = Counter(source for _, source in some)
    ordered = sorted(some)
    weights = np.array([1 / counts[source] for _, source in ordered])
    held = np.cumsum(weights) / weights.sum()
    return round(ordered[int(np.searchsorted(held, LEVEL))][0], 3)


def _coverage(misses: Sequence[tuple[str, str, float]], source: str) -> float:
    """Share of a source's runs inside the width that the other sources give."""
    own = [(kind, miss) for name, kind, miss in misses if name == source]
    return round(sum(miss <= _width(misses, kind, source) for kind, miss in own) / len(own), 4)


def write(theta: Mapping[str, float], rows: Sequence[Row]) -> None:
    """Put the fitted values into the catalog's files, nothing else."""
    path = CATALOG / "constants.toml"
    text = path.read_text(encoding="utf-8")
    for name, value in constants_at(theta).model_dump().items():
        text = re.sub(rf"(\[{name}\]\nvalue = )\S+", rf"\g<1>{value:.4g}", text)
    path.write_text(text, encoding="utf-8")
    path = CATALOG / "fitted.toml"
    text = path.read_text(encoding="utf-8")
    for name in theta:
        kind, *words = name.split()
        if kind == "speed":
            gpu, precision = words
            value = sustained(theta, gpu, precision)
            text = with_speed(
                text, gpu, f"{precision} = {{ value = {value:.3f}", origin(rows, name)
            )
        if kind == "attention":
            value = ATTENTION_PRIOR[words[0]] * math.exp(theta[name])
            for gpu in catalog.gpu_names():
                if catalog.gpu(gpu).architecture == words[0]:
                    pattern = rf"(\[gpu\.{gpu}\]\nattention = {{ max_efficiency = )[0-9.]+"
                    text = re.sub(pattern, rf"\g<1>{value:.3f}", text)
    path.write_text(text, encoding="utf-8")


def origin(rows: Sequence[Row], name: str) -> str:
    """How many runs stand behind a sustained speed."""
    own = [row for row in rows if name == "speed {} {}".format(*speed_key(row.case))]
    if not own:
        return "inferred from its architecture by examples/accuracy/fit.py, no run of its own"
    sources = len({row.run.source_group for row in own})
    return f"fitted on {len(own)} published runs of {sources} sources, examples/accuracy/fit.py"


def with_speed(text: str, gpu: str, start: str, source: str) -> str:
    """The text of `fitted.toml` with one sustained speed replaced or added."""
    line = f'{start}, source = "{source}" }}'
    precision = start.split(maxsplit=1)[0]
    head = f"[gpu.{gpu}.sustained]\n"
    if head not in text:
        return text.rstrip("\n") + f"\n\n{head}{line}\n"
    begin = text.index(head) + len(head)
    end = text.find("\n[", begin)
    end = len(text) if end < 0 else end
    body = text[begin:end]
    if re.search(rf"^{precision} = ", body, re.M):
        body = re.sub(rf"^{precision} = .*$", line, body, flags=re.M)
    else:
        body = line + "\n" + body
    return text[:begin] + body + text[end:]


def main() -> None:
    """Fit, say what came out, and write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    rows = strict_rows()
    theta, problem = fit(rows)
    for name, value in per_source(rows, problem.residual).items():
        own = [r for row, r in zip(rows, problem.residual, strict=True) if row.source == name]
        bias = 100 * math.expm1(float(np.median(own)))
        say(f"{name:10} {value:6.2f} % (bias {bias:+.1f})")
    for name, value in theta.items():
        if abs(value) > 0.02:
            say(f"  {name:45} x {math.exp(value):.3f}")
    held_out = leave_one_out(problem, list(theta))
    say(f"leave one source out: {100 * held_out['mean_of_medians']:.2f} %")
    if arguments.write:
        write(theta, rows)
        text = json.dumps(held_out, indent=1, sort_keys=True)
        (HERE / "leave_one_out.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
