"""`plan replan`: what to go on with when a plan's cluster is another one."""

import shlex
from pathlib import Path

import click

from trainplan.cli.options import (
    FORCE,
    JSON,
    PATH,
    PLAN,
    PROFILE,
    REPORT,
    WORKERS,
    OneOf,
    gathered,
    global_batch_size,
    names,
    page,
    parameters,
    time_limit,
)
from trainplan.cli.terminal import imported_on_answer

with imported_on_answer():
    from trainplan.cli.blocks import answer
    from trainplan.cli.documents import ReplanDocument
    from trainplan.cli.files import errors_of, load_measured, machines_of
    from trainplan.cli.pages import next_part, screen
    from trainplan.cli.processes import Processes
    from trainplan.cli.terminal import Clock, json_text, remark
    from trainplan.cli.values import Destination, load_written, remark_change, remark_objective
    from trainplan.costmodel.base import SpecError
    from trainplan.planner.cases import Case
    from trainplan.planner.documents import plan_json
    from trainplan.planner.replan import (
        Saved,
        Stated,
        Taken,
        islands_of,
        left_of,
        outage_of,
        replan,
    )

NOTHING = 2
"""Exit code: there is no such plan."""


OUTPUT = click.option("-o", "--output", type=PATH, help="Also write the new plan here.")
DURATIONS = {
    "--since-save": "Training since the last save, which is lost: 12m. [default: half of the "
    "interval]",
    "--restart": "From when a start is decided until training goes on: 10m. [default: the "
    "cluster's]",
    "--repair": "Until the nodes are back: 2h. [default: the cluster's]",
}
OUTAGE = (
    *(
        click.option(name, callback=parameters.second_count, metavar="DURATION", help=text)
        for name, text in DURATIONS.items()
    ),
    click.option(
        "--spare-nodes",
        type=parameters.IntRange(0, 1 << 10),
        metavar="N",
        help="Nodes that may take the place of the lost ones. [default: the cluster's, and those "
        "that the plan leaves idle]",
    ),
)


@page("replan", "plan replan plan.json --lost 1 --restart 10m --repair 2h --output next.json")
@PLAN
@click.option(
    "--lost",
    multiple=True,
    metavar="N|GROUP:N|NAME",
    help="Lost nodes: how many, of which group or island (its GPU, or its place from 0), or a name "
    "where links were measured.",
)
@parameters.job_option("--cluster", "In place of --lost, what is left, or grown: of all islands.")
@click.option(
    "--saved",
    type=OneOf("way", names.SAVED),
    default=names.SAVED[0],
    help="Checkpoint: as the plan's launch saves it; reshardable, by an option or command of the "
    "runtime; or its weights alone, which changes the training.",
)
@global_batch_size(required=False, text="Sequences per step from now on; changes the training")
@gathered("outage", "trainplan.planner.replan:Stated", OUTAGE)
@click.option(
    "--take",
    type=OneOf("plan", names.TAKEN),
    help="Which of the plans that are shown --output and --report write. [default: what loses "
    "least]",
)
@PROFILE
@time_limit(20.0, "Answer with what is found by then.")
@WORKERS
@gathered("destination", "trainplan.cli.values.stated:Destination", (OUTPUT, REPORT, FORCE, JSON))
def command(
    plan: Path,
    outage: "Stated",
    destination: "Destination",
    *,
    lost: tuple[str, ...],
    cluster: str | None,
    saved: "Saved",
    global_batch_size: int | None,
    take: "Taken | None",
    profiles: tuple[Path, ...],
    time_limit: float,
    workers: int | None,
) -> None:
    """Find what to go on with when nodes are lost.

    PLAN is a file written by `plan search --output`. Prints the fastest plan on what is left whose
    checkpoint loads, what the outage costs, and whether to wait for the nodes instead.
    """
    if bool(lost) == (cluster is not None):
        raise SpecError(
            "give the nodes that are lost, --lost 1, or what is left, --cluster 7x8:GPU"
        )
    destination.check()
    measured, found = load_measured(profiles), load_written(plan)
    if cluster:
        now, measured = machines_of(cluster, measured)
        now, idle = islands_of(found.job, now), 0
    else:
        islands = found.job.islands
        now = left_of(found.searched, lost, islands=islands > 1)
        idle = found.searched.num_nodes - islands * found.job.cluster.num_nodes
        if islands > 1 and sum(int(text) for text in lost if text.isdigit()) > 1:
            remark("lost nodes are taken to be of one island after another: --lost 0:1 names which")
    case = Case(found.job, found.options, measured)
    with errors_of(plan), Clock(time_limit) as clock, Processes(workers) as processes:
        answered = replan(
            case,
            found.layout,
            now,
            clock,
            processes,
            saved=saved,
            batch=global_batch_size,
            idle_nodes=idle,
        )
    remark_change(plan, found, measured)
    remark_objective(plan, found)
    costs = outage_of(answered, outage)
    if idle < costs.spare_nodes < costs.lost_nodes:
        left = costs.lost_nodes - costs.spare_nodes + idle
        remark(
            f"the {costs.spare_nodes} spare nodes are fewer than are lost: `--lost {left} "
            "--spare-nodes 0` plans with them in place"
        )
    name = take or costs.plan
    taken = answered.plans[name] if name else None
    then = [next_part(_next(destination.output))] if taken else []
    document = ReplanDocument.of(answered, costs).json()
    answer(document, screen(answered, costs), as_json=destination.as_json, then=then)
    if taken is None:
        stays = name is None and answered.plans[answered.fastest] is not None
        why = f"the plan stays as it is; `--take {answered.fastest}` writes one for what is left"
        if destination.output or destination.report:
            remark(f"nothing is written: {why if stays else 'there is no such plan'}")
        click.get_current_context().exit(0 if stays else NOTHING)
    destination.write(json_text(plan_json(taken.plan)))
    destination.write_report(plan_json(taken.plan), measured)


def _next(output: Path | None) -> str:
    """How the plan is launched."""
    first = "" if output else "add `--output next.json`, then: "
    path = shlex.quote(str(output or "next.json"))
    return f"{first}plan export {path} --launcher torchrun --output-dir launch"
