"""Whole files of trainers over Megatron: read back as the plan, or refused by the option's name."""

import re
from pathlib import Path

import pytest
import yaml

from tests.runtimes.plans import MEGATRON, SP, plan
from tests.unit.planner.runtimes.test_trainers import read, seconds
from trainplan.costmodel.architecture import Trained, adapted
from trainplan.costmodel.base import GIB, UnsupportedError
from trainplan.costmodel.layouts import layers_per_stage
from trainplan.costmodel.presets import preset
from trainplan.planner.launchers.registry import LAUNCHERS
from trainplan.planner.runtimes import TRAINERS, Request, readers
from trainplan.planner.runtimes.compare import recorded_flags
from trainplan.planner.runtimes.key_tables import key_table
from trainplan.planner.runtimes.key_tables.whole import WHOLE, whole_table
from trainplan.planner.shell import Host, launches_of_script

FSDP = {"fsdp": "--use-megatron-fsdp", "hsdp": "--use-megatron-fsdp"}
STAGES, FP8 = "--pipeline-model-parallel-layout", "--fp8-format"
LACKS = {
    "verl": FSDP
    | dict.fromkeys(("fp8", "mxfp8", "mla in fp8"), FP8)
    | {
        "offloaded activations": "--min-offloaded-tensor-size",
        "deepep": "--overlap-moe-expert-parallel-comm",
        "partial graphs": "--cuda-graph-impl",
    },
    "slime": FSDP
    | {"unsharded": "--use-distributed-optimizer", "partial graphs": "--cuda-graph-impl"},
    "nemo-rl": FSDP
    | dict.fromkeys(("cp", "mla", "mla in fp8"), STAGES)
    | dict.fromkeys(("vpp", "deepep"), "--num-virtual-stages-per-pipeline-rank")
    | {"offloaded activations": "--min-offloaded-tensor-size"},
    "ms-swift": dict.fromkeys(("fsdp", "hsdp"), "--init-model-with-meta-device")
    | {
        "offloaded activations": "--fine-grained-activation-offloading",
        "deepep": "--moe-flex-dispatcher-backend",
        "partial graphs": "--cuda-graph-impl",
    },
    "llama-factory": FSDP
    | {
        "offloaded optimizer": "--use-precision-aware-optimizer",
        "offloaded activations": "--fine-grained-activation-offloading",
        "deepep": "--moe-flex-dispatcher-backend",
        "partial graphs": "--cuda-graph-modules",
    },
}
"""The option of Megatron-LM for which a project has no key, by plan."""
LONG = plan(
    "long context", "llama3.1-8b", 2, {"tp": 2, "cp": 4, "dp": 2, **SP}, seq=65536, batch=16
)
PLANS = (*MEGATRON, LONG)
RESERVED = 60 * GIB
LORA = Trained(method="lora", rank=16, modules=("all",))
ATTENTION = Trained(method="lora", rank=8, modules=("q", "k", "v", "o"))


def job_of(one, **changes):
    return one.job("megatron-lm").model_copy(update={"reserve_bytes": RESERVED, **changes})


def settings_of(config):
    return dict(config.settings)


@pytest.mark.parametrize("one", PLANS, ids=lambda one: one.name)
@pytest.mark.parametrize("trainer", WHOLE)
def test_a_plan_comes_back_or_its_option_is_named(trainer, one):
    job = job_of(one)
    try:
        comes_back(trainer, job, one.layout)
    except UnsupportedError as error:
        lacks = LACKS[trainer].get(one.name, "--[a-z0-9-]+")
        assert re.search(rf"{lacks}(?![a-z-])", str(error)), error
    else:
        assert one.name not in LACKS[trainer]


def comes_back(trainer, job, layout, launcher="torchrun"):
    config = TRAINERS[trainer](job, layout)
    reading = read(config, job, launcher)
    assert reading.job is not None, reading.problems
    assert not [one for one in reading.problems if one.verdict == "illegal"]
    even = [one.layers for one in layout.stages or ()] == list(
        layers_per_stage(job.model.num_hidden_layers, layout.pp * layout.vpp)
    )
    assert reading.layout in (layout, layout.model_copy(update={"stages": None} if even else {}))
    training = job.training.model_dump() | {"tokens": reading.job.training.tokens}
    assert reading.job.training.model_dump() == training
    assert reading.job.cluster.num_gpus == job.cluster.num_gpus
    assert seconds(reading.job, layout) == seconds(job, layout)
    return reading


@pytest.mark.parametrize("trainer", WHOLE)
def test_slurm_starts_a_trainer_and_is_read_back(trainer):
    comes_back(trainer, job_of(MEGATRON[1]), MEGATRON[1].layout, "slurm")


