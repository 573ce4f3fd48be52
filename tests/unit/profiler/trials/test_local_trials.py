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

from trainplan.costmodel.base import SpecError
from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.logs.formats import StatedRun
from trainplan.profiler.trials.follow import run_trial
from trainplan.profiler.trials.processes import MARK
from trainplan.profiler.trials.run import Limits, TrialRun
from trainplan.profiler.trials.ways import WAYS, template

STATED = StatedRun(global_batch_size=128, seq_length=8192, num_gpus=8)
# megatron/training/training.py, training_log
STEP = (
    " [2026-01-01 10:00:00.000000] iteration {:8d}/      14 | consumed samples: 128 | elapsed time "
    "per iteration (ms): {:.1f} | learning rate: 3.0E-04 | global batch size:   128 | lm loss: "
    "1.2E+01 | loss scale: 1.0 | number of nan iterations:   0 |"
)
# megatron/training/utils/common_utils.py, report_memory
MEMORY = (
    "[Rank 0] (after 2 iterations) memory (MB) | allocated: 1.00 | max allocated: 2.00 | "
    "reserved: 3.00 | max reserved: 1024.00"
)
# torch/distributed/elastic/multiprocessing/api.py, then errors/__init__.py: the other ranks, which
# torchrun ended, and last the one that was first
ROOT_CAUSE = """\
W1126 10:00:00 99 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 4710 \
closing signal SIGTERM
E1126 10:00:00 99 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: {code}) \
local_rank: 3 (pid: 4711) of binary: /usr/bin/python
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
pretrain_gpt.py FAILED
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 4710) (SIGTERM)
  traceback : Signal 15 (SIGTERM) received by PID 4710
Root Cause (first observed failure):
[0]:
  rank      : 3 (local_rank: 3)
  exitcode  : {code} (pid: 4711)
  traceback : {said}
============================================================"""
SOON = Limits(deadline_s=120, grace_s=2, poll_s=0.02)
FOREVER = "sleep 600"


def steps(*milliseconds):
    lines = [STEP.format(n, ms) for n, ms in enumerate(milliseconds, start=1)]
    return says("\n".join(lines))


def says(text):
    return f"printf '%s\\n' {shlex.quote(text)}"


def trial(folder, *lines, wanted=3):
    (folder / "run.sh").write_text("\n".join(("#!/usr/bin/env bash", *lines)) + "\n")
    return TrialRun(folder, "run.sh", STATED, steps=wanted)


def ran(folder, *lines, limits=SOON, **more):
    return run_trial(trial(folder, *lines, **more), WAYS["local"], limits)


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


