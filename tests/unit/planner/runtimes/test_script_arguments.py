"""What stands in the arguments of a training script: model, length, batch and adapters."""

import pytest

from tests.training_scripts import launch
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.presets.presets import preset, preset_named
from trainplan.planner.runtimes import Request
from trainplan.planner.runtimes.deepspeed.read import DEEPSPEED

ENGINE = '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1}'
LLAMA = "--model_name_or_path meta-llama/Llama-3.1-8B"


def named(text):
    return preset(name) if (name := preset_named(text)) else None


def read(words, **wanted):
    made = launch("--deepspeed", "ds.json", *words.split(), starter="deepspeed")
    request = {"text_of": {"ds.json": ENGINE}.get, "model_of": named, "seq_length": 2048}
    cluster = parse_cluster("1x8:h100-sxm")
    return DEEPSPEED.read(made, Request(**{"cluster": cluster, **request, **wanted}))


def causes(reading):
    return {problem.cause: problem.verdict for problem in reading.problems}


@pytest.mark.parametrize(
    "option", ["model_name_or_path", "model_id", "base_model", "pretrain", "model", "model-name"]
)
def test_the_model_that_the_command_names_is_taken(option):
    reading = read(f"--{option} meta-llama/Llama-3.1-8B")
    assert reading.job.model.name == "llama3.1-8b"
    (field,) = (one for one in reading.fields if one.name == "model.name")
    assert field.origin == "stated"
    assert "meta-llama/Llama-3.1-8B" in field.written


def test_a_name_that_stands_for_nothing_is_in_the_answer():
    reading = read("--model_name_or_path me/mine")
    assert reading.job is None
    (problem,) = reading.problems
    assert (problem.cause, problem.verdict) == ("unread_model", "unread")
    assert "me/mine" in problem.says
    assert "--model" in problem.says


@pytest.mark.parametrize(
    "option", ["max_len", "sequence_len", "seq_length", "cutoff_len", "max_sequence_length"]
)
def test_a_length_has_many_names(option):
    assert read(f"{LLAMA} --{option} 512").job.training.seq_length == 512


@pytest.mark.parametrize(
    ("words", "trained"),
    [
        ("--use_peft --lora_r 16 --lora_target_modules all-linear", "lora:rank=16,modules=all"),
        ("--use_peft true", "lora:rank=16,modules=q_proj,v_proj"),
        ("--lora_enable True --lora_r 128 --lora_alpha 256", "lora:rank=128,modules=all"),
        ("--use_llm_lora 16", "lora:rank=16,modules=all"),
        ("--finetuning_type lora --lora_rank 8 --lora_target q_proj,v_proj",
         "lora:rank=8,modules=q_proj,v_proj"),
        ("--train_type lora --target_modules q_proj k_proj", "lora:rank=8,modules=q_proj,k_proj"),
        ("--use_peft --load_in_4bit --lora_target_modules all-linear", "qlora:rank=16,modules=all"),
        ("--adapter qlora --lora_r 32", "qlora:rank=32,modules=all"),
        ("--lora_rank 64", "lora:rank=64,modules=all"),
        ("--lora_rank 0", "full"),
        ("--use_peft false --lora_r 16", "full"),
        ("--finetuning_type full --lora_rank 8", "full"),
    ],
)  # fmt: skip
def test_adapters_of_the_arguments_are_what_is_trained(words, trained):
    reading = read(f"{LLAMA} {words}")
    assert getattr(reading.job.model.trained, "text", "full") == trained
    (field,) = (one for one in reading.fields if one.name == "model.trained")
    assert field.value == trained


def test_what_the_user_says_is_trained_wins():
    adapted = f"{LLAMA} --use_peft --lora_r 16"
    assert read(adapted, train="full").job.model.trained is None
    assert read(adapted, train="lora:rank=4").job.model.trained.rank == 4


@pytest.mark.parametrize(
    ("words", "cause", "verdict"),
    [
        ("--use_peft --lora_target_modules wqkv", "adapter_modules", "unmodelled"),
        ("--finetuning_type freeze", "adapters", "unmodelled"),
        ("--use_peft", "adapter_rank", "unread"),
        ("--freeze_llm True", "not_priced", "unmodelled"),
        ("--vision_tower openai/clip-vit-large-patch14-336", "not_priced", "unmodelled"),
        ("--tune_vision_tower True", "not_priced", "unmodelled"),
        ("--use_lisa 1", "not_priced", "unmodelled"),
    ],
)
def test_what_is_not_priced_has_a_name(words, cause, verdict):
    reading = read(f"{LLAMA} {words}")
    assert causes(reading)[cause] == verdict
    assert reading.job is not None
    assert reading.legal is not False


