"""Processes of this machine: the exported script itself, or a command of the user's."""

import os
import re
import shlex
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from subprocess import DEVNULL, STDOUT, Popen, TimeoutExpired
from subprocess import run as run_command

from trainplan.costmodel.base import SpecError
from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.trials.processes import MARK, NOBODY, end_all
from trainplan.profiler.trials.run import State, TrialRun, Verdict
from trainplan.profiler.watch import die_with_parent

POLL_SECONDS = 0.2
STOP_SECONDS = 60.0
"""How long the user's own command may take to stop a run elsewhere."""
LEFT_SECONDS = 5.0
"""From the request to end to the end by force, of what an earlier run left."""
PLACEHOLDERS = ("folder", "script", "name")
PLACEHOLDER = re.compile(r"\{(\w*)\}")


@dataclass(slots=True)
class Processes:
    """A program that leads a session, and all that comes of it."""

    process: Popen[bytes]
    mark: str
    stop: tuple[str, ...] = ()
    """What ends processes elsewhere; empty: there are none."""
    stopped: bool = False
    over: bool = False

    def state(self) -> State:
        """Whether the first process is there; one that ended keeps its number until `end`."""
        return "running" if self._code() is None else "ended"

    def verdict(self) -> Verdict:
        """Its exit code."""
        return Verdict(self._code())

    def _code(self) -> int | None:
        if not hasattr(os, "waitid"):  # as on macOS, where processes are not listed either
            return self.process.poll()
        found = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if found is None:
            return None
        exited = found.si_code == os.CLD_EXITED
        return found.si_status if exited else -found.si_status

    def end(self, grace_s: float) -> tuple[str, ...]:
        """End all, also what outlived the first process."""
        if self.over:
            return ()
        if self.stop and not self.stopped:
            self.stopped = True
            with suppress(OSError, TimeoutExpired):
                run_command(self.stop, stdin=DEVNULL, timeout=STOP_SECONDS, check=False)
        left = end_all(self.process.pid, self.mark, grace_s)
        if self.process.pid not in left:
            self.process.wait()
            self.over = True
        return tuple(f"process {pid}" for pid in left)


@dataclass(frozen=True, slots=True)
class Local:
    """Runs the script on this machine, which brings the GPUs of all ranks."""

    poll_s: float = POLL_SECONDS

    def commands(self, run: TrialRun) -> tuple[tuple[str, ...], ...]:
        """`bash run.sh`."""
        return (("bash", str(run.path)),)

    def start(self, run: TrialRun) -> Processes:
        """Start it in a session of its own."""
        return _started(self.commands(run)[0], run)


@dataclass(frozen=True, slots=True)
class Template:
    """A command of the user's that runs the script somewhere and prints what it says.

    Its words are split once, as a shell splits them, and placeholders are filled into each word; no
    shell of ours ever reads them.
    """

    words: tuple[str, ...]
    stop: tuple[str, ...] = ()
    """Command that ends what the first one started elsewhere."""
    poll_s: float = POLL_SECONDS

    def commands(self, run: TrialRun) -> tuple[tuple[str, ...], ...]:
        """The command, then what ends it."""
        return tuple(filled(words, run) for words in (self.words, self.stop) if words)

    def start(self, run: TrialRun) -> Processes:
        """Start it in a session of its own."""
        return _started(filled(self.words, run), run, filled(self.stop, run))


def template(command: str, stop: str = "") -> Template:
    """A way to launch, from the text of `--command`.

    Raises:
        SpecError: A quote is open, or a placeholder is none.
    """
    words, ends = _split("--command", command), _split("--stop-command", stop)
    if not words:
        raise SpecError("--command is empty: give one that runs {script} in {folder}")
    if not any("{script}" in word or "{folder}" in word for word in words):
        raise SpecError("--command names neither {script} nor {folder}: it would run the same")
    return Template(words, ends)


def _split(option: str, text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise SpecError(f"{option} {text!r}: {error}: close the quote") from error
    for word in words:
        for name in PLACEHOLDER.findall(word):
            if name not in PLACEHOLDERS:
                known = ", ".join(f"{{{one}}}" for one in PLACEHOLDERS)
                raise SpecError(f"{option}: {{{name}}} is no name; known: {known}")
    return words


def filled(words: tuple[str, ...], run: TrialRun) -> tuple[str, ...]:
    """Words with the folder, its name, and the file name of the script.

    Raises:
        SpecError: A shell that reads the command elsewhere would split the folder's name.
    """
    folder = str(run.folder.absolute())
    values = {"folder": folder, "script": run.script, "name": run.folder.name}
    for value in values.values():
        if words and shlex.quote(value) != value:
            raise SpecError(
                f"{value!r} has characters that a shell reads: with --command choose an output "
                "folder without them"
            )
    return tuple(PLACEHOLDER.sub(lambda found: values[found[1]], word) for word in words)


def environment() -> Mapping[str, str]:
    """Ours, and output that is not held back where it goes to a file."""
    return {"PYTHONUNBUFFERED": "1", **os.environ}


def _started(words: tuple[str, ...], run: TrialRun, stop: tuple[str, ...] = ()) -> Processes:
    """Start it, after what a run of the same folder left that was itself killed.

    Raises:
        ProfilerError: It does not start, or what is left does not end.
    """
    mark = str(run.log)
    left = end_all(NOBODY, mark, LEFT_SECONDS)
    if left:
        raise ProfilerError(
            f"{run.folder}: process {left[0]} of an earlier run does not end: end it first"
        )
    try:
        with run.log.open("ab") as log:
            process = Popen(
                words,
                stdin=DEVNULL,
                stdout=log,
                stderr=STDOUT,
                env={**environment(), MARK: mark},
                start_new_session=True,
                preexec_fn=partial(  # noqa: PLW1509 (takes no lock)
                    die_with_parent, signal.SIGTERM
                ),
            )
    except OSError as error:
        raise ProfilerError(f"{words[0]} does not start: {error.strerror}") from error
    return Processes(process, mark, stop)
