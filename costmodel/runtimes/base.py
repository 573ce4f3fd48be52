"""What a runtime does that another does not, by concern: read by rules and formulas alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import BYTES_FP32
from trainplan.costmodel.job import Float8Recipe, Job, RuntimeOptions, StatePrecision
from trainplan.costmodel.layouts import Rule
from trainplan.costmodel.optimizers import optimizer_of
from trainplan.costmodel.runtimes.traits import (
    Adapting,
    Communication,
    Experts,
    Gradients,
    Host,
    Kernels,
    Offloading,
    Pipeline,
    Recipe,
    Recompute,
    Setting,
    Sharding,
    Stated,
    Tiling,
)
from trainplan.costmodel.runtimes.traits.footprint import FUSED_KERNELS, PLAIN, Autograd, Footprint
from trainplan.costmodel.runtimes.traits.kernels import RANK_CAPACITY, STASH_FACTOR
from trainplan.costmodel.runtimes.traits.needs import NEEDS, Needs
from trainplan.costmodel.runtimes.traits.tiling import UNTILED

MEGATRON_CORE, FSDP = "Megatron Core", "FSDP"
"""Families of runtimes."""


def nothing(model: ModelSpec) -> str | None:
    """A runtime that refuses no model."""
    return None


def the_same(traits: RuntimeTraits) -> RuntimeTraits:
    """A runtime without an engine of kernels."""
    return traits


@dataclass(frozen=True, slots=True)
class RuntimeTraits:
    """Behaviour of one training runtime, with the options a run sets or its defaults.

    What every runtime must say comes first. A new one is a named base, of which it replaces the
    values that differ: `replace(FSDP2, name=..., kernels=replace(FSDP2.kernels, ...))`.
    """

    name: str
    version: str
    """Release or commit the traits were checked against."""

    kernels: Kernels
    host: Host
    gradients: Gradients

    sharding: Sharding = field(default_factory=Sharding)
    communication: Communication = field(default_factory=Communication)
    experts: Experts = field(default_factory=Experts)
    pipeline: Pipeline = field(default_factory=Pipeline)
    recompute: Recompute = field(default_factory=Recompute)
    adapting: Adapting = field(default_factory=Adapting)
    """What it can train beside every weight."""
    offloading: Offloading = field(default_factory=Offloading)
    fp8_recipes: tuple[Float8Recipe, ...] = ("tensorwise",)
    """Ways to scale the operands of products in fp8 that an option may choose from."""
    has_liger: bool = False
    """Its layers may run on kernels of Liger."""
    tiling: Tiling = UNTILED
    autograd: Autograd = FUSED_KERNELS
    """What the graph of operations keeps and makes beyond that of fused kernels."""
    footprint: Footprint = PLAIN
    """Bytes that this runtime keeps and another does not."""

    layers: frozenset[str] = frozenset()
    """Uncommon parts of layers that it runs, by the names of `traits.layers`."""
    optimizers: tuple[tuple[str, str], ...] = (("adamw", "AdamW"),)
    """Optimizers it has, each with its own word for it."""
    state_precisions: tuple[StatePrecision, ...] = ("o0",)
    """Formats it can store its states in."""
    settings: tuple[Setting, ...] = ()
    """Values of options that a search may choose, and of which it can be asked what each buys."""
    stated: tuple[Stated, ...] = ()
    """Other values of options that a run may state, and no search tries."""
    trains_on_cpu: bool = False
    """It runs on the cores of a machine without GPUs, over gloo."""
    rules: tuple[Rule, ...] = ()
    refuses: Callable[[ModelSpec], str | None] = nothing
    """What of a model no option of the runtime expresses, as a noun phrase; null: nothing."""
    recipe: Recipe = field(default_factory=Recipe)
    """What a measured run does where its record is silent."""
    changes: str = ""
    """What it changes of the training by itself, by its name in `semantics`; empty: nothing."""
    without_engine: Callable[[RuntimeTraits], RuntimeTraits] = the_same
    """The runtime on a CPU, where kernels of the library that it takes them from do not run."""
    method: str = ""
    """What a published method does that no runtime has: priced, and never exported; empty: it is a
    runtime."""
    family: str = ""
    """Runtimes whose layouts run through the same code; empty: this one alone."""
    library: str = ""
    """Library whose layers it trains, as others do; empty: its own. Published runs of one are
    evidence for all."""

    @property
    def on_megatron_core(self) -> bool:
        """Are its layers and ranks those of Megatron Core?"""
        return self.family == MEGATRON_CORE

    @property
    def on_torch(self) -> bool:
        """Is its parallelism torch's own?"""
        return self.family == FSDP

    @property
    def stashes_experts(self) -> bool:
        """Are experts' activations kept in pages, and their buffers of a fixed size?

        Source: NVIDIA/Megatron-LM @d98e8a64 `docs/user-guide/features/paged_stash.md`: what one
        graph of a step with experts needs, over HybridEP alone.
        """
        return self.host.cuda_graph == "full_iteration" and self.experts.dispatcher == "hybridep"

    @property
    def stash_factor(self) -> float:
        """Rows kept of experts' activations, over those there are. Source: STASH_FACTOR."""
        return STASH_FACTOR if self.stashes_experts else 1.0

    @property
    def rank_capacity(self) -> float:
        """Rows that buffers of experts hold, over those there are. Source: RANK_CAPACITY."""
        return RANK_CAPACITY if self.stashes_experts else 1.0

    @property
    def shards_with_fsdp2(self) -> bool:
        """Is its sharding that of fully_shard?

        Source: `Sharding.whole_under_pipeline`, which FSDP2 has and its predecessor has not.
        """
        return self.on_torch and self.sharding.whole_under_pipeline

    def needs_of(self, options: RuntimeOptions) -> dict[str, Needs]:
        """What each stated setting needs to start, by its text; those that need nothing are out."""
        known = {**NEEDS, **{one.text: one.starts_on for one in self.settings}}
        return {text: known[text] for text in options.arguments().values() if text in known}

    def states_text(self, job: Job) -> str:
        """What a job keeps weights, gradients and moments in, and whether that is assumed.

        These are the traits of the job.
        """
        training, options, kept = job.training, job.options, self.footprint
        storage, gradient = training.storage_bytes, self.gradients.accumulated_bytes
        half = "fp16" if training.precision == "fp16" else "bf16"
        read = storage if kept.weight_bytes is None else kept.weight_bytes
        sizes = {
            "weights": max(read, kept.master_bytes * (storage < BYTES_FP32)),
            "gradients": gradient if self.gradients.narrow else max(gradient, storage),
            "moments": kept.moment_bytes,
        }
        if not optimizer_of(training.optimizer).moments:
            del sizes["moments"]
        formats = {4: "fp32", 2: half, 1.5: "fp8 and fp16", 1: "fp8"}
        alike: dict[float, list[str]] = {}
        for name, size in sizes.items():
            alike.setdefault(size, []).append(name)
        texts = [
            " and ".join(filter(None, (", ".join(names[:-1]), f"{names[-1]} in {formats[size]}")))
            for size, names in alike.items()
        ]
        texts[0] += f" with {half} copies" * (read < sizes["weights"])
        stated = options.gradient_dtype or options.moment_dtype or training.state_precision != "o0"
        text = ", ".join(texts) + ("" if stated else f": assumed, {self.name}'s default")
        if (trained := job.model.trained) is None:
            return text
        frozen = "4 bits" if trained.quantised else formats.get(read, half)
        plain = trained.adapts and self.adapting.plain_replicas and not stated
        more = f"; at ZeRO-0 weights and gradients in {half}" * plain
        return f"frozen weights in {frozen}; trained: {text}{more}"

    def usual_bucket_mb(self, ranks: int) -> float:
        """MiB of a bucket of gradients that `ranks` ranks share, where a run states none."""
        own = self.sharding
        elements = max(own.bucket_elements, own.bucket_elements_a_rank * ranks)
        return elements * self.gradients.message_bytes / 2**20

    def bucket_elements(self, job: Job) -> int:
        """Gradients in a bucket of the size that a job states, as wide as they are reduced.

        These are the traits of the job; 0 where it states none.
        """
        wide = BYTES_FP32 if job.training.storage_bytes == BYTES_FP32 else 0
        size = (job.options.bucket_mb or 0) * 2**20
        return max(1, round(size / max(wide, self.gradients.message_bytes))) if size else 0

    def with_options(self, options: RuntimeOptions) -> RuntimeTraits:
        """The traits of a run that sets some options."""
        return replace(
            self,
            kernels=self.kernels.with_options(options),
            host=self.host.with_options(options),
            gradients=self.gradients.with_options(options),
            sharding=self.sharding.with_options(options),
            communication=self.communication.with_options(options),
            experts=self.experts.with_options(options),
            adapting=self.adapting.with_options(options),
            autograd=self.autograd.with_options(options),
            footprint=self.footprint.with_options(options),
        )
