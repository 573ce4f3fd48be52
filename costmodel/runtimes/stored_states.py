"""Traits of a run whose optimizer, or whose number formats of states, are not the usual ones."""

from collections.abc import Iterable
from dataclasses import replace

from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.job import Job
from trainplan.costmodel.optimizers import (
    FP8_LM,
    LEVEL_RULES,
    OPTIMIZER_RULES,
    STORED,
    StoredStates,
    optimizer_of,
)
from trainplan.costmodel.runtimes.base import RuntimeTraits


def with_states(traits: RuntimeTraits, job: Job, known: Iterable[RuntimeTraits]) -> RuntimeTraits:
    """The traits of a job, with the bytes its weights, gradients and moments take.

    Source: `costmodel.optimizers.Optimizer.bare` and `STORED`.

    Raises:
        PlanError: The runtime, one of those `known`, lacks the optimizer or the formats.
    """
    training = job.training
    refuse(traits, job, known)
    found = optimizer_of(training.optimizer)
    if not found.on_host:
        traits = replace(traits, rules=(*traits.rules, *OPTIMIZER_RULES))
    if found.bare:
        size = training.storage_bytes
        return replace(
            traits,
            footprint=replace(traits.footprint, moment_bytes=size, master_bytes=0),
            gradients=replace(traits.gradients, accumulated_bytes=size, message_bytes=size),
        )
    if training.state_precision == "o0":
        return traits
    stored = STORED[training.state_precision]
    if training.state_precision not in FP8_LM:
        return _in_one_type(traits, stored)
    return replace(
        traits,
        rules=(*traits.rules, *LEVEL_RULES),
        footprint=replace(
            traits.footprint,
            moment_bytes=sum(stored.moment_bytes) / 2,
            master_bytes=stored.master_bytes,
            weight_bytes=stored.weight_bytes,
        ),
        gradients=replace(
            traits.gradients,
            accumulated_bytes=stored.gradient_bytes,
            message_bytes=stored.gradient_bytes,
            narrow=True,
        ),
        sharding=replace(traits.sharding, weight_message_bytes=float(stored.weight_bytes)),
    )


def _in_one_type(traits: RuntimeTraits, stored: StoredStates) -> RuntimeTraits:
    """Weights that are updated as they are stored, or by way of a copy of the same type.

    Source: `Footprint.updates_copies`; a fully sharded weight is its own master. FSDP2 casts a
    reduced gradient to the type of its weight: PyTorch `_fsdp_collectives.py`, foreach_reduce.
    """
    size, footprint = stored.weight_bytes, traits.footprint
    apart = footprint.sharded_weights_are_master or footprint.updates_copies
    sent = traits.gradients.message_bytes if traits.on_torch else size
    gradients = replace(
        traits.gradients, accumulated_bytes=stored.gradient_bytes, message_bytes=sent
    )
    moment = sum(stored.moment_bytes) / 2
    states = replace(footprint, moment_bytes=moment, master_bytes=size if apart else 0)
    return replace(traits, footprint=states, gradients=gradients)


def refuse(traits: RuntimeTraits, job: Job, known: Iterable[RuntimeTraits]) -> None:
    """Check that a runtime has what the training of a job asks for.

    Raises:
        PlanError: It has not; the message says who has, or which two things exclude each other.
    """
    training, options = job.training, job.options
    request, level = training.optimizer, training.state_precision
    usual = optimizer_of(request).on_host
    others = tuple(known)
    if request.name not in dict(traits.optimizers):
        found = [one.name for one in others if request.name in dict(one.optimizers)]
        raise UnsupportedError(
            f"{traits.name} has no optimizer {request.name}: "
            f"use --runtime {_either(found)}, or one "
            f"of its own: {', '.join(dict(traits.optimizers))}"
        )
    if level not in traits.state_precisions:
        found = [one.name for one in others if level in one.state_precisions]
        raise UnsupportedError(
            f"{traits.name} stores no states at {level}: use --runtime {_either(found)}, or "
            "--state-precision o0"
        )
    if level in FP8_LM and not usual:
        raise UnsupportedError(
            f"--state-precision {level} is of AdamW, and the optimizer is {request.name}: leave "
            "one out"
        )
    if level != "o0" and training.storage_bytes > 2:
        raise UnsupportedError(
            f"--state-precision {level} stores weights in 16 bits or fewer, and the precision is "
            f"{training.precision}: use bf16, fp16 or fp8"
        )
    stated = [name for name in STATE_OPTIONS if getattr(options, name) is not None]
    if stated and level != "o0":
        raise UnsupportedError(f"--state-precision {level} sets {stated[0]}: leave the option out")
    if options.moment_dtype is not None and not usual:
        raise UnsupportedError(
            f"moment_dtype is of AdamW, and the optimizer is {request.name}: leave the option out"
        )


STATE_OPTIONS = ("moment_dtype", "gradient_dtype")
"""Options that formats of all states settle."""


def _either(names: list[str]) -> str:
    return " or ".join(names) or "none: no runtime has it"
