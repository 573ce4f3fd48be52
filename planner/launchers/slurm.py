"""A batch script for Slurm that starts torchrun once on every node."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from trainplan.costmodel.hardware import ClusterSpec
from trainplan.planner.launch import LaunchConfig
from trainplan.planner.launchers.script import (
    DEFAULT_MASTER_PORT,
    Launcher,
    argument_arrays,
    beside,
    exports,
    gpus_per_node,
    head,
    num_nodes,
    program,
    requirements,
    script,
)

ARBITRARY = " --distribution=arbitrary"
"""Tasks go to the nodes in the order of SLURM_HOSTFILE."""
SUBMITTED_FROM = (
    '"${LAUNCH_DIR:-$(scontrol show job "$SLURM_JOB_ID" | sed -n '
    "'s:^ *Command=\\(.*\\)/[^/]*$:\\1:p')}\""
)
"""Folder of the script, which Slurm runs from a copy. Source: man scontrol, show job, Command."""


def slurm(config: LaunchConfig, cluster: ClusterSpec, order: tuple[str, ...] = ()) -> str:
    """Hand it to `sbatch` with the variables of the runtime set."""
    nodes, gpus = num_nodes(cluster), gpus_per_node(cluster)
    return script(
        ("#!/usr/bin/env bash", *directives(nodes, gpus), *_named(order), *head(config)),
        ("set -euo pipefail",),
        requirements(config),
        beside(config, SUBMITTED_FROM),
        exports(config.environment),
        _ordered(order) if order else _rendezvous(),
        argument_arrays(config),
        _start(config, nodes, gpus, ARBITRARY if order else ""),
    )


def directives(nodes: int, gpus: int) -> Iterator[str]:
    """What is asked of Slurm."""
    yield "#SBATCH --job-name=trainplan"
    yield f"#SBATCH --nodes={nodes}"
    yield "#SBATCH --ntasks-per-node=1"
    yield f"#SBATCH --gpus-per-node={gpus}"
    yield "#SBATCH --exclusive"


def _rendezvous() -> Iterator[str]:
    yield "# the first node of the job is where the processes find each other"
    yield 'mapfile -t NODES < <(scontrol show hostnames "$SLURM_JOB_NODELIST")'
    yield 'export MASTER_ADDR="${NODES[0]}"'
    yield f'export MASTER_PORT="${{MASTER_PORT:-{DEFAULT_MASTER_PORT}}}"'


def _named(order: tuple[str, ...]) -> Iterator[str]:
    if order:
        yield f"#SBATCH --nodelist={','.join(order)}"


def _ordered(order: tuple[str, ...]) -> Iterator[str]:
    """Task `i` runs on line `i` of SLURM_HOSTFILE. Source: man srun, `--distribution=arbitrary`."""
    yield "# nodes in rank order, chosen for their measured links"
    yield "NODES=("
    yield from (f"  {shlex.quote(name)}" for name in order)
    yield ")"
    yield 'SLURM_HOSTFILE="$(mktemp)"'
    yield "export SLURM_HOSTFILE"
    yield "trap 'rm -f \"$SLURM_HOSTFILE\"' EXIT"
    yield 'printf \'%s\\n\' "${NODES[@]}" > "$SLURM_HOSTFILE"'
    yield 'export MASTER_ADDR="${NODES[0]}"'
    yield f'export MASTER_PORT="${{MASTER_PORT:-{DEFAULT_MASTER_PORT}}}"'


def _start(config: LaunchConfig, nodes: int, gpus: int, more: str) -> Iterator[str]:
    """One task per node; its number is known only inside the task, hence the inner shell."""
    yield "# without --cpu-bind=none the one task of a node could be tied to one core"
    yield f"srun --kill-on-bad-exit=1 --cpu-bind=none{more} bash -c '"
    yield f'  exec torchrun --nnodes {nodes} --nproc_per_node {gpus} --node_rank "$SLURM_PROCID" \\'
    yield '    --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT" "$@"'
    yield f"' task \\\n  {program(config)}"


SLURM = Launcher("run.sbatch", slurm, starts="sbatch")
