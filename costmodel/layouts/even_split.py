"""How many layers every virtual stage of a pipeline holds."""

from __future__ import annotations

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.layout import Layout

EMPTY_ENDS = 2
"""Stages that may hold no layer: the first runs the embedding, the last head and loss.

Source: Llama 3, arXiv:2407.21783, section 3.3.2 (balancing the pipeline of 126 layers).
"""


def layers_per_stage(num_layers: int, num_stages: int) -> tuple[int, ...]:
    """Decoder layers of every virtual stage, in pipeline order; they sum to `num_layers`.

    Every stage gets `num_layers // num_stages`. What is left goes one layer each to the stages
    between first and last, from the front; then to the first; the last never gets one, because
    the remainder is smaller than the number of stages. With one or two stages more than layers the
    last, then the first stage holds no layer: only the head and the embedding.

    Source: derived. The first stage also runs the embedding and the last one the output
    projection and the loss, so an extra layer there lengthens the slowest stage sooner than
    between them; the projection is the heavier of the two, hence the order first, last.

    Raises:
        SpecError: A stage between the first and the last would be empty, or there is no stage.
    """
    most = num_layers + EMPTY_ENDS
    if not 1 <= num_stages <= most:
        raise SpecError(
            f"{num_layers} layers cannot fill {num_stages} pipeline stages; use 1 to {most}"
        )
    base, extras = divmod(num_layers, num_stages)
    inner = range(1, num_stages - 1)
    order = (*inner, 0, num_stages - 1)
    longer = frozenset(order[:extras])
    return tuple(base + (stage in longer) for stage in range(num_stages))


def stage_layers(model: ModelSpec, layout: Layout) -> tuple[int, ...]:
    """Layers of every virtual stage: as the layout states them, else `layers_per_stage`."""
    if layout.stages is None:
        return layers_per_stage(model.num_hidden_layers, layout.pp * layout.vpp)
    return tuple(stage.layers for stage in layout.stages)
