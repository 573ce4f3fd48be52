"""What is launched for a trial, how long it may take, and what a way to launch it is."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from trainplan.costmodel.documents import Ending
from trainplan.profiler.logs import StatedRun

LOG = "log.txt"
"""File in the folder of a trial that has what its processes said."""


@dataclass(frozen=True, slots=True)
class TrialRun:
    """Exported files, and what is known of the run that they start."""

    folder: Path
    """Holds the script and what it reads."""
    script: str
    """Name of the file that starts it."""
    stated: StatedRun
    steps: int
    """Steps wanted after the warm-up."""

    @property
    def path(self) -> Path:
        """Absolute path of the script."""
        return self.folder.absolute() / self.script

    @property
    def log(self) -> Path:
        """Absolute path of the log."""
        return self.folder.absolute() / LOG


@dataclass(frozen=True, slots=True)
class Limits:
    """When a trial is given up."""

    deadline_s: float
    """From the moment it runs; waiting in a queue does not count."""
    silence_s: float = 600.0
    """Nothing is logged. Source: torch/distributed/constants.py, default_pg_nccl_timeout: after
    600 s a process group gives itself up."""
    queue_s: float | None = None
    """Waiting for nodes; null: without end."""
    grace_s: float = 5.0
    """From the request to end to the end by force."""
    poll_s: float | None = None
    """Between two looks; null: as the way to launch has it."""


State = Literal["waiting", "running", "ended"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the system says of a run that ended by itself."""

    code: int | None = None
    """Exit code, negative for a signal; null: unknown."""
    ending: Ending | None = None
    """Where the system itself knows it."""
    reason: str = ""


class Started(Protocol):
    """A trial that runs."""

    def state(self) -> State:
        """How far it is."""
        ...

    def verdict(self) -> Verdict:
        """What the system says, after the end."""
        ...

    def end(self, grace_s: float) -> tuple[str, ...]:
        """End everything that it started, at any time and more than once; what does not end."""
        ...


class Backend(Protocol):
    """One way to launch exported files."""

    @property
    def poll_s(self) -> float:
        """Seconds between two looks."""
        ...

    def commands(self, run: TrialRun) -> tuple[tuple[str, ...], ...]:
        """The words of what is run, without running anything."""
        ...

    def start(self, run: TrialRun) -> Started:
        """Start it; its output goes to `run.log`.

        Raises:
            ProfilerError: The system does not start it.
        """
        ...
