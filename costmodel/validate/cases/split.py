"""How the layers of a measured run were cut into stages."""

import re

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import SpecError
from trainplan.costmodel.documents import MeasuredRun
from trainplan.costmodel.layout import Layout, stage_specs
from trainplan.costmodel.validate.cases.unstated import layers_by_cost, recipe_of

MOST_REPEATS = 10_000


def split_of(run: MeasuredRun, model: ModelSpec, layout: Layout) -> tuple[int, ...] | None:
    """Decoder layers of every stage: without the embedding and the head where the file counts them.

    It does not where its numbers are the layers of the model as they stand.
    """
    text, stages = run.layout.pp_layout, layout.pp * layout.vpp
    if text:
        counts = tuple(chunk.count("t") for chunk in _expanded(text).split("|"))
        return _for_stages(counts, stages, f"pp_layout {text[:60]!r}")
    counted = run.layout.layers_per_stage
    if counted is None and recipe_of(run).splits_by_cost and layout.vpp == 1:
        return layers_by_cost(model, layout.pp)
    if counted is None or stages == 1:
        return None
    ends = int(sum(counted) != model.num_hidden_layers)
    whole = (counted[0] - ends, *counted[1:-1], counted[-1] - ends)
    return _for_stages(whole, stages, f"layers_per_stage of {len(counted)} entries")


def split_into(layout: Layout, counts: tuple[int, ...], num_layers: int) -> Layout:
    """The layout with those layers in its stages.

    Raises:
        SpecError: They are not the layers of the model.
    """
    if sum(counts) != num_layers:
        raise SpecError(f"stages hold {sum(counts)} layers, the model has {num_layers}")
    return layout.model_copy(update={"stages": stage_specs(counts)})


def _for_stages(counts: tuple[int, ...], stages: int, what: str) -> tuple[int, ...]:
    if len(counts) != stages:
        raise SpecError(f"{what} is for {len(counts)} stages, pp * vpp is {stages}")
    return counts


def _expanded(text: str) -> str:
    """Megatron's pipeline letters without repetition counts: `(tt|)*2tL` is `tt|tt|tL`."""
    if any(len(count) > 5 or int(count) > MOST_REPEATS for count in re.findall(r"\*(\d+)", text)):
        raise SpecError(f"pp_layout {text[:60]!r} repeats a part more than {MOST_REPEATS} times")
    text = re.sub(r"\(([^()]*)\)\*(\d+)", lambda m: m.group(1) * int(m.group(2)), text)
    return re.sub(r"([a-zA-Z])\*(\d+)", lambda m: m.group(1) * int(m.group(2)), text)
