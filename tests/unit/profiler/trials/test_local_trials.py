"""Trials that are real processes: programs that print logs, fail, hang, and leave children behind.

Nothing here waits for a time; a program that is to be ended would else go on for minutes.
"""

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.unit.profiler.trials.programs import (
    FOREVER,
    MEMORY,
    SOON,
    STEP,
    ran,
    says,
    steps,
    trial,
)
from trainplan.costmodel.base.errors import SpecError
from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.trials import processes
from trainplan.profiler.trials.backends import BACKENDS, template
from trainplan.profiler.trials.follow import run_trial
from trainplan.profiler.trials.processes import MARK
from trainplan.profiler.trials.run import Limits


def gone(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state in "ZX"


def test_a_run_with_enough_steady_steps_is_ended_and_measured(tmp_path):
    found = ran(tmp_path, steps(9000, 1500, 1000, 1002, 1004), says(MEMORY), FOREVER)
    assert (found.ending, found.reason, found.steps) == ("measured", "", 3)
    assert (found.step_time_s, found.lowest_s, found.highest_s) == (1.002, 1.0, 1.004)
    assert found.log == str(tmp_path / "log.txt")


def test_memory_that_is_said_before_the_end_is_kept(tmp_path):
    found = ran(tmp_path, says(MEMORY), steps(9000, 1500, 1000, 1000, 1000))
    assert found.peak_reserved_bytes == 2**30


def test_an_unsteady_run_is_measured_after_twice_the_steps(tmp_path):
    times = (9000, 1500, 1000, 2000, 3000, 4000, 5000, 6000)
    found = ran(tmp_path, steps(*times), FOREVER)
    assert (found.ending, found.steps, found.step_time_s) == ("measured", 6, 3.5)


def test_a_run_that_ends_well_before_is_measured_by_what_there_is(tmp_path):
    found = ran(tmp_path, steps(9000, 1500, 1000, 2000))
    assert (found.ending, found.steps, found.step_time_s) == ("measured", 2, 1.5)


def test_a_run_that_ends_in_its_warm_up_measured_nothing(tmp_path):
    found = ran(tmp_path, steps(9000, 1500))
    assert (found.ending, found.step_time_s) == ("crash", None)
    assert found.reason == "ended after 2 steps, which are warm-up"


def test_a_log_of_another_batch_measures_nothing(tmp_path):
    line = STEP.replace("batch size:   128", "batch size:    64")
    found = ran(tmp_path, says("\n".join(line.format(n, 1000) for n in range(1, 6))))
    assert found.reason == "ran with global batch size 64, not 128"


def test_a_run_that_says_nothing_is_ended(tmp_path):
    quiet = Limits(deadline_s=120, silence_s=0.05, grace_s=2, poll_s=0.02)
    found = ran(tmp_path, FOREVER, limits=quiet)
    assert (found.ending, found.steps) == ("hang", 0)
    assert found.reason.startswith("nothing more was logged")


STUBBORN = """\
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if sys.argv[1] == "away":
    os.setsid()
    if os.fork():
        os._exit(0)
with open(sys.argv[2], "w") as file:
    print(os.getpid(), file=file)
os.rename(sys.argv[2], sys.argv[3])
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists processes")
@pytest.mark.parametrize("where", ["near", "away"])
@pytest.mark.parametrize("end", ["exit 0", "exit 3", FOREVER])
def test_a_child_that_ignores_sigterm_or_left_the_session_is_ended(tmp_path, where, end):
    program = tmp_path / "stubborn.py"
    program.write_text(STUBBORN)
    pid = tmp_path / "pid"
    words = (sys.executable, "-S", str(program), where, str(tmp_path / "draft"), str(pid))
    start = f"{shlex.join(words)} &"
    until = f"until [[ -f {shlex.quote(str(pid))} ]]; do sleep 0.01; done"
    hasty = Limits(deadline_s=120, grace_s=0.1, poll_s=0.02)
    ran(tmp_path, start, until, steps(9000, 1, 1000, 1000, 1000), end, limits=hasty)
    assert gone(int(pid.read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists processes")
def test_a_process_that_dies_is_waited_for_though_its_environment_is_gone(monkeypatch):
    """The kernel takes memory, environment with it, before files, a GPU's among them."""
    dying = processes.Process(pid=2**30, parent=1, session=2**30, begun=7)
    tables = [[dying]] * 4 + [[]]
    monkeypatch.setattr(processes, "table", lambda: iter(tables.pop(0)))
    monkeypatch.setattr(processes, "_carries", lambda pid, mark: len(tables) == 4)
    monkeypatch.setattr(processes, "POLL_SECONDS", 0.0)
    assert processes.end_all(processes.NOBODY, "mark", 60.0) == ()
    assert tables == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists processes")
def test_a_stranger_with_the_number_of_one_that_ended_is_let_be(monkeypatch):
    ended, stranger = (processes.Process(2**30, 1, 2**30, begun) for begun in (7, 8))
    tables, sent = [[ended], [stranger]], []
    monkeypatch.setattr(processes, "table", lambda: iter(tables.pop(0)))
    monkeypatch.setattr(processes, "_carries", lambda pid, mark: len(tables) == 1)
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append(number))
    assert processes.end_all(processes.NOBODY, "mark", 60.0) == ()
    assert sent == [signal.SIGTERM]


