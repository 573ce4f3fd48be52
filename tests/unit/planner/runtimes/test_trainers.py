"""Whole files of trainers: a plan written for one is read back as the same plan."""

from pathlib import Path

import pytest

from tests.runtimes.plans import DRIVES, FULL, LLAMA, Z1, Z2, Z3, plan
from trainplan.costmodel.architecture import Trained
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.candidates import Candidates
from trainplan.costmodel.job import with_trained
from trainplan.costmodel.layout.layout import OffloadSpec
from trainplan.costmodel.layouts.table import LayoutTable
from trainplan.costmodel.machine.constants import machine_of
from trainplan.costmodel.runtimes.registry import traits_of
from trainplan.costmodel.step.simulate import step_seconds
from trainplan.planner.launchers.registry import LAUNCHERS
from trainplan.planner.runtimes import TRAINERS, Request, readers
from trainplan.planner.shell import Host, launches_of_script

LORA = Trained(method="lora", rank=16, modules=("all",))
QLORA = Trained(method="qlora", rank=32, modules=("q", "v"))


ON_DEEPSPEED = (
    plan("zero-1", LLAMA, 1, {"dp": 8, **Z1}),
    plan("zero-2", LLAMA, 2, {"dp": 16, "micro_batch_size": 2, **Z2, **FULL}),
    plan("zero-3", LLAMA, 1, {"dp": 8, **Z3, **FULL}),
    plan("offloaded", LLAMA, 1, {"dp": 8, "offload": OffloadSpec(optimizer=1.0), **Z3}),
    plan("weights on drives", LLAMA, 1, {"dp": 8, "offload": OffloadSpec(parameters="nvme"), **Z3},
         gpu=DRIVES),
    plan("fp16", "llama2-7b", 1, {"dp": 8, **Z2}, precision="fp16"),
    plan("experts", "qwen3-30b-a3b", 4, {"dp": 32, **Z3, **FULL}),
)  # fmt: skip
ON_ACCELERATE = (
    plan("zero-3", LLAMA, 1, {"dp": 8, **Z3, **FULL}),
    plan("zero-2", LLAMA, 2, {"dp": 16, **Z2}),
    plan("hsdp", LLAMA, 2, {"dp": 16, "dp_replicate": 2, **Z3}),
    plan("liger", LLAMA, 1, {"dp": 8, "tiled_loss": True, **Z3, **FULL}, liger="0.6"),
    plan("lists", LLAMA, 1, {"dp": 8, **Z3}, fused_optimizer=False),
    plan("tf32", "llama3.2-1b", 1, {"dp": 8, **Z3}, precision="tf32"),
)  # fmt: skip
OVER_TRANSFORMERS = [name for name, one in TRAINERS.items() if "accelerate" in one.runtimes]
OWN = (
    ("ms-swift", "deepspeed",
     plan("ulysses", LLAMA, 1, {"cp": 4, "dp": 2, **Z3, **FULL}, seq=32768)),
    ("trl", "accelerate", plan("cp", LLAMA, 1, {"cp": 2, "dp": 4, **Z3}, seq=8192)),
    ("trl", "accelerate",
     plan("ring", LLAMA, 1, {"cp": 4, "dp": 2, **Z3}, seq=8192, cp_comm_type="p2p")),
    ("axolotl", "accelerate", plan("tp", LLAMA, 2, {"tp": 2, "dp": 8, "dp_replicate": 2, **Z3})),
    *((trainer, "deepspeed", plan("autotp", LLAMA, 1, {"tp": 2, "dp": 4, **Z1}))
      for trainer in ("llama-factory", "ms-swift", "trl")),
)  # fmt: skip
"""What one trainer has a word for, and not all."""
TRIPS = [
    *(pytest.param(*one, id=f"{one[0]} on {one[1]}: {one[2].name}") for one in OWN),
    *(
        pytest.param(trainer, runtime, one, id=f"{trainer} on {runtime}: {one.name}")
        for trainer in OVER_TRANSFORMERS
        for runtime, plans in (("deepspeed", ON_DEEPSPEED), ("accelerate", ON_ACCELERATE))
        for one in plans
    ),
]


def seconds(job, layout):
    machine = machine_of(job.cluster, job.training.precision)
    table = LayoutTable.of([layout])
    return float(step_seconds(Candidates(job, machine, traits_of(job), table))[0])


