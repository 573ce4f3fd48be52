"""A job and its layout in the terms of the published runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.documents import Shape
from trainplan.costmodel.job import Job, TrainingSpec
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.model import num_parameters
from trainplan.costmodel.runtimes import RUNTIMES, RuntimeTraits, traits_of


class Setup(NamedTuple):
    """A job in its runtime, on no machine yet."""

    job: Job
    traits: RuntimeTraits

    @classmethod
    def of(cls, job: Job) -> Setup:
        """A job in the runtime that it names.

        Raises:
            CatalogError: No such runtime, or no such GPU.
        """
        return cls(job, traits_of(job))


def shape_of(on: Setup | Context, layout: Layout) -> Shape:
    """What is compared with published runs."""
    job = on.job
    cluster, model = job.cluster, job.model
    full = layout.recompute == "full"
    return Shape(
        gpu=" ".join(dict.fromkeys(group.gpu for group in cluster.groups)),
        runtime=job.runtime,
        precision=job.training.precision,
        kind=kind_of(model),
        parameters=num_parameters(model),
        num_gpus=cluster.num_gpus,
        seq_length=job.training.seq_length,
        tp=layout.tp,
        pp=layout.pp,
        vpp=layout.vpp,
        cp=layout.cp,
        dp=layout.dp,
        ep=layout.ep,
        etp=layout.etp,
        dp_replicate=layout.dp_replicate,
        micro_batch_size=layout.micro_batch_size,
        zero_stage=layout.zero_stage,
        schedule=layout.schedule,
        recompute=("full",) if full else layout.recompute_modules,
        offload_optimizer=layout.offload.optimizer,
        offload_modules=layout.offload_modules,
        settings=(
            *(word for word, noticed in settings_of(on.traits, layout) if noticed),
            *states_of(job.training),
        ),
    )


def kind_of(model: ModelSpec) -> tuple[str, ...]:
    """What its layers have; mixers of tokens that not every runtime has by their names."""
    mixers = {kind.mixer for kind in model.kinds} - {"full_attention", "sliding_attention", "none"}
    others = (mixer.replace("_", " ") for mixer in sorted(mixers))
    named = {"moe": model.moe, "mla": model.mla, "tower": model.tower, "adapted": model.trained}
    kinds = (*(name for name, part in named.items() if part), *others)
    return kinds or ("dense",)


def family_of(runtime: str) -> str:
    """Runtimes that run layouts by the same code, or this one."""
    return RUNTIMES[runtime].family or runtime


def settings_of(
    traits: RuntimeTraits, one: Layout | LayoutTable
) -> Sequence[tuple[str, BoolColumn | bool]]:
    """Settings of a run as `--option` takes them, and whether a layout can notice each."""
    attention = "unfused" if traits.kernels.attention == "unfused" else "flash"
    sharded, routed = one.tp > 1, one.ep > 1
    experts = traits.experts
    alongside = [("overlap_shared_experts=true", routed)] if experts.overlaps_shared else []
    alongside += [(f"moe_chunks={experts.chunks}", routed)] * (experts.chunks > 1)
    return (
        (f"attention={attention}", True),
        (f"cuda_graph={traits.host.cuda_graph}", True),
        (f"overlap_tp_comm={_word(traits.communication.overlaps_tensor_parallel)}", sharded),
        ("gtp=on", (one.gtp > 1) | (one.egtp > 1)),
        (f"moe_dispatcher={traits.experts.dispatcher}", routed),
        (f"overlap_moe_a2a={_word(traits.experts.overlaps)}", routed),
        *alongside,
    )


STATES = ("optimizer=", "state_precision=")
"""What the words of `states_of` begin with."""


def states_of(training: TrainingSpec) -> Iterator[str]:
    """How weights are updated and states stored, where not as in all published runs."""
    usual = type(training).model_fields
    if training.optimizer != usual["optimizer"].default:
        yield f"optimizer={training.optimizer.name}"
    if training.state_precision != usual["state_precision"].default:
        yield f"state_precision={training.state_precision}"


def _word(value: bool) -> str:  # noqa: FBT001 - one value
    return "true" if value else "false"
