"""Tuning on simulated machines: how often the fastest layout is found, and what others would find.

python examples/tuning/evaluate.py [--draws 200] [--write]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
from baselines import BASELINES, Known, Tuner
from jobs import QUESTIONS
from machines import machine

from trainplan.costmodel.measured import machine_for
from trainplan.costmodel.measured.varied import SCALARS, varied
from trainplan.costmodel.spec import Job, Layout
from trainplan.costmodel.spec.evidence.trial import Outcome, Trial
from trainplan.planner.plan import SearchOptions
from trainplan.planner.space import legality_rules
from trainplan.planner.tree.branch_and_bound import Search
from trainplan.planner.tree.result import SearchLimits
from trainplan.planner.tuning.contenders import Contenders, contenders, exports
from trainplan.planner.tuning.events import Finished
from trainplan.planner.tuning.knowledge import Knowledge, knowledge_of
from trainplan.planner.tuning.loop import run, searched
from trainplan.planner.tuning.options import TuneOptions
from trainplan.planner.tuning.pricing import prices
from trainplan.planner.tuning.simulated import SimulatedMachine
from trainplan.planner.work.budget import Unlimited

RESULTS = Path(__file__).parent / "results.json"
OPTIONS = TuneOptions(trials=6)
UNIVERSE = 1000
"""Layouts among which the true best is looked for, where the model is off by layouts."""
NEAR = 1.01
"""Of the true best: what counts as found."""
MODES = {
    "constants": {"layouts": False, "faults": False},
    "constants, faults": {"layouts": False, "faults": True},
    "constants and layouts": {"layouts": True, "faults": False},
    "constants and layouts, faults": {"layouts": True, "faults": True},
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
    start = searched(question.job, OPTIONS)
    few = contenders(question.job, OPTIONS.search, also=start.layouts, chosen=start.chosen)
    many = contenders(
        question.job, OPTIONS.search, also=start.layouts, chosen=start.chosen, most=UNIVERSE
    )
    priced = prices(many, {})
    filled = priced.used_bytes / many.memory_bytes
    known = Known(question, many, np.exp(priced.log_seconds), filled)
    return Prepared(known, knowledge_of(few))


def true_best(hidden: SimulatedMachine, universe: Contenders, *, whole: bool) -> float:
    """The fastest layout that fits; with `whole`, of all layouts of the grid that export."""
    best = np.inf
    for group in universe.groups:
        seconds, peaks = hidden.of_table(group.job, group.table)
        best = min(best, float(seconds[peaks <= group.memory_bytes].min(initial=np.inf)))
        if whole:
            best = min(best, searched_best(hidden, group.job))
    return best


def searched_best(hidden: SimulatedMachine, job: Job) -> float:
    """The fastest of a job's grid under the hidden constants."""
    document = hidden.document
    changes = {
        name: document.scalars[name] if name == "fixed_seconds" else np.log(document.scalars[name])
        for name in SCALARS
    }
    real = varied(machine_for(job), changes)
    rules = [*SearchOptions().rules_of_grid(job), *legality_rules(job)]
    limits = SearchLimits(real.memory_bytes / document.memory_factor, 1)
    found = Search(job, real, rules, limits).run(Unlimited())
    table = found.finalists
    if table is None or not exports(job, table.row(0)):
        return np.inf
    return found.value


def tuned(known: Knowledge, hidden: SimulatedMachine) -> tuple[list[Outcome], list[Trial], str]:
    """Trials of the policy."""
    trials: list[Trial] = []
    outcomes: list[Outcome] = []

    def launch(trial: Trial) -> Outcome:
        trials.append(trial)
        outcomes.append(hidden.launch(trial))
        return outcomes[-1]

    last = list(run(known, launch, OPTIONS))[-1]
    assert isinstance(last, Finished)
    return outcomes, trials, last.stop


