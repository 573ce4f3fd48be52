"""Plans for every trainer over transformers: those of its runtimes, and adapters."""

from dataclasses import dataclass

from tests.runtimes.plans import (
    ACCELERATE,
    DEEPSPEED,
    DEEPSPEED_OFFLOADED,
    FULL,
    LLAMA,
    Z3,
    Plan,
    plan,
)
from trainplan.costmodel.job import with_trained
from trainplan.costmodel.job.job import Job


@dataclass(frozen=True, kw_only=True)
class Over(Plan):
    """A plan of a runtime, for a trainer on it."""

    on: str
    trained: str
    state_precision: str

    def job(self, runtime: str) -> Job:
        """Of the runtime below, whatever the trainer."""
        job = super().job(self.on)
        model = with_trained(job.model, self.trained)
        training = job.training.model_copy(update={"state_precision": self.state_precision})
        return job.model_copy(update={"model": model, "training": training})


def over(runtime, plans, trained="full", states="o0", **options):
    """The same plans for a trainer on this runtime."""
    for one in plans:
        values = {name: getattr(one, name) for name in Plan.__dataclass_fields__}
        name = f"{one.name} on {runtime}, {trained}, {states}"
        merged = {**values, "name": name, "options": {**one.options, **options}}
        yield Over(**merged, on=runtime, trained=trained, state_precision=states)


def stage(zero_stage, **layout):
    return (plan("adapters", LLAMA, 1, {"dp": 8, "zero_stage": zero_stage, **FULL, **layout}),)


def whole(*left_out):
    """Plans of either runtime but for those that a trainer has no word for."""
    plans = (*over("accelerate", ACCELERATE), *over("deepspeed", DEEPSPEED + DEEPSPEED_OFFLOADED))
    return tuple(one for one in plans if not any(word in one.name for word in left_out))


NARROW = (plan("narrow", LLAMA, 1, {"dp": 8, **Z3, **FULL}),)
COMMON = (
    *over("accelerate", stage(0), "lora:rank=16", adapter_dtype="fp32"),
    *over("accelerate", stage(3), "lora:rank=64,modules=q,v", adapter_dtype="fp32"),
    *over("accelerate", stage(0), "qlora:rank=32", adapter_dtype="fp32"),
    *over("deepspeed", stage(2), "lora:rank=16"),
    *over("deepspeed", stage(1), "qlora:rank=8,modules=attention"),
    *over("deepspeed", NARROW, states="bf16"),
    *over("accelerate", (plan("liger", LLAMA, 1, {"dp": 8, "tiled_loss": True, **Z3, **FULL},
                              liger="0.6"),)),
)  # fmt: skip
CAST_NOT = tuple(over("accelerate", NARROW, states="bf16"))
ULYSSES = (plan("sequence ranks", LLAMA, 1, {"cp": 4, "dp": 2, **Z3, **FULL}, seq=32768),)
OF_A_SCRIPT = ("ulysses", "checkpoints", "all on the host", "all away", "micro batch away")
"""Words in names of plans that no trainer has a word for."""
TRAINED = {
    "llama-factory": (*whole("cp", "tp on", "tp over", "tp and", *OF_A_SCRIPT), *COMMON, *CAST_NOT),
    "axolotl": (*whole("cp", "autotp", *OF_A_SCRIPT), *COMMON),
    "ms-swift": (*whole("cp", "tp on", "tp over", "tp and", *OF_A_SCRIPT), *COMMON, *CAST_NOT,
                 *over("deepspeed", ULYSSES)),
    "trl": (*whole("tp on acc", "tp over 8 on acc", "tp and", *OF_A_SCRIPT), *COMMON, *CAST_NOT),
}  # fmt: skip
