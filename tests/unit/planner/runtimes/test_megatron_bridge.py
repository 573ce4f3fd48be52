"""Launches of Megatron-Bridge: a recipe, and keys over it."""

import re
from dataclasses import replace

import pytest

from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.runtimes import READERS, Request
from trainplan.planner.runtimes.megatron_bridge.read import MEGATRON_BRIDGE
from trainplan.planner.runtimes.megatron_bridge.read_recipes import recipes
from trainplan.planner.shell import COMMAND_LINE, Launch, Word


def word(text):
    return Word(text, COMMAND_LINE)


def launch(line, gpus=64):
    return Launch(
        "torchrun",
        word("scripts/training/run_recipe.py"),
        is_module=False,
        arguments=tuple(map(word, line.split())),
        environment={"CUDA_DEVICE_MAX_CONNECTIONS": word("1")},
        nodes=word(str(max(1, gpus // 8))),
        gpus_per_node=word(str(min(gpus, 8))),
    )


def read(line, gpus=64):
    return MEGATRON_BRIDGE.read(launch(line, gpus), Request())


def causes(reading):
    return [problem.cause for problem in reading.problems]


def test_a_recipe_is_read_with_what_it_sets():
    reading = read("--recipe llama3_70b_pretrain_config")
    assert reading.legal
    assert reading.job.model == preset("llama3-70b")
    assert reading.job.runtime == "megatron-bridge"
    layout = reading.layout
    assert (layout.tp, layout.pp, layout.vpp, layout.cp) == (4, 4, 5, 2)
    [degree] = [field for field in reading.fields if field.name == "layout.tp"]
    assert (degree.origin, degree.written) == ("default", "model.tensor_model_parallel_size 4")


def test_a_key_wins_over_the_recipe_and_over_the_option_for_it():
    reading = read(
        "--recipe llama3_70b_pretrain_config -mb 4 model.transformer.tensor_model_parallel_size=8"
        " train.micro_batch_size=2"
    )
    assert (reading.layout.tp, reading.layout.micro_batch_size) == (8, 2)
    [degree] = [field for field in reading.fields if field.name == "layout.tp"]
    assert (degree.origin, degree.written) == ("stated", "model.tensor_model_parallel_size=8")


@pytest.mark.parametrize(
    ("recipe", "wrong", "right"),
    [
        ("llama3_8b", "model.tensor_model_parallel_size=2", "model.transformer.tensor_model"),
        ("qwen3_8b", "model.transformer.tensor_model_parallel_size=2", "model.tensor_model"),
        ("qwen3_8b", "model.tensor_model_parallel_sze=2", "did you mean model.tensor_model"),
    ],
)
def test_a_key_that_the_model_of_the_recipe_does_not_have_is_illegal(recipe, wrong, right):
    words = launch(f"--recipe {recipe}_pretrain_config {wrong}", 16)
    reading = MEGATRON_BRIDGE.read(words, Request(strict=True))
    assert not reading.legal
    [problem] = [one for one in reading.problems if one.cause == "unknown_key"]
    assert right in problem.says


@pytest.mark.parametrize(
    ("recipe", "other"), [("llama3_8b", "model."), ("qwen3_8b", "model.transformer.")]
)
def test_a_key_where_another_release_has_it_is_read_and_named(recipe, other):
    words = launch(f"--recipe {recipe}_pretrain_config {other}tensor_model_parallel_size=2", 16)
    reading = MEGATRON_BRIDGE.read(words, Request())
    assert reading.legal
    assert reading.layout.tp == 2
    [problem] = [one for one in reading.problems if one.cause == "unknown_key"]
    assert problem.verdict == "unread"
    assert other in problem.says


def test_a_key_that_nobody_knows_is_not_read():
    reading = read("--recipe qwen3_8b_pretrain_config model.our_own=2 train.our_own=3", 16)
    assert reading.legal
    [problem] = [one for one in reading.problems if one.cause == "unknown_key"]
    assert problem.says.startswith("model.our_own, train.our_own: own of a fork")


def test_a_model_names_its_recipe():
    reading = read("--model qwen3_30b_a3b --mode pretrain -ep 8", 32)
    assert (reading.job.model.name, reading.layout.ep) == ("qwen3-30b-a3b", 8)


def test_a_recipe_that_is_not_recorded_is_unread_and_the_near_ones_are_named():
    reading = read("--recipe llama3_8b_pretrain_cfg")
    assert (reading.job, causes(reading)) == (None, ["unknown_recipe"])
    assert "llama3_8b_pretrain_config" in reading.problems[0].says


def test_words_that_say_nothing_are_named():
    assert "stray_word" in causes(read("--recipe llama3_8b_pretrain_config tensor"))
    assert "missing_recipe" in causes(read("model.num_layers=3"))
    assert "missing_value" in causes(read("--recipe llama3_8b_pretrain_config -tp"))


def test_a_named_format_is_read():
    recipe = "--recipe llama3_8b_pretrain_config"
    fp8 = read(f"{recipe} mixed_precision=bf16_with_fp8_current_scaling_mixed", 16)
    assert fp8.job.training.precision == "fp8"


def test_its_launches_are_recognised():
    found = launch("--recipe x")
    assert [one.runtime for one in READERS if one.recognises(found)] == ["megatron-bridge"]


NUMBERED = [name for name in recipes() if re.search(r"_\d+gpu_h100", name)]


@pytest.mark.parametrize("name", NUMBERED)
def test_every_recorded_recipe_is_legal_on_as_many_gpus_as_its_name_says(name):
    gpus = int(re.search(r"_(\d+)gpu_", name)[1])
    kind = "b200" if "fp8mx" in name or "nvfp4" in name else "h100-sxm"
    cluster = parse_cluster(f"{max(1, gpus // 8)}x{min(gpus, 8)}:{kind}")
    reading = MEGATRON_BRIDGE.read(launch(f"--recipe {name}", gpus), Request(cluster=cluster))
    assert reading.legal, reading.problems
    assert reading.layout is not None


@pytest.mark.parametrize("gpu", ["gb200", "gb300", "b300"])
def test_a_recipe_that_is_named_for_a_gpu_runs_on_it(gpu):
    name = f"qwen3_235b_a22b_pretrain_256gpu_{gpu}_fp8mx_config"
    reading = MEGATRON_BRIDGE.read(launch(f"--recipe {name}", 256), Request())
    (field,) = [one for one in reading.fields if one.name == "cluster.gpu"]
    assert (field.value, field.origin) == (gpu, "stated")
    assert reading.job.cluster.num_gpus == 256


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("False", None)])
def test_inputs_of_an_activation_in_fp8_are_read(value, expected):
    line = f"model.transformer.activation_func_fp8_input_store={value}"
    reading = read(f"--recipe llama3_70b_pretrain_config {line}")
    assert reading.legal
    assert reading.job.options.activation_func_fp8_input_store is expected


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ("mixed_precision.fp8=e4m3", True),
        ("mixed_precision.fp8=e4m3 mixed_precision.fp8_recipe=blockwise", None),
        ("mixed_precision.fp8=null", None),
    ],
)
def test_attention_in_fp8_is_read_where_products_are_in_fp8(recipe, expected):
    line = f"{recipe} mixed_precision.fp8_dot_product_attention=true"
    reading = read(f"--recipe llama3_70b_pretrain_config {line}")
    assert reading.job.options.fp8_attention is expected


