"""The outer step of a job on its machine, and what its optimizer keeps."""

from dataclasses import dataclass, replace

from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.job import Job, OuterSpec
from trainplan.costmodel.machine import Machine
from trainplan.costmodel.model import num_parameters
from trainplan.costmodel.outer.outer_step import hidden_steps, sent_bytes, sync_seconds


@dataclass(frozen=True, slots=True)
class OuterStep:
    """What joins the islands once in a round of local steps."""

    spec: OuterSpec
    sent_bytes: float
    """That an island sends in a round."""
    sync_s: float
    """Seconds in which all of it crosses."""


def outer_of(job: Job, machine: Machine) -> OuterStep | None:
    """The outer step of a job; null: it has none."""
    outer = job.outer
    if outer is None:
        return None
    params = num_parameters(job.model)
    nodes = sum(group.num_nodes for group in job.cluster.groups)
    efficiency = machine.constants.nic_efficiency
    seconds = sync_seconds(params, outer, nodes=nodes, efficiency=efficiency)
    return OuterStep(outer, sent_bytes(params, outer), seconds)


def with_outer(machine: Machine, job: Job) -> Machine:
    """The machine with the outer steps of a job, of which every local step bears its share.

    Free numbers of steps add nothing: they are chosen by what a local step takes.
    """
    found = outer_of(job, machine)
    if found is None or found.spec.every is None:
        return machine
    steps = found.spec.every
    hidden = hidden_steps(found.spec, steps) / steps
    return replace(machine, outer_seconds=found.sync_s / steps, outer_hidden=hidden)


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