def read(config, job, launcher="torchrun"):
    """As `plan check` reads the script in the folder of the export."""
    files = {file.name: file.text for file in config.files}
    way = LAUNCHERS[launcher]

    def alongside(path):
        return files.get(Path(path).name)

    launch = launches_of_script(way.write(config, job.cluster), way.file, {}, Host(read=alongside))[
        -1
    ]
    reader = next(one for one in readers() if one.recognises(launch))
    whole = job.model.model_copy(update={"trained": None})
    request = Request(text_of=alongside, model=whole, cluster=job.cluster)
    return reader.read(launch, request.over(launch))


def comes_back(trainer, job, layout, launcher="torchrun"):
    config = TRAINERS[trainer](job, layout)
    reading = read(config, job, launcher)
    assert reading.job is not None, reading.problems
    assert not [one for one in reading.problems if one.verdict in ("illegal", "ignored")]
    assert (reading.runtime, reading.layout) == (job.runtime, layout)
    assert reading.job.training == job.training
    assert reading.job.options == job.options
    assert seconds(reading.job, reading.layout) == seconds(job, layout)


@pytest.mark.parametrize(("trainer", "runtime", "one"), TRIPS)
def test_a_plan_comes_back_to_the_last_digit(trainer, runtime, one):
    comes_back(trainer, one.job(runtime), one.layout)


ADAPTERS = {
    "lora": Trained(method="lora", rank=16, modules=("all",)),
    "some": Trained(method="lora", rank=64, modules=("q", "v")),
    "qlora": Trained(method="qlora", rank=32, modules=("attention",)),
}


def adapting(one, runtime, way):
    """The job of a plan, of whose model adapters are trained."""
    job = one.job(runtime)
    model = job.model.model_copy(update={"trained": ADAPTERS[way]})
    wide = {"adapter_dtype": "fp32"} if runtime == "accelerate" else {}
    options = job.options.model_copy(update=wide)
    return job.model_copy(update={"model": model, "options": options})


@pytest.mark.parametrize(
    ("trainer", "runtime"),
    [
        *((trainer, "deepspeed") for trainer in OVER_TRANSFORMERS),
        *((trainer, "accelerate") for trainer in OVER_TRANSFORMERS if trainer != "axolotl"),
    ],
)
def test_states_in_bf16_come_back(trainer, runtime):
    one = plan("narrow", LLAMA, 1, {"dp": 8, **Z3})
    job = one.job(runtime)
    training = job.training.model_copy(update={"state_precision": "bf16"})
    comes_back(trainer, job.model_copy(update={"training": training}), one.layout)


@pytest.mark.parametrize("way", ADAPTERS)
@pytest.mark.parametrize(("runtime", "stage"), [("deepspeed", 2), ("accelerate", 0)])
@pytest.mark.parametrize("trainer", OVER_TRANSFORMERS)
def test_adapters_come_back(trainer, runtime, stage, way):
    one = plan("adapters", LLAMA, 1, {"dp": 8, "zero_stage": stage})
    comes_back(trainer, adapting(one, runtime, way), one.layout)


def files_of(config):
    return {file.name: file.text for file in config.files}


def test_slurm_starts_a_trainer_and_is_read_back():
    one = ON_DEEPSPEED[1]
    comes_back("llama-factory", one.job("deepspeed"), one.layout, "slurm")


def test_a_model_that_hugging_face_lacks_is_a_required_variable():
    one = ON_DEEPSPEED[0]
    job = one.job("deepspeed")
    shape = job.model.model_copy(update={"name": "ours", "num_hidden_layers": 16})
    config = TRAINERS["llama-factory"](job.model_copy(update={"model": shape}), one.layout)
    assert "MODEL" in {variable.name for variable in config.required_environment}
    assert 'model_name_or_path: "MODEL"\n' in files_of(config)["train.yaml"]


@pytest.mark.parametrize(
    ("runtime", "one", "says"),
    [
        ("torchtitan", plan("a", LLAMA, 1, {"dp": 8, **Z1}),
         "accelerate and deepspeed and megatron-lm, not of torchtitan: search"),
        ("accelerate", plan("a", LLAMA, 1, {"tp": 2, "dp": 4, **Z3}),
         "LLaMA-Factory has no word for tp = 2 on accelerate: set it to 1, "),
        ("deepspeed", plan("a", LLAMA, 1, {"cp": 2, "dp": 4, **Z3}, cp_comm_type="a2a"),
         "LLaMA-Factory has no word for cp = 2 on deepspeed: set it to 1, "),
    ],
)  # fmt: skip
def test_what_a_trainer_has_no_word_for_is_named(runtime, one, says):
    with pytest.raises(UnsupportedError, match=says):
        TRAINERS["llama-factory"](one.job(runtime), one.layout)


