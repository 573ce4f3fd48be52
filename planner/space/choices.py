"""All rules of a job in one list: what axes and runtime forbid, and what the user fixed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from trainplan.costmodel.axes import AXES
from trainplan.costmodel.base.errors import SpecError
from trainplan.costmodel.layouts.rules import Rule
from trainplan.costmodel.layouts.table import BoolColumn, LayoutTable, evenly, module_bits
from trainplan.costmodel.runtimes import traits_of
from trainplan.costmodel.runtimes.executes import executed
from trainplan.costmodel.spec.job import Job
from trainplan.costmodel.spec.layout import (
    OFFLOAD_MODULES,
    RECOMPUTE,
    RECOMPUTE_METHODS,
    RECOMPUTE_MODULES,
    SCHEDULE_NAMES,
)

MEMORY = "memory"
"""Name under which rows that do not fit are counted as refused."""


def legality_rules(job: Job) -> tuple[Rule, ...]:
    """What mathematics and the runtime forbid.

    What a runtime asks of a schedule is more than the schedule does, so it is asked first.
    """
    traits = traits_of(job)
    axes = [rule for rules in AXES.values() for rule in rules]
    (own, rest), (stricter, others) = _of_schedules(axes), _of_schedules(traits.rules)
    return (*rest, *stricter, *own, *executed(traits), *others)


def _of_schedules(rules: Iterable[Rule]) -> tuple[list[Rule], list[Rule]]:
    """Rules that read the schedule, and the others."""
    every = list(rules)
    some = [rule for rule in every if "schedule" in rule.columns]
    return some, [rule for rule in every if "schedule" not in rule.columns]


def broken_rules(job: Job, table: LayoutTable) -> tuple[tuple[Rule, ...], ...]:
    """For each row, the rules it breaks; empty for a legal layout."""
    verdicts = [(rule, rule.broken(job, table)) for rule in legality_rules(job)]
    return tuple(
        tuple(rule for rule, broken in verdicts if broken[row]) for row in range(len(table))
    )


def ranks_straddle() -> Rule:
    """Leaves layouts of whole pipeline ranks in node groups to a search of their own.

    It prices each rank on the machine of its group, which is where such a rank lies.
    """

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """Does every pipeline rank fit into one group?"""
        gpus = table.tp * table.cp * table.dp
        whole = [group.num_gpus % gpus == 0 for group in job.cluster.groups]
        return np.asarray(np.all(whole, axis=0))

    return Rule(
        name="ranks_live_in_groups",
        columns=frozenset({"tp", "cp", "dp"}),
        broken=broken,
        says="searched apart, with every pipeline rank in one node group",
        source="derived",
    )


FREE = -1
"""Of modules: any set, and none."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A field of the layout held to one value (`--fix`) or kept from it (`--exclude`)."""

    field: str
    value: float
    text: str
    excluded: bool

    @property
    def anything(self) -> bool:
        """`--fix stages=free` or `--fix offload_modules=free`: it refuses nothing."""
        free = {"stages": 0, "offload_modules": FREE}
        return not self.excluded and self.value == free.get(self.field)

    @property
    def offloads(self) -> bool:
        """Does it ask for modules on the host, which no search tries unasked?"""
        return self.field == "offload_modules" and bool(self.value) and not self.excluded

    @property
    def only_even(self) -> bool:
        """Are the stages held to the even split?"""
        return self.field == "stages" and bool(self.value) != self.excluded

    @property
    def only_uneven(self) -> bool:
        """`--exclude stages=even`: it refuses every layout whose layers are not split yet."""
        return self.field == "stages" and bool(self.value) and self.excluded

    def rule(self) -> Rule:
        """As a rule the search applies like any other."""
        option = "--exclude" if self.excluded else "--fix"

        def broken(job: Job, table: LayoutTable) -> BoolColumn:
            if self.anything:
                return np.zeros(len(table), dtype=bool)
            column = evenly(table) if self.field == "stages" else getattr(table, self.field)
            same = column == self.value
            return np.asarray(same if self.excluded else ~same)

        return Rule(
            name=f"{option} {self.text}",
            columns=frozenset({self.field}),
            broken=broken,
            says=f"not allowed by {option} {self.text}",
            source="your command line",
        )


