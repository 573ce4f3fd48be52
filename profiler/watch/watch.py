"""Which rank died, stopped or does not go on, and in which task: of the ranks of one host."""

import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

from trainplan.profiler.watch.heartbeat import BEAT_SECONDS, OVER, Beat, read_beats
from trainplan.profiler.watch.processes import MainThread, main_thread, memory_kills, signal_name

STALE_SECONDS = 10 * BEAT_SECONDS
"""A process whose beat is older is stopped, or holds Python's lock."""
SETTLE_SECONDS = 1.0
"""Ranks that end with an error wait so long for the one that made them: it may be looked at later,
or be another node's. Source: four looks of every watcher, and of a beat between nodes one."""
LEAVE_SECONDS = 5.0
"""Ranks that have said that they are done have so long to go."""
KEPT = (
    "what was measured is kept: the same command, without --restart, goes on from there, and "
    "passes over a task that stops it twice"
)
INTERFACE = (
    "where the name of a host does not lead to the network between the nodes, set "
    "GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME on all of them"
)
ERROR_LINE = re.compile(r"^(?:\[rank\d+\]: *)?((?:\w+\.)*\w+(?:Error|Exception): .+)", re.MULTILINE)
FROM_OUTSIDE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that no task brings about."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a rank that does not go on is given up."""

    timeout_seconds: float
    """At one step; also without any work while it starts."""
    start_seconds: float
    """From the start of the processes until all of them have met."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a run ends before it is done."""

    text: str
    of_task: bool = False
    """The task that was measured may have brought it about."""


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
    """When something of a rank changed last, on the clock of the one who looks."""

    value: object
    since: float


@dataclass(slots=True)
class Watch:
    """Looks at the ranks of this host again and again."""

    folder: Path
    """Of their beats, and of what they print."""
    host: str
    pids: Mapping[int, int]
    """Process of every rank."""
    limits: Limits
    num_nodes: int = 1
    now: Callable[[], float] = monotonic
    thread_of: Callable[[int], MainThread | None] = main_thread
    killed_for_memory: Callable[[], int | None] = memory_kills
    beats: tuple[Beat, ...] = ()
    codes: Mapping[int, int] = field(default_factory=dict)
    """Exit codes of the ranks that have ended; minus the signal, where one ended them."""
    stopped: frozenset[int] = frozenset()
    """Ranks that the system holds."""
    _seen: dict[tuple[str, int], Seen] = field(default_factory=dict)
    _kills_before: int | None = field(init=False)

    def __post_init__(self) -> None:
        self._kills_before = self.killed_for_memory()
        self.look({})

    def look(self, codes: Mapping[int, int]) -> None:
        """Read the beats as they are now, and how processes that ended did."""
        self.codes = codes
        beats = {beat.rank: beat for beat in read_beats(self.folder)}
        self.beats = tuple(
            beats.get(rank) or Beat(rank=rank, host=self.host, pid=pid)
            for rank, pid in sorted(self.pids.items())
        )
        threads = {rank: self.thread_of(pid) for rank, pid in self.pids.items()}
        self.stopped = frozenset(rank for rank, one in threads.items() if one and one.stopped)
        for beat in self.beats:
            thread = threads[beat.rank]
            work = thread.work if thread else (beat.number,)
            self._note("end", beat.rank, beat.rank in codes)
            self._note("step", beat.rank, (beat.phase, beat.step))
            self._note("work", beat.rank, work)
            self._note("life", beat.rank, (beat.number, work))

    def _note(self, what: str, rank: int, value: object) -> None:
        seen = self._seen.get((what, rank))
        if seen is None or seen.value != value:
            self._seen[what, rank] = Seen(value, self.now())

    def idle(self, what: str, beat: Beat) -> float:
        """Seconds since its `step`, `work` or `life` changed last, or since its `end`."""
        return self.now() - self._seen[what, beat.rank].since

    @property
    def progress(self) -> Progress | None:
        """Of the first rank of this host; null before the tasks are known."""
        beat = self.beats[0]
        if not beat.total:
            return None
        return Progress(beat.done, beat.total, beat.item, beat.key, beat.elapsed_seconds)

    @property
    def refusal(self) -> str:
        """Why a rank cannot run at all; empty where none says so."""
        return next((beat.detail for beat in self.beats if beat.phase == "refused"), "")

    def over(self) -> bool:
        """All ranks have done their part, and have gone or had the time to."""
        return all(beat.phase in OVER for beat in self.beats) and all(
            beat.rank in self.codes or self.idle("step", beat) > LEAVE_SECONDS
            for beat in self.beats
        )

    def overdue(self) -> bool:
        """Some rank has been at the same step for too long."""
        alive = (beat for beat in self.beats if beat.rank not in self.codes)
        return any(self._overdue(beat) for beat in alive if beat.phase not in OVER)

    def _overdue(self, beat: Beat) -> bool:
        starts = beat.phase in ("starting", "meeting")
        allowed = self.limits.start_seconds if starts else self.limits.timeout_seconds
        if beat.phase in ("meeting", "waiting"):  # for one whose watcher speaks first
            allowed += SETTLE_SECONDS
        return (
            self.idle("step", beat) > allowed
            or self.idle("life", beat) > self.limits.timeout_seconds
            or self._waits_at_start(beat)
        )

    def _waits_at_start(self, beat: Beat) -> bool:
        """Whoever loads libraries, however slowly, works now and then."""
        return beat.phase == "starting" and self.idle("work", beat) > self.limits.timeout_seconds

    def killed(self, code: int) -> str:
        """What is known of a signal that ended a process."""
        if code != -signal.SIGKILL:
            return ""
        now = self.killed_for_memory()
        if now is None or self._kills_before is None:
            return " (by the system where memory ran out, else by somebody)"
        if now > self._kills_before:
            return " (the system ran out of memory)"
        return " (by somebody: memory did not run out)"

    def output(self, rank: int) -> str:
        """What a rank printed."""
        try:
            return (self.folder / f"output-{rank}.txt").read_text("utf-8", errors="replace")
        except OSError:
            return ""


