"""A trial from its start to its last process."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

from trainplan.costmodel.documents import Outcome
from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.logs import GrowingFile, LogReading
from trainplan.profiler.trials.exit_reasons import Ended, Stop, outcome
from trainplan.profiler.trials.failure_signatures import Symptoms
from trainplan.profiler.trials.run import Backend, Limits, Started, TrialRun, Verdict
from trainplan.profiler.trials.steady import enough, timed
from trainplan.profiler.watch import StopSignals

AFTER_ERROR_SECONDS = 30.0
"""Silence after which a run with a failed rank is ended. Source: torch/distributed/elastic/agent/
server/api.py, exit_barrier_timeout is 300 s: ranks that wait for a dead one may go on so long."""
STILL_SECONDS = 5.0
"""A log that stood still so long, and for some steps, when the deadline came: the run hangs.

Source: assumed; output to a file is not held back."""
SLOW_STEPS = 5
"""Silence of so many slowest steps is no hang, nor of fewer. Source: assumed."""


@dataclass(slots=True)
class Watch:
    """What is known of a running trial."""

    run: TrialRun
    limits: Limits
    now: Callable[[], float]
    reading: LogReading = field(init=False)
    symptoms: Symptoms = field(default_factory=Symptoms)
    log: GrowingFile = field(init=False)
    submitted: float = 0.0
    began: float = 0.0
    """The run; as far as is known, where it waits."""
    heard: float = 0.0
    """When the log grew last."""

    def __post_init__(self) -> None:
        self.reading = LogReading(self.run.stated)
        self.log = GrowingFile(self.run.log)
        self.submitted = self.began = self.heard = self.now()

    def take(self, lines: list[str]) -> None:
        """Read new lines."""
        if lines:
            self.heard = self.now()
        self.reading.feed(lines)
        self.symptoms.feed(lines)

    @property
    def times(self) -> tuple[float, ...]:
        """Seconds of the steps after the warm-up."""
        return timed(self.reading.found.steps()) if self.reading.found else ()

    def wait(self) -> Stop | None:
        """Why not to wait longer for nodes; the clocks of the run start with its end."""
        now = self.now()
        self.began = self.heard = now
        queue = self.limits.queue_s
        return "queue" if queue is not None and now - self.submitted > queue else None

    def stop(self) -> Stop | None:
        """Why not to go on with a run that goes on."""
        now = self.now()
        if self.reading.no_number:
            return "no_number"
        if enough(self.times, self.run.steps):
            return "enough"
        if now - self.began > self.limits.deadline_s:
            still = max(STILL_SECONDS, SLOW_STEPS * max(self.times, default=0.0))
            return "silence" if now - self.heard > still else "deadline"
        if now - self.heard > self._silence():
            return "silence"
        return None

    def _silence(self) -> float:
        """How long a log may stand still.

        An error before the first step may have been caught, and the first step is slow.
        """
        steps = self.reading.found.steps().values() if self.reading.found else ()
        if not (self.symptoms.fails or (steps and self.symptoms.error)):
            return self.limits.silence_s
        slowest = max(steps, default=0.0)
        return min(self.limits.silence_s, max(AFTER_ERROR_SECONDS, SLOW_STEPS * slowest))


def run_trial(run: TrialRun, backend: Backend, limits: Limits) -> Outcome:
    """Launch a trial, watch it, and end all its processes, whatever happens.

    Args:
        run: Exported files.
        backend: How they are launched.
        limits: When it is given up.

    Raises:
        ProfilerError: It cannot be started, or processes of it do not end.
        KeyboardInterrupt: We are told to end; nothing of the trial is left.
    """
    begin = monotonic()
    run.log.write_bytes(b"")
    watch = Watch(run, limits, monotonic)
    with StopSignals() as signals:
        started = backend.start(run)
        try:
            stop = _watched(started, watch, partial(signals.sleep, limits.poll_s or backend.poll_s))
            verdict = started.verdict() if stop == "ended" else Verdict()
        finally:
            left = started.end(limits.grace_s)
    if left:
        raise ProfilerError(
            f"{run.folder}: {', '.join(left)} did not end: end it before the next trial"
        )
    found = outcome(run, Ended(stop, watch.reading, watch.symptoms, verdict), limits)
    return found.model_copy(update={"seconds": monotonic() - begin})


def _watched(started: Started, watch: Watch, pause: Callable[[], None]) -> Stop:
    """Look until there is a reason to stop."""
    while True:
        state = started.state()
        watch.take(watch.log.rest() if state == "ended" else watch.log.more())
        if state == "ended":
            return "ended"
        if stop := watch.wait() if state == "waiting" else watch.stop():
            return stop
        pause()
