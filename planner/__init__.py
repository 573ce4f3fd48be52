"""Searches the layouts the cost model can price, and proves its answer.

The Python API: `from trainplan import planner`, then `planner.search(job)`. A name is imported when
it is first used. Questions are verbs, their answers frozen values:

search: the best layout of a job, as a `Plan`, or `Infeasible` with reasons and changes that help.
estimate: seconds and bytes of one layout, as an `Estimate`.
evidence_of: the published runs nearest to a layout, and where it leaves them, as `Evidence`.
estimates: those of many layouts of one job at once, as `Estimates`: columns, and each whole.
check: nothing, or a `SpecError` with the rule that a layout breaks.
simulate: the pipeline of a layout op by op, as a `Simulation`.
pareto: the step time against money, energy or memory, as a `Pareto` front.
explain: what limits a plan and what more of it would save, as an `Explanation`.
why_not: why a layout is not the answer of a plan, as a `WhyNot`.
compare: two layouts, each of its job, term by term, as a `Comparison`.
sweep: the best plan at every value of some parameters, as a `Sweep`.
tune: a job, whose likeliest layouts a function of yours runs, as an iterator of events.
combinations: layouts of few processes that use what a plan uses, as `Combinations`.
verify: runs them next to one process and yields each as it has run, as `Ran`.
check_launch: someone's launch that was read and checked, as a `LaunchCheck`.

What they need next to a job and a layout:

TuneOptions: when tuning stops, and which layouts it may run.
SimulatedMachine: a machine on paper, of a `MachineDocument`, for `tune` to run layouts on.
SearchOptions: choices fixed and excluded, trust, objective, memory margin, alternatives.
Case: a job, its options and what was measured of its machine.
parse_choice: one `--fix` or `--exclude` from its text.
parse_varied: one `--vary` of a sweep from its text.
Budget: how long a search may go on, and who gets its progress; `Unlimited` has no end.

What a plan is made of, its document, and the way to a launch script:

Candidate: a layout of the table of alternatives with its estimate.
Certificate: what was searched and what is proven.
plan_json: the document of a plan.
estimate_json: the document of an estimate.
pareto_json: the document of a front.
written: job, layout, options and alternatives of a document, as `Written`.
chosen_from_json: job and layout of a document.
EXPORTERS: by runtime, (job, layout) to a `LaunchConfig`.
LAUNCHERS: by name, (config, cluster) to a `LaunchFile`.
READERS: which launches are a runtime's own, and what they hold, as a `Reading`.
launches_of_script: the launches of a script of the shell, read without running it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainplan.costmodel.step import Estimate
    from trainplan.planner.cases import Case
    from trainplan.planner.comparisons import (
        Comparison,
        Sweep,
        WhyNot,
        compare,
        parse_varied,
        sweep,
        why_not,
    )
    from trainplan.planner.documents import (
        Written,
        chosen_from_json,
        estimate_json,
        plan_json,
        written,
    )
    from trainplan.planner.evidence import Evidence, evidence_of
    from trainplan.planner.explanations import Explanation, explain
    from trainplan.planner.goals import Pareto, pareto, pareto_json
    from trainplan.planner.launch import LaunchConfig
    from trainplan.planner.launch_checks import LaunchCheck, check_launch
    from trainplan.planner.launchers import LAUNCHERS, LaunchFile
    from trainplan.planner.plan import Candidate, Certificate, Infeasible, Plan, SearchOptions
    from trainplan.planner.questions import (
        Estimates,
        Simulation,
        check,
        estimate,
        estimates,
        search,
        simulate,
    )
    from trainplan.planner.runtimes import EXPORTERS, READERS, Reading
    from trainplan.planner.shell import launches_of_script
    from trainplan.planner.space import parse_choice
    from trainplan.planner.tuning import MachineDocument, SimulatedMachine, TuneOptions, tune
    from trainplan.planner.verification import Combinations, Ran, combinations, verify
    from trainplan.planner.work import Budget, Unlimited

__all__ = [
    "EXPORTERS", "LAUNCHERS", "READERS", "Budget", "Candidate", "Case", "Certificate",
    "Combinations", "Comparison", "Estimate", "Estimates", "Evidence", "Explanation", "Infeasible",
    "LaunchCheck", "LaunchConfig", "LaunchFile", "MachineDocument", "Pareto", "Plan", "Ran",
    "Reading", "SearchOptions", "SimulatedMachine", "Simulation", "Sweep", "TuneOptions",
    "Unlimited", "WhyNot", "Written", "check", "check_launch", "chosen_from_json", "combinations",
    "compare", "estimate", "estimate_json", "estimates", "evidence_of", "explain",
    "launches_of_script", "pareto", "pareto_json", "parse_choice", "parse_varied", "plan_json",
    "search", "simulate", "sweep", "tune", "verify", "why_not", "written",
]  # fmt: skip

if not TYPE_CHECKING:  # a checker knows the names from the imports, and refuses all others

    def __getattr__(name: str) -> object:
        """A name of the page, imported when it is first used (PEP 562)."""
        return import_module("trainplan.costmodel.base").door(__name__)(name)

    def __dir__() -> list[str]:
        """The names of the page, and what is imported already."""
        return sorted({*globals(), *__all__})
