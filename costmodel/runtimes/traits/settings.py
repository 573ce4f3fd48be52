"""What a run may set beside its layout that a search can choose."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import Rule
from trainplan.costmodel.runtimes.traits.needs import ANYWHERE, NEEDS, Needs


def nothing_lacks(job: Job) -> str | None:
    """Any job may have it."""
    return None


def no_rules(job: Job) -> tuple[Rule, ...]:
    """It asks nothing of a layout."""
    return ()


def always(job: Job) -> bool:
    """Of every job."""
    return True


def never(job: Job) -> bool:
    """Of no job."""
    return False


@dataclass(frozen=True, slots=True)
class Setting:
    """A value of an option that a search may choose instead of the runtime's default."""

    name: str
    """Field of `RuntimeOptions`."""
    value: str | int
    source: str
    """The flag that sets it, in the runtime's own parser of arguments."""
    lacks: Callable[[Job], str | None] = nothing_lacks
    """What keeps a job with this option from it, or why it means nothing there; null: nothing."""
    rules: Callable[[Job], tuple[Rule, ...]] = no_rules
    """What it asks of a layout of such a job, alone or beside other options. A rule that two jobs
    both name refuses the same layouts in both."""
    rank: int | None = 1
    """No layout takes longer or more memory with a value of higher or equal rank than with one of
    lower: proved of the cost model, term by term. The default has rank 0; null: none is proved."""
    beats_default: Callable[[Job], bool] = always
    """Is that so of the default, too?"""
    idle: Rule | None = None
    """Broken by layouts in which it means nothing; null: none, or its rank says enough."""
    level: Literal["safe", "all"] = "safe"
    """With which `--search-options` it is tried: safe if it changes no numerics, gains on some job
    and costs little search; all else only where all are asked for."""
    needs: Needs | None = None
    """On which machines it starts; null: as `NEEDS` has it for all runtimes."""

    def refused(self, job: Job) -> str | None:
        """What of the machine or the job keeps a search from it; null: nothing."""
        return self.starts_on.missing(job) or self.lacks(job)

    @property
    def starts_on(self) -> Needs:
        """The machines and releases that start it."""
        return self.needs or NEEDS.get(self.text, ANYWHERE)

    @property
    def text(self) -> str:
        """As `--option` takes it."""
        return _text(self)


NEVER_FASTER = "no layout is faster or smaller with it"


@dataclass(frozen=True, slots=True)
class Stated:
    """A value of an option that a run may state, and no search tries."""

    name: str
    """Field of `RuntimeOptions`."""
    value: str | bool
    why: str = NEVER_FASTER
    """Why it is not searched."""

    @property
    def text(self) -> str:
        """As `--option` takes it."""
        return _text(self)


def _text(one: Setting | Stated) -> str:
    value = str(one.value).lower() if isinstance(one.value, bool) else one.value
    return f"{one.name}={value}"


T = TypeVar("T")


def stated_or(stated: T | None, default: T) -> T:
    """The option of a run, or the default where it is silent."""
    return default if stated is None else stated
