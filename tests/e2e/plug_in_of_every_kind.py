"""A plug-in that tests install: what the example does not add, each made of one of ours."""

from __future__ import annotations

from dataclasses import replace

from trainplan.costmodel.job.job import Job
from trainplan.costmodel.job.optimizer import OptimizerSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.optimizers.registry import OPTIMIZERS
from trainplan.costmodel.plugins.plugins import Plugin
from trainplan.costmodel.runtimes.registry import RUNTIMES
from trainplan.costmodel.schedules import SCHEDULES
from trainplan.planner.launch.config import LaunchConfig
from trainplan.planner.runtimes import EXPORTERS, READERS
from trainplan.planner.shell import Launch
from trainplan.profiler.importers import IMPORTERS

MEGATRON = "megatron-lm"


def export(job: Job, layout: Layout) -> LaunchConfig:
    training = job.training.model_copy(update={"optimizer": OptimizerSpec()})
    theirs = job.model_copy(update={"runtime": MEGATRON, "training": training})
    return replace(EXPORTERS[MEGATRON].export(theirs, layout), runtime="megatron-lamb")


def recognises(launch: Launch) -> bool:
    return launch.program.text.endswith("pretrain_lamb.py")


LAMB = replace(OPTIMIZERS["adamw"], name="lamb")
RUNTIME = replace(RUNTIMES[MEGATRON], name="megatron-lamb", optimizers=(("lamb", "lamb"),))
EXPORTER = replace(
    EXPORTERS[MEGATRON],
    runtime="megatron-lamb",
    export=export,
    optimizers=frozenset({"lamb"}),
    recorded_flags="",
)
READER = next(replace(one, recognises=recognises) for one in READERS if one.runtime == MEGATRON)
IMPORTER = replace(IMPORTERS["nccl-tests"], name="our-tests")
SCHEDULE = SCHEDULES["gpipe"]
HERE = __name__
PLUGIN = Plugin(
    hosts="hosts.toml",
    optimizers={"lamb": f"{HERE}:LAMB"},
    schedules={"our-schedule": f"{HERE}:SCHEDULE"},
    runtimes={"megatron-lamb": f"{HERE}:RUNTIME"},
    exporters={"megatron-lamb": f"{HERE}:EXPORTER"},
    readers={"megatron-lamb": f"{HERE}:READER"},
    importers={"our-tests": f"{HERE}:IMPORTER"},
)
