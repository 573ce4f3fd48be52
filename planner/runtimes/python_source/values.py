"""What a text says: plain values of Python, and these for all else."""

from dataclasses import dataclass, field

from trainplan.planner.runtimes.python_source.modules import Found


@dataclass(frozen=True, slots=True)
class Unread:
    """A value that only a run would tell."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Symbol(Unread):
    """A name of a module that is not followed: `torch.float32`."""


@dataclass(frozen=True, slots=True)
class Raised(Unread):
    """An exception that is raised whatever a run would tell."""


@dataclass(slots=True)
class Made:
    """A call that is not followed: its name, whole, and its arguments; attributes may be set."""

    name: str
    line: int
    named: dict[str, object] = field(default_factory=dict)
    first: tuple[object, ...] = ()
    lines: dict[str, int] = field(default_factory=dict)
    """Where each named argument stands."""
    kind: Found | None = field(default=None, repr=False, compare=False)
    """The class, where it is followed: its defaults."""

    def put(self, name: str, value: object, line: int) -> None:
        """Set an attribute."""
        self.named[name], self.lines[name] = value, line
