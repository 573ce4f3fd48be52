"""The sync of the islands of a job, on its machine, and what the outer optimizer keeps."""

from dataclasses import dataclass, replace

from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.job import Job, OuterSpec
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.model import num_parameters
from trainplan.costmodel.outer.outer_step import (
    ENOUGH,
    exposed_seconds,
    fewer_bytes,
    fewest_steps,
    hidden_steps,
    sent_bytes,
    sync_seconds,
    utilisation,
)


@dataclass(frozen=True, slots=True)
class Sync:
    """What joins the islands once in a round of local steps."""

    outer: OuterSpec
    sent_bytes: float
    """That an island sends in a round."""
    seconds: float
    """In which all of it crosses."""

    def steps(self, step_s: float) -> int:
        """Local steps of a round: as stated, else the fewest that keep the islands busy."""
        return self.outer.every or fewest_steps(self.seconds, step_s, self.outer)

    def exposed_seconds(self, step_s: float) -> float:
        """Seconds of a round that wait for it. Source: `exposed_seconds`."""
        return exposed_seconds(self.seconds, step_s, self.outer, self.steps(step_s))

    def utilisation(self, step_s: float) -> float:
        """Share of the time in local steps. Source: `utilisation`."""
        return utilisation(self.seconds, step_s, self.outer, self.steps(step_s))

    def fewer_bytes(self, step_s: float) -> float:
        """Times fewer bytes than an all-reduce after each step. Source: `fewer_bytes`."""
        return fewer_bytes(self.outer, self.steps(step_s))


def sync_of(job: Job, machine: Machine) -> Sync | None:
    """The sync of the islands of a job; null: it is of no island."""
    outer = job.outer
    if outer is None or not outer.is_parted:
        return None
    params = num_parameters(job.model)
    nodes, efficiency = job.cluster.num_nodes, machine.constants.nic_efficiency
    seconds = sync_seconds(params, outer, nodes=nodes, efficiency=efficiency)
    return Sync(outer, sent_bytes(params, outer), seconds)


def with_outer(machine: Machine, job: Job) -> Machine:
    """The machine with the syncs of a job's islands, of which every local step bears its share.

    A free number of them is taken to leave ENOUGH of the time in local steps, as it is chosen so.
    """
    found = sync_of(job, machine)
    if found is None:
        return machine
    if found.outer.every is None:
        return replace(machine, outer_factor=1 / ENOUGH)
    steps = found.outer.every
    left = 1 - hidden_steps(found.outer, steps) / steps
    return replace(machine, outer_seconds=found.seconds / steps, outer_factor=left)


def with_rounds(job: Job, machine: Machine, step_s: float) -> Job:
    """The job with its local steps between syncs, by what one takes, where they are free.

    Source: `fewest_steps`.
    """
    found = sync_of(job, machine)
    if found is None or found.outer.every is not None:
        return job
    outer = found.outer.model_copy(update={"every": found.steps(step_s)})
    return job.model_copy(update={"outer": outer})


def state_bytes_per_param(outer: OuterSpec) -> tuple[float, float]:
    """Bytes of a parameter that a rank updates, on the GPU and on the host.

    On the GPU the momentum of the outer optimizer, and the outer gradients of a fragment while
    local steps go on beside its sync; without overlap they live when no activations do. On the
    host the weights of the last outer step. All in fp32.
    Source: arXiv:2311.08105, section 2 (Nesterov momentum); meta-pytorch/torchft
    `torchft/local_sgd.py` @73dafea, _StreamingDiLoCoFragment (original_parameters on the CPU,
    _grads until the sync is applied).
    """
    in_flight = 0 if outer.overlap == "none" else 1 / outer.fragments
    return BYTES_FP32 * (1 + in_flight), BYTES_FP32
