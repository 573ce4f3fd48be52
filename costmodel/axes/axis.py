"""An axis: one choice that a layout makes, with all that is the same wherever it is met."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Codec, Layout
from trainplan.costmodel.layouts import FIELDS, Rule
from trainplan.costmodel.runtimes import RuntimeTraits


@dataclass(frozen=True, slots=True)
class Tried:
    """The search tries every one of some values: the axis is a column of a level of its tree."""

    values: Callable[[Job, RuntimeTraits], tuple[object, ...]]
    """As a layout has them; documents leave null out."""
    under: Callable[[Job, RuntimeTraits, Mapping[str, Any]], tuple[object, ...]] | None = None
    """Of these, what goes with the columns before it in a skeleton, and pp; None: all."""
    costs_time: bool = False
    """Is the first value never slower? The others are tried where a layout lacks memory."""


@dataclass(frozen=True, slots=True)
class Held:
    """The search leaves the axis off."""

    says: str
    """To who asks why a layout with another value was not found."""
    why: str


@dataclass(frozen=True, slots=True)
class Least:
    """The search takes the least fraction with which a layout fits: it is solved for, not tried."""

    step: Callable[[RuntimeTraits], float | None]
    """Fractions are multiples of it; None where the runtime knows none but off."""
    how: str


@dataclass(frozen=True, slots=True)
class Apart:
    """The search finds the best value for a layout that has all others."""

    how: str


@dataclass(frozen=True, slots=True)
class Memory:
    """What a larger value, all else equal, does to terms of the memory of the fullest rank."""

    effect: Literal["falls", "rises", "neither"]
    """Never more, never fewer, or sometimes either."""
    terms: tuple[str, ...]
    """Of `costmodel.memory.rank.MemoryTable`, those of which that is true."""
    why: str


@dataclass(frozen=True, slots=True)
class Axis:
    """One choice: its name, its values, and what they do.

    Its type is that of the field of `Layout`, its code that of the column of `LayoutTable`.
    """

    name: str
    """Field of `Layout`, and key of its JSON; `offload.optimizer` is a field of a field."""
    off: object
    """The value with which a runtime need not know of it."""
    search: Tried | Held | Least | Apart
    memory: Memory
    short: str = ""
    """What tables print for it; `--layout` takes this, too. Empty: its name."""
    rules: tuple[Rule, ...] = ()
    """What mathematics forbids, whatever the runtime."""

    @property
    def column(self) -> str:
        """Column of `LayoutTable`, by which rules name it."""
        return self.name.replace(".", "_")

    @property
    def option(self) -> str:
        """What `--layout`, `--fix` and `--exclude` call it; they take `short` as well."""
        return self.name

    @property
    def word(self) -> str:
        """What tables and lines call it."""
        return self.short or self.option

    @property
    def codec(self) -> Codec:
        """How a column holds it and how text gives it."""
        return FIELDS[self.column].codec

    def of(self, layout: Layout) -> object:
        """Its value in a layout."""
        return attrgetter(self.name)(layout)

    def number(self, value: object) -> float:
        """What a column holds for one of its values, where that is a number."""
        code = self.codec.code(value)
        assert isinstance(code, int | float)
        return code

    def tried(self, job: Job, traits: RuntimeTraits) -> tuple[object, ...]:
        """Values that a search has, one by one; none where it solves for them."""
        if isinstance(self.search, Tried):
            return self.search.values(job, traits)
        fixed = isinstance(self.search, Least) and self.search.step(traits) is None
        return (self.off,) if fixed or isinstance(self.search, Held) else ()

    def is_off(self, layout: Layout) -> bool:
        """Need no runtime know of it in this layout?"""
        return self.of(layout) == self.off

    def text(self, layout: Layout) -> str:
        """Its value in a layout, as `--layout` takes it."""
        return self.codec.text(self.of(layout))
