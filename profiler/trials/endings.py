"""How a trial ended, from what was timed, what the log says and what the system says."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from statistics import median
from typing import Literal

from trainplan.costmodel.spec.evidence.trial import Ending, Outcome
from trainplan.profiler.logs.reading import LogReading
from trainplan.profiler.trials.run import Limits, TrialRun, Verdict
from trainplan.profiler.trials.steady import timed
from trainplan.profiler.trials.symptoms import Symptoms

Stop = Literal["enough", "deadline", "silence", "queue", "no_number", "ended"]
"""Why the watch ended; `ended`: the run did so by itself."""
LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class Ended:
    """All that is known of a trial that ended."""

    stop: Stop
    reading: LogReading
    symptoms: Symptoms
    verdict: Verdict
    """Of the system, where the run ended by itself."""


def outcome(run: TrialRun, ended: Ended, limits: Limits) -> Outcome:
    """What a trial gave.

    Memory that ran out and a loss that is no number count against steps that were timed before.
    A run that breaks after the steps that were wanted has given them.
    """
    reading = ended.reading
    times = timed(reading.found.steps()) if reading.found else ()
    fault = _fault(ended) or _nothing_came(ended, limits, timed=bool(times))
    if fault and fault.ending in UNDONE_BY_STEPS and len(times) >= run.steps:
        fault = None
    if fault is None and times:
        return Outcome(
            ending="measured",
            step_time_s=median(times),
            lowest_s=min(times),
            highest_s=max(times),
            steps=len(times),
            peak_reserved_bytes=reading.reserved_bytes,
            log=str(run.log),
        )
    fault = fault or Fault("crash", _no_step(reading, ended.symptoms))
    return Outcome(
        ending=fault.ending,
        reason=_one_line(fault.reason),
        peak_reserved_bytes=reading.reserved_bytes,
        log=str(run.log),
    )


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong."""

    ending: Ending
    reason: str


UNDONE_BY_STEPS = frozenset({"crash", "lost_node", "hang"})
"""Endings that say nothing against the steps before them."""


def _fault(ended: Ended) -> Fault | None:
    """The cause before its consequences."""
    verdict, symptoms = ended.verdict, ended.symptoms
    if ended.reading.no_number:
        return Fault("not_a_number", f"a loss is no number: {ended.reading.no_number}")
    if ended.stop == "enough" or verdict.code == 0:
        return None
    if verdict.ending:
        return Fault(verdict.ending, verdict.reason)
    by_itself = ended.stop == "ended"
    killed = symptoms.killed or (f"signal {KILL}" if verdict.code in (-KILL, 128 + KILL) else "")
    outside = symptoms.terminated or ("SIGTERM" if verdict.code in TOLD else "")
    ranked: tuple[tuple[Ending, str, str], ...] = (
        ("out_of_memory", "", symptoms.out_of_memory),
        ("lost_node", "", symptoms.lost_node),
        ("crash", "", symptoms.error),
        ("out_of_memory", "killed, as the system does where memory ends: ", killed),
        ("hang", "", symptoms.timed_out),
        ("crash", "", symptoms.died),
        ("lost_node", "ended from outside: ", outside if by_itself else ""),
        ("lost_node", "", symptoms.broken_connection if by_itself else ""),
        ("crash", "", symptoms.script_error if by_itself else ""),
    )
    found = next(((ending, what + said) for ending, what, said in ranked if said), None)
    if found:
        return Fault(*found)
    if not verdict.code:
        return None
    return Fault("crash", f"ended with exit code {verdict.code}{_last(symptoms)}")


KILL = int(signal.SIGKILL)
TOLD = {sign for one in (signal.SIGTERM, signal.SIGHUP) for sign in (-int(one), 128 + int(one))}
"""Exit codes of a program that was told to end, by itself and through a shell."""


def _nothing_came(ended: Ended, limits: Limits, *, timed: bool) -> Fault | None:
    """Of a run that we ended because it did not go on."""
    if ended.stop == "queue":
        return Fault("lost_node", f"no nodes in {limits.queue_s:g} s: nothing was run")
    if ended.stop == "silence":
        return Fault("hang", f"nothing more was logged{_last(ended.symptoms)}")
    if ended.stop == "deadline" and not timed:
        return Fault("hang", f"no step was timed in {limits.deadline_s:g} s{_last(ended.symptoms)}")
    return None


def _last(symptoms: Symptoms) -> str:
    return f"; the last line is: {symptoms.last}" if symptoms.last else " and the log is empty"


def _no_step(reading: LogReading, symptoms: Symptoms) -> str:
    """Of a run that ended well and gave nothing."""
    if reading.other_batches:
        sizes = " and ".join(map(str, reading.other_batches))
        return f"ran with global batch size {sizes}, not {reading.stated.global_batch_size}"
    if reading.found:
        return f"ended after {len(reading.found.times)} steps, which are warm-up"
    return f"ended without a step{_last(symptoms)}"


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 3]}..."
