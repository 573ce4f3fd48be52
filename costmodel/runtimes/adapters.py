"""What runtimes refuse of adapters and frozen weights, and rules on their layouts."""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from trainplan.costmodel.architecture import adapted
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.columns import BoolColumn
from trainplan.costmodel.job import Job
from trainplan.costmodel.layouts import LayoutTable, rule
from trainplan.costmodel.runtimes.base import RuntimeTraits


def refuse_training(job: Job, traits: RuntimeTraits, methods: dict[str, tuple[str, ...]]) -> None:
    """Check that a runtime trains what is asked; `methods` are those of every runtime.

    Raises:
        UnsupportedError: It does not; the message says what to change.
    """
    for reason in _reasons(job, traits, methods):
        raise UnsupportedError(reason)


def _reasons(job: Job, traits: RuntimeTraits, methods: dict[str, tuple[str, ...]]) -> Iterator[str]:
    model, name = job.model, traits.name
    if (trained := model.trained) is None:
        return
    if trained.method not in traits.adapting.methods:
        some = ", ".join(one for one, known in methods.items() if trained.method in known)
        yield f"--train {trained.method} is not priced for {name}: use --runtime with one of {some}"
    experts = [kind for kind in model.kinds if kind.feed_forward == "moe"]
    on_experts = any({"gate", "up", "down"} & set(adapted(kind)) for kind in experts)
    if on_experts and not traits.adapting.experts:
        yield (
            f"--train {trained.text}: the experts of {name} are no linear layers, which alone get "
            "adapters: use modules=attention, or attention,mixer"
        )
    if trained.quantised and experts:
        yield (
            f"--train qlora: bitsandbytes keeps linear layers in 4 bits, and the experts of {name} "
            "are none: use lora"
        )
    if job.training.precision in ("fp32", "tf32") and trained.adapts:
        yield f"--train {trained.method} is priced for 16 bits or fewer: use precision bf16"
    if job.options.adapter_dtype == "fp32" and not traits.adapting.widens:
        yield f"adapter_dtype=fp32: adapters of {name} have the type of its weights: leave it out"
    if job.may_offload_activations:
        yield "offloaded activations are priced with every weight trained: leave one of both out"


@rule(
    "tp etp",
    "the rank of adapters must be a multiple of tp, and of etp with experts: lower either",
    "Megatron-Bridge peft/utils.py, ParallelLinearAdapter: linear_in cuts the rank, or the input",
)
def adapters_are_cut_evenly(job: Job, table: LayoutTable) -> BoolColumn:
    """The first half of an adapter beside cut columns is cut along its rank."""
    trained = job.model.trained
    rank = (trained.rank if trained else None) or 0
    uneven = rank % table.tp != 0
    if job.model.moe is not None:
        uneven = uneven | (rank % table.etp != 0)
    return np.asarray(uneven)


@rule(
    "zero_stage",
    "adapters are priced with Megatron's own replicas: use zero_stage 0 or 1",
    "Megatron-Bridge training/setup.py: PEFT wraps the model before Megatron-FSDP, not checked",
)
def adapters_leave_fsdp_out(job: Job, table: LayoutTable) -> BoolColumn:
    """Megatron-FSDP shards weights, most of which are frozen here."""
    return np.asarray((table.zero_stage >= 2) & (job.model.trained is not None))


@rule(
    "etp",
    "adapters of ms-swift need whole experts: use etp=1",
    "modelscope/mcore-bridge tuners/lora.py: LoRA does not support ETP",
)
def adapters_leave_experts_whole(job: Job, table: LayoutTable) -> BoolColumn:
    """Each expert has adapters of its own, which no tensor rank cuts."""
    experts = any({"gate", "up", "down"} & set(adapted(kind)) for kind in job.model.kinds)
    return np.asarray((table.etp > 1) & (job.model.moe is not None) & experts)


@rule(
    "tp",
    "adapters and frozen weights of models of transformers are not cut over tensor ranks: use tp=1",
    "huggingface/peft tuners/lora/layer.py: lora_A and lora_B are linear layers of their own",
)
def adapters_are_whole(job: Job, table: LayoutTable) -> BoolColumn:
    """A plan of tensor parallelism names the modules of the base model."""
    return np.asarray((table.tp > 1) & (job.model.trained is not None))


def _quantised(job: Job) -> bool:
    return job.model.trained is not None and job.model.trained.quantised


def fsdp_version(job: Job) -> Literal[1, 2]:
    """That of a run of accelerate: as stated, else the second, or the one that shards 4 bits."""
    return job.options.fsdp_version or (1 if _quantised(job) else 2)


@rule(
    "zero_stage",
    "4-bit weights are not sharded by FSDP2: use zero_stage 0, or fsdp_version=1",
    "huggingface/accelerate utils/fsdp_utils.py, fsdp2_prepare_model: incompatible_params4bit",
)
def quantised_weights_are_replicated(job: Job, table: LayoutTable) -> BoolColumn:
    """FSDP2 leaves out 4-bit weights that are stored as bytes.

    The first version shards them where they are stored as the other weights
    (bnb_4bit_quant_storage): its flat parameters are of one type.
    """
    return np.asarray((table.zero_stage > 0) & _quantised(job) & (fsdp_version(job) == 2))


@rule(
    "tp cp dp_replicate",
    "fsdp_version=1 has no parallelism_config: use tp=cp=dp_replicate=1, or fsdp_version=2",
    "huggingface/accelerate accelerator.py: parallelism_config needs FSDP2",
)
def flat_parameters_have_no_mesh(job: Job, table: LayoutTable) -> BoolColumn:
    """All ranks of a run share the shards of FSDP's first version."""
    mesh = (table.tp > 1) | (table.cp > 1) | (table.dp_replicate > 1)
    return np.asarray(mesh & (fsdp_version(job) == 1))


@rule(
    "zero_stage",
    "4-bit weights are not sharded: use zero_stage 1 or 2",
    "deepspeedai/DeepSpeed runtime/zero/partition_parameters.py: gathers of 16 bits, not checked",
)
def quantised_weights_are_whole(job: Job, table: LayoutTable) -> BoolColumn:
    """ZeRO-3 gathers every weight before its product."""
    return np.asarray((table.zero_stage > 2) & _quantised(job))


BRIDGE_RULES = (adapters_are_cut_evenly, adapters_leave_fsdp_out)
