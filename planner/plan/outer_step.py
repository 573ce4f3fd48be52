"""What a plan states of islands that are joined by outer steps, chosen or only offered."""

from collections.abc import Iterable
from typing import Self

from pydantic import Field

from trainplan.costmodel.job import Job
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.outer import fewest_steps, sync_of
from trainplan.costmodel.spec import Spec
from trainplan.costmodel.step import Estimate
from trainplan.planner.plan.target import Tried


class TriedIslands(Tried):
    """One number of islands and what is known of it; `num_gpus` are of all of them."""

    islands: int = Field(ge=1)
    """1: without outer steps, on the part of the cluster that is best."""
    reason: str = ""
    """Why it has no plan; else empty."""


class OuterStep(Spec):
    """Rounds of local steps, and the sync that ends each."""

    chosen: bool
    """False: the plan has none; `--allow diloco` allows it, and it changes the training."""
    islands: int = Field(ge=2)
    """Equal parts of the cluster."""
    idle_islands: int = Field(default=0, ge=0)
    """Groups of the cluster that are left idle, as fewer islands are better; all are equal."""
    every: int = Field(ge=1)
    """Local steps of a round."""
    step_time_s: float
    """Of all islands at once, with its share of what waits."""
    local_step_s: float
    """Of an island alone."""
    sent_bytes: float
    """That an island sends in a round."""
    sync_s: float
    """Seconds in which all of it crosses."""
    exposed_s: float
    """Of a round, that wait for it."""
    utilisation: float
    """Share of the time in local steps."""
    fewer_bytes: float
    """Times fewer bytes than an all-reduce of fp32 gradients after each step."""
    fewest_steps: int
    """Local steps of a round with which 95 % of the time is in them."""
    without_step_s: float | None
    """Of the best layout without outer steps, on any part of the cluster; null: not searched, or
    none fits."""
    without_gpus: int | None
    """GPUs of that layout."""
    held: bool = False
    """The number of islands is stated, or the objective uses all nodes: no other is an answer."""
    tried: tuple[TriedIslands, ...] = ()
    """Numbers of islands, and none, with the objective of each; empty: not allowed, or one layout
    was priced."""

    @classmethod
    def of(
        cls, job: Job, machine: Machine, priced: Estimate, *, chosen: bool = True
    ) -> Self | None:
        """Of a priced layout of an island, whose rounds may be free; null: the job has no islands.

        Source: `costmodel.outer.Sync`; every local step bears its share of what waits.
        """
        sync = sync_of(job, machine)
        if sync is None:
            return None
        local = priced.local_step_s
        steps, exposed = sync.steps(local), sync.exposed_seconds(local)
        return cls(
            chosen=chosen,
            islands=job.islands,
            every=steps,
            step_time_s=local + exposed / steps,
            local_step_s=local,
            sent_bytes=sync.sent_bytes,
            sync_s=sync.seconds,
            exposed_s=exposed,
            utilisation=sync.utilisation(local),
            fewer_bytes=sync.fewer_bytes(local),
            fewest_steps=fewest_steps(sync.seconds, local, sync.outer),
            without_step_s=None,
            without_gpus=None,
        )

    def compared(self, step_s: float, num_gpus: int) -> Self:
        """Next to the best layout without outer steps."""
        return self.model_copy(update={"without_step_s": step_s, "without_gpus": num_gpus})

    def among(
        self, tried: Iterable[tuple[Job, float, float, str]], idle_islands: int, *, held: bool
    ) -> Self:
        """With other numbers of islands: each with its job, objective, bound and reason."""
        rows = []
        for job, value, bound, reason in tried:
            row = Tried.of(job.cluster, value, bound).model_dump()
            count = (job.outer.islands or 1) if job.outer else 1
            more = {"num_gpus": job.num_gpus, "islands": count, "reason": reason}
            rows.append(TriedIslands.model_validate(row | more))
        known = {"tried": tuple(rows), "idle_islands": idle_islands, "held": held}
        return self.model_copy(update=known)