def allowed(job: Job, choices: Iterable[Choice]) -> Job:
    """A job whose search tries what some choice asks for."""
    asked = job.may_offload_activations or any(choice.offloads for choice in choices)
    return job.model_copy(update={"may_offload_activations": asked})


def rules_of_grid(choices: Iterable[Choice]) -> tuple[Rule, ...]:
    """Rules of layouts whose layers are not split yet: all but the one that wants them uneven."""
    return tuple(choice.rule() for choice in choices if not choice.only_uneven)


def no_even_stages() -> Rule:
    """Refuses all layouts across node groups: their stages are even."""

    def broken(job: Job, table: LayoutTable) -> BoolColumn:
        """Everything is."""
        return np.ones(len(table), dtype=bool)

    return Rule(
        name="--exclude stages=even",
        columns=frozenset({"tp"}),
        broken=broken,
        says="stages across node groups are even",
        source="your command line",
    )


_CODES: dict[str, Sequence[object]] = {
    "schedule": SCHEDULE_NAMES,
    "recompute": RECOMPUTE,
    "recompute_method": tuple(name or "none" for name in RECOMPUTE_METHODS),
    "sequence_parallel": ("false", "true"),
    "stages": ("free", "even"),
}
_MODULES: dict[str, Sequence[str]] = {
    "recompute_modules": RECOMPUTE_MODULES,
    "offload_modules": OFFLOAD_MODULES,
}
_COUNTS = tuple(
    f.name for f in fields(LayoutTable) if f.name not in (*_CODES, *_MODULES, "offload_optimizer")
)


def parse_choice(text: str, *, excluded: bool) -> Choice:
    """Read `tp=8`, `recompute=full`, `sequence_parallel=true`, `offload=0.5`, ...

    Raises:
        SpecError: Unknown field or value; the message lists what is allowed.
    """
    field, equals, value = text.partition("=")
    if not equals:
        raise SpecError(f"{text!r}: expected FIELD=VALUE such as tp=8")
    if "=" in value:
        raise SpecError(
            f"{text!r}: expected one field, such as {field}={value.partition(',')[0]}: "
            "repeat the option for each"
        )
    if field in _CODES:
        names = [str(name) for name in _CODES[field]]
        if value.lower() not in names:
            raise SpecError(f"{text!r}: {field} is one of {', '.join(names)}")
        return Choice(field, names.index(value.lower()), text, excluded)
    if field in _MODULES:
        return Choice(field, _modules(field, value, text), text, excluded)
    if field == "offload":
        number = _number(value)
        if not 0 <= number <= 1:
            raise SpecError(f"{text!r}: offload is a fraction from 0 to 1")
        return Choice("offload_optimizer", number, text, excluded)
    if field not in _COUNTS:
        known = ", ".join(sorted((*_COUNTS, *_CODES, *_MODULES, "offload")))
        raise SpecError(f"{text!r}: no field {field!r}; fields are {known}")
    number = _number(value)
    if number < 0 or not number.is_integer():
        raise SpecError(f"{text!r}: {field} is a whole number")
    return Choice(field, number, text, excluded)


def _modules(field: str, value: str, text: str) -> int:
    """Bits of a set of modules."""
    if (field, value) == ("offload_modules", "free"):
        return FREE
    known = _MODULES[field]
    named = value.split("+") if value != "none" else []
    if unknown := [name for name in named if name not in known]:
        raise SpecError(f"{text!r}: no module {unknown[0]!r}; join some of {', '.join(known)} by +")
    return module_bits(named, known)


def _number(text: str) -> float:
    """A finite number; -1 for anything else, which no field accepts."""
    try:
        number = float(text)
    except ValueError:
        return -1.0
    return number if math.isfinite(number) else -1.0