def hung(watch: Watch) -> Fault:
    """For a run that does not go on."""
    late = f"did not go on for {watch.limits.timeout_seconds:g} s (--timeout)"
    stopped = [beat for beat in watch.beats if beat.rank in watch.stopped]
    if stopped:
        return Fault(f"{_where(stopped[0])} is stopped by a signal (SIGSTOP) and {late}: {KEPT}")
    alive = [beat for beat in watch.beats if beat.rank not in watch.codes]
    starting = [beat for beat in alive if beat.phase == "starting"]
    if starting:
        starting.sort(key=lambda beat: -watch.idle("work", beat))
        if watch.idle("work", starting[0]) < STALE_SECONDS:
            late = f"was not done in {watch.limits.start_seconds:g} s (--start-timeout)"
        return Fault(f"{_where(starting[0])} loads its libraries and {late}: {KEPT}")
    stale = [beat for beat in alive if watch.idle("life", beat) > STALE_SECONDS]
    if stale:
        return Fault(f"{_where(stale[0])} is stuck and {late}: {KEPT}", of_task=True)
    guilty = _by_phase(alive, "failed") or _by_phase(alive, "measuring")
    if not guilty:
        return _unmet(watch, late)
    detail = f" ({guilty[0].detail})" if guilty[0].phase == "failed" else ""
    what = f"failed{detail}" if guilty[0].phase == "failed" else "hangs"
    return Fault(f"{_where(guilty[0])} {what} and {late}: {KEPT}", of_task=True)


def _unmet(watch: Watch, late: str) -> Fault:
    """All that are alive wait."""
    ranks = _listed(watch.beats)
    if _by_phase(watch.beats, "meeting"):
        return Fault(
            f"at the start: {ranks} on {watch.host} did not meet the others in "
            f"{watch.limits.start_seconds:g} s (--start-timeout): does the network let them reach "
            f"node 0? {KEPT}"
        )
    whom = "another node" if watch.num_nodes > 1 else "each other"
    return Fault(f"{ranks} on {watch.host} wait for {whom}, which {late}: {KEPT}", of_task=True)


def died(watch: Watch) -> Fault | None:
    """For processes that ended before they were done; null where it is not yet known whose fault.

    An error, exit code 1, may be that of a rank which another one left alone, and NCCL aborts one.
    """
    gone = [beat for beat in watch.beats if beat.rank in watch.codes and beat.phase not in OVER]
    gone.sort(key=lambda beat: -watch.idle("end", beat))
    clear = [beat for beat in gone if watch.codes[beat.rank] not in (1, -signal.SIGABRT)]
    if clear:
        return _ended(watch, clear[0])
    if not gone or watch.idle("end", gone[0]) < SETTLE_SECONDS:
        return None
    failing = [beat for beat in gone if not beat.ended]
    if failing:
        return _ended(watch, failing[0])
    whom = "another node, see its output" if watch.num_nodes > 1 else "each other"
    why = f" ({error})" if (error := _error(watch, gone[0])) else ""
    hint = f"{INTERFACE}; " if watch.num_nodes > 1 and gone[0].phase == "meeting" else ""
    return Fault(f"{_listed(gone)} on {watch.host} lost {whom}{why}: {hint}{KEPT}")


def _ended(watch: Watch, beat: Beat) -> Fault:
    code = watch.codes[beat.rank]
    if code < 0:
        manner = f"was killed by {signal_name(-code)}{watch.killed(code)}"
    else:
        manner = "died" if code == 1 else f"died with exit code {code}"
    why = f": {error}" if (error := _error(watch, beat)) and code > 0 else ""
    of_task = bool(beat.item) and -code not in FROM_OUTSIDE
    return Fault(f"{_where(beat)} {manner}{why}; {KEPT}", of_task=of_task)


def _error(watch: Watch, beat: Beat) -> str:
    """Of what a rank printed the first error, else the last line."""
    output = watch.output(beat.rank)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next(iter(ERROR_LINE.findall(output) or lines[-1:]), "")


def _by_phase(beats: Sequence[Beat], *phases: str) -> list[Beat]:
    return [beat for beat in beats if beat.phase in phases]


def _listed(beats: Sequence[Beat]) -> str:
    """Their ranks: `rank 1`, `ranks 0 to 7`."""
    first, last = beats[0].rank, beats[-1].rank
    return f"rank {first}" if first == last else f"ranks {min(first, last)} to {max(first, last)}"


def _where(beat: Beat) -> str:
    who = f"rank {beat.rank} on {beat.host}"
    return f"item {beat.item}, task {beat.key}: {who}" if beat.item else f"at the start: {who}"
