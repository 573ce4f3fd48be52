"""Document of `plan replan`."""

from dataclasses import dataclass
from typing import Literal, Self

from trainplan.cli.documents.compared import Checkpoint
from trainplan.cli.words import percent, plural
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.planner.documents import Document, OfJob, PlanDocument, Priced, of_job, of_priced
from trainplan.planner.replan import Outage, Replan, Saved, SpareWorth, Taken, Times, Way
from trainplan.planner.replan import Resumed as ResumedPlan


@dataclass(frozen=True, kw_only=True)
class Resumed(Document):
    """A plan on the other cluster, and how the training gets there and back."""

    plan: PlanDocument
    """As `plan search --output` writes it: `plan export` takes it."""
    tokens_per_s: float
    """Of the whole job; where failures are stated, with what they take."""
    rate: float
    """Tokens per second over those of the plan before."""
    restarts: int
    """Starts of the training until it runs: two where a checkpoint is saved once more first."""
    proved: bool
    """None that loads so is faster, of layouts with even stages or those of the plan before."""
    checkpoint: Checkpoint
    """What a checkpoint of the plan before needs before this one can load it."""
    back: Checkpoint
    """What one of this plan needs before the plan before can load it, once the nodes are back."""

    @classmethod
    def of(cls, found: ResumedPlan) -> Self:
        """Of one of the plans that were found."""
        return cls.of_fields(
            found,
            plan=PlanDocument.of(found.plan),
            checkpoint=Checkpoint.of_fields(found.checkpoint, text=found.checkpoint.sentence),
            back=Checkpoint.of_fields(found.back, text=found.back.sentence),
        )


@dataclass(frozen=True, kw_only=True)
class ReplanDocument(OfJob, Priced):
    """What to go on with on another cluster than that of a plan."""

    SCHEMA = "trainplan/replan/v1"
    schema: Literal["trainplan/replan/v1"]
    """`trainplan/replan/v1`."""
    verdict: str
    """What to do, in a sentence."""
    left: ClusterSpec
    """The cluster that is planned for; `model` to `estimate` are of the plan before."""
    lost_nodes: int
    """Nodes that the plan before has more, idle ones with it."""
    idle_nodes: int
    """Nodes that the plan before leaves idle, the first spares: of `left`, or lost."""
    saved: Saved
    """As `--saved`."""
    tokens_per_s: float
    """Of the plan before."""
    best: Resumed | None
    """What to go on with; null: nothing loads the checkpoint, is legal and fits."""
    after: Resumed | None
    """A faster one that loads the checkpoint after a command; null: none is."""
    anew: Resumed | None
    """A faster one that does not load it whole, or of which that is not known; null: none is."""
    batch: Resumed | None
    """A faster one in tokens with another global batch, which changes the training; null: none."""
    fewer: Resumed | None
    """Of islands, the fastest with some of them idle; null: none is."""
    alone: Resumed | None
    """Of islands, one alone without outer steps; null: none is, or it is `best`."""
    undivided: tuple[int, ...]
    """Numbers of islands among which the global batch does not divide."""
    take: Taken | None
    """The plan that `--output` writes, if no other is named: what loses least; null: the plan stays
    as it is, and nothing is written."""
    times: Times
    """What an outage takes: `since_save_s`, `assumed`, `restart_s`, `repair_s`."""
    ways: tuple[Way, ...]
    """What may be done until the nodes are back, that which loses least first: `name`, `ready_s`,
    `rate`, `lost_s`, `least_repair_s`; empty where no node is lost."""
    spare: SpareWorth | None
    """Whether one of the nodes as a spare pays: `least_away_fraction` of the time that a node must
    be away for it, `away_fraction` that it is, `pays`; null: not one node is lost, or fewer nodes
    are as fast."""

    @classmethod
    def of(cls, found: Replan, outage: Outage) -> Self:
        """Of a plan whose cluster is another now."""
        return cls.of_fields(
            found,
            **of_job(found.job),
            **of_priced(found.job, found.before),
            verdict=cls.sentence(found, outage),
            lost_nodes=outage.lost_nodes,
            take=outage.plan,
            times=outage.times,
            ways=outage.ways,
            spare=outage.spare,
            **{name: one and Resumed.of(one) for name, one in found.plans.items()},
        )

    @staticmethod
    def sentence(found: Replan, outage: Outage) -> str:
        """What to do."""
        if outage.first == "spare nodes":
            nodes = "Idle" if found.idle_nodes >= outage.lost_nodes else "Spare"
            return f"{nodes} nodes take their place, and the plan stays as it is."
        if outage.first == "wait":
            why = (
                "that loses least"
                if found.plans[found.fastest]
                else "no layout of what is left loads and fits"
            )
            return f"Wait for the nodes: {why}."
        best = found.plans[outage.plan or found.fastest]
        if best is None:
            return "No layout of what is left loads the checkpoint, is legal and fits."
        job = best.plan.job
        gpus, every = job.num_gpus, found.left.num_gpus
        where = f"{gpus:,} of {plural(every, 'GPU')}" if gpus < every else plural(gpus, "GPU")
        if job.islands > 1:
            where = f"{job.islands} islands, {plural(job.cluster.num_nodes, 'node')} each, {where}"
        elif found.job.islands > 1:
            where = f"one island alone, {where},"
        line = f"Go on with {where} at {percent(best.rate)} of the speed before"
        return f"{line}; {best.checkpoint.clause()}."
