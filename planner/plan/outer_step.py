"""What a plan says of islands that are joined by outer steps, chosen or only offered."""

from typing import Self

from pydantic import Field

from trainplan.costmodel.job import Job
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.outer import fewest_steps, sync_of
from trainplan.costmodel.spec import Spec
from trainplan.costmodel.step import Estimate


class OuterStep(Spec):
    """Rounds of local steps, and the sync that ends each."""

    chosen: bool
    """False: the plan has none; `--allow diloco` asks for it, and it changes the training."""
    islands: int = Field(ge=2)
    """Equal parts of the cluster."""
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
        """Beside the best layout without outer steps."""
        return self.model_copy(update={"without_step_s": step_s, "without_gpus": num_gpus})
