"""A bash script that runs one rank of a whole job on one GPU, to see its memory."""

from dataclasses import replace

from trainplan.costmodel.base import SpecError, UnsupportedError
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.planner.launch import LaunchConfig, switch
from trainplan.planner.launchers.script import (
    DEFAULT_MASTER_PORT,
    OWN_FOLDER,
    LaunchFile,
    alongside,
    argument_arrays,
    exports,
    gpus_per_node,
    head,
    program,
    requirements,
    script,
)
from trainplan.planner.runtimes import EXPORTERS, trial_launch

FAKE = "--fake-process-group"
"""Communication is skipped, and every rank believes that the others are there. Source: Megatron-LM,
megatron/training/initialize.py, `_initialize_distributed`."""
STEPS = 3
"""Optimizer states are there from the second step on."""
FILE = "run_one_rank.sh"


def one_rank(
    config: LaunchConfig, cluster: ClusterSpec, rank: int
) -> tuple[LaunchConfig, LaunchFile]:
    """What is run, and its script: losses mean nothing, memory is that of the rank.

    Raises:
        SpecError: The job has no such rank.
        UnsupportedError: The runtime cannot fake communication.
    """
    world = cluster.num_nodes * gpus_per_node(cluster)
    if rank >= world:
        raise SpecError(f"--one-rank {rank}: the job has ranks 0 to {world - 1}")
    if FAKE not in EXPORTERS[config.runtime].flags:
        raise UnsupportedError(
            f"{config.runtime} cannot run one rank alone: Megatron-LM fakes communication "
            f"({FAKE}), export with --runtime megatron-lm"
        )
    short = trial_launch(config, STEPS, ())
    arguments = (*short.arguments, switch("data", FAKE))
    short = replace(short, arguments=arguments)
    text = script(
        ("#!/usr/bin/env bash", *head(short)),
        ("set -euo pipefail",),
        requirements(short),
        alongside(short, OWN_FOLDER),
        exports(short.environment),
        (
            f"export WORLD_SIZE={world} RANK={rank} LOCAL_RANK=0",
            f"export MASTER_ADDR=localhost MASTER_PORT={DEFAULT_MASTER_PORT}",
        ),
        argument_arrays(short),
        (f"exec python -u {program(short)}",),
    )
    return short, LaunchFile(FILE, text, executable=True)
