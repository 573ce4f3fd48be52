"""What the runtime's checks look at, and how a check is written down."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.read.arguments import Arguments
from trainplan.planner.runtimes.megatron_lm.read.layout import (
    degree,
    expert_degrees,
    inner_ranks,
    recomputation,
    recompute_modules,
)
from trainplan.planner.runtimes.megatron_lm.read.model import num_layers
from trainplan.planner.runtimes.megatron_lm.read.options import graph_kind
from trainplan.planner.runtimes.megatron_lm.read.parser import options
from trainplan.planner.runtimes.megatron_lm.read.pipeline import virtual_stages


@dataclass(frozen=True, slots=True)
class Facts:
    """One launch as the runtime sees it."""

    arguments: Arguments
    world: int | None
    """Ranks; null: unknown."""
    environment: Mapping[str, str]
    old_gpu: bool
    """Is it older than Blackwell?"""

    def on(self, *dests: str) -> bool:
        """Are all of these switches on?"""
        return all(self.arguments.on(dest) for dest in dests)

    def given(self, *dests: str) -> bool:
        """Does the launch set any of these?"""
        return any(dest in self.arguments for dest in dests)

    def text(self, dest: str) -> str:
        """A word; empty where there is none."""
        return self.arguments.text(dest)

    def count(self, dest: str) -> int:
        """A whole number; 0 where there is none."""
        return self.arguments.count(dest)

    def number(self, dest: str) -> float:
        """A number; 0 where there is none."""
        return self.arguments.number(dest) or 0.0

    @property
    def tp(self) -> int:
        """Tensor ranks."""
        return degree(self.arguments, keys.TP)

    @property
    def pp(self) -> int:
        """Pipeline ranks."""
        return degree(self.arguments, keys.PP)

    @property
    def cp(self) -> int:
        """Context ranks."""
        return degree(self.arguments, keys.CP)

    @property
    def ep(self) -> int:
        """Expert ranks."""
        return expert_degrees(self.arguments)[0]

    @property
    def etp(self) -> int:
        """Tensor ranks of experts."""
        return expert_degrees(self.arguments)[1]

    @property
    def dp(self) -> int | None:
        """Replicas; null: unknown, or the degrees do not fit."""
        inner = inner_ranks(self.arguments)
        return None if self.world is None or self.world % inner else self.world // inner

    @property
    def layers(self) -> int:
        """Decoder layers; 0: unknown."""
        return num_layers(self.arguments) or 0

    @property
    def vpp(self) -> int:
        """Virtual stages of a rank."""
        return virtual_stages(self.arguments, self.layers)

    @property
    def sequence_parallel(self) -> bool:
        """In effect: with one tensor rank the runtime turns it off."""
        return self.tp > 1 and self.on(keys.SEQUENCE_PARALLEL)

    @property
    def recomputes(self) -> str:
        """`none`, `selective` or `full`."""
        return recomputation(self.arguments)

    def recomputes_module(self, *names: str) -> bool:
        """Is any of these recomputed by itself?"""
        return self.recomputes == "selective" and bool(
            set(names) & set(recompute_modules(self.arguments))
        )


@dataclass(frozen=True, slots=True)
class Check:
    """One thing the runtime stops at."""

    cause: str
    broken: Callable[[Facts], bool | str]
    """A text holds the numbers of the case, and is empty where all is well."""
    says: str
    """What, and what to do."""
    dest: str = ""
    """Option whose place is named."""
    wanted: tuple[str, ...] = ()
    """Conditions one of which is lacking: of those that no line states nothing is known."""


DEGREES = {"tp", "pp", "cp", "ep", "vpp"}


def holds(facts: Facts, condition: str) -> bool:
    """Is it so? `name`: an option is on, or set; `name=value`; `tp`: above 1; `!`: not so."""
    if condition.startswith("!"):
        return not holds(facts, condition[1:])
    name, equals, value = condition.partition("=")
    if name in DEGREES:
        return int(getattr(facts, name)) > 1
    if name == "recompute":
        return facts.recomputes == value
    if name == "graph":
        return graph_kind(facts.arguments) == value
    found = facts.arguments.value(name)
    return str(found) == value if equals else bool(found)


def needs(cause: str, subject: str, *wanted: str) -> Check:
    """One option needs one of others."""

    def broken(facts: Facts) -> bool:
        return holds(facts, subject) and not any(holds(facts, one) for one in wanted)

    others = " or ".join(map(words, wanted))
    says = f"{words(subject)} needs {others}: add that, or take {words(subject)} out"
    return Check(cause, broken, says, subject.partition("=")[0], wanted)


def excludes(cause: str, subject: str, *others: str) -> Check:
    """One option goes with none of others."""

    def broken(facts: Facts) -> bool:
        return holds(facts, subject) and any(holds(facts, one) for one in others)

    says = f"{words(subject)} excludes {' and '.join(map(words, others))}: take one out"
    return Check(cause, broken, says, subject.partition("=")[0])


def forbids(cause: str, says: str, conditions: tuple[str, ...]) -> Check:
    """What stands in no launch together; the option of the first is named."""

    def broken(facts: Facts) -> bool:
        return all(holds(facts, one) for one in conditions)

    return Check(cause, broken, says, conditions[0].partition("=")[0])


def words(condition: str) -> str:
    """A condition as it is written in a launch."""
    name, _, value = condition.removeprefix("!").partition("=")
    if name in DEGREES:
        return f"{name} {'= 1' if condition.startswith('!') else 'above 1'}"
    option = _flags().get(
        name, "--recompute-granularity" if name == "recompute" else "--cuda-graph-impl"
    )
    switched_off = option.startswith(("--no-", "--disable-"))
    if not value and switched_off != condition.startswith("!"):
        return f"no {option}"
    return f"{option} {value}".strip()


@cache
def _flags() -> Mapping[str, str]:
    named = sorted(options().values(), key=lambda one: one.flag[2:].replace("-", "_") == one.dest)
    return {option.dest: option.flag for option in named}