BENCHMARK = (
    "--model_family_name llama --model_recipe_name llama3_8b --num_gpus 16 --gpus_per_node 8 "
    "--gpu h100 --compute_dtype fp8_cs --micro_batch_size 2 --context_parallel_size 2 --dump_env "
    "--cuda_graph_impl local --use_megatron_fsdp false"
)


def test_options_of_a_benchmark_choose_its_recipe_and_state_its_ranks():
    words = tuple(map(word, BENCHMARK.split()))
    program = word("scripts/performance/custom_setup_experiment.py")
    own = Launch("python", program, is_module=False, arguments=words, environment={})
    assert MEGATRON_BRIDGE.recognises(own)
    reading = MEGATRON_BRIDGE.read(own, Request())
    job, layout = reading.job, reading.layout
    assert (job.model.name, job.training.precision) == ("llama3-8b", "fp8")
    assert (job.cluster.num_gpus, layout.micro_batch_size, layout.cp) == (16, 2, 2)
    assert "unknown_key" not in causes(reading)
    says = " ".join(one.says for one in reading.problems)
    assert "no recipe of 16 GPUs is recorded: that of 8" in says
    assert "give --global_batch_size" in says
    assert "not used in the price: --cuda_graph_impl" in says
    assert not MEGATRON_BRIDGE.recognises(replace(own, arguments=()))


def test_weights_cut_beyond_tp_have_no_groups_here():
    line = "--recipe llama3_8b_pretrain_config model.tensor_parallel_num_weight_shards"
    reading = read(f"{line}=8")
    [problem] = [one for one in reading.problems if "weight_shards" in one.cause]
    assert problem.verdict == "unmodelled"
    assert "gtp_remat_size" in problem.says
    assert reading.layout.gtp == 1
    assert not [one for one in read(f"{line}=null").problems if "weight_shards" in one.cause]