@pytest.mark.parametrize("trained", [LORA, ATTENTION], ids=["all", "attention"])
@pytest.mark.parametrize("trainer", ["verl", "nemo-rl", "ms-swift"])
@pytest.mark.parametrize("one", [MEGATRON[0], MEGATRON[15]], ids=lambda one: one.name)
def test_adapters_come_back(trainer, one, trained):
    job = job_of(one)
    job = job.model_copy(update={"model": job.model.model_copy(update={"trained": trained})})
    found = comes_back(trainer, job, one.layout).job.model
    assert found.trained.rank == trained.rank
    assert [{*adapted(kind)} for kind in found.kinds] == [
        {*adapted(kind)} for kind in job.model.kinds
    ]


def test_adapters_of_latent_attention_come_back():
    one = next(one for one in MEGATRON if one.name == "mla")
    job = job_of(one)
    job = job.model_copy(update={"model": job.model.model_copy(update={"trained": LORA})})
    comes_back("verl", job, one.layout)


@pytest.mark.parametrize("method", ["lora", "qlora"])
@pytest.mark.parametrize("trainer", ["slime", "llama-factory"])
def test_adapters_that_a_project_lacks_are_refused(trainer, method):
    one = MEGATRON[0]
    trained = Trained(method=method, rank=16, modules=("all",))
    job = job_of(one)
    job = job.model_copy(update={"model": job.model.model_copy(update={"trained": trained})})
    with pytest.raises(UnsupportedError, match=f"has no key for --train {method}:rank=16"):
        TRAINERS[trainer](job, one.layout)


def test_adapters_over_four_bits_are_refused():
    job = job_of(MEGATRON[0])
    trained = Trained(method="qlora", rank=16, modules=("all",))
    job = job.model_copy(update={"model": job.model.model_copy(update={"trained": trained})})
    with pytest.raises(UnsupportedError, match="has no key for --train qlora"):
        TRAINERS["verl"](job, MEGATRON[0].layout)


SHARES = {
    "verl": ("actor_rollout_ref.rollout.gpu_memory_utilization", "rollout.tensor_model_parallel"),
    "slime": ("--sglang-mem-fraction-static", "--rollout-num-gpus-per-engine"),
    "nemo-rl": (
        "policy.generation.vllm_cfg.gpu_memory_utilization",
        "vllm_cfg.tensor_parallel_size",
    ),
}


@pytest.mark.parametrize("trainer", SHARES)
@pytest.mark.parametrize(
    ("reserve", "share", "size"), [(60, "0.75", 1), (32, "0.4", 1), (8, "0.1", 4)]
)
def test_what_is_reserved_is_the_share_of_the_engine(trainer, reserve, share, size):
    one = MEGATRON[0]  # 8.0 B parameters: 15 GiB in 16 bits
    config = TRAINERS[trainer](job_of(one, reserve_bytes=reserve * GIB), one.layout)
    found = settings_of(config)
    key, of_size = SHARES[trainer]
    assert float(found[key]) <= float(share)
    assert float(found[key]) * 79.7 * GIB <= reserve * GIB
    assert abs(float(found[key]) - float(share)) < 0.02
    (tp,) = (value for name, value in found.items() if of_size in name)
    assert int(tp) == size
    assert any(f"{reserve:.1f} GiB of every GPU, the --reserve" in note for note in config.notes)


@pytest.mark.parametrize("trainer", SHARES)
def test_without_a_reserve_the_engine_has_what_the_estimate_leaves(trainer):
    one = MEGATRON[0]
    config = TRAINERS[trainer](job_of(one, reserve_bytes=0), one.layout)
    (note,) = (note for note in config.notes if "rollout engine" in note)
    assert "no --reserve states how much" in note
    left = float(re.search(r"the ([\d.]+) GiB", note)[1])
    assert float(settings_of(config)[SHARES[trainer][0]]) == pytest.approx(left / 79.7, abs=0.02)


@pytest.mark.parametrize("trainer", SHARES)
def test_an_engine_whose_weights_do_not_fit_is_refused(trainer):
    one = next(one for one in MEGATRON if one.name == "full recomputation")  # 70 B
    with pytest.raises(UnsupportedError, match=r"search with --reserve \d+GiB or more"):
        TRAINERS[trainer](job_of(one, reserve_bytes=GIB), one.layout)


@pytest.mark.parametrize("trainer", ["verl", "slime", "nemo-rl"])
def test_prompts_and_answers_make_the_batch_and_lengths_the_sequence(trainer):
    one = MEGATRON[0]
    found = settings_of(TRAINERS[trainer](job_of(one), one.layout))
    prompts, answers, lengths = {
        "verl": (
            "actor_rollout_ref.actor.ppo_mini_batch_size",
            "actor_rollout_ref.rollout.n",
            ("data.max_prompt_length", "data.max_response_length"),
        ),
        "slime": (
            "--rollout-batch-size",
            "--n-samples-per-prompt",
            ("--rollout-max-prompt-len", "--rollout-max-response-len"),
        ),
        "nemo-rl": ("grpo.num_prompts_per_step", "grpo.num_generations_per_prompt", ()),
    }[trainer]
    assert int(found[prompts]) * int(found[answers]) == 64
    assert not lengths or sum(int(found[one]) for one in lengths) == 8192


