"""Is a launch stopped by what it states, or by what no line of it that was read does?

A check that some absent option, variable or number of ranks would satisfy is no verdict: the line
may stand where nobody looked.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import Literal, TypeVar

from trainplan.costmodel.layouts import Rule
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.read.arguments import Given
from trainplan.planner.runtimes.megatron_lm.read.facts import DEGREES, Check, Facts
from trainplan.planner.runtimes.megatron_lm.read.fields import LAYOUT
from trainplan.planner.runtimes.reading import OF_RECIPE
from trainplan.planner.shell import COMMAND_LINE

T = TypeVar("T")
NUMBERS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 64, 128, 256, 1 << 20)
"""Values that an absent option may have; degrees and counts are among them."""
ROUNDS = 5
"""Options that a check looks for only where the ones before are there."""
PAIRED = 8
"""Of so many absent options two may stand on the line that was not read."""
RANKS = (keys.TP, keys.PP, keys.CP)
OF_COLUMN: Mapping[str, tuple[str, ...]] = {
    **LAYOUT,
    "dp": RANKS,
    "offload_optimizer": LAYOUT["offload"],
}


@dataclass(slots=True)
class Watched(Mapping[str, T]):
    """Remembers what was looked for and is not stated."""

    entries: Mapping[str, T]
    open: frozenset[str] = frozenset()
    """Names whose values no line of the launch states."""
    missed: dict[str, None] = field(default_factory=dict)

    def __getitem__(self, name: str) -> T:
        """The value of a name, or a `KeyError` that is remembered."""
        if name in self.open or name not in self.entries:
            self.missed[name] = None
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        """Names."""
        return iter(self.entries)

    def __len__(self) -> int:
        """How many."""
        return len(self.entries)


@dataclass(frozen=True, slots=True)
class Absence:
    """What of a launch is not stated."""

    facts: Facts
    nodes: bool
    """Is the number of ranks stated?"""
    gpu: bool
    """And the GPU?"""

    def of(self, check: Check) -> Literal["", "variable", "option"]:
        """What that is not stated would satisfy a broken check; empty: nothing would."""
        given, environment = self.facts.arguments.given, self.facts.environment
        if any(_dest(one) not in given or _dest(one) in self._open for one in check.wanted):
            return "option"
        words, variables = self._looked_for(check)
        for name in variables:
            if any(not check.broken(self._with(given, {**environment, name: t})) for t in "01"):
                return "variable"
        filled = (self._with({**given, **more}, environment) for more in self._fillings(words))
        others = (*self._elsewhere(), *filled)
        if self.facts.dp is not None:  # else another launch, whose degrees fill no ranks
            others = tuple(one for one in others if one.dp)
        return "option" if any(not check.broken(one) for one in others) else ""

    def _looked_for(self, check: Check) -> tuple[Sequence[str], Sequence[str]]:
        """Options and variables that a check looks for in vain, one after the other."""
        environment = Watched(self.facts.environment)
        filled: dict[str, Given] = {}
        for _ in range(ROUNDS):
            words = Watched({**self.facts.arguments.given, **filled}, self._open - filled.keys())
            check.broken(self._with(words, environment))
            filled |= {dest: next(self._values(dest)) for dest in words.missed}
            if not words.missed:
                break
        return tuple(filled), tuple(environment.missed)

    def of_rule(self, rule: Rule, check: Check) -> bool:
        """Does a rule of the cost model stop it by something that is not stated?

        `check` is the rule as one of arguments, which is slow: first its own columns are looked at.
        """
        given = self.facts.arguments.given
        columns = [dests for name in rule.columns if (dests := OF_COLUMN.get(name))]
        parts = [*columns, *((one,) for one in RANKS if "dp" in rule.columns)]
        stated = (any(d in given and d not in self._open for d in part) for part in parts)
        return not all(stated) or bool(self.of(check))

    @property
    def _open(self) -> frozenset[str]:
        given = self.facts.arguments.given.items()
        return frozenset(d for d, g in given if g.unresolved or g.place == OF_RECIPE)

    def _with(self, given: Mapping[str, Given], environment: Mapping[str, str]) -> Facts:
        arguments = replace(self.facts.arguments, given=given)
        return replace(self.facts, arguments=arguments, environment=environment)

    def _elsewhere(self) -> Iterator[Facts]:
        """On other GPUs and on more nodes."""
        if not self.gpu:
            yield replace(self.facts, old_gpu=False)
        if not self.nodes and self.facts.world:
            yield from (replace(self.facts, world=self.facts.world * n) for n in NUMBERS[1:-1])

    def _fillings(self, dests: Sequence[str]) -> Iterator[dict[str, Given]]:
        """One absent option with each value it may have; two of few; all at once."""
        values = {dest: tuple(self._values(dest)) for dest in dests}
        yield from ({dest: one} for dest, them in values.items() for one in them)
        for (a, xs), (b, ys) in combinations(values.items(), 2) if len(values) <= PAIRED else ():
            yield from ({a: x, b: y} for x, y in product(xs, ys))
        longest = max(map(len, values.values()), default=0)
        for place in range(longest):
            yield {dest: them[min(place, len(them) - 1)] for dest, them in values.items()}

    def _values(self, dest: str) -> Iterator[Given]:
        """Some that an absent option may have, as if it were given."""
        option = self.facts.arguments.options[dest]
        found: tuple[object, ...]
        if option.action != "store":
            found = (option.default is not True,)
        elif option.choices is not None:
            found = tuple(one for one in option.choices if one != str(option.default))
        else:
            numbers = (*NUMBERS, *self._lengths)
            kinds = {"int": numbers, "float": (0.0, 1.0, 1e9), "integers": ((1,), (1, 1))}
            found = kinds.get(option.type, ("x",))
        listed = option.nargs is not None and option.action == "store"
        for value in (*found, option.default):
            whole = (value,) if listed and not isinstance(value, tuple) else value
            yield Given(whole, option.flag, option.flag, COMMAND_LINE)

    @property
    def _lengths(self) -> tuple[int, ...]:
        """Numbers of entries that some list has: as many layers there may be."""
        given = self.facts.arguments.given.values()
        return tuple({len(one.value) for one in given if isinstance(one.value, tuple)})


def _dest(condition: str) -> str:
    name = condition.removeprefix("!").partition("=")[0]
    return OF_COLUMN[name][0] if name in (*DEGREES, "recompute") else name
