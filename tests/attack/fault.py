"""One fault of a profile: a process is struck, then it is judged how the run ends and goes on."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.attack.fault_node import HANG, TASKS
from trainplan.profiler.journal.attempts import MOST_ATTEMPTS

HERE = Path(__file__).parent
TIMEOUT, START_TIMEOUT, MORE = 8.0, 60.0, 5.0
"""Seconds: of both options, and what a node may need to end beyond them."""
POLL, GONE = 0.02, 2.0
"""Seconds: between looks, and until killed processes are gone."""
SIGNALS = {
    "rank": (signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGTERM, signal.SIGABRT),
    "plan": (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGHUP),
}
HOST = socket.gethostname()


@dataclass(frozen=True)
class Strike:
    """What happens to whom, and when."""

    nodes: int
    target: str
    """`rank`, `plan`; `hang`: a rank at its start; `absent`: a node that is never started."""
    number: int
    """Of the rank or node."""
    sent: signal.Signals | None
    done: int | None
    """Tasks that have ended before it; null: while the processes start."""
    after: float
    """Seconds later than that."""

    def __str__(self) -> str:
        when = "at the start" if self.done is None else f"after {self.done} tasks"
        name = self.sent.name if self.sent else ""
        who = f"{self.target} {self.number} of {self.nodes} node(s)"
        return f"{who} {name} {when} +{self.after:.2f} s"


def hear_all() -> None:
    """A command starts as from a terminal, also where nohup or a shell let us ignore signals."""
    for heard in SIGNALS["plan"][2:]:
        signal.signal(heard, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass
class Command:
    """`plan profile` on one node."""

    process: subprocess.Popen[bytes]
    output: Path
    ended: float | None = None

    @property
    def written(self) -> str:
        return " ".join(self.output.read_text("utf-8", "replace").split())


@dataclass
class Trial:
    """One fault in a folder of its own."""

    strike: Strike
    folder: Path
    again: bool = True
    """Go on from what was measured, too."""
    complaints: list[str] = field(default_factory=list)

    def expect(self, good: bool, complaint: str) -> None:  # noqa: FBT001
        """Note a complaint where it is not good."""
        if not good:
            self.complaints.append(complaint)

    @property
    def journal(self) -> Path:
        return self.folder / "profile.json.journal.jsonl"

    def start(self, run: str, **variables: str) -> list[Command]:
        """Start the command on all nodes that are there."""
        with socket.create_server(("", 0)) as free:
            port = free.getsockname()[1]
        several = self.strike.nodes > 1
        absent = self.strike.target == "absent" and run == "struck"
        commands = []
        for node in range(self.strike.nodes - absent):
            words = [sys.executable, str(HERE / "fault_node.py"), "plan", "profile", "--force"]
            words += ["--output", str(self.folder / "profile.json"), "--timeout", str(TIMEOUT)]
            words += ["--nproc-per-node", "1" if several else "2"]
            limit = TIMEOUT if absent else START_TIMEOUT
            words += ["--start-timeout", str(limit)]
            if several:
                words += ["--nnodes", "2", "--node-rank", str(node)]
                words += ["--rdzv-endpoint", f"127.0.0.1:{port}"]
            output = self.folder / f"{run}-{node}.txt"
            environment = {**os.environ, "TMPDIR": str(self.folder / "tmp"), **variables}
            paths = (str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", ""))
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
            with output.open("wb") as file:
                process = subprocess.Popen(
                    words,
                    stdout=file,
                    stderr=file,
                    stdin=subprocess.DEVNULL,
                    env=environment,
                    start_new_session=True,
                    preexec_fn=hear_all,  # noqa: PLW1509 (takes no lock)
                )
            commands.append(Command(process, output))
        return commands

    def ranks(self) -> dict[int, int]:
        """Process of each rank."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError, KeyError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if os.fsencode(self.journal) in words:
                    pairs = (folder / "environ").read_bytes().split(b"\0")
                    variables = dict(pair.split(b"=", 1) for pair in pairs if b"=" in pair)
                    found[int(variables[b"RANK"])] = int(folder.name)
        return found

    def tasks_done(self) -> list[str]:
        """Keys of the tasks that have ended well, as the journal has them."""
        if not self.journal.exists():
            return []
        lines = self.journal.read_text("utf-8").splitlines(keepends=True)
        records = [json.loads(line) for line in lines if line.endswith("\n")]
        return [record["key"] for record in records if record["record"] == "done"]

    def victim(self, commands: list[Command]) -> int | None:
        """Process to strike once it is there."""
        if self.strike.target == "plan":
            command = commands[self.strike.number]
            return command.process.pid if list((self.folder / "tmp").iterdir()) else None
        return self.ranks().get(self.strike.number)

    def wait_for_moment(self, commands: list[Command]) -> int | None:
        """Process to strike now; null where the run ended before."""
        until, victim = time.monotonic() + 2 * START_TIMEOUT, None
        while time.monotonic() < until:
            if any(command.process.poll() is not None for command in commands):
                return None
            if victim is None:
                victim = self.victim(commands)
            elif len(self.tasks_done()) >= (self.strike.done or 0):
                break
            time.sleep(POLL)
        time.sleep(self.strike.after)
        return victim

    def wait(self, commands: list[Command], seconds: float) -> None:
        """Until all have ended, or that time is up."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and any(one.ended is None for one in commands):
            for command in commands:
                if command.ended is None and command.process.poll() is not None:
                    command.ended = time.monotonic()
            time.sleep(POLL)

    def run(self) -> bool:
        """Strike, judge, go on and judge; false where the run was over before."""
        (self.folder / "tmp").mkdir()
        hangs = {HANG: str(self.strike.number)} if self.strike.target == "hang" else {}
        commands = self.start("struck", **hangs)
        try:
            return self._struck(commands)
        finally:
            for command in commands:
                with suppress(ProcessLookupError):
                    os.killpg(command.process.pid, signal.SIGKILL)
                command.process.wait()

    def _struck(self, commands: list[Command]) -> bool:
        if self.strike.sent:
            victim = self.wait_for_moment(commands)
            if victim is None:
                return False
            begin = time.monotonic()
            with suppress(ProcessLookupError):
                os.kill(victim, self.strike.sent)
        elif self.strike.target == "hang":
            while self.strike.number not in self.ranks():
                time.sleep(POLL)
            begin = time.monotonic()
        else:
            while not list(self.folder.glob("*.lock")):
                time.sleep(POLL)
            begin = time.monotonic()
        self.judge(commands, begin)
        if self.again:
            self.go_on()
        return True

    def judge(self, commands: list[Command], begin: float) -> None:
        """All nodes end in time and say why."""
        stopped = self.strike.target == "plan" and self.strike.sent == signal.SIGSTOP
        held = commands[self.strike.number] if stopped else None
        self.wait([one for one in commands if one is not held], TIMEOUT + MORE)
        if held:
            alone = len(commands) == 1
            time.sleep(TIMEOUT / 4 if alone else 0)  # nobody else ends a run that is held
            os.kill(held.process.pid, signal.SIGCONT)
            self.wait([held], START_TIMEOUT if alone else TIMEOUT + MORE)
        for node, command in enumerate(commands):
            who = f"node {node} ({command.process.returncode}: {command.written[-300:]})"
            if command.ended is None:
                self.expect(good=False, complaint=f"does not end: {who}")
                continue
            seconds = command.ended - begin
            if command is not held:
                self.expect(seconds <= TIMEOUT + MORE, f"ended after {seconds:.1f} s: {who}")
            why = self.wrong(node, command)
            self.expect(not why, f"{why}: {who}")
        until = time.monotonic() + GONE
        while self.ranks() and time.monotonic() < until:
            time.sleep(POLL)
        self.expect(not self.ranks(), f"ranks are left: {self.ranks()}")
        if self.strike.sent != signal.SIGKILL or self.strike.target != "plan":
            self.expect(not self.left(), f"files are left: {self.left()}")

    def left(self) -> list[str]:
        """Folders and locks of runs."""
        found = [path.name for path in (self.folder / "tmp").iterdir()]
        return found + [path.name for path in self.folder.glob("*.lock*")]

    def wrong(self, node: int, command: Command) -> str:
        """What is wrong with how a node ended; empty: nothing."""
        code, written, strike = command.process.returncode, command.written, self.strike
        if "Traceback" in written or "a bug" in written:
            return "a traceback"
        if strike.target == "plan" and node == strike.number:
            return self._wrong_struck(code, written)
        if strike.target == "plan" and strike.sent == signal.SIGSTOP and code == 0:
            return ""  # the ranks went on and were done before the silence was too long
        if code == 2 and all(words in written for words in self.words()):
            return ""
        return f"exit code {code}, not these words: {self.words()}"

    def _wrong_struck(self, code: int, written: str) -> str:
        sent = self.strike.sent
        if sent == signal.SIGKILL:
            return "" if code == -sent else f"exit code {code}"
        if sent == signal.SIGSTOP:
            return "" if code in (0, 2)[: self.strike.nodes] else f"exit code {code}"
        kept = ("tasks are kept in", "goes on from there")
        words = (f"stopped by {sent.name}", *(kept if self.strike.done else ()))
        good = code == 128 + sent and all(one in written for one in words)
        return "" if good else f"exit code {code}, not these words: {words}"

    def words(self) -> tuple[str, ...]:
        """What a node says."""
        strike = self.strike
        rank, node = f"rank {strike.number} on {HOST}", f"node {strike.number} ({HOST})"
        if strike.target == "hang":
            return (rank, "loads its libraries and did not go on", "--timeout")
        if strike.target == "absent":
            return ("node 1 of 2 did not come", "--start-timeout", "--node-rank 1")
        if strike.target == "rank" and strike.sent == signal.SIGSTOP:
            return (rank, "is stopped by a signal (SIGSTOP)", "--timeout", "is kept")
        if strike.target == "rank":
            return (rank, f"was killed by {strike.sent.name}", "is kept")
        ends = {signal.SIGKILL: "is gone: its `plan` was killed", signal.SIGSTOP: "is stopped"}
        return (node, ends.get(strike.sent, f"was ended by {strike.sent.name}"))

    def go_on(self) -> None:
        """A second run measures the rest, once, and leaves nothing."""
        before = self.tasks_done()
        commands = self.start("second")
        self.wait(commands, 2 * START_TIMEOUT)
        for node, command in enumerate(commands):
            code = command.process.poll()
            if code is None:
                command.process.send_signal(signal.SIGTERM)
                command.process.wait()
            self.expect(code == 0, f"second run, node {node}: {code}: {command.written[-300:]}")
        done = self.tasks_done()
        expected = {f"task {number}": 1 for number in range(TASKS)}
        first, again = Counter(done[:TASKS]), Counter(done[TASKS:])  # the rest are doubtful ones
        good = first == expected and max(again.values(), default=0) < MOST_ATTEMPTS
        self.expect(good, f"tasks: {len(before)} before, now {done}")
        self.expect(not self.left(), f"files are left of the second run: {self.left()}")


def attempt(strike: Strike, folder: Path, *, again: bool = True) -> list[str] | None:
    """Complaints; null where the run was over before the moment came."""
    trial = Trial(strike, folder, again)
    return trial.complaints if trial.run() else None
