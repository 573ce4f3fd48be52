"""Formats of states, as launches state them and as they are written."""

from dataclasses import replace

import pytest

from tests.training_scripts import word
from tests.unit.planner.runtimes.test_accelerate_reader import FILE
from tests.unit.planner.runtimes.test_accelerate_reader import read as of_accelerate
from tests.unit.planner.runtimes.test_deepspeed_reader import read as of_engine
from trainplan.costmodel.base.errors import UnsupportedError
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.runtimes import EXPORTERS

BF16 = {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
SHARDED = Layout(dp=8, zero_stage=3)


def script(text):
    return replace(FILE, arguments=tuple(map(word, text.split())))


@pytest.mark.parametrize(
    ("arguments", "config", "found"),
    [
        ("--dtype bfloat16", {"mixed_precision": "no"}, ("bf16", "bf16")),
        ("--torch_dtype bfloat16", {"mixed_precision": "no"}, ("bf16", "bf16")),
        ("--torch_dtype bfloat16", {"mixed_precision": "bf16"}, ("bf16", "o0")),  # FSDP casts
        ("--torch_dtype bfloat16", {"mixed_precision": "bf16", "distributed_type": "MULTI_GPU"},
         ("bf16", "bf16")),
        ("--torch_dtype bfloat16", {"mixed_precision": "fp16"}, ("fp16", "o0")),
        ("--torch_dtype float32", {"mixed_precision": "no"}, ("tf32", "o0")),
        ("", {"mixed_precision": "no"}, ("tf32", "o0")),
        ("--bf16", {"mixed_precision": "no"}, ("bf16", "o0")),
        ("--torch_dtype bfloat16 --bf16", {"mixed_precision": "no"}, ("bf16", "o0")),
        ("--torch_dtype bfloat16 --bf16 True",
         {"mixed_precision": "no", "distributed_type": "MULTI_GPU"}, ("bf16", "bf16")),
        ("--fp16", {"mixed_precision": "no"}, ("fp16", "o0")),
        ("--fp16 --torch_dtype bfloat16",
         {"mixed_precision": "no", "distributed_type": "MULTI_GPU"}, ("fp16", "o0")),
        ("--bf16", {"mixed_precision": "fp16"}, ("bf16", "o0")),  # arguments go before
        ("--fp16", {"mixed_precision": "bf16"}, ("fp16", "o0")),
        ("--bf16 --fp16 False", {"mixed_precision": "no"}, ("bf16", "o0")),
        ("--pure_bf16 true", {"mixed_precision": "no"}, ("bf16", "bf16")),
        ("--pure_bf16 false", {"mixed_precision": "no"}, ("tf32", "o0")),
    ],
)  # fmt: skip
def test_weights_loaded_in_bf16_are_trained_so_where_nothing_casts_them(arguments, config, found):
    training = of_accelerate(of=script(arguments), **config).job.training
    assert (training.precision, training.state_precision) == found


def test_both_16_bit_switches_are_refused():
    reading = of_accelerate(of=script("--bf16 --fp16"), mixed_precision="no")
    assert not reading.legal
    assert [one.cause for one in reading.problems] == ["mixed_precision"]


@pytest.mark.parametrize(
    ("arguments", "added"),
    [("--use_peft --lora_r 16", ("lora", 16)), ("--finetuning_type full", None),
     ("--adapter qlora", ("qlora", 8)), ("--use_peft false", None),
     ("--lora_rank=8", ("lora", 8)), ("--learning_rate 1", None)],
)  # fmt: skip
def test_adapters_that_a_script_adds_are_trained_alone(arguments, added):
    job = of_accelerate(of=script(arguments), mixed_precision="bf16").job
    trained = job.model.trained
    assert (trained and (trained.method, trained.rank)) == added


def test_moments_are_narrow_with_masters_alone():
    reading = of_engine(bf16={"enabled": True, "bf16_optimizer_states": True})
    assert not reading.legal


@pytest.mark.parametrize(
    ("arguments", "fused"), [("--optim adamw_torch", False), ("--optim adamw_torch_fused", None)]
)
def test_an_update_of_lists_is_read(arguments, fused):
    assert of_accelerate(of=script(arguments)).job.options.fused_optimizer is fused


@pytest.mark.parametrize(
    ("section", "states", "unmodelled"),
    [
        ({"enabled": True}, "o0", False),
        ({"enabled": True, **BF16}, "bf16", False),
        ({"enabled": True, "bf16_master_weights_and_grads": True}, "o0", True),
    ],
)
def test_masters_and_moments_of_the_engine_are_in_bf16_together(section, states, unmodelled):
    reading = of_engine(bf16=section)
    assert reading.job.training.state_precision == states
    assert ("narrow_states" in {one.cause for one in reading.problems}) == unmodelled


@pytest.mark.parametrize(
    ("runtime", "written"),
    [
        ("accelerate", ("mixed_precision", "no")),
        ("accelerate", ("--dtype", "bfloat16")),
        ("deepspeed", ("bf16.bf16_master_weights_and_grads", "true")),
        ("deepspeed", ("bf16.bf16_optimizer_states", "true")),
        ("torchtitan", ("training.dtype", "bfloat16")),
        ("fsdp2", ("DTYPE", "torch.bfloat16")),
    ],
)
def test_what_is_written_keeps_states_in_bf16(make_job, runtime, written):
    job = make_job("llama3-8b", "1x8:h100-sxm", state_precision="bf16")
    settings = dict(
        EXPORTERS[runtime](job.model_copy(update={"runtime": runtime}), SHARDED).settings
    )
    name, value = written
    found = {key.lstrip("-"): str(text) for key, text in settings.items()}
    assert found[name.lstrip("-")].strip("'\"").lower() == value.lower()


def test_a_runtime_without_states_in_bf16_names_those_that_have_them(make_job):
    job = make_job("llama3-8b", "1x8:h100-sxm", state_precision="bf16")
    with pytest.raises(UnsupportedError, match=r"stores no states at bf16: use --runtime .*accel"):
        EXPORTERS["megatron-lm"](job, Layout(dp=8))
