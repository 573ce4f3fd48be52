"""Layouts as short text."""

import json
from collections.abc import Mapping, Sequence
from itertools import groupby

from trainplan.cli.words.numbers import DOT, NEVER, exact_share, plural, share
from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.axes import AXES
from trainplan.costmodel.layout import Layout, StageSpec, stages_text
from trainplan.planner.documents import Changed

SHORT_MODULES = {
    "core_attn": "attn",
    "layernorm": "norm",
    "mla_up_proj": "mla",
    "mlp": "mlp",
    "moe_act": "act",
    "shared_experts": "shared",
    "moe": "moe",
    "torchtitan_selective_op": "ops",
    "maxtext_save_qkv_proj": "all but qkv",
    "gdn_norm_out": "gated norm",
}
"""Recompute modules as the tables write them."""
SHORT_OFFLOADED = {
    "qkv_linear": "qkv",
    "core_attn": "core",
    "attn_proj": "proj",
    "mlp_norm": "norm",
    "expert_fc1": "fc1",
    "moe_act": "act",
}
"""Modules on the host as the tables write them."""
OWN_WORDS = frozenset(
    {
        *("tp", "pp", "vpp", "cp", "dp", "dp_replicate", "zero_stage", "ep", "etp", "schedule"),
        *("micro_batch_size", "sequence_parallel", "offload.optimizer", "offload_modules"),
        *("recompute", "recompute_modules", "recompute_method", "recompute_num_layers", "stages"),
    }
)
"""Axes with a place and words of their own in a line; the others come last, by their names."""


STEP, FEW = "step_time_s", 3
"""The step of an estimate, and how many of its values are shown that differ."""


def no_plan_text(status: str, reason: str) -> str:
    """Why a search has no plan; `reason` where the status does not show it."""
    known = {"memory": "nothing fits", "rules": "no layout is legal", "untried": "time limit"}
    return known.get(status, reason)


def otherwise_text(plan: str, changed: Sequence[Changed]) -> str:
    """That a plan was made with other numbers than those of now: the first few of them."""
    parts = [
        f"{_value(one.name, one.before)} {_of(one)}, "
        f"{'now' if number else 'this version'} {_value(one.name, one.now)}"
        for number, one in enumerate(changed[:FEW])
    ]
    parts += [f"{plural(len(changed) - FEW, 'more number')}"] if len(changed) > FEW else []
    return f"{plan} states {'; '.join(parts)}: give the --profile it was made with, or make it anew"


def _of(one: Changed) -> str:
    return "a step" if one.name == STEP and one.before is not None else f"of {one.name}"


def _value(name: str, value: object) -> str:
    """A value of an estimate with its unit, which its name ends in."""
    if value is None:
        return "nothing"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return json.dumps(value)
    if name.endswith("_bytes"):
        return f"{value:,.0f} bytes"
    return f"{value:.4g} s" if name.startswith("terms.") or name.endswith("_s") else f"{value:.4g}"


def layout_line(layout: Layout, model: ModelSpec) -> str:
    """A layout in one line: its degrees, and what is not off."""
    degrees = ["tp", "pp", "vpp", "cp", "dp", *(("ep", "etp") if model.moe else ())]
    parts = [f"{name} {getattr(layout, name)}" for name in degrees]
    if layout.schedule != usual_schedule(layout):
        parts.append(layout.schedule)
    parts.append(f"mbs {layout.micro_batch_size}")
    if layout.sequence_parallel:
        parts.append("SP")
    parts.append(zero_text(layout))
    parts.append(f"recompute {recompute_text(layout)}")
    if layout.offload.optimizer:
        parts.append(f"offload {exact_share(layout.offload.optimizer)} of optimizer")
    return DOT.join((*parts, *last_words(layout).values()))


def stages_sentence(stages: Sequence[StageSpec]) -> str:
    """What `stages 0+1*74+2*2` means, in words."""
    runs = [(stage, len(list(run))) for stage, run in groupby(stages)]
    stated = (
        f"{count} x {_of_stage(stage)}" if count > 1 else _of_stage(stage) for stage, count in runs
    )
    return f"Layers of the {len(stages)} virtual stages, in pipeline order: {', '.join(stated)}."


def _of_stage(stage: StageSpec) -> str:
    again = stage.recompute_num_layers
    return f"{stage.layers}" if again is None else f"{stage.layers} ({again} recomputed)"


def last_words(layout: Layout) -> Mapping[str, str]:
    """Words for the axes that come last in a line, those that are off left out."""
    words: dict[str, str] = {}
    if layout.offload_modules:
        words["offloaded modules"] = f"offload {'+'.join(layout.offload_modules)}"
    if layout.stages:
        words["stages"] = f"stages {stages_text(layout.stages)}"
    for axis in AXES:
        if axis.name not in OWN_WORDS and not axis.is_off(layout):
            words[axis.word] = f"{axis.word} {axis.text(layout)}"
    return words


def usual_schedule(layout: Layout) -> str:
    """The schedule a layout has where none is named."""
    return "interleaved" if layout.vpp > 1 else "1f1b"


def zero_text(layout: Layout) -> str:
    """ZeRO stage, with the sharding group where it is not all of dp."""
    if layout.dp_replicate == 1:
        return f"ZeRO-{layout.zero_stage}"
    return f"ZeRO-{layout.zero_stage} over {layout.dp_shard} of {layout.dp}"


def recompute_text(layout: Layout) -> str:
    """Recomputation in one word where possible."""
    if layout.recompute == "selective":
        return "+".join(SHORT_MODULES[module] for module in layout.recompute_modules)
    if layout.recompute == "full":
        return f"full {layout.recompute_method}/{layout.recompute_num_layers}"
    return layout.recompute


def offloaded_text(layout: Layout) -> str:
    """What is off the GPU without the optimizer, in short; drives are named."""
    moved = layout.offload
    words = [SHORT_OFFLOADED[module] for module in layout.offload_modules]
    if moved.optimizer and moved.tier == "nvme":
        words.append("optimizer nvme")
    if moved.parameters:
        words.append("weights" + (" nvme" if moved.parameters == "nvme" else ""))
    if moved.checkpoints:
        words.append(
            "checkpoints"
            if moved.checkpoints == 1
            else f"{share(moved.checkpoints)} of checkpoints"
        )
    return "+".join(words) or NEVER