def test_what_is_off_is_no_problem():
    assert read(f"{LLAMA} --freeze_llm False --use_dora false --load_in_8bit 0").problems == ()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("--optim adamw_torch_fused", {}),
        ("--optim adafactor", {"optimizer": "unmodelled"}),
        ("--optim paged_adamw_32bit", {"optimizer": "unmodelled"}),
        ("--attn_implementation flash_attention_2", {}),
        ("--attn_implementation eager", {"attention": "unmodelled"}),
        ("--group_by_length True", {"not_priced": "unmodelled"}),
        ("--tiled_mlp", {}),
        ("--sequence_parallel_size 1", {}),
        ("--sequence_parallel_size 4", {"not_priced": "unmodelled"}),
    ],
)
def test_what_bears_on_the_price_is_used_or_named(words, found):
    assert causes(read(f"{LLAMA} {words}")) == found


@pytest.mark.parametrize("option", ["gradient_checkpointing", "grad_checkpoint"])
def test_recomputation_has_two_names(option):
    assert read(f"{LLAMA} --{option} True").layout.recompute == "full"
    assert read(f"{LLAMA} --{option} False").layout.recompute == "none"


def test_rows_of_a_rollout_are_a_prompt_and_its_completion():
    words = "--max_prompt_length 512 --max_completion_length 1024"
    assert read(f"{LLAMA} {words}", seq_length=None).job.training.seq_length == 1536


def test_a_model_known_by_the_last_part_of_its_name_is_reported():
    models = {"/weights/Llama-3.1-8B": preset("llama3.1-8b")}
    reading = read("--model_name_or_path /weights/Llama-3.1-8B", model_of=models.get)
    assert causes(reading) == {"model_by_name": "unread"}
    assert reading.legal


def test_what_adapters_freeze_is_not_named_again():
    frozen = "--freeze_llm True --freeze_backbone True"
    assert read(f"{LLAMA} {frozen} --use_llm_lora 16").problems == ()
    assert causes(read(f"{LLAMA} {frozen} --use_llm_lora 0")) == {"not_priced": "unmodelled"}


def test_modules_that_a_model_lacks_are_left_out():
    words = "--use_peft --lora_r 8 --lora_target_modules q_proj k_proj lm_head"
    reading = read(f"{LLAMA} {words}")
    assert reading.job.model.trained.text == "lora:rank=8,modules=q_proj,k_proj"
    (problem,) = reading.problems
    assert "lm_head" in problem.says


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", True), ("OpenGVLab/InternVL2-8B", True),
        ("HuggingFaceTB/SmolVLM-256M-Instruct", True), ("liuhaotian/llava-v1.5-13b", True),
        ("meta-llama/Llama-3.2-11B-Vision", True), ("meta-llama/Llama-3.1-8B", False),
        ("Qwen/Qwen2.5-7B", False), ("vlad/television-7b", False),
    ],
)  # fmt: skip
def test_the_tower_of_a_model_by_name_is_reported_where_it_is_left_out(name, named):
    reading = read(f"--model_name_or_path {name}", model=preset("llama2-7b"))
    assert any("vision tower" in one.says for one in reading.problems) is named


def test_a_tower_that_is_priced_is_not_named():
    reading = read("--model_name_or_path Qwen/Qwen3-VL-30B", model=preset("qwen3-vl-30b-a3b"))
    assert not any("vision tower" in one.says for one in reading.problems)


@pytest.mark.parametrize(
    ("words", "precision"),
    [
        ("--mixed_precision bf16", "bf16"), ("--mixed_precision=fp16", "fp16"),
        ("--mixed_precision no", "tf32"), ("--bf16 --mixed_precision fp16", "bf16"),
    ],
)  # fmt: skip
def test_a_precision_by_its_name_is_taken(words, precision):
    assert read(f"{LLAMA} {words}").job.training.precision == precision