ENDINGS = {
    "the allocator of a GPU": (
        [
            "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "[rank1]: RuntimeError: [../gloo/transport/tcp/pair.cc:547] Connection closed by peer",
            ROOT_CAUSE.format(code=1, said="To enable traceback see: https://pytorch.org"),
        ],
        1,
        "out_of_memory",
        "torch.OutOfMemoryError: CUDA out of memory",
    ),
    "the end of a host's memory": (
        [ROOT_CAUSE.format(code=-9, said="Signal 9 (SIGKILL) received by PID 4711")],
        1,
        "out_of_memory",
        "rank 3 of its node was killed, as the system does where memory ends",
    ),
    "slurm's account of memory": (
        ["slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of your processes may"],
        1,
        "out_of_memory",
        "oom_kill event",
    ),
    "an error of a rank": (
        [
            "Traceback (most recent call last):",
            '[rank3]:   File "pretrain_gpt.py", line 1, in <module>',
            '[rank3]:     if full: raise torch.OutOfMemoryError("CUDA out of memory")',
            "[rank3]: ValueError: hidden size must be divisible by heads",
            "[rank1]: torch.distributed.DistBackendError: NCCL error: remote process exited or "
            "there was a network error",
            ROOT_CAUSE.format(code=1, said="To enable traceback see: https://pytorch.org"),
        ],
        1,
        "crash",
        "ValueError: hidden size must be divisible by heads",
    ),
    "an option that is not known": (
        ["usage: pretrain_gpt.py [-h]", "pretrain_gpt.py: error: unrecognized arguments: --x"],
        2,
        "crash",
        "pretrain_gpt.py: error: unrecognized arguments: --x",
    ),
    "a variable that is not set": (
        ["Set DATA_PATH: the tokenized data."],
        2,
        "crash",
        "Set DATA_PATH: the tokenized data.",
    ),
    "a segmentation fault": (
        [ROOT_CAUSE.format(code=-11, said="Signal 11 (SIGSEGV) received by PID 4711")],
        1,
        "crash",
        "rank 3 of its node died of SIGSEGV",
    ),
    "a rank that says nothing": (
        [
            "[rank1]: RuntimeError: [../gloo/transport/tcp/pair.cc:547] Connection closed by peer",
            ROOT_CAUSE.format(code=3, said="To enable traceback see: https://pytorch.org"),
        ],
        1,
        "crash",
        "rank 3 of its node ended with exit code 3",
    ),
    "a rank that is ended from outside": (
        [ROOT_CAUSE.format(code=-15, said="Signal 15 (SIGTERM) received by PID 4711")],
        1,
        "lost_node",
        "rank 3 of its node was ended from outside",
    ),
    "a code alone": (["bye"], 7, "crash", "ended with exit code 7; the last line is: bye"),
    "a watchdog": (
        [
            "[rank1]:[E1126 10:00:00] [PG 0 Rank 1] Watchdog caught collective operation timeout: "
            "WorkNCCL(SeqNum=5, OpType=ALLREDUCE) ran for 600000 milliseconds",
            ROOT_CAUSE.format(code=-6, said="Signal 6 (SIGABRT) received by PID 4711"),
        ],
        1,
        "hang",
        "Watchdog caught collective operation timeout",
    ),
    "a signal from outside": (
        [
            "Received 15 death signal, shutting down workers",
            "torch.distributed.elastic.multiprocessing.api.SignalException: Process 9 got signal: "
            "15",
        ],
        1,
        "lost_node",
        "was ended from outside by SIGTERM",
    ),
    "a peer that is gone": (
        ["[rank0]: torch.distributed.DistBackendError: NCCL error: ncclRemoteError: A call failed"],
        1,
        "lost_node",
        "ncclRemoteError",
    ),
    "a GPU that is gone": (
        ["RuntimeError: CUDA error: uncorrectable ECC error encountered"],
        1,
        "lost_node",
        "uncorrectable ECC error",
    ),
    "a loss that is no number": (
        [
            "RuntimeError: Rank 0, node n, device 0, iteration 2: Unexpected result nan "
            "(message='found NaN in local forward loss calculation')"
        ],
        1,
        "not_a_number",
        "found NaN in local forward loss",
    ),
}


@pytest.mark.parametrize("case", ENDINGS)
def test_the_cause_of_an_end_is_told_and_not_its_consequences(tmp_path, case):
    lines, code, ending, reason = ENDINGS[case]
    found = ran(tmp_path, steps(9000, 1500), says("\n".join(lines)), f"exit {code}")
    assert found.ending == ending
    assert reason in found.reason
    assert "\n" not in found.reason
    assert found.step_time_s is None


def test_a_crash_after_the_steps_that_were_wanted_takes_nothing_from_them(tmp_path):
    times = (9000, 1500, 1000, 1500, 2000)
    found = ran(tmp_path, steps(*times), says("ValueError: at the end"), "exit 1")
    assert (found.ending, found.step_time_s) == ("measured", 1.5)


def test_memory_that_runs_out_after_some_steps_has_run_out(tmp_path):
    times = (9000, 1500, 1000, 1500, 2000)
    found = ran(tmp_path, steps(*times), says("torch.OutOfMemoryError: CUDA out"), "exit 1")
    assert (found.ending, found.step_time_s) == ("out_of_memory", None)


