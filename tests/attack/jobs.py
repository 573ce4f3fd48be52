"""Jobs whose proofs are attacked: those that were once beaten, and random ones."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.conftest import MODELS
from tests.grids import EXACT
from trainplan.costmodel.hardware.cluster import DriveSpec, HostSpec, parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.runtimes.registry import RUNTIMES
from trainplan.planner.plan.target import Name
from trainplan.planner.questions.best_plan import SearchOptions
from trainplan.planner.space import parse_choice

OBJECTIVES: tuple[Name, ...] = ("time", "cost", "energy", "gpus", "memory")
PRICE, TOKENS = 2.5, 1e10


@dataclass(frozen=True)
class Case:
    """A job as it is typed."""

    model: str
    cluster: str
    batch: int
    seq: int = 4096
    fix: tuple[str, ...] = ()
    runtime: str = "megatron-lm"
    memory_gib: float | None = None
    host: HostSpec | None = None

    @property
    def job(self) -> Job:
        """With a price and a number of tokens, so that every objective can be asked for."""
        cluster = parse_cluster(self.cluster)
        update: dict[str, float | HostSpec] = {"price_per_gpu_hour": PRICE}
        if self.memory_gib:
            update["memory_gib"] = self.memory_gib
        if self.host:
            update["host"] = self.host
        groups = tuple(group.model_copy(update=update) for group in cluster.groups)
        training = TrainingSpec(
            seq_length=self.seq, global_batch_size=self.batch, tokens=int(TOKENS)
        )
        return Job(
            model=MODELS.get(self.model) or preset(self.model),
            training=training,
            cluster=cluster.model_copy(update={"groups": groups}),
            runtime=self.runtime,
        )

    def options(self, objective: Name = "time") -> SearchOptions:
        """What is asked."""
        fixed = tuple(parse_choice(text, excluded=False) for text in self.fix)
        days = 1e4 if objective == "gpus" else None
        return SearchOptions(**EXACT, fix=fixed, objective=objective, deadline_days=days)


KNOWN = (
    Case("gemma3-1b", "1x8:l40s", 64, fix=("pp=4", "vpp=3")),
    Case("llama3-70b", "8x8:h100-sxm", 128, 8192),
    Case("llama3-8b", "4x4:a100-sxm-40gb", 64, fix=("pp=4", "vpp=4")),
    Case("gemma3-27b", "1x7:h100-sxm", 56),
    Case("llama3-8b", "1x1:h200-sxm", 64),
    Case("llama2-13b", "1x2:h200-sxm", 64),
    Case("gpt-oss-120b", "3x8:h100-sxm", 96),
    Case("mixtral-8x7b", "4x8:h100-sxm", 256),
    Case("llama3-8b", "1x2:h100-sxm", 32),
    Case("qwen3-30b-a3b", "1x8:h100-sxm", 64),
    Case("llama3-8b", "2x4:a100-sxm-40gb", 64),
    Case("llama3-8b", "2x8:h100-sxm", 64, runtime="torchtitan"),
    Case("gpt2", "1x8:h100-sxm", 64, 1024),
    Case("llama3-8b", "64x8:a100-sxm-40gb", 512, runtime="fms-fsdp"),
    Case("llama3-8b", "4x8:h100-sxm", 64, runtime="llm-foundry-fsdp"),
    Case("llama3-8b", "4x8:h100-sxm", 64, 8192, runtime="maxtext"),
    Case("llama2-13b", "2x8:a100-sxm-40gb", 64, runtime="megatron-deepspeed"),
    Case("llama3-8b", "1x8:h100-sxm", 32, fix=("pp=2",), runtime="nanotron"),
    Case("llama3-8b", "1x8:h100-sxm", 32, fix=("pp=4",), runtime="megatron-zero-bubble"),
    Case("gemma3-1b", "1x8:l40s", 64, fix=("pp=2",), runtime="megatron-bridge"),
)
"""Of published models; the first ones were beaten before chunks of a rank were free."""


EXPERTS = (
    Case("mixtral-8x7b", "2x8:h100-sxm", 96),
    Case("qwen3-30b-a3b", "2x8:h100-sxm", 128, runtime="torchtitan"),
    Case("deepseek-v2-lite", "1x8:h100-sxm", 64),
    Case("gpt-oss-20b", "1x6:h200-sxm", 48, runtime="megatron-bridge"),
    Case("nemotron-3-nano-30b-a3b", "1x8:h200-sxm", 64),
    Case("qwen3-30b-a3b", "2x8:h100-sxm", 16, 65_536, runtime="nemo"),
    Case("gpt-oss-20b", "1x8:h100-sxm", 16, 131_072),
    Case("deepseek-v2-lite", "2x8:h100-sxm", 256, fix=("offload_modules=free",)),
)
LONG = (
    Case("llama3-8b", "1x8:h100-sxm", 8, 131_072),
    Case("qwen2.5-7b", "2x8:h100-sxm", 4, 262_144, runtime="megatron-bridge"),
    Case("llama3-8b", "1x8:h100-sxm", 32, 65_536, runtime="torchtitan"),
    Case("llama3-8b", "1x8:h100-sxm", 16, 65_536, runtime="deepspeed"),
)
"""Searches of both are stopped early: what they know by then has to hold, too."""
RANDOM = (*RUNTIMES, *3 * ("megatron-lm", "torchtitan"))
"""Runtimes of random jobs: all, most often the two with most to choose."""
FREED = (
    *2 * ((),),
    *((f"{axis}=free",) for axis in ("offload_modules", "dp_replicate", "gtp", "egtp")),
)
"""What random jobs ask the search to try."""


def random_case(random: Random) -> Case:
    """A small job, most with little memory."""
    return Case(
        random.choice(list(MODELS)),
        random.choice(
            ("1x2:h100-sxm", "1x4:l40s", "2x2:a100-sxm-80gb", "1x6:h100-sxm", "2x4:a100-sxm-40gb")
        ),
        random.choice((8, 12, 16, 24, 48)),
        random.choice((512, 1024, 2048)),
        runtime=random.choice(RANDOM),
        memory_gib=random.choice((None, random.uniform(1.2, 6.0), random.uniform(2.0, 4.0))),
        host=random.choice((None, random_host(random))),
        fix=random.choice(FREED),
    )


def random_host(random: Random) -> HostSpec:
    """Little memory, and drives of any speed, or none."""
    read, write = (10 ** random.uniform(-1, 2) for _ in range(2))
    drives = DriveSpec(tb=random.choice((0.01, 4.0)), read_gb_per_s=read, write_gb_per_s=write)
    return HostSpec(
        memory_gib=random.choice((None, random.uniform(1.0, 30.0))),
        adam_params_per_s=10 ** random.uniform(7, 10),
        drives=random.choice((None, drives)),
    )
