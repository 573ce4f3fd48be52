"""Tuning on simulated machines: how often the fastest layout is found, and what others would find.

python examples/tuning/evaluate.py [--draws 200] [--write]
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
from baselines import BASELINES, Known, Tuner
from jobs import QUESTIONS
from machines import machine

from trainplan.costmodel.calibration.machine import machine_for
from trainplan.costmodel.candidates import context_of
from trainplan.costmodel.documents import Outcome, Trial
from trainplan.costmodel.job.job import Job, RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.measured.varied import varied
from trainplan.planner.plan.options import SearchOptions
from trainplan.planner.space import legality_rules
from trainplan.planner.tree.branch_and_bound import Search
from trainplan.planner.tree.result import SearchLimits
from trainplan.planner.tuning.contenders import Contenders, contenders
from trainplan.planner.tuning.knowledge import Ended, Knowledge, knowledge_of
from trainplan.planner.tuning.loop import next_trial, searched, stop_reason, what_remains
from trainplan.planner.tuning.options import TuneOptions
from trainplan.planner.tuning.simulated import MachineDocument, SimulatedMachine
from trainplan.planner.work.budget import Unlimited

Found = dict[str, object]
RESULTS = Path(__file__).parent / "results.json"
TRIALS = 6
SEARCH = TuneOptions().search
NEAR = 1.01
"""Of the true best: what counts as found."""
MODES = {
    "constants": {"layouts": False, "faults": False},
    "constants, faults": {"layouts": False, "faults": True},
    "constants and layouts": {"layouts": True, "faults": False},
    "constants and layouts, faults": {"layouts": True, "faults": True},
    "constants and layouts, shared": {"layouts": True, "faults": False, "noise": "shared"},
    "constants and layouts, loaded": {"layouts": True, "faults": False, "noise": "loaded"},
}


@dataclass(frozen=True)
class Prepared:
    """A question with all that no draw changes."""

    known: Known
    tuning: Knowledge


@cache
def prepared(place: int) -> Prepared:
    """Contenders and their prior, once for all draws."""
    question = QUESTIONS[place]
    start = searched(question.job, TuneOptions())
    few = contenders(question.job, SEARCH, also=start.layouts, chosen=start.chosen)
    tuning = knowledge_of(few)
    priced = tuning.prior.linear.prices
    filled = priced.used_bytes / few.memory_bytes
    return Prepared(Known(question, few, np.exp(priced.log_seconds), filled), tuning)


class Hidden:
    """A simulated machine on which every layout is priced once."""

    def __init__(self, document: MachineDocument, universe: Contenders) -> None:
        self.machine = SimulatedMachine(document)
        self.priced: dict[tuple[RuntimeOptions, Layout], tuple[float, float]] = {}
        self.best, self.memory_bytes = np.inf, universe.groups[0].memory_bytes
        for group in universe.groups:
            seconds, peaks = self.machine.of_table(group.job, group.table)
            fits = peaks <= group.memory_bytes
            self.best = min(self.best, float(seconds[fits].min(initial=np.inf)))
            for row, pair in enumerate(zip(seconds.tolist(), peaks.tolist(), strict=True)):
                self.priced[group.job.options, group.table.row(row)] = pair

    def of(self, job: Job, layout: Layout) -> tuple[float, float]:
        """True step time and peak of memory."""
        key = job.options, layout
        if key not in self.priced:
            seconds, peaks = self.machine.of_table(job, LayoutTable.of([layout]))
            self.priced[key] = float(seconds[0]), float(peaks[0])
        return self.priced[key]

    def launch(self, trial: Trial) -> Outcome:
        """Run a trial."""
        return self.machine.outcome(trial, *self.of(trial.job, trial.layout), self.memory_bytes)


Run = list[tuple[Trial, Outcome]]


Tuned = tuple[Run, list[float], str, float, bool]


def tuned(known: Knowledge, hidden: Hidden, trials: int = TRIALS) -> Tuned:
    """Trials of the policy, how good its best was after each, and why it stopped.

    Then the probability that it states for a faster layout among the untried, and whether one is.

    As `loop.run`, without its events. Good is the true step over the true best one.
    """
    options = TuneOptions(trials=trials)
    done: Run = []
    ratios: list[float] = []
    stop, left = None, what_remains(known, options)
    while stop is None:
        trial, row = next_trial(known, left, options)
        done.append((trial, hidden.launch(trial)))
        known = known.after(Ended(row, *done[-1])).priced_near()
        best = known.best
        true = hidden.of(best.trial.job, best.trial.layout)[0] if best else np.inf
        if done[-1][1].ending != "lost_node":
            ratios.append(true / hidden.best)
        left = what_remains(known, options)
        stop = stop_reason(known, options, left)
    rows = np.flatnonzero(known.open_rows)
    every = [hidden.of(*known.contenders.at(int(row))) for row in rows]
    fastest = min((s for s, peak in every if peak <= hidden.memory_bytes), default=np.inf)
    faster = bool(fastest < true * (1 - options.worth))
    return done, (ratios + ratios[-1:] * trials)[:trials], stop, left.probability, faster


def launched(tuner: Tuner, hidden: Hidden, trials: int = TRIALS) -> Run:
    """Trials of a baseline; where a node is lost it is repeated once at no cost, as in tuning."""
    done: Run = []
    outcome: Outcome | None = None
    for _ in range(trials):
        try:
            job, layout = next(tuner) if outcome is None else tuner.send(outcome)
        except StopIteration:
            break
        for _ in range(2):
            trial = Trial(number=len(done) + 1, job=job, layout=layout, why="baseline")
            outcome = hidden.launch(trial)
            done.append((trial, outcome))
            if outcome.ending != "lost_node":
                break
    return done


def over_best(done: Run, hidden: Hidden, trials: int = TRIALS) -> list[float]:
    """True step of the best measured over the true best, after each counted trial."""
    found, shown, ratios = np.inf, np.inf, []
    for trial, outcome in done:
        if outcome.step_time_s and outcome.step_time_s < shown:
            shown = outcome.step_time_s
            found = hidden.of(trial.job, trial.layout)[0] / hidden.best
        if outcome.ending != "lost_node":
            ratios.append(found)
    return (ratios + [found] * trials)[:trials]


def draw_of(
    place: int, modes: tuple[str, ...], only: frozenset[str], trials: int, seed: int
) -> dict[str, Found]:
    """All tuners on one machine, with and without faults."""
    ready, found = prepared(place), {}
    for layouts in (False, True):
        some = [mode for mode in modes if MODES[mode]["layouts"] == layouts]
        if not some:
            continue
        hidden = Hidden(machine(seed, layouts=layouts, faults=False), ready.known.universe)
        for mode in some:
            hidden.machine = SimulatedMachine(machine(seed, **MODES[mode]))
            found[mode] = _all_tuners(ready, hidden, only, trials, seed)
    return found


def _all_tuners(
    ready: Prepared, hidden: Hidden, only: frozenset[str], trials: int, seed: int
) -> Found:
    found: Found = {}
    if not only or "tune" in only:
        done, found["tune"], *ended = tuned(ready.tuning, hidden, trials)
        found["stop"], found["stated"], found["faster"] = ended
        found["used"] = sum(outcome.ending != "lost_node" for _, outcome in done)
    for name, baseline in BASELINES.items():
        if only and name not in only:
            continue
        draw = np.random.default_rng([seed, 1])
        done = launched(baseline(ready.known, draw), hidden, trials)
        found[name] = over_best(done, hidden, trials)
    return found


def whole_grid(place: int, seed: int) -> float:
    """The best contender over the best of all layouts of the grid, under hidden constants."""
    universe, document = prepared(place).known.universe, machine(seed, layouts=False, faults=False)
    best = min(searched_best(document, group.job) for group in universe.groups)
    return Hidden(document, universe).best / best


def searched_best(document: MachineDocument, job: Job) -> float:
    """The fastest of a job's grid under hidden constants: a proof, as `plan search` makes it."""
    logs = {name: np.log(x) for name, x in document.scalars.items() if name != "fixed_seconds"}
    changes = {**logs, "fixed_seconds": document.scalars["fixed_seconds"]}
    real = varied(machine_for(job), changes)
    on = context_of(job, real)
    rules = [*SearchOptions().rules_of_grid(on), *legality_rules(on.traits)]
    limits = SearchLimits(real.memory_bytes / document.memory_factor, 1)
    return Search(on, rules, limits).run(Unlimited()).value