def test_a_loss_that_is_no_number_ends_a_run(tmp_path):
    line = STEP.replace("nan iterations:   0", "nan iterations:   1")
    found = ran(tmp_path, says(line.format(1, 1000)), FOREVER)
    assert found.ending == "not_a_number"


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


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_us_ends_the_trial_first(tmp_path, told):
    pid = tmp_path / "pid"

    def tell():
        while not pid.exists() or not pid.read_text().strip():
            time.sleep(0.01)
        os.kill(os.getpid(), told)

    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals are the main thread's")
    before = signal.getsignal(told)
    teller = threading.Thread(target=tell)
    teller.start()
    with pytest.raises(KeyboardInterrupt):
        ran(tmp_path, f"echo $$ > {shlex.quote(str(pid))}", FOREVER)
    teller.join()
    assert gone(int(pid.read_text()))
    assert signal.getsignal(told) is before


OURS = """\
import sys
from pathlib import Path
from trainplan.profiler.logs.formats import StatedRun
from trainplan.profiler.trials.follow import run_trial
from trainplan.profiler.trials.run import Limits, TrialRun
from trainplan.profiler.trials.ways import WAYS
run = TrialRun(Path(sys.argv[1]), "run.sh", StatedRun(1, 1, 1), 3)
run_trial(run, WAYS["local"], Limits(600.0))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that we died")
def test_a_script_is_told_to_end_where_we_are_killed(tmp_path):
    pid, told = tmp_path / "pid", tmp_path / "told"
    trap = f"trap 'touch {shlex.quote(str(told))}; exit' TERM"
    wait = "while true; do sleep 0.05; done"
    trial(tmp_path, trap, f"echo $$ > {shlex.quote(str(pid))}", wait)
    with subprocess.Popen([sys.executable, "-c", OURS, str(tmp_path)]) as us:
        while not pid.exists() or not pid.read_text().strip():
            assert us.poll() is None
            time.sleep(0.01)
        us.kill()
    while not told.exists():
        time.sleep(0.01)


def test_output_is_not_held_back_and_variables_reach_the_script(tmp_path):
    run = trial(tmp_path, 'echo "$PYTHONUNBUFFERED $DATA_PATH ${' + MARK + ':+marked}"')
    run = TrialRun(run.folder, run.script, STATED, 3, {"DATA_PATH": "a b"})
    run_trial(run, WAYS["local"], SOON)
    assert run.log.read_text() == "1 a b marked\n"


def test_steps_are_told_while_the_trial_runs(tmp_path):
    told = []
    run = trial(tmp_path, steps(9000, 1500, 1000, 1000, 1000), FOREVER)
    run_trial(run, WAYS["local"], SOON, told.append)
    assert told[-1] == (1.0, 1.0, 1.0)


def test_commands_are_told_and_not_run(tmp_path):
    run = trial(tmp_path, "touch ran")
    assert WAYS["local"].commands(run) == (("bash", str(tmp_path / "run.sh")),)
    way = template("ssh head 'cd {folder} && bash {script}'", "ssh head 'pkill -f {name}'")
    assert way.commands(run) == (
        ("ssh", "head", f"cd {tmp_path} && bash run.sh"),
        ("ssh", "head", f"pkill -f {tmp_path.name}"),
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.sh"]


def test_a_command_of_the_users_runs_the_script_and_is_stopped_by_another(tmp_path):
    run = trial(tmp_path, steps(9000, 1500, 1000, 1000, 1000), FOREVER)
    way = template("env A=1 bash {folder}/{script}", "touch {folder}/stopped")
    assert run_trial(run, way, SOON).step_time_s == 1.0
    assert (tmp_path / "stopped").exists()


@pytest.mark.parametrize(
    ("command", "stop", "complaint"),
    [
        ("ssh head 'bash {script}", "", "No closing quotation"),
        ("ssh head {file}", "", r"{file} stands for nothing; known: {folder}, {script}, {name}"),
        ("", "", "--command is empty"),
        ("make train", "", r"names neither {script} nor {folder}"),
        ("bash {script}", "kill {pid}", r"--stop-command: {pid} stands for nothing"),
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
