"""The names that help pages list, out of the registries, as the module `cli.options.names`.

python docs/generator/names.py    write it; before generate.py, whose pages show the help pages
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import wrap
from typing import get_args

from annotated_types import Le

from trainplan.cli.documents.registry import DOCUMENTS
from trainplan.cli.serve.tools import TOOLS
from trainplan.cli.values.stated import listed
from trainplan.costmodel.axes import AXES
from trainplan.costmodel.axes.axis import Axis
from trainplan.costmodel.catalog.entries import gpu_names, hosts
from trainplan.costmodel.hardware.failures import Save
from trainplan.costmodel.job.job import (
    DEFAULT_RUNTIME,
    LARGEST_SIZE,
    Packing,
    Precision,
    StatePrecision,
)
from trainplan.costmodel.job.outer import OuterType
from trainplan.costmodel.layout.codecs import Flag, Modules, Names, Stages
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.optimizers import OPTIMIZERS
from trainplan.costmodel.presets.clusters import machines, short_names
from trainplan.costmodel.presets.presets import preset_names, repositories
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.costmodel.uncertainty import FIT_CHANCE
from trainplan.planner.comparisons.parameters import KNOBS
from trainplan.planner.launchers.registry import LAUNCHERS
from trainplan.planner.plan.target import Name
from trainplan.planner.replan.replan import Saved, Taken
from trainplan.planner.runtimes import EXPORTERS, TRAINERS
from trainplan.planner.runtimes.key_tables import OTHERS
from trainplan.planner.settings.combinations import Level
from trainplan.profiler.bench.items import ITEMS
from trainplan.profiler.bench.layer import RUNTIMES as LAYER_RUNTIMES
from trainplan.profiler.bench.optimizer import OTHERS as OTHER_OPTIMIZERS
from trainplan.profiler.importers import IMPORTERS
from trainplan.profiler.launch.script import LauncherKind

WIDTH = 100
"""Columns of a line."""
EVEN = "even"
"""The one word for `stages`, which are else written one by one."""


FEW = 10
"""Numbers that are listed; the bounds of others are only to refuse slips."""


def _values(axis: Axis) -> Iterator[str]:
    """The values of a field of a layout, where they are few and can be listed."""
    match axis.codec:
        case Names(names):
            yield from (name or "none" for name in names)
        case Modules(names):
            yield from names
        case Flag():
            yield from ("true", "false")
        case Stages():
            yield EVEN
    for limit in Layout.model_fields[axis.name].metadata if "." not in axis.name else ():
        if isinstance(limit, Le) and int(str(limit.le)) < FEW:
            yield from map(str, range(int(str(limit.le)) + 1))


NAMES_FILE = Path(__file__).parents[2] / "cli" / "options" / "names.py"
HEAD = '''"""Names that help pages list, and nothing that must be imported for them.

Written by docs/generator/generate.py (`make docs`) from the registries: edit those, not this file.
"""

from trainplan.cli.options.plugged import with_plugins


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


'''
NAMES: Mapping[str, Iterable[str]] = {
    "MODELS": preset_names(),
    "REPOSITORIES": [one for name in preset_names() for one in repositories(name)],
    "GPUS": [*gpu_names(), *short_names()],
    "HOSTS": hosts(),
    "MACHINES": machines(),
    "LAYOUT_FIELDS": [f"{axis.option}={'|'.join(_values(axis))}" for axis in AXES],
    "PRECISIONS": get_args(Precision),
    "ALLOWED": ("diloco",),
    "OUTER_TYPES": get_args(OuterType),
    "PACKINGS": get_args(Packing),
    "OPTIMIZERS": tuple(OPTIMIZERS),
    "STATE_PRECISIONS": get_args(StatePrecision),
    "RUNTIMES": RUNTIMES,
    "RUNTIME_OPTIONS": listed(),
    "SCHEDULES": SCHEDULES,
    "OBJECTIVES": get_args(Name),
    "SAVES": get_args(Save),
    "LEVELS": get_args(Level),
    "SAVED": get_args(Saved),
    "TAKEN": get_args(Taken),
    "KNOBS": KNOBS,
    "EXPORTERS": EXPORTERS,
    "CHECKOUTS": [name for name, one in EXPORTERS.items() if one.source_patterns],
    "TRAINERS": TRAINERS,
    "KEY_TABLES": OTHERS,
    "LAUNCHERS": LAUNCHERS,
    "MEASUREMENTS": ITEMS,
    "MEASURED_OPTIMIZERS": ("adamw", *OTHER_OPTIMIZERS),
    "LAYER_RUNTIMES": LAYER_RUNTIMES,
    "LAUNCH_KINDS": get_args(LauncherKind),
    "PROFILE_FORMATS": IMPORTERS,
    "DOCUMENTS": (*DOCUMENTS, *(f"{one.command}-request" for one in TOOLS.values())),
}

PLUGGED: Mapping[str, str] = {
    "OPTIMIZERS": "optimizers",
    "RUNTIMES": "runtimes",
    "SCHEDULES": "schedules",
    "EXPORTERS": "exporters",
    "LAUNCHERS": "launchers",
    "PROFILE_FORMATS": "importers",
}
"""Those to which plug-ins add, and their field of `Plugin`."""


def names_text() -> str:
    """Source of `cli.options.names`."""
    numbers = (
        f"LARGEST_SIZE = {LARGEST_SIZE}",
        f'DEFAULT_RUNTIME = "{DEFAULT_RUNTIME}"',
        f"FIT_CHANCE = {FIT_CHANCE}",
    )
    return HEAD + "\n".join((*numbers, *_lines())) + "\n"


def _lines() -> Iterator[str]:
    for constant, names in NAMES.items():
        assert not any(" " in name for name in names), constant
        wrapped = wrap(" ".join(names), WIDTH, break_long_words=False, break_on_hyphens=False)
        if constant in PLUGGED:
            yield from (f"{constant} = with_plugins(", f'    "{PLUGGED[constant]}",')
            yield from ('    _names("""', *wrapped, '"""),', ")")
        else:
            yield from (f'{constant} = _names("""', *wrapped, '""")')


if __name__ == "__main__":
    NAMES_FILE.write_text(names_text(), encoding="utf-8")