def test_a_ring_between_ranks_that_share_heads_is_named():
    one = plan("a", LLAMA, 2, {"cp": 16, "dp": 1, **Z3, **FULL}, seq=65536)
    with pytest.raises(UnsupportedError, match="ms-swift shares 8 heads of keys over cp = 16"):
        TRAINERS["ms-swift"](one.job("deepspeed"), one.layout)


def test_adapters_in_another_type_than_the_trainer_has_them_are_named():
    one = plan("a", LLAMA, 1, {"dp": 8, "zero_stage": 0})
    job = adapting(one, "accelerate", "lora")
    narrow = job.model_copy(update={"options": one.job("accelerate").options})
    with pytest.raises(UnsupportedError, match="in fp32: search with --option adapter_dtype=fp32"):
        TRAINERS["llama-factory"](narrow, one.layout)


TWELVE = {
    "dense": ("deepspeed", plan("", LLAMA, 1, {"dp": 8, **Z3, **FULL}), "full"),
    "dense, larger": ("accelerate", plan("", "llama3.1-70b", 8, {"dp": 64, **Z3, **FULL}), "full"),
    "experts": ("deepspeed", plan("", "qwen3-30b-a3b", 4, {"dp": 32, **Z3, **FULL}), "full"),
    "hybrid": ("accelerate", plan("", "qwen3-next-80b-a3b", 8, {"dp": 64, **Z3, **FULL}), "full"),
    "tower": ("deepspeed", plan("", "qwen3-vl-30b-a3b", 4, {"dp": 32, **Z3, **FULL}), "full"),
    "frozen tower": (
        "deepspeed", plan("", "qwen3-vl-30b-a3b", 4, {"dp": 32, **Z3, **FULL}), "frozen:tower",
    ),
    "adapters": (
        "accelerate",
        plan("", LLAMA, 1, {"dp": 8, "zero_stage": 0, **FULL}, adapter_dtype="fp32"),
        "lora:rank=16",
    ),
    "4-bit weights": ("deepspeed", plan("", LLAMA, 1, {"dp": 8, **Z1, **FULL}), "qlora:rank=16"),
    "frozen layers": ("deepspeed", plan("", LLAMA, 1, {"dp": 8, **Z1}), "frozen:layers=0-9"),
    "long, sequence ranks": (
        "deepspeed", plan("", LLAMA, 1, {"cp": 4, "dp": 2, **Z3, **FULL}, seq=65536), "full",
    ),
    "long, mesh": (
        "accelerate", plan("", LLAMA, 1, {"cp": 4, "dp": 2, **Z3, **FULL}, seq=65536), "full",
    ),
    "long, tiles": (
        "deepspeed", plan("", LLAMA, 1, {"dp": 8, "tiled_mlp": True, **Z3, **FULL}, seq=32768),
        "full",
    ),
}  # fmt: skip
"""Jobs of every kind: runtime, plan and what is trained."""
WHO = {
    **dict.fromkeys(TWELVE, ("llama-factory", "axolotl", "ms-swift", "trl")),
    "frozen tower": ("llama-factory", "ms-swift"),
    "frozen layers": (),
    "long, sequence ranks": ("ms-swift",),
    "long, mesh": ("trl",),
    "long, tiles": (),
}
"""Trainers that have words for each; the rest refuse it, in a line that names who has."""


@pytest.mark.parametrize("trainer", OVER_TRANSFORMERS)
@pytest.mark.parametrize("name", TWELVE)
def test_a_job_becomes_files_or_is_refused_by_name(name, trainer):
    runtime, one, some = TWELVE[name]
    job = one.job(runtime)
    job = job.model_copy(update={"model": with_trained(job.model, some)})
    if trainer in WHO[name]:
        config = TRAINERS[trainer](job, one.layout)
        assert config.files or config.arguments
        return
    with pytest.raises(UnsupportedError, match="has no word for") as refused:
        TRAINERS[trainer](job, one.layout)
    assert all(other in str(refused.value) for other in WHO[name])
    assert str(refused.value).endswith("leave --trainer out")
