"""Settings that a priced layout assumes, and what each saves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from trainplan.costmodel.base import SpecError
from trainplan.costmodel.calibration import NOTHING, Measured, context_for
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.comm import DEFAULT_PROXY, group
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.routing import LoadShift
from trainplan.costmodel.step import Estimate
from trainplan.planner.cases import replaced
from trainplan.planner.plan import Spent
from trainplan.planner.questions.estimation import estimate
from trainplan.planner.questions.load_shift import load_shift
from trainplan.planner.settings import Assumed

OFF = {
    "cuda_graph": "none",
    "moe_dispatcher": "alltoall",
    "microbatch_group_size": None,
    "overlap_moe_a2a": False,
    "overlap_shared_experts": False,
    "delay_wgrad": False,
    "moe_chunks": 1,
    "overlap_tp_comm": False,
    "cp_comm_type": "p2p",
    "overlap_grad_reduce": False,
    "overlap_param_gather": False,
    "bucket_mb": None,
}
"""Options that time hangs on, in the order they are named, each with its plain value."""
ALONG = {
    "overlap_grad_reduce": {"overlap_param_gather": False},
    "overlap_moe_a2a": {"delay_wgrad": False},
}
"""What is off with another: gathers overlap passes in the buckets that reductions do, delayed
weight gradients in the plan of both passes."""
LEAST = 0.0005
"""Of the step that a default saves, below which it is not named: 0.0 % in print."""


def assumed(
    job: Job, layout: Layout, priced: Estimate, measured: Measured = NOTHING
) -> Iterator[Assumed]:
    """Those of a priced layout, with one estimate each."""
    on = context_for(job, measured)
    if layout.zero_stage >= 2 and on.traits.sharding.version == 1:
        default = job.options.fsdp_version is None
        yield Assumed(option="fsdp_version=1", default=default, saves_fraction=None)
    yield from _carriers(on, layout)
    host = on.traits.host
    if job.model.moe and on.traits.on_megatron_core and host.cuda_graph != "full_iteration":
        text = f"--runtime-version {host.release.container}"
        yield Assumed(option=text, default=job.release is None, saves_fraction=None)
    for name, value in _values(on, layout).items():
        stated = getattr(job.options, name) is not None
        text = f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        if value == OFF[name]:
            if name == "moe_dispatcher" and job.model.moe and layout.ep > 1:
                yield Assumed(option=text, default=not stated, saves_fraction=None)
            continue
        off: dict[str, object] = {name: OFF[name], **ALONG.get(name, {})}
        if name == "bucket_mb":
            off = {name: on.traits.usual_bucket_mb(layout.dp * layout.cp)}
        saved, needing = _saved(job, layout, priced, measured, off), ""
        if saved is None and name == "moe_dispatcher" and job.options.cuda_graph:
            needing = f"cuda_graph={job.options.cuda_graph}"
            saved = _saved(job, layout, priced, measured, {**off, "cuda_graph": "none"})
        if stated or (saved is not None and abs(saved) >= LEAST):
            yield Assumed(option=text, default=not stated, saves_fraction=saved, needing=needing)


class StepFacts(NamedTuple):
    """Of a priced layout, as documents name it."""

    spent: Spent
    assumed: tuple[Assumed, ...]
    load_shift: LoadShift | None

    @classmethod
    def of(
        cls, job: Job, layout: Layout, priced: Estimate, measured: Measured = NOTHING
    ) -> StepFacts:
        """What a step takes and the run, the settings that its price assumes, how steps differ."""
        spent = Spent.of(context_for(job, measured), layout, priced.step_time_s)
        settings = tuple(assumed(job, layout, priced, measured))
        return cls(spent, settings, load_shift(job, layout, priced, measured))


def _saved(
    job: Job, layout: Layout, priced: Estimate, measured: Measured, off: Mapping[str, object]
) -> float | None:
    """Of the step without some settings; null: the layout does not run without them."""
    plain = job.model_copy(update={"options": replaced(job.options, **off)})
    try:
        return 1 - priced.step_time_s / estimate(plain, layout, measured).step_time_s
    except SpecError:
        return None


def _carriers(on: Context, layout: Layout) -> Iterator[Assumed]:
    """What carries a dispatcher between nodes that is priced by it."""
    links = group(on.machine, np.array([layout.ep]), np.array([layout.etp]))
    if not (on.job.model.moe and links.nodes[0] > 1 and on.traits.experts.sends_once_across):
        return
    if not all(one.nic and one.nic.transport for one in on.job.cluster.groups):
        yield Assumed(option="transport=infiniband", default=True, saves_fraction=None)
    if on.machine.by_proxies:
        stated = on.job.options.deepep_proxy
        text = f"deepep_proxy={stated or DEFAULT_PROXY}"
        yield Assumed(option=text, default=stated is None, saves_fraction=None)


def _values(on: Context, layout: Layout) -> dict[str, object]:
    """What the layout runs with."""
    traits = on.traits
    links = group(on.machine, np.array([layout.ep]), np.array([layout.etp]))
    experts, sharding = traits.experts, traits.sharding
    across = experts.dispatcher_across if links.nodes[0] > 1 else experts.dispatcher
    return {
        "cuda_graph": traits.host.cuda_graph,
        "moe_dispatcher": across,
        "microbatch_group_size": on.job.options.microbatch_group_size if layout.vpp > 1 else None,
        "overlap_moe_a2a": experts.overlaps,
        "overlap_shared_experts": experts.overlaps_shared,
        "delay_wgrad": experts.delays_weights,
        "moe_chunks": experts.chunks,
        "overlap_tp_comm": traits.communication.overlaps_tensor_parallel,
        "cp_comm_type": traits.communication.context_exchange,
        "overlap_grad_reduce": sharding.overlaps_gradients,
        "overlap_param_gather": sharding.overlaps_parameters,
        "bucket_mb": on.job.options.bucket_mb,
    }
