"""What a runtime's own code says of exported plans, from a process of its own."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.runtimes.launches import launch
from tests.runtimes.plans import PLANS
from trainplan.costmodel.hardware.failures import FailureSpec
from trainplan.planner.operations import with_operations, with_saves
from trainplan.planner.runtimes.trial_steps import SHORT_RUNS, trial_launch

STATED = {"EXIT_MINUTES": "100", "WANDB_PROJECT": "project"}
"""What the user may set of operations."""


def of_production(config, job, plan):
    return with_operations(config, job, plan.layout, "torchrun", 10.0)


def with_local_saves(config, job, plan):
    failures = FailureSpec(mtbf_node_days=365, save="local")
    cluster = job.cluster.model_copy(update={"failures": failures})
    return with_saves(config, job.model_copy(update={"cluster": cluster}), 10.0)


SAVE_LOCALLY = ("megatron-lm", "megatron-bridge")
"""Runtimes with words for it."""
as_a_trial = partial(trial_launch, steps=12, given=())
CHECKERS = Path(__file__).parent / "checkers"


CHECKOUTS = {
    "megatron-lm": ("MEGATRON_LM_PATH",),
    "megatron-bridge": ("MEGATRON_BRIDGE_PATH", "MEGATRON_LM_PATH"),
    "megatron-zero-bubble": ("ZERO_BUBBLE_PATH",),
    "torchtitan": ("TORCHTITAN_PATH",),
    "deepspeed": ("DEEPSPEED_PATH",),
    "arctic-training": ("ARCTIC_TRAINING_PATH", "DEEPSPEED_PATH"),
    "accelerate": ("ACCELERATE_PATH",),
    "transformers": ("TRANSFORMERS_PATH",),
    "llama-factory": ("LLAMA_FACTORY_PATH", "DEEPSPEED_PATH", "ACCELERATE_PATH"),
    "axolotl": ("AXOLOTL_PATH", "DEEPSPEED_PATH", "ACCELERATE_PATH"),
    "ms-swift": ("MS_SWIFT_PATH", "DEEPSPEED_PATH", "ACCELERATE_PATH"),
    "trl": ("TRL_PATH", "DEEPSPEED_PATH", "ACCELERATE_PATH"),
}
"""Variables that name the checkouts of a runtime: without one of them its tests are skipped."""


def without_checkout(runtime: str) -> str:
    """Why its tests are skipped; empty: they are not."""
    absent = [name for name in CHECKOUTS[runtime] if name not in os.environ]
    return f"{' and '.join(absent)} names no checkout" if absent else ""


def verdicts(runtime: str, folder: Path) -> dict[str, dict]:
    """By the name of the plan: `refusal`, null where it is accepted, and what was `understood`.

    More are of the first plan: "lacks a rank" on a rank too few, "operations" as of a production
    launch that logs to Weights & Biases and has a time limit, "local saves" as where failures are
    stated, of a plan of two nodes or more and runtimes that have them, and "a trial" of a few
    steps, for which the user has set nothing, of runtimes that have trials.
    """
    if absent := without_checkout(runtime):
        pytest.skip(absent)
    launches = []
    for number, plan in enumerate(PLANS[runtime]):
        (folder / f"plan{number}").mkdir()
        launches.append(launch(plan, runtime, folder / f"plan{number}"))
    first = launches[0]
    (folder / "operations").mkdir()
    kept_going = partial(of_production, job=PLANS[runtime][0].job(runtime), plan=PLANS[runtime][0])
    operated = launch(PLANS[runtime][0], runtime, folder / "operations", kept_going, STATED)
    launches.append(operated | {"name": "operations"})
    if runtime in SAVE_LOCALLY:
        (folder / "local").mkdir()
        wide = next(one for one in PLANS[runtime] if one.job(runtime).cluster.num_nodes > 1)
        copied = partial(with_local_saves, job=wide.job(runtime), plan=wide)
        kept = launch(wide, runtime, folder / "local", copied)
        launches.append(kept | {"name": "local saves"})
    launches.append(first | {"name": "lacks a rank", "ranks": first["ranks"] - 1})
    if runtime in SHORT_RUNS:
        (folder / "trial").mkdir()
        tried = launch(PLANS[runtime][0], runtime, folder / "trial", as_a_trial)
        launches.append(tried | {"name": "a trial"})
    return by_checker(runtime, launches)


def by_checker(name: str, launches: list[dict]) -> dict[str, dict]:
    """What the checker of a runtime or a trainer says of launches, by their names."""
    checker = CHECKERS / f"check_{name.replace('-', '_')}.py"
    ran = subprocess.run(
        [sys.executable, str(checker)],
        input=json.dumps(launches),
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:  # said of each plan, rather than asked again for each
        return {one["name"]: {"refusal": ran.stderr[-3000:]} for one in launches}
    return {one["name"]: one for one in map(json.loads, ran.stdout.splitlines())}