def test_reference_and_critic_of_verl_have_the_layout_of_the_actor():
    one = MEGATRON[1]
    found = settings_of(TRAINERS["verl"](job_of(one), one.layout))
    for role in ("actor_rollout_ref.actor", "actor_rollout_ref.ref", "critic"):
        assert found[f"{role}.megatron.tensor_model_parallel_size"] == "4"
        assert found[f"{role}.megatron.pipeline_model_parallel_size"] == "4"


@pytest.mark.parametrize("trainer", ["nemo-rl", "llama-factory"])
def test_files_are_yaml_with_what_the_script_fills_in(trainer):
    one = MEGATRON[0]
    config = TRAINERS[trainer](job_of(one), one.layout)
    (file,) = config.files
    assert yaml.safe_load(file.text)
    for key, variable in file.filled_in:
        assert re.search(rf'\b{key}: "{variable.name}"', file.text)
        assert variable.name in {one.name for one in config.required_environment}


@pytest.mark.parametrize("trainer", ["verl", "nemo-rl"])
def test_the_model_is_known_by_its_name(trainer):
    one = MEGATRON[0]
    config = TRAINERS[trainer](job_of(one), one.layout)
    files = {file.name: file.text for file in config.files}
    assert "MODEL" not in {one.name for one in config.required_environment}

    def alongside(path):
        return files.get(Path(path).name)

    text = LAUNCHERS["torchrun"].write(config, one.job("megatron-lm").cluster)
    launch = launches_of_script(text, "run.sh", {}, Host(read=alongside))[-1]
    reader = next(one for one in readers() if one.recognises(launch))
    called = []

    def model_of(name):
        called.append(name)
        return preset("llama3-8b")

    reading = reader.read(launch, Request(text_of=alongside, model_of=model_of).over(launch))
    assert reading.layout == one.layout
    assert "meta-llama/Meta-Llama-3-8B" in called


def test_a_model_of_an_unknown_name_is_a_required_variable():
    one = MEGATRON[0]
    job = job_of(one)
    job = job.model_copy(update={"model": job.model.model_copy(update={"name": "ours"})})
    config = TRAINERS["verl"](job, one.layout)
    assert "MODEL" in {one.name for one in config.required_environment}
    text = LAUNCHERS["torchrun"].write(config, job.cluster)
    assert '  actor_rollout_ref.model.path="$MODEL"\n' in text


@pytest.mark.parametrize("launcher", [one for one in LAUNCHERS if one not in ("torchrun", "slurm")])
@pytest.mark.parametrize("trainer", SHARES)
def test_other_launchers_than_those_with_ray_are_refused(trainer, launcher):
    one = MEGATRON[1]
    config = TRAINERS[trainer](job_of(one), one.layout)
    with pytest.raises(UnsupportedError, match="use --launcher torchrun or slurm"):
        LAUNCHERS[launcher](config, one.job("megatron-lm").cluster)


@pytest.mark.parametrize("launcher", ["torchrun", "slurm"])
def test_nodes_join_one_cluster_of_ray_and_the_first_starts_the_program(launcher):
    one = MEGATRON[1]
    text = LAUNCHERS[launcher].write(TRAINERS["verl"](job_of(one), one.layout), job_of(one).cluster)
    joined, first = text.index("--block"), text.index("ray start --head")
    assert joined < first < text.index("/64.0 GPU") < text.rindex("python3")
    assert text.count("verl.trainer.main_ppo") == 1


def test_other_optimizers_are_refused():
    one = MEGATRON[0]
    job = job_of(one)
    training = job.training.model_copy(
        update={"optimizer": job.training.optimizer.model_copy(update={"name": "muon"})}
    )
    with pytest.raises(UnsupportedError, match="optimizer muon, only for adamw"):
        TRAINERS["slime"](job.model_copy(update={"training": training}), one.layout)


@pytest.mark.parametrize("trainer", ["verl", "slime", "nemo-rl"])
def test_plans_of_other_runtimes_are_refused(trainer):
    one = MEGATRON[0]
    with pytest.raises(UnsupportedError, match="search with --runtime megatron-lm"):
        TRAINERS[trainer](one.job("torchtitan"), one.layout)


@pytest.mark.parametrize("name", WHOLE.values())
def test_options_that_a_table_names_are_those_of_megatron_lm(name):
    table = whole_table(name)
    named = {*table.without, *table.lacks, *table.needs, *table.absent}
    assert {one.partition(" ")[0] for one in named} <= recorded_flags("megatron-lm")
    assert re.fullmatch(r"[0-9a-f]{40}", table.version)
    assert not table.keys or {*table.without}.isdisjoint(key_table(table.keys).keys)
