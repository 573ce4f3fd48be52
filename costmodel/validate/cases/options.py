"""Settings of the runtime that a measured run states or its recipe decides."""

from __future__ import annotations

from trainplan.costmodel.spec import RuntimeOptions
from trainplan.costmodel.spec.evidence.measured_run import MeasuredRun
from trainplan.costmodel.spec.options import Graph
from trainplan.costmodel.validate.cases.names import DISPATCHERS, EXCHANGES
from trainplan.costmodel.validate.cases.unstated import drops_out, moment_dtype, offloaded_layers


def options_of(run: MeasuredRun) -> RuntimeOptions:
    """Options of the run; null where neither it nor its recipe says."""
    layout = run.layout
    overlap = layout.overlap
    return RuntimeOptions(
        attention=run.attention_backend,
        compile=layout.compile,
        cross_entropy=layout.cross_entropy,
        cuda_graph=_graph(run),
        overlap_grad_reduce=overlap.grad_reduce if overlap else None,
        overlap_param_gather=overlap.param_gather if overlap else None,
        overlap_tp_comm=overlap.tp_comm if overlap else None,
        overlap_moe_a2a=overlap.moe_a2a if overlap else None,
        moe_dispatcher=DISPATCHERS.get(layout.moe_dispatcher or ""),
        gradient_dtype=layout.gradient_dtype,
        cp_comm_type=EXCHANGES.get(layout.cp_comm_type or ""),
        dropout=drops_out(run),
        moment_dtype=moment_dtype(run),
        offload_activation_layers=offloaded_layers(run),
    )


def _graph(run: MeasuredRun) -> Graph | None:
    stated = run.layout.cuda_graph
    if stated is None:
        return None
    if stated in (False, "none"):
        return "none"
    return "full_iteration" if stated in (True, "full_iteration") else "partial"