def summary(found: list[dict[str, object]]) -> dict[str, object]:
    """Shares of draws, by tuner and number of trials."""
    result: dict[str, object] = {}
    for name in found[0]:
        if name in ("stop", "used", "stated", "faster"):
            continue
        ratios = np.array([one[name] for one in found])
        result[name] = {
            "found_by_trial": np.round((ratios <= NEAR).mean(axis=0), 3).tolist(),
            "over_best_median": _share(float(np.median(ratios[:, -1]))),
            "over_best_p90": _share(float(np.quantile(ratios[:, -1], 0.9, method="higher"))),
            "nothing_ran": round(float(np.isinf(ratios[:, -1]).mean()), 3),
        }
    if "stop" in found[0]:
        stops = [one["stop"] for one in found]
        result["stops"] = {name: stops.count(name) for name in sorted(set(map(str, stops)))}
        settled = np.array([one["stop"] == "settled" for one in found])
        if settled.any():
            ends = np.array([one["tune"][-1] for one in found])[settled]
            result["found_where_settled"] = round(float((ends <= NEAR).mean()), 3)
        for name in (
            "stated",
            "faster",
        ):  # mean probability of a faster untried layout, share where one is
            result[f"untried_{name}"] = round(float(np.mean([one[name] for one in found])), 3)
        result["trials_used"] = round(float(np.mean([one["used"] for one in found])), 2)
    return result


def _share(ratio: float) -> float | None:
    """Of the true best, beyond it; null: nothing ran."""
    return round(ratio - 1, 4) if np.isfinite(ratio) else None


def main() -> None:
    """Run all and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--grids", type=int, default=3, help="draws whose whole grid is searched")
    parser.add_argument("--mode", choices=MODES, action="append")
    parser.add_argument("--job", type=int, action="append")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    request = parser.parse_args()
    modes, places = tuple(request.mode or MODES), request.job or range(len(QUESTIONS))
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    with ProcessPoolExecutor(request.processes) as pool:
        for place in places:
            name = QUESTIONS[place].name
            work = partial(draw_of, place, modes, frozenset(request.only), request.trials)
            found = list(pool.map(work, range(request.draws), chunksize=10))
            for mode in modes:
                stated = {"draws": request.draws, **summary([one[mode] for one in found])}
                key = mode if request.trials == TRIALS else f"{mode}, {request.trials} trials"
                results.setdefault(key, {})[name] = stated
                sys.stdout.write(json.dumps({"job": name, "mode": mode, **stated}) + "\n")
                sys.stdout.flush()
            over = list(pool.map(partial(whole_grid, place), range(request.grids)))
            if over:
                grids = results.setdefault("best contender over best of the grid", {})
                grids[name] = [round(one - 1, 5) for one in over]
            if request.write:
                RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
