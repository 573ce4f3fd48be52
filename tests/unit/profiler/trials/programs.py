"""Small programs that print the log of a training, and a trial that runs them."""

import shlex

from trainplan.profiler.logs.formats import StatedRun
from trainplan.profiler.trials.backends import BACKENDS
from trainplan.profiler.trials.follow import run_trial
from trainplan.profiler.trials.run import Limits, TrialRun

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
    return run_trial(trial(folder, *lines, **more), BACKENDS["local"], limits)
