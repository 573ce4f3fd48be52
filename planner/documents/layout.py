"""A layout as the JSON of a plan, and back."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout, OffloadSpec, StageSpec
from trainplan.costmodel.layouts import layers_per_stage
from trainplan.costmodel.pipeline import StageLayers, decoder_of, stage_layers
from trainplan.costmodel.spec import Spec

Json = Mapping[str, object]
_DERIVED = ("dp_shard", "num_microbatches", "num_microbatches_per_replica")


def layout_json(job: Job, layout: Layout) -> Json:
    """The value of every axis, with the numbers that follow; `stages` is null when all are even."""
    values: dict[str, object] = layout.model_dump(mode="json", exclude={"stages"})
    stages = stage_layers(decoder_of(job, layout.stages), layout.pp * layout.vpp)
    even = len(set(stages.layers.tolist())) == 1 and layout.stages is None
    return {
        **values,
        "dp_shard": layout.dp_shard,
        "num_microbatches": job.training.global_batch_size // (layout.dp * layout.micro_batch_size),
        "num_microbatches_per_replica": None,
        "offload": _offload_json(layout),
        "stages": None if even else [s.model_dump() for s in _written_stages(job, layout, stages)],
    }


def _offload_json(layout: Layout) -> Json:
    """Its axes; of weights the share that is off the GPU, and where it is kept.

    `activations` is the first name of `checkpoints`; `offload_modules` lists what else is moved.
    """
    moved = layout.offload
    return {
        **moved.model_dump(mode="json"),
        "activations": moved.checkpoints,
        "parameters": float(moved.parameters is not None),
    }


class WrittenLayers(Spec):
    """Layers of a virtual stage."""

    dense: int
    """Without experts."""
    moe: int
    """With experts."""
    mtp: int
    """Modules that predict a further token."""


class WrittenStage(Spec):
    """A virtual stage as the document has it."""

    layers: WrittenLayers
    embedding: bool
    head: bool
    recompute: str
    recompute_num_layers: int | None = None
    offload: None
    group: int
    """Of the cluster's node groups, from 0."""


def _written_stages(job: Job, layout: Layout, stages: StageLayers) -> Iterator[WrittenStage]:
    own = layout.stages or (StageSpec(layers=0),) * len(stages.layers)
    experts = np.array([kind.feed_forward == "moe" for kind in job.model.kinds])
    moe = stages.of_kind @ experts
    ends = stages.embedding, stages.head, stages.mtp
    columns = (column.tolist() for column in (stages.layers - moe, moe, *ends))
    for stage, (dense, sparse, embedding, head, mtp) in zip(
        own, zip(*columns, strict=True), strict=True
    ):
        yield WrittenStage(
            layers=WrittenLayers(dense=dense, moe=sparse, mtp=mtp),
            embedding=bool(embedding),
            head=bool(head),
            recompute=layout.recompute,
            recompute_num_layers=stage.recompute_num_layers,
            offload=None,
            group=stage.group,
        )


ABSENT = "missing"
LATER: Mapping[str, object] = {
    **{"cp_heads": 1, "gtp": 1, "egtp": 1, "hpz": 1, "shard": None},
    **{"tiled_mlp": False, "tiled_loss": False, "replicas_share_optimizer": False},
}
LATER_OF_OFFLOAD: Mapping[str, object] = {"parameters_tier": None, "checkpoints": 0.0, "stride": 0}
"""Keys that plans of earlier versions lack, off."""


def with_later_keys(written: Json) -> Json:
    """The layout of a plan with the keys that its version did not know yet."""
    whole: dict[str, object] = {**LATER, **written}
    offload = whole.get("offload")
    if isinstance(offload, dict):
        whole["offload"] = {**LATER_OF_OFFLOAD, **offload}
    return whole


def layout_from_json(text: Json) -> Layout:
    """Read `layout_json` back; derived keys are left out."""
    plain = {key: value for key, value in text.items() if key not in _DERIVED}
    offload = plain.get("offload")
    if isinstance(offload, dict):
        axes = {**offload, "parameters": offload.get("parameters_tier")}
        plain["offload"] = {k: v for k, v in axes.items() if k in OffloadSpec.model_fields}
    stages = plain.get("stages")
    if isinstance(stages, list):
        plain["stages"] = _stages_from_json(stages)
    return Layout.model_validate(plain)


def _stages_from_json(listed: Sequence[object]) -> tuple[StageSpec, ...] | None:
    """Stages of a layout; none where they are the even split."""
    written = [WrittenStage.model_validate(stage) for stage in listed]
    counts = tuple(stage.layers.dense + stage.layers.moe for stage in written)
    numbers = [stage.recompute_num_layers for stage in written]
    even = bool(counts) and counts == layers_per_stage(sum(counts), len(counts))
    groups = [stage.group for stage in written]
    if even and all(number is None for number in numbers) and not any(groups):
        return None
    return tuple(
        StageSpec(layers=layers, recompute_num_layers=again, group=group)
        for layers, again, group in zip(counts, numbers, groups, strict=True)
    )
