"""Finds the fastest parallel layout for training a large model, proves it, writes its launch.

    import trainplan as tp

    plan = tp.search("llama3-8b", "1x8:h100-sxm", global_batch_size=64, seq_length=8192)
    print(plan)
    plan.export("torchtitan", "launch/")

This file is `trainplan` as well: `.editable` has a link to it, the wheel a copy. A verb is the
command of its name, and every option of that is a keyword: `calls` types the values and gets the
answer, `verbs` are the functions and what they answer, `keywords` the types of their options.
A name is imported when it is first used. `__version__` is the package's. Deeper names are those of
`trainplan.planner`.

check: a launch that someone has, read and scored.
compare: two plans, term by term.
Comparison: the answer of `compare`.
Error: bad input; all others are kinds of it.
Estimate: the answer of `estimate`.
estimate: the price of one layout.
explain: what limits a plan, and what more would buy.
Explanation: the answer of `explain`.
export: what starts a plan.
Files: the answer of `export`.
Infeasible: the answer of `search` where nothing fits.
LaunchCheck: the answer of `check`.
Pareto: the answer of `pareto`.
pareto: every layout that no other beats in two objectives.
Plan: the answer of `search`.
search: the fastest layout that fits.
Sweep: the answer of `sweep`.
sweep: the best plan at every value of some parameters.
WhyNot: the answer of `why_not`.
why_not: why a layout is not the answer of a plan.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
    from trainplan.cli.python.verbs import (
        Comparison,
        Error,
        Estimate,
        Explanation,
        Files,
        Infeasible,
        LaunchCheck,
        Pareto,
        Plan,
        Sweep,
        WhyNot,
        check,
        compare,
        estimate,
        explain,
        export,
        pareto,
        search,
        sweep,
        why_not,
    )

__all__ = [
    "Comparison", "Error", "Estimate", "Explanation", "Files", "Infeasible", "LaunchCheck",
    "Pareto", "Plan", "Sweep", "WhyNot", "check", "compare", "estimate", "explain", "export",
    "pareto", "search", "sweep", "why_not",
]  # fmt: skip

if "grimp" in sys.modules:  # import-linter walks our four packages as portions of a namespace
    __spec__.has_location = False

if not TYPE_CHECKING:  # a checker knows the names from the imports, and refuses all others

    def __getattr__(name: str) -> object:
        """A name of the page, imported when it is first used (PEP 562)."""
        if name == "__version__":
            return import_module("importlib.metadata").version("trainplan")
        if name not in __all__:  # `from trainplan import planner` asks, too
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module("trainplan.costmodel.base").door(__name__)(name)

    def __dir__() -> list[str]:
        """The names of the page, and what is imported already."""
        return sorted({*globals(), *__all__})