@pytest.mark.parametrize("stated", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_us_ends_the_trial_first(tmp_path, stated):
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals are the main thread's")
    pid = tmp_path / "pid"
    tell = (f"echo $$ > {shlex.quote(str(pid))}", f"kill -{int(stated)} {os.getpid()}")
    before = signal.signal(stated, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            ran(tmp_path, *tell, FOREVER)
        assert gone(int(pid.read_text()))
        assert signal.getsignal(stated) is signal.default_int_handler
    finally:
        signal.signal(stated, before)


def test_a_signal_that_is_ignored_stays_so(tmp_path):
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals are the main thread's")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        found = ran(tmp_path, f"kill -HUP {os.getpid()}", steps(9000, 1500, 1000))
        assert found.ending == "measured"
    finally:
        signal.signal(signal.SIGHUP, before)


OURS = """\
import sys
from pathlib import Path
from trainplan.profiler.logs.formats import StatedRun
from trainplan.profiler.trials.follow import run_trial
from trainplan.profiler.trials.run import Limits, TrialRun
from trainplan.profiler.trials.backends import BACKENDS
run = TrialRun(Path(sys.argv[1]), "run.sh", StatedRun(1, 1, 1), 3)
run_trial(run, BACKENDS["local"], Limits(600.0))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that we died")
def test_a_script_is_told_to_end_where_we_are_killed(tmp_path):
    pid, stated = tmp_path / "pid", tmp_path / "told"
    trap = f"trap 'touch {shlex.quote(str(stated))}; exit' TERM"
    wait = "while true; do sleep 0.05; done"
    trial(tmp_path, trap, f"echo $$ > {shlex.quote(str(pid))}", wait)
    with subprocess.Popen([sys.executable, "-c", OURS, str(tmp_path)]) as us:
        until(lambda: pid.exists() and pid.read_text().strip())
        us.kill()
    until(stated.exists)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists processes")
def test_what_a_killed_run_left_is_ended_before_the_same_trial_starts(tmp_path):
    run = trial(tmp_path, "exec sleep 600")
    left = BACKENDS["local"].start(run)
    state = f"cut -d ' ' -f 3 /proc/{left.process.pid}/stat"
    found = ran(tmp_path, f'[[ "$({state})" == Z ]] || exit 1', steps(9, 9, 1))
    assert found.ending == "measured"
    left.process.wait()


def until(fact):
    """Wait for a fact that comes soon on any machine."""
    for _ in range(6000):
        if fact():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come")


def test_output_is_not_held_back_and_variables_reach_the_script(tmp_path, monkeypatch):
    monkeypatch.setenv("DATA_PATH", "a b")
    run = trial(tmp_path, 'echo "$PYTHONUNBUFFERED $DATA_PATH ${' + MARK + ':+marked}"')
    run_trial(run, BACKENDS["local"], SOON)
    assert run.log.read_text() == "1 a b marked\n"


def test_a_system_that_tells_less_of_processes_is_enough(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "waitid")
    monkeypatch.setattr(sys, "platform", "darwin")
    hasty = Limits(deadline_s=120, grace_s=0.05, poll_s=0.02)
    found = ran(tmp_path, steps(9000, 1500, 1000, 1000, 1000), FOREVER, limits=hasty)
    assert found.ending == "measured"
    assert ran(tmp_path, "exit 3", limits=hasty).reason.startswith("ended with exit code 3")


def test_commands_are_told_and_not_run(tmp_path):
    run = trial(tmp_path, "touch ran")
    assert BACKENDS["local"].commands(run) == (("bash", str(tmp_path / "run.sh")),)
    backend = template("ssh head 'cd {folder} && bash {script}'", "ssh head 'pkill -f {name}'")
    assert backend.commands(run) == (
        ("ssh", "head", f"cd {tmp_path} && bash run.sh"),
        ("ssh", "head", f"pkill -f {tmp_path.name}"),
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.sh"]


def test_a_command_of_the_users_runs_the_script_and_is_stopped_by_another(tmp_path):
    run = trial(tmp_path, steps(9000, 1500, 1000, 1000, 1000), FOREVER)
    backend = template("env A=1 bash {folder}/{script}", "touch {folder}/stopped")
    assert run_trial(run, backend, SOON).step_time_s == 1.0
    assert (tmp_path / "stopped").exists()


@pytest.mark.parametrize(
    ("command", "stop", "complaint"),
    [
        ("ssh head 'bash {script}", "", "No closing quotation"),
        ("ssh head {file}", "", r"{file} is no name; known: {folder}, {script}, {name}"),
        ("", "", "--command is empty"),
        ("make train", "", r"names neither {script} nor {folder}"),
        ("bash {script}", "kill {pid}", r"--stop-command: {pid} is no name"),
    ],
)
def test_a_command_that_cannot_be_meant_is_refused(command, stop, complaint):
    with pytest.raises(SpecError, match=complaint):
        template(command, stop)


def test_a_folder_that_another_shell_would_split_is_refused(tmp_path):
    folder = tmp_path / "two words; rm"
    folder.mkdir()
    with pytest.raises(SpecError, match="characters that a shell reads"):
        template("ssh head bash {folder}/{script}").commands(trial(folder, "true"))


def test_a_folder_with_spaces_runs_here(tmp_path):
    folder = tmp_path / "two words"
    folder.mkdir()
    assert ran(folder, steps(9000, 1500, 1000, 1000, 1000)).ending == "measured"


def test_a_program_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ProfilerError, match="no-such-program does not start"):
        run_trial(trial(tmp_path, "true"), template("no-such-program {script}"), SOON)
