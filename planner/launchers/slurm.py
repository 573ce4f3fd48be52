"""A batch script for Slurm that starts torchrun once on every node."""

import shlex
from collections.abc import Iterator

from trainplan.costmodel import catalog
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.planner.launch import LaunchConfig, Operations
from trainplan.planner.launchers.ray import joined
from trainplan.planner.launchers.script import (
    DEFAULT_MASTER_PORT,
    Launcher,
    LaunchFile,
    alongside,
    argument_arrays,
    exports,
    gpus_per_node,
    head,
    program,
    requirements,
    script,
    signal_passed,
    torchrun_of,
)

TIME_LIMIT = "24:00:00"
"""A placeholder, which an option of sbatch overrides."""
LONGEST_STEP = 10
"""Minutes that a step and its checkpoint may take after the time to end. Source: assumed."""
ARBITRARY = " --distribution=arbitrary"
"""Tasks go to the nodes in the order of SLURM_HOSTFILE."""
SUBMITTED_FROM = (
    '"${LAUNCH_DIR:-$(scontrol show job "$SLURM_JOB_ID" | sed -n '
    "'s:^ *Command=\\(.*\\)/[^/]*$:\\1:p')}\""
)
"""Folder of the script, which Slurm runs from a copy. Source: man scontrol, show job, Command."""


def slurm(config: LaunchConfig, cluster: ClusterSpec, order: tuple[str, ...] = ()) -> str:
    """Hand it to `sbatch` with the variables of the runtime set."""
    return script(
        (
            "#!/usr/bin/env bash",
            *directives(cluster),
            *(_named(order) if order else _segments(cluster)),
            *_kept_going(config.operations),
            *head(config),
        ),
        ("set -euo pipefail",),
        requirements(config),
        alongside(config, SUBMITTED_FROM),
        exports(config.environment),
        _ordered(order) if order else _rendezvous(),
        _time_left(config.operations),
        argument_arrays(config),
        _start(config, cluster, ARBITRARY if order else ""),
        _again(config.operations),
    )


def directives(cluster: ClusterSpec) -> Iterator[str]:
    """What is asked of Slurm."""
    yield "#SBATCH --job-name=trainplan"
    yield f"#SBATCH --nodes={cluster.num_nodes}"
    yield "#SBATCH --ntasks-per-node=1"
    yield f"#SBATCH --gpus-per-node={gpus_per_node(cluster)}"
    yield "#SBATCH --exclusive"


def _segments(cluster: ClusterSpec) -> Iterator[str]:
    """Equal parts of the job, each inside one block. Source: man sbatch, `--segment`."""
    one = cluster.groups[0]
    segment = one.segment_nodes(catalog.device(one)) if len(cluster.groups) == 1 else None
    if segment and segment > 1:
        yield f"#SBATCH --segment={segment}"
        yield "# segments: as priced, so many nodes in each NVLink domain; needs topology/block"


def _rendezvous() -> Iterator[str]:
    yield "# the first node of the job is where the processes find each other"
    yield 'mapfile -t NODES < <(scontrol show hostnames "$SLURM_JOB_NODELIST")'
    yield 'export MASTER_ADDR="${NODES[0]}"'
    yield f'export MASTER_PORT="${{MASTER_PORT:-{DEFAULT_MASTER_PORT}}}"'


def _named(order: tuple[str, ...]) -> Iterator[str]:
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


def _kept_going(operations: Operations | None) -> Iterator[str]:
    """The job comes back after a failed node or a preemption, and hears of its end before.

    Source: man sbatch, `--requeue`, `--open-mode`, `--time`, and `--signal`, which without `B:`
    goes to the steps.
    """
    if operations:
        yield f"#SBATCH --time={TIME_LIMIT}"
        yield "#SBATCH --requeue"
        yield "#SBATCH --open-mode=append"
    if operations and operations.signal:
        yield f"#SBATCH --signal={operations.signal}@{operations.warning_seconds}"


def _time_left(operations: Operations | None) -> Iterator[str]:
    """Source: man sbatch, SLURM_JOB_END_TIME."""
    if operations and operations.signal:
        left = f"((SLURM_JOB_END_TIME - $(date +%s)) / 60 - {operations.save_minutes})"
        yield "# minutes until the time limit, less those that the last checkpoint takes"
        yield f'EXIT_MINUTES="${{EXIT_MINUTES:-${{SLURM_JOB_END_TIME:+$({left})}}}}"'


def _again(operations: Operations | None) -> Iterator[str]:
    """A job that ended shortly before its limit goes on in another; one that is done ends early.

    One whose whole time is no longer than that would come back for ever.
    """
    if operations and operations.signal:
        near = (operations.save_minutes + LONGEST_STEP) * 60
        yield "# it saved and ended before the time limit: back into the queue, where it resumes"
        yield 'if [[ -n "${SLURM_JOB_END_TIME:-}" ]]; then'
        yield f"  if (( SECONDS > {near} && SLURM_JOB_END_TIME - $(date +%s) < {near} )); then"
        yield '    scontrol requeue "$SLURM_JOB_ID"'
        yield "  fi"
        yield "fi"


def _start(config: LaunchConfig, cluster: ClusterSpec, more: str) -> Iterator[str]:
    """One task per node; its number is known only inside the task, hence the inner shell."""
    if config.by_ray:
        yield f"srun --cpu-bind=none{more} bash -c '"
        if cluster.num_nodes > 1:
            yield from (f"  {line}" for line in joined(cluster, "SLURM_PROCID"))
        yield '  python3 "$@"'
        yield f"' task \\\n  {program(config)}"
        return
    yield "# without --cpu-bind=none the one task of a node could be tied to one core"
    yield f"srun --kill-on-bad-exit=1 --cpu-bind=none{more} bash -c '"
    yield from (f"  {line}" for line in signal_passed(config))
    numbered, met = _rendezvous_options(config.operations)
    yield f"  exec {torchrun_of(config, cluster)} {numbered} \\"
    yield f'    {met} "$@"'
    yield f"' task \\\n  {program(config)}"


def _rendezvous_options(operations: Operations | None) -> tuple[str, str]:
    """How a node gets its number, and where all meet.

    torchrun restarts nodes that number themselves alone.
    """
    if operations and operations.restarts:
        met = '--rdzv_endpoint "$MASTER_ADDR:$MASTER_PORT" --rdzv_id "$SLURM_JOB_ID"'
        return "--rdzv_backend c10d", met
    return (
        '--node_rank "$SLURM_PROCID"',
        '--master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT"',
    )


SLURM = Launcher("run.sbatch", slurm, starts="sbatch", starts_ray=True)


FOLDER = "trial-{}"
"""Folder of a trial, by its rank in the plan's table."""


def trials(cluster: ClusterSpec, ranks: tuple[int, ...], file: str) -> LaunchFile:
    """`trials.sbatch`: each task runs the script `file` of one trial; one task at a time."""
    tasks = ",".join(map(str, ranks))
    text = script(
        (
            "#!/usr/bin/env bash",
            *directives(cluster),
            f"#SBATCH --array={tasks}%1",
            *_segments(cluster),
        ),
        ("# Generated by `plan export`: task N runs layout N of the plan's table.",),
        ("set -euo pipefail",),
        (f"export LAUNCH_DIR={SUBMITTED_FROM}/{FOLDER.format('$SLURM_ARRAY_TASK_ID')}",),
        (f'exec bash "$LAUNCH_DIR/{file}"',),
    )
    return LaunchFile("trials.sbatch", text, executable=False)
