"""`plan doctor` on plug-ins: what each adds, and what is left out and why."""

import re
from collections.abc import Mapping

from trainplan.cli.commands.plugged import plugged, plugged_command
from trainplan.cli.pages import Finding
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.catalog import fitted, plugged_gpus, plugged_hosts
from trainplan.costmodel.optimizers import OPTIMIZERS
from trainplan.costmodel.plugins import LEFT_OUT, Registry, installed
from trainplan.costmodel.presets import plugged_models
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.planner.launchers import LAUNCHERS
from trainplan.planner.runtimes import EXPORTERS, PLUGGED
from trainplan.profiler.importers import IMPORTERS

REGISTRIES: Mapping[str, Mapping[str, object]] = {
    "optimizers": OPTIMIZERS,
    "schedules": SCHEDULES,
    "runtimes": RUNTIMES,
    "exporters": EXPORTERS,
    "launchers": LAUNCHERS,
    "readers": PLUGGED,
    "importers": IMPORTERS,
}


def findings() -> list[Finding]:
    """One for each plug-in, and one for each thing that is left out."""
    whose = _whose()
    good = [Finding(one.who, good=True, detail=_adds(one.who, whose)) for one in installed()]
    wrong = [*dict.fromkeys(LEFT_OUT), *filter(None, map(_broken, plugged()))]
    parts = (re.split(r": ", text, maxsplit=1) for text in wrong)
    return good + [Finding(who, good=False, detail=says) for who, says in parts]


def _whose() -> dict[str, Mapping[str, str]]:
    """By kind, names from plug-ins and which plug-in each is from."""
    fitted("")  # reads those of plug-ins, too
    return {
        "gpus": plugged_gpus(),
        "hosts": plugged_hosts(),
        "models": plugged_models(),
        **{kind: one.plugged() for kind, one in REGISTRIES.items() if isinstance(one, Registry)},
        "commands": {name: one.origin.who for name, one in plugged().items()},
    }


def _adds(who: str, whose: Mapping[str, Mapping[str, str]]) -> str:
    kinds = {
        kind: [name for name, by in names.items() if by == who] for kind, names in whose.items()
    }
    return "; ".join(f"{kind} {', '.join(names)}" for kind, names in kinds.items() if names)


def _broken(name: str) -> str:
    try:
        plugged_command(name)
    except PlanError as error:
        return str(error)
    return ""
