"""Starts exported scripts on processes of this machine's CPU, and reads the losses they say."""

import os
import re
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from subprocess import STDOUT, Popen, TimeoutExpired
from typing import Protocol

from trainplan.profiler.train.client import TRIES, environment
from trainplan.profiler.train.request import TrainingFailedError
from trainplan.profiler.watch import die_with_parent, end, run_folder

TORCHRUN = f"""#!/bin/sh
exec '{sys.executable}' -m torch.distributed.run "$@"
"""
"""Of the Python that runs this command, which need not be the first on PATH."""
NUMBER = r"(\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|nan|inf)"
STEP = re.compile(rf"^.*?step (\d+): loss {NUMBER}, gradient norm {NUMBER}", re.MULTILINE)
"""As the modules say it that are started."""
ERROR = re.compile(
    r"^(\[rank\d+\]: ?)?((?:\w+\.)*\w*(?:Error|Exception)\b.*|Set \w+: .*)$", re.MULTILINE
)


BY_SIGNAL = re.compile(r"failed \(exitcode: -\d+\) local_rank")
"""Something outside ended a rank, or a thread of its libraries: it is tried once more.

Source: torch/distributed/elastic/multiprocessing/api.py, `SubprocessContext._poll`."""


class Script(Protocol):
    """Files that are started."""

    @property
    def script(self) -> str:
        """Name of the file that bash starts."""

    @property
    def files(self) -> Mapping[str, str]:
        """Texts by name."""

    @property
    def environment(self) -> Mapping[str, str]:
        """`.` stands for the folder of the files."""


def lacking(needs: Iterable[str]) -> str | None:
    """Which module is not installed, or which `$VARIABLE` not set; null: all are there.

    Nothing is imported.
    """
    for one in needs:
        if one.startswith("$"):
            if not os.environ.get(one[1:]):
                return f"{one[1:]} is not set"
        elif not _installed(one):
            return f"{one} is not installed"
    return None


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of its parent
        return False


def _last_words(log: str) -> str:
    """Of the first rank that ends by an error, or the last error before torchrun tells of it.

    Libraries print errors that they go on from.
    """
    errors = [(rank, text) for rank, text in ERROR.findall(log) if "ChildFailedError" not in text]
    of_ranks = [text for rank, text in errors if rank]
    others = [text for rank, text in errors if not rank]
    lines = log.strip().splitlines() or ["it printed nothing"]
    return next(iter([*of_ranks, *reversed(others)]), lines[-1])


@dataclass(frozen=True, slots=True)
class ScriptRuns:
    """Starts each in a folder of its own, which is gone after it."""

    deadline_seconds: float = 300.0

    def __call__(self, one: Script) -> tuple[Sequence[tuple[float, float]], float]:
        """Loss and gradient norm of each step, and seconds from start to end.

        Raises:
            TrainingFailedError: It fails, hangs or says no losses.
        """
        for _ in range(TRIES):
            started = time.monotonic()
            with run_folder() as folder:
                for name, text in {**one.files, "torchrun": TORCHRUN}.items():
                    (folder / name).write_text(text, "utf-8")
                (folder / "torchrun").chmod(0o755)
                code, log = self._ran(one, folder)
            if not BY_SIGNAL.search(log):
                break
        steps = [(float(loss), float(norm)) for _, loss, norm in STEP.findall(log)]
        if code or not steps:
            raise TrainingFailedError(
                "crash", f"{one.script} ended with code {code}: {_last_words(log)[:300]}"
            )
        return steps, time.monotonic() - started

    def _ran(self, one: Script, folder: Path) -> tuple[int, str]:
        """Exit code and output."""
        own = {name: str(folder) if text == "." else text for name, text in one.environment.items()}
        path = os.pathsep.join((str(folder), os.environ.get("PATH", os.defpath)))
        hidden = {"PATH": path, "CUDA_VISIBLE_DEVICES": "", "OUTPUT_PATH": str(folder / "output")}
        log = folder / "log"
        with log.open("wb") as output:
            process = Popen(
                ["bash", str(folder / one.script)],
                stdout=output,
                stderr=STDOUT,
                cwd=folder,
                env={**environment(), **hidden, **own},
                start_new_session=True,
                preexec_fn=partial(die_with_parent, signal.SIGKILL),  # noqa: PLW1509 (no lock)
            )
            try:
                code = process.wait(self.deadline_seconds)
            except TimeoutExpired:
                raise TrainingFailedError(
                    "hang", f"{one.script} did not end in {self.deadline_seconds:.0f} s"
                ) from None
            finally:
                end(process, ())
        return code, log.read_text("utf-8", "replace")
