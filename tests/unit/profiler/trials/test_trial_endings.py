"""How a trial ended, from what its processes said and how they ended."""

import pytest

from tests.unit.profiler.trials.programs import FOREVER, STEP, ran, says, steps

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
  traceback : {written}
============================================================"""


ENDINGS = {
    "the allocator of a GPU": (
        [
            "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "[rank1]: RuntimeError: [../gloo/transport/tcp/pair.cc:547] Connection closed by peer",
            ROOT_CAUSE.format(code=1, written="To enable traceback see: https://pytorch.org"),
        ],
        1,
        "out_of_memory",
        "torch.OutOfMemoryError: CUDA out of memory",
    ),
    "the end of a host's memory": (
        [ROOT_CAUSE.format(code=-9, written="Signal 9 (SIGKILL) received by PID 4711")],
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
            "ModuleNotFoundError: No module named 'apex', so its norms are not used",
            "[rank3]: Traceback (most recent call last):",
            '[rank3]:   File "pretrain_gpt.py", line 1, in <module>',
            '[rank3]:     if full: raise torch.OutOfMemoryError("CUDA out of memory")',
            "[rank3]: ValueError: hidden size must be divisible by heads",
            "[rank1]: torch.distributed.DistBackendError: NCCL error: remote process exited or "
            "there was a network error",
            ROOT_CAUSE.format(code=1, written="To enable traceback see: https://pytorch.org"),
        ],
        1,
        "crash",
        "ValueError: hidden size must be divisible by heads",
    ),
    "an assertion that says nothing": (
        [
            "[rank3]: Traceback (most recent call last):",
            '[rank3]:   File "arguments.py", line 1, in validate_args',
            "[rank3]:     assert args.num_layers % args.pipeline_model_parallel_size == 0",
            "[rank3]:            ^^^^^^^^^^^^^^^",
            "[rank3]: AssertionError",
        ],
        1,
        "crash",
        "AssertionError: assert args.num_layers % args.pipeline_model_parallel_size == 0",
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
        [ROOT_CAUSE.format(code=-11, written="Signal 11 (SIGSEGV) received by PID 4711")],
        1,
        "crash",
        "rank 3 of its node died of SIGSEGV",
    ),
    "a rank that says nothing": (
        [
            "[rank1]: RuntimeError: [../gloo/transport/tcp/pair.cc:547] Connection closed by peer",
            ROOT_CAUSE.format(code=3, written="To enable traceback see: https://pytorch.org"),
        ],
        1,
        "crash",
        "rank 3 of its node ended with exit code 3",
    ),
    "a rank that is ended from outside": (
        [ROOT_CAUSE.format(code=-15, written="Signal 15 (SIGTERM) received by PID 4711")],
        1,
        "lost_node",
        "rank 3 of its node was ended from outside",
    ),
    "a code alone": (["bye"], 7, "crash", "ended with exit code 7; the last line is: bye"),
    "a watchdog": (
        [
            "[rank1]:[E1126 10:00:00] [PG 0 Rank 1] Watchdog caught collective operation timeout: "
            "WorkNCCL(SeqNum=5, OpType=ALLREDUCE) ran for 600000 milliseconds",
            ROOT_CAUSE.format(code=-6, written="Signal 6 (SIGABRT) received by PID 4711"),
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
