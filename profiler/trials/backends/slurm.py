"""Batch jobs of Slurm: handed to `sbatch`, followed by `squeue` and `sacct`, ended by `scancel`.

The folder of a trial has to lie where all nodes see it. Source: man sbatch (--parsable, --output,
where %% is one %), man squeue (--states, JOB STATE CODES), man sacct (--parsable2, ExitCode) and
man scancel.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, CompletedProcess, TimeoutExpired
from subprocess import run as run_command
from time import monotonic, sleep
from types import MappingProxyType

from trainplan.costmodel.documents import Ending
from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.trials.backends.local import environment
from trainplan.profiler.trials.run import State, TrialRun, Verdict

POLL_SECONDS = 5.0
"""Source: man squeue, PERFORMANCE: a controller that many ask often gets slow."""
ANSWER_SECONDS = 60.0
GONE_SECONDS = 120.0
"""From scancel to the last process: KillWait of slurm.conf is 30 s, and an epilog follows."""
JOB = "slurm-job.txt"
"""File in the folder of a trial, while its job may be there."""
WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED"})
GOING = frozenset(
    {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
)
FAULTS: Mapping[str, tuple[Ending | None, str]] = MappingProxyType(
    {
        "OUT_OF_MEMORY": ("out_of_memory", "its memory on a host ran out"),
        "NODE_FAIL": ("lost_node", "a node failed"),
        "BOOT_FAIL": ("lost_node", "a node did not boot"),
        "PREEMPTED": ("lost_node", "another job took its nodes"),
        "CANCELLED": ("lost_node", "somebody cancelled it"),
        "REVOKED": ("lost_node", "another cluster took it"),
        "TIMEOUT": ("hang", "its time limit came"),
        "DEADLINE": ("hang", "its deadline came"),
    }
)
"""Endings that Slurm knows better than the log."""


def answer_of(*words: str, environment: Mapping[str, str] | None = None) -> CompletedProcess[str]:
    """Ask Slurm, apart from the terminal's Ctrl-C.

    Raises:
        ProfilerError: The program is not there, or does not answer.
    """
    try:
        return run_command(
            words,
            stdin=DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
            timeout=ANSWER_SECONDS,
            start_new_session=True,
            check=False,
        )
    except OSError as error:
        raise ProfilerError(
            f"{words[0]} does not start ({error.strerror}): start this where Slurm is, or launch "
            "trials another way"
        ) from error
    except TimeoutExpired as error:
        raise ProfilerError(f"{words[0]} did not answer in {ANSWER_SECONDS:g} s") from error


@dataclass(slots=True)
class BatchJob:
    """A job that was submitted."""

    job: str
    poll_s: float
    kept: Path
    """Holds the number of the job until it ended."""
    last: str = "PENDING"
    """State that Slurm told last."""

    def state(self) -> State:
        """How far it is; where Slurm does not answer, as far as before."""
        if self.last in WAITING | GOING:
            self.last = self._queue_state() or self.last
        if self.last in WAITING:
            return "waiting"
        return "running" if self.last in GOING else "ended"

    def _queue_state(self) -> str:
        """State in the queue, or that of the account once it left; empty: no answer."""
        try:
            queue = answer_of(
                "squeue", "--noheader", "--states=all", f"--jobs={self.job}", "--format=%T"
            )
        except ProfilerError:
            return ""
        if state := _first(queue.stdout):
            return state
        if queue.returncode and "Invalid job id" not in queue.stderr:
            return ""
        return self._account()[0] or GONE

    def _account(self) -> tuple[str, int | None]:
        """State and exit code that Slurm keeps of a job, where it keeps an account."""
        fields = "--format=State,ExitCode"
        try:
            kept = answer_of(
                "sacct", "--noheader", "--parsable2", "-X", f"--jobs={self.job}", fields
            )
        except ProfilerError:
            return "", None
        line = next(iter(kept.stdout.splitlines()), "")
        state, _, code = line.partition("|")
        returned, _, sent = code.partition(":")
        if not (returned.isdecimal() and sent.isdecimal()):
            return _first(state), None
        return _first(state), -int(sent) if int(sent) else int(returned)

    def verdict(self) -> Verdict:
        """What Slurm knows of the end."""
        state, code = self._account()
        state = state or self.last
        if state in FAULTS:
            ending, what = FAULTS[state]
            return Verdict(code, ending, f"Slurm reports {state} of job {self.job}: {what}")
        if code is None:
            code = CODES.get(state)
        return Verdict(code)

    def end(self, grace_s: float) -> tuple[str, ...]:
        """Cancel it and wait until no node runs it any more."""
        until = monotonic() + max(grace_s, GONE_SECONDS)
        while self.state() != "ended":
            with suppress(ProfilerError):
                answer_of("scancel", self.job)
            if monotonic() >= until:
                return (f"Slurm job {self.job}",)
            sleep(self.poll_s)
        self.kept.unlink(missing_ok=True)
        return ()


GONE = "GONE"
"""Of a job that neither queue nor account knows any more."""
CODES: Mapping[str, int] = MappingProxyType({"COMPLETED": 0, "FAILED": 1})


def _first(state: str) -> str:
    """`CANCELLED by 1000` without who did it."""
    return next(iter(state.split()), "").rstrip("+")


@dataclass(frozen=True, slots=True)
class Slurm:
    """Submits the exported batch script."""

    poll_s: float = POLL_SECONDS

    def commands(self, run: TrialRun) -> tuple[tuple[str, ...], ...]:
        """`sbatch`; its answer is the number of the job, which no node's failure starts again."""
        output = str(run.log).replace("%", "%%")
        return (("sbatch", "--parsable", "--no-requeue", f"--output={output}", str(run.path)),)

    def start(self, run: TrialRun) -> BatchJob:
        """Submit it.

        Raises:
            ProfilerError: Slurm refuses it, or a job of the same folder does not end.
        """
        kept = run.folder / JOB
        if kept.exists():  # of a run that was itself killed
            left = BatchJob(kept.read_text("utf-8").strip(), self.poll_s, kept, "RUNNING").end(0.0)
            if left:
                raise ProfilerError(f"{run.folder}: {left[0]} of an earlier run does not end")
        answer = answer_of(*self.commands(run)[0], environment=environment())
        job = answer.stdout.strip().partition(";")[0]
        if answer.returncode or not job.isdecimal():
            words = " ".join((answer.stderr or answer.stdout).split()) or "nothing"
            raise ProfilerError(f"sbatch refuses {run.path}: {words}")
        submitted = BatchJob(job, self.poll_s, kept)
        try:
            kept.write_text(f"{job}\n", "utf-8")
        except OSError as error:  # nobody would find the job again
            submitted.end(0.0)
            raise ProfilerError(f"{kept}: cannot be written: {error.strerror}") from error
        return submitted
