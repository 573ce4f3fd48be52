"""How a trial ended, from what was timed, what the log says and what the system says."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from trainplan.costmodel.documents import Ending, Outcome
from trainplan.profiler.logs import LogReading
from trainplan.profiler.trials.failure_signatures import Symptoms
from trainplan.profiler.trials.run import Limits, TrialRun, Verdict
from trainplan.profiler.trials.steady import timed
from trainplan.profiler.watch import signal_name

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
        found = {"peak_reserved_bytes": reading.reserved_bytes, "log": str(run.log)}
        return Outcome.of_steps(times).model_copy(update=found)
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
    """The cause before its consequences; an empty reason is none."""
    verdict, symptoms = ended.verdict, ended.symptoms
    if ended.reading.no_number:
        return Fault("not_a_number", f"a loss is no number: {ended.reading.no_number}")
    if ended.stop == "enough" or verdict.code == 0:
        return None
    if verdict.ending:
        return Fault(verdict.ending, verdict.reason)
    ranked = (
        Fault("out_of_memory", symptoms.out_of_memory),
        Fault("lost_node", symptoms.lost_node),
        Fault("crash", symptoms.error),
        Fault("hang", symptoms.timed_out),
        *(_left(symptoms, verdict) if ended.stop == "ended" else ()),
    )
    return next((fault for fault in ranked if fault.reason), None)


def _left(symptoms: Symptoms, verdict: Verdict) -> Iterator[Fault]:
    """What is left to tell of a run that ended by itself: codes, then consequences."""
    code = verdict.code if symptoms.code is None else symptoms.code
    who = "" if symptoms.rank is None else f"rank {symptoms.rank} of its node "
    if code in KILLED:
        yield Fault("out_of_memory", f"{who}was killed, as the system does where memory ends")
    if code in STOPPED or symptoms.terminated:
        yield Fault("lost_node", f"{who}was ended from outside by SIGTERM")
    if code and code < 0:
        yield Fault("crash", f"{who}died of {signal_name(-code)}")
    if symptoms.code not in ONE_OF_MANY:
        yield Fault("crash", f"{who}ended with exit code {symptoms.code}")
    yield Fault("lost_node", symptoms.broken_connection)
    yield Fault("crash", symptoms.script_error)
    if code:
        yield Fault("crash", f"{who}ended with exit code {code}{_last(symptoms)}")


def _codes(*signals: signal.Signals) -> frozenset[int]:
    """Exit codes of a program that a signal ended, by itself and through a shell."""
    return frozenset(code for one in signals for code in (-int(one), 128 + int(one)))


KILLED = _codes(signal.SIGKILL)
STOPPED = _codes(signal.SIGTERM, signal.SIGHUP)
ONE_OF_MANY = (None, 0, 1)
"""Codes of a rank that tell nothing: Python's is 1 whatever it raised."""


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
