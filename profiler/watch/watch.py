"""Which rank stopped, and in which task: read from the heartbeats of a host."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from trainplan.profiler.watch.heartbeat import BEAT_SECONDS, START_SECONDS, Beat, read_beats

STALE_SECONDS = 10 * BEAT_SECONDS
"""A process whose beat is older is stopped, or holds Python's lock."""
KEPT = (
    "what was measured is kept: the same command goes on from there, and passes over a task "
    "that stops it twice"
)
ERROR_LINE = re.compile(r"^(?:\[rank\d+\]: *)?((?:\w+\.)*\w+(?:Error|Exception): .+)", re.MULTILINE)
ROOT_CAUSE = re.compile(
    r"Root Cause.*?rank\s*:\s*(?P<rank>\d+).*?exitcode\s*:\s*(?P<code>-?\d+)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is."""

    done: int
    """Tasks, with those of earlier runs."""
    total: int
    item: str
    key: str
    elapsed_seconds: float
    """Since the processes started."""


@dataclass(slots=True)
class Seen:
    """When something of a rank's beat changed last, on the clock of the one who looks."""

    value: int
    since: float


@dataclass(slots=True)
class Watch:
    """Looks at the ranks of this host again and again."""

    folder: Path
    timeout_seconds: float
    now: Callable[[], float] = monotonic
    beats: tuple[Beat, ...] = ()
    _begin: float = field(init=False)
    _numbers: dict[int, Seen] = field(default_factory=dict)
    _steps: dict[int, Seen] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begin = self.now()

    def look(self) -> None:
        """Read the beats as they are now."""
        self.beats = read_beats(self.folder)
        for beat in self.beats:
            self._note(self._numbers, beat.rank, beat.number)
            self._note(self._steps, beat.rank, beat.step)

    def _note(self, seen: dict[int, Seen], rank: int, value: int) -> None:
        if rank not in seen or seen[rank].value != value:
            seen[rank] = Seen(value, self.now())

    @property
    def progress(self) -> Progress | None:
        """Of the first rank of this host; null before the tasks are known."""
        if not self.beats or not self.beats[0].total:
            return None
        beat = self.beats[0]
        return Progress(beat.done, beat.total, beat.item, beat.key, beat.elapsed_seconds)

    def stale(self) -> tuple[int, ...]:
        """Ranks whose beat stands still."""
        oldest = self.now() - STALE_SECONDS
        return tuple(rank for rank, seen in self._numbers.items() if seen.since < oldest)

    def overdue(self) -> bool:
        """Some rank has been at the same step for too long."""
        if not self.beats:
            return self.now() - self._begin > START_SECONDS
        return any(self._overdue(beat) for beat in self.beats)

    def _overdue(self, beat: Beat) -> bool:
        allowed = self.timeout_seconds
        if beat.phase == "starting":
            allowed = max(START_SECONDS, allowed)
        return self.now() - self._steps[beat.rank].since > allowed


def hung(watch: Watch) -> str:
    """The sentence for a run that does not go on."""
    late = f"did not end in {watch.timeout_seconds:g} s (--timeout)"
    if not watch.beats:
        return f"no process told that it started in {START_SECONDS:g} s: {KEPT}"
    stale = [beat for beat in watch.beats if beat.rank in watch.stale()]
    if stale:
        return f"{_where(stale[0])} stands still and {late}: {KEPT}"
    guilty = _by_phase(watch.beats, "failed") or _by_phase(watch.beats, "measuring", "starting")
    if not guilty:
        return f"all ranks of {watch.beats[0].host} wait for another node, which {late}: {KEPT}"
    said = f" ({guilty[0].detail})" if guilty[0].phase == "failed" else ""
    return f"{_where(guilty[0])} {'failed' + said if said else 'hangs'} and {late}: {KEPT}"


def died(beats: Sequence[Beat], output: str) -> str:
    """The sentence for processes that ended before they were done."""
    cause = ROOT_CAUSE.search(output)
    alive = [beat for beat in beats if not beat.ended and beat.phase != "finished"]
    named = [beat for beat in alive if cause and beat.rank == int(cause["rank"])]
    errors = ERROR_LINE.findall(output)
    why = f": {errors[0]}" if errors else ""
    if not beats:
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        return f"the processes did not start{why or ': ' + ' '.join(lines[-1:])}"
    guilty = named or _by_phase(alive, "failed", "measuring") or alive
    if not guilty:
        return f"another node than {beats[0].host} ended the run, see what it says: {KEPT}"
    code = int(cause["code"]) if cause and named else None
    return f"{_where(guilty[0])} died{_manner(code, why)}; {KEPT}"


def _manner(code: int | None, why: str) -> str:
    if code is None or code == 1:
        return why
    return f" by signal {-code}" if code < 0 else f" with exit code {code}"


def _by_phase(beats: Sequence[Beat], *phases: str) -> list[Beat]:
    return [beat for beat in beats if beat.phase in phases]


def _where(beat: Beat) -> str:
    who = f"rank {beat.rank} on {beat.host}"
    return f"item {beat.item}, task {beat.key}: {who}" if beat.item else f"at the start: {who}"
