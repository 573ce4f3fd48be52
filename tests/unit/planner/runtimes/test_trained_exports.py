"""What is trained, in the files of each runtime; or refused by name."""

import ast

import pytest

from trainplan.costmodel.architecture.model import ModelSpec
from trainplan.costmodel.architecture.trained import Trained
from trainplan.costmodel.base.errors import UnsupportedError
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.runtimes.registry import RUNTIMES, traits_of
from trainplan.planner.runtimes import EXPORTERS

WAYS = {
    "lora": Trained(method="lora", rank=48, modules=("q", "v", "down")),
    "qlora": Trained(method="qlora", rank=48, modules=("all",)),
    "frozen": Trained(method="frozen", layers=(0, 3)),
}
STAGES = {
    "accelerate": {"lora": 3, "qlora": 0, "frozen": 3},
    "deepspeed": {"qlora": 1},
    "transformers": {"lora": 3},
}


def wanted(make_job, runtime, trained, name="llama3-8b"):
    job = make_job(name, "1x8:h100-sxm", 32)
    model = ModelSpec.model_validate(job.model.model_dump() | {"trained": trained.model_dump()})
    return job.model_copy(update={"model": model, "runtime": runtime})


def layout(runtime, method):
    return Layout(dp=8, zero_stage=STAGES.get(runtime, {}).get(method, 1))


@pytest.mark.parametrize("method", WAYS)
@pytest.mark.parametrize("runtime", EXPORTERS)
def test_every_exporter_writes_what_is_trained_or_refuses_it(make_job, runtime, method):
    job, exporter = wanted(make_job, runtime, WAYS[method]), EXPORTERS[runtime]
    if method not in exporter.trains:
        with pytest.raises(UnsupportedError, match=f"{runtime} has no option for --train {method}"):
            exporter(job, layout(runtime, method))
        return
    config = exporter(job, layout(runtime, method))
    written = "".join(file.text for file in config.files)
    lines = {"lora": "48", "qlora": "nf4", "frozen": "range(0, 4)"}
    assert lines[method] in written
    reads = ("megatron-bridge", "transformers")
    assert config.read_back == (runtime in reads), "others do not know what is trained"
    for file in config.files:
        if file.name.endswith(".py"):
            ast.parse(file.text)


def test_no_exporter_writes_what_its_runtime_does_not_train():
    for name, exporter in EXPORTERS.items():
        assert exporter.trains <= set(RUNTIMES[name].adapting.methods)


@pytest.mark.parametrize("method", WAYS)
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_runtime_prices_what_it_trains_and_refuses_the_rest(make_job, runtime, method):
    job = wanted(make_job, runtime, WAYS[method])
    if method in RUNTIMES[runtime].adapting.methods:
        assert traits_of(job).name == runtime
        return
    with pytest.raises(UnsupportedError, match=f"--train {method} is not priced for {runtime}"):
        traits_of(job)


def test_megatron_joins_what_all_have_adapters_and_keeps_others_apart(make_job):
    def recipe(*modules):
        trained = Trained(method="lora", rank=16, modules=modules)
        job = wanted(make_job, "megatron-bridge", trained)
        return EXPORTERS["megatron-bridge"](job, layout("megatron-bridge", "lora")).files[0].text

    whole = recipe("all")
    assert "peft.lora import LoRA" in whole
    assert "['linear_qkv', 'linear_proj', 'linear_fc1', 'linear_fc2']" in whole
    apart = recipe("q", "gate", "up")
    assert "peft.canonical_lora import CanonicalLoRA" in apart
    assert "['linear_q', 'linear_fc1_gate', 'linear_fc1_up'], dim=16" in apart
    assert "pretrained_checkpoint" in apart


def test_adapters_alone_are_replicated_without_fsdp(make_job):
    job = wanted(make_job, "accelerate", WAYS["qlora"])
    config = EXPORTERS["accelerate"](job, layout("accelerate", "qlora"))
    keys = dict(config.keys)
    assert keys["distributed_type"] == "MULTI_GPU"
    assert not any(name.startswith("fsdp_config") for name in keys)
    assert not {one.name for one in config.environment} & {"ACCELERATE_USE_FSDP"}


@pytest.mark.parametrize(("stage", "strategy"), [(3, "FULL_SHARD"), (2, "SHARD_GRAD_OP")])
def test_4_bit_weights_are_sharded_by_the_first_fsdp(make_job, stage, strategy):
    job = wanted(make_job, "accelerate", WAYS["qlora"])
    config = EXPORTERS["accelerate"](job, Layout(dp=8, zero_stage=stage))
    keys = {name.partition(".")[2] or name: value for name, value in config.keys}
    assert (keys["fsdp_version"], keys["fsdp_sharding_strategy"]) == ("1", strategy)
    assert keys["fsdp_use_orig_params"] == "false"
    assert "fsdp_reshard_after_forward" not in keys
    assert not any(name.startswith("parallelism_config") for name in keys)
    assert "bnb_4bit_quant_storage=torch.bfloat16" in config.files[1].text
    stated = {one.name: one.value for one in config.environment}
    assert stated["FSDP_VERSION"] == "1"
    assert stated["FSDP_SHARDING_STRATEGY"] == strategy


@pytest.mark.parametrize(("stated", "wide"), [(None, "False"), ("bf16", "False"), ("fp32", "True")])
def test_adapters_are_in_fp32_where_a_run_says_so(make_job, stated, wide):
    job = wanted(make_job, "accelerate", WAYS["lora"])
    job = job.model_copy(update={"options": RuntimeOptions(adapter_dtype=stated)})
    module = EXPORTERS["accelerate"](job, Layout(dp=8, zero_stage=3)).files[1].text
    assert f"autocast_adapter_dtype={wide}" in module


@pytest.mark.parametrize("runtime", ["deepspeed", "megatron-bridge", "megatron-lm"])
def test_other_adapters_have_the_type_of_the_weights(make_job, runtime):
    job = wanted(make_job, runtime, WAYS["lora"])
    job = job.model_copy(update={"options": RuntimeOptions(adapter_dtype="fp32")})
    with pytest.raises(UnsupportedError, match="have the type of its weights"):
        traits_of(job)


def test_experts_of_transformers_get_no_adapters(make_job):
    trained = Trained(method="lora", rank=8, modules=("all",))
    with pytest.raises(UnsupportedError, match="use modules=attention"):
        traits_of(wanted(make_job, "accelerate", trained, "mixtral-8x7b"))


def test_families_with_other_names_are_refused(make_job):
    job = wanted(make_job, "accelerate", WAYS["lora"], "phi3-mini")
    with pytest.raises(UnsupportedError, match="names of their own"):
        EXPORTERS["accelerate"](job, layout("accelerate", "lora"))
