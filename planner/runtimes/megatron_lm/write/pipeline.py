"""Options for the pipeline: how many stages and which layers each one holds."""

from collections.abc import Iterator

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import layers_per_stage
from trainplan.costmodel.runtimes import is_hybrid, pipeline_layout_string
from trainplan.planner.launch import Argument
from trainplan.planner.runtimes.megatron_lm import keys
from trainplan.planner.runtimes.megatron_lm.write.hybrid import layer_pattern


def pipeline_arguments(model: ModelSpec, layout: Layout) -> Iterator[Argument]:
    """Pipeline degree and, where the even split is impossible, the layers of every stage."""
    check_schedule(layout)
    yield keys.PP(layout.pp)
    if is_hybrid(model):
        pattern = layer_pattern(model, _layers(model, layout))
        yield keys.LAYER_PATTERN(pattern)
        return
    if layout.pp == 1:
        return
    layers = _layers(model, layout)
    mtp_layers = model.num_nextn_predict_layers
    if len(set(layers)) > 1 or mtp_layers:
        text = pipeline_layout_string(layers, mtp_layers)
        yield keys.STAGES(text)
    elif layout.vpp > 1:
        yield keys.VPP(layout.vpp)


def _layers(model: ModelSpec, layout: Layout) -> tuple[int, ...]:
    """Layers of every virtual stage.

    Raises:
        UnsupportedError: Stages recompute different numbers of layers.
    """
    if layout.stages is None:
        return layers_per_stage(model.num_hidden_layers, layout.pp * layout.vpp)
    if any(stage.recompute_num_layers is not None for stage in layout.stages):
        raise UnsupportedError(
            "megatron-lm recomputes the same number of layers in every stage "
            "(--recompute-num-layers): leave recompute_num_layers of the stages out"
        )
    return tuple(stage.layers for stage in layout.stages)


def check_schedule(layout: Layout) -> None:
    """The runtime picks the schedule from the number of virtual stages.

    Raises:
        UnsupportedError: The layout asks for another one.
    """
    if layout.pp == 1 and layout.vpp > 1:
        raise UnsupportedError("megatron-lm has no virtual stages without a pipeline; set vpp to 1")
    runs = "interleaved" if layout.vpp > 1 else "1f1b"
    if layout.schedule != runs:
        raise UnsupportedError(
            f"megatron-lm runs {runs} with vpp = {layout.vpp}; schedule = {layout.schedule!r} "
            "has no option: change vpp or the schedule"
        )
