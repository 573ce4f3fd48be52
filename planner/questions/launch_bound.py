"""A note on layer passes that wait for the host to launch them."""

from trainplan.costmodel.candidates import Context

GRAPHS = "cuda_graph=partial"


def launch_bound_note(on: Context) -> tuple[str, ...]:
    """That passes of experts are launched kernel by kernel, and what would help if anything does.

    A pass that computes for longer does not wait, so the note does not promise that graphs help.
    """
    traits = on.traits
    if not on.job.model.moe or traits.host.cuda_graph != "none":
        return ()
    constants = on.machine.constants
    eager, graphed = (
        f"{seconds * traits.host.release.experts * 1e3:.2g} ms"
        for seconds in (constants.host_moe, constants.host_moe_graph)
    )
    text = (
        f"mixture of experts: eager launches of a layer take {eager} of host time, for which "
        "shorter passes wait"
    )
    if GRAPHS in {one.text for one in traits.settings}:
        text += f"; with graphs of attention and router (`--option {GRAPHS}`) {graphed}"
    return (text,)
