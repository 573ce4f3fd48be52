"""Which page a terminal shows of an answer: one line a kind."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from types import MappingProxyType

from trainplan.cli.blocks import Part

SCREENS: Mapping[str, str] = MappingProxyType(
    {
        "Calibration": "calibration:calibration_page",
        "Comparison": "compare:compare_page",
        "Estimate": "estimate:estimate_page",
        "Explanation": "explain:explain_page",
        "Finished": "tune:finished_page",
        "Infeasible": "infeasible:infeasible_page",
        "LaunchCheck": "check:check_page",
        "Offers": "offers:offers_page",
        "Pareto": "pareto:pareto_page",
        "Plan": "plan:plan_page",
        "Profile": "profile:profile_page",
        "Ranking": "schedule:ranking_page",
        "Replan": "replan:replan_page",
        "Scored": "schedule:schedule_page",
        "Scores": "validate:validate_page",
        "Simulation": "simulation:simulation_page",
        "Sweep": "sweep:sweep_page",
        "WhyNot": "why_not:why_not_page",
    }
)
"""Class of an answer -> the module and the function of its page: others are not imported."""


def screen(found: object, *alongside: object, **how: object) -> Iterable[Part]:
    """The page of an answer; what goes with it and how is as the function of its page has it."""
    module, _, name = SCREENS[type(found).__name__].partition(":")
    page: Iterable[Part] = getattr(import_module(f"{__package__}.{module}"), name)(
        found, *alongside, **how
    )
    return page