def launched(tuner: Tuner, hidden: SimulatedMachine) -> tuple[list[Outcome], list[Trial], str]:
    """Trials of a baseline; a lost node is repeated once at no cost, as here."""
    trials: list[Trial] = []
    outcomes: list[Outcome] = []
    outcome: Outcome | None = None
    counted = 0
    while counted < OPTIONS.trials:
        try:
            job, layout = next(tuner) if outcome is None else tuner.send(outcome)
        except StopIteration:
            break
        for _ in range(2):
            trial = Trial(number=len(trials) + 1, job=job, layout=layout, why="baseline")
            outcome = hidden.launch(trial)
            trials.append(trial)
            outcomes.append(outcome)
            if outcome.ending != "lost_node":
                break
        counted += 1
    return outcomes, trials, "trials"


def over_best(
    outcomes: list[Outcome], trials: list[Trial], hidden: SimulatedMachine, best: float
) -> list[float]:
    """True step of the best measured over the true best, after each counted trial."""
    found, shown, ratios = np.inf, np.inf, []
    for outcome, trial in zip(outcomes, trials, strict=True):
        if outcome.step_time_s and outcome.step_time_s < shown:
            shown = outcome.step_time_s
            found = true_step(hidden, trial.job, trial.layout) / best
        if outcome.ending != "lost_node":
            ratios.append(found)
    ratios += [found] * (OPTIONS.trials - len(ratios))
    return ratios


def true_step(hidden: SimulatedMachine, job: Job, layout: Layout) -> float:
    """Of one layout."""
    from trainplan.costmodel.layouts import LayoutTable

    return float(hidden.of_table(job, LayoutTable.of([layout]))[0][0])


def draw_of(place: int, mode: str, only: frozenset[str], seed: int) -> dict[str, object]:
    """All tuners on one machine."""
    ready, how = prepared(place), MODES[mode]
    hidden = SimulatedMachine(machine(seed, **how))
    best = true_best(hidden, ready.known.universe, whole=not how["layouts"])
    found: dict[str, object] = {}
    if not only or "tune" in only:
        outcomes, trials, stop = tuned(ready.tuning, hidden)
        found["tune"] = over_best(outcomes, trials, hidden, best)
        found["stop"] = stop
        found["used"] = sum(one.ending != "lost_node" for one in outcomes)
    for name, baseline in BASELINES.items():
        if only and name not in only:
            continue
        draw = np.random.default_rng([seed, 1])
        found[name] = over_best(*launched(baseline(ready.known, draw), hidden)[:2], hidden, best)
    return found


def summary(found: list[dict[str, object]]) -> dict[str, object]:
    """Shares of draws, by tuner and number of trials."""
    result: dict[str, object] = {}
    for name in found[0]:
        if name in ("stop", "used"):
            continue
        ratios = np.array([one[name] for one in found])
        result[name] = {
            "found_by_trial": np.round((ratios <= NEAR).mean(axis=0), 3).tolist(),
            "median_over_best": round(float(np.median(ratios[:, -1])) - 1, 4),
            "p90_over_best": round(float(np.quantile(ratios[:, -1], 0.9)) - 1, 4),
            "nothing_ran": round(float(np.isinf(ratios[:, -1]).mean()), 3),
        }
    if "stop" in found[0]:
        stops = [one["stop"] for one in found]
        result["stops"] = {name: stops.count(name) for name in sorted(set(map(str, stops)))}
        result["trials_used"] = round(float(np.mean([one["used"] for one in found])), 2)
    return result


def main() -> None:
    """Run all and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--mode", choices=MODES, action="append")
    parser.add_argument("--job", type=int, action="append")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    results: dict[str, dict[str, object]] = {}
    with ProcessPoolExecutor(asked.processes) as pool:
        each: Callable[..., Iterator[dict[str, object]]] = partial(pool.map, chunksize=10)
        for mode in asked.mode or MODES:
            for place in asked.job if asked.job is not None else range(len(QUESTIONS)):
                work = partial(draw_of, place, mode, frozenset(asked.only))
                found = summary(list(each(work, range(asked.draws))))
                name = QUESTIONS[place].name
                results.setdefault(mode, {})[name] = found
                sys.stdout.write(json.dumps({"mode": mode, "job": name, **found}) + "\n")
                sys.stdout.flush()
    if asked.write:
        text = json.dumps({"draws": asked.draws, "modes": results}, indent=1)
        RESULTS.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
