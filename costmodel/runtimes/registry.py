"""Runtimes by the `runtime` values of measured runs. To add one: write its file, add one line."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import Identical, unknown_name
from trainplan.costmodel.catalog import release_of
from trainplan.costmodel.job import DEFAULT_RUNTIME, Job, TrainingSpec
from trainplan.costmodel.optimizers import optimizer_of
from trainplan.costmodel.plugins import Registry
from trainplan.costmodel.runtimes.accelerate import ACCELERATE
from trainplan.costmodel.runtimes.adapters import fsdp_version, refuse_training
from trainplan.costmodel.runtimes.arctic_training import ARCTIC_TRAINING
from trainplan.costmodel.runtimes.attention import attention_on, runs_on_cpus
from trainplan.costmodel.runtimes.base import RuntimeTraits
from trainplan.costmodel.runtimes.deepspeed import DEEPSPEED
from trainplan.costmodel.runtimes.fms_fsdp import FMS_FSDP
from trainplan.costmodel.runtimes.fsdp2 import FSDP2_MODULE
from trainplan.costmodel.runtimes.llm_foundry_fsdp import LLM_FOUNDRY_FSDP
from trainplan.costmodel.runtimes.maxtext import MAXTEXT
from trainplan.costmodel.runtimes.megatron.dispatchers import dispatches_between_nodes
from trainplan.costmodel.runtimes.megatron_bridge import MEGATRON_BRIDGE
from trainplan.costmodel.runtimes.megatron_deepspeed import MEGATRON_DEEPSPEED
from trainplan.costmodel.runtimes.megatron_lm import MEGATRON_LM
from trainplan.costmodel.runtimes.megatron_zero_bubble import MEGATRON_ZERO_BUBBLE
from trainplan.costmodel.runtimes.methods import METHOD_RUNTIMES
from trainplan.costmodel.runtimes.nanotron import NANOTRON
from trainplan.costmodel.runtimes.nemo import NEMO
from trainplan.costmodel.runtimes.stored_states import with_states
from trainplan.costmodel.runtimes.torch_eager import TORCH_EAGER
from trainplan.costmodel.runtimes.torchtitan import TORCHTITAN
from trainplan.costmodel.runtimes.traits.footprint import PRIMARY_MESSAGE_BYTES
from trainplan.costmodel.runtimes.traits.needs import USER_BUFFERS
from trainplan.costmodel.runtimes.transformers import TRANSFORMERS

RUNTIMES: Mapping[str, RuntimeTraits] = Registry(
    "runtimes",
    {
        traits.name: traits
        for traits in (
            MEGATRON_LM,
            MEGATRON_BRIDGE,
            NEMO,
            MEGATRON_DEEPSPEED,
            MEGATRON_ZERO_BUBBLE,
            TORCHTITAN,
            ACCELERATE,
            DEEPSPEED,
            ARCTIC_TRAINING,
            FSDP2_MODULE,
            LLM_FOUNDRY_FSDP,
            FMS_FSDP,
            MAXTEXT,
            NANOTRON,
            TORCH_EAGER,
            TRANSFORMERS,
            *METHOD_RUNTIMES,
        )
    },
    RuntimeTraits,
)


def runtime(name: str) -> RuntimeTraits:
    """Traits of a runtime with its default options.

    Raises:
        CatalogError: No such runtime; the message names the nearest.
    """
    if name not in RUNTIMES:
        raise unknown_name("runtime", name, RUNTIMES, f"known: {', '.join(RUNTIMES)}")
    return RUNTIMES[name]


def runtime_with(training: TrainingSpec, on_cpu: ModelSpec | None = None) -> str:
    """The runtime of a job that names none: the usual one, or the first that has the optimizer.

    `on_cpu` is the model where there are no GPUs: then the first that builds it and trains there.

    Raises:
        PlanError: No such optimizer, or its settings are wrong.
    """
    optimizer_of(training.optimizer)
    has = [
        name
        for name, one in RUNTIMES.items()
        if training.optimizer.name in dict(one.optimizers)
        and training.state_precision in one.state_precisions
    ]
    if on_cpu is not None:
        there = [RUNTIMES[name] for name in has if RUNTIMES[name].trains_on_cpu]
        has = [one.name for one in there if not one.refuses(on_cpu)] or has
    return DEFAULT_RUNTIME if DEFAULT_RUNTIME in has or not has else has[0]


def executed_by(schedule: str, pp: int, num_microbatches: int) -> tuple[str, ...]:
    """Runtimes that run a pipeline of this shape under a schedule."""
    return tuple(
        name
        for name, one in RUNTIMES.items()
        if not one.method and one.pipeline.executes(schedule, pp, num_microbatches)
    )


def traits_of(job: Job) -> RuntimeTraits:
    """Traits of the job's runtime with the options of the job.

    A GPU too old for a fused attention core has none, a CPU no kernel of an engine and nothing that
    runs beside collectives that need a stream, and no runtime takes by itself what does not start
    there: DeepEP between nodes, tensor traffic beside products.

    Source: `costmodel.runtimes.traits.needs`, `costmodel.runtimes.megatron.dispatchers`.

    Raises:
        CatalogError: No such runtime, optimizer or GPU.
        UnsupportedError: The runtime lacks the optimizer or the number formats of the states, or
            does not train what the job asks for.
    """
    return _resolved(Identical(job))


@lru_cache(maxsize=64)
def _resolved(key: Identical[Job]) -> RuntimeTraits:
    job = key.of
    traits = runtime(job.runtime)
    if runs_on_cpus(job):
        traits = traits.without_engine(traits)
    refuse_training(job, traits, {name: one.adapting.methods for name, one in RUNTIMES.items()})
    sharding, footprint = traits.sharding, traits.footprint.with_options(job.options)
    if footprint.low_precision == "primary":
        gathered = PRIMARY_MESSAGE_BYTES.get(job.training.precision)
        sharding = replace(sharding, weight_message_bytes=gathered)
    if sharding.version:
        sharding = replace(sharding, version=fsdp_version(job))
    kernels = replace(traits.kernels, attention=attention_on(job, traits.kernels.attention))
    experts, communication = traits.experts, traits.communication
    if experts.dispatcher_across == "deepep" and not dispatches_between_nodes(job):
        experts = replace(experts, dispatcher_across="alltoall")
    if USER_BUFFERS.missing(job):
        communication = replace(communication, overlaps_tensor_parallel=False)
    host = (
        replace(traits.host, release=release_of(job.release))
        if traits.on_megatron_core
        else traits.host
    )
    traits = replace(traits, experts=experts, communication=communication, host=host)
    on_job = replace(traits, kernels=kernels, sharding=sharding)
    on_job = _with_buckets(on_job.with_options(job.options), job)
    if job.cluster.on_cpu:
        on_job = replace(on_job, sharding=on_job.sharding.on_cpu())
    return with_states(on_job, job, RUNTIMES.values())


def _with_buckets(traits: RuntimeTraits, job: Job) -> RuntimeTraits:
    """A stated size of buckets is that of the one that gradients are copied into.

    Source: deepspeedai/DeepSpeed `runtime/zero/stage_1_and_2.py` and `stage3.py`,
    reduce_bucket_size.
    """
    elements = traits.bucket_elements(job)
    if not elements or not traits.footprint.reduce_bucket_elements:
        return traits
    fetches = replace(traits.sharding.fetches, reduced_params=float(elements))
    return replace(
        traits,
        footprint=replace(traits.footprint, reduce_bucket_elements=elements),
        sharding=replace(traits.sharding, fetches=fetches),
    )


def stated_needs(job: Job) -> Iterator[str]:
    """Settings that a job states and its machine does not start, and releases they need."""
    own = runtime(job.runtime)
    stated = own.needs_of(job.options)
    for text, needs in stated.items():
        if why := needs.missing(job):
            yield f"{text} will not start here: {why}"
    releases = [f"{text} {needs.release}" for text, needs in stated.items() if needs.release]
    if releases and own.on_megatron_core:
        yield f"least release of Megatron Core: {', '.join(releases)}"
