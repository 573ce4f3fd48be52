"""Trainers over transformers: their files and commands as launches of what shards below them."""

import json

import pytest
import yaml

from tests.training_scripts import word
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.presets.presets import preset, preset_named
from trainplan.planner.formats import document_of, format_of
from trainplan.planner.runtimes import READERS, Request
from trainplan.planner.runtimes.hf_trainers.tables import TABLES
from trainplan.planner.shell import Launch, launch_of_command, launches_of_script

ENGINE = json.dumps({
    "zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}, "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
})  # fmt: skip
LLAMA = "meta-llama/Llama-3.1-8B"
SFT = {
    "model_name_or_path": LLAMA, "stage": "sft", "finetuning_type": "full", "cutoff_len": 4096,
    "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4, "bf16": True,
}  # fmt: skip
AXOLOTL = {
    "base_model": LLAMA, "sequence_len": 4096, "micro_batch_size": 2, "bf16": True,
    "gradient_accumulation_steps": 4, "datasets": [{"path": "x"}],
}  # fmt: skip
RECIPE = {
    "model_name_or_path": LLAMA, "max_length": 4096, "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 4, "bf16": True, "gradient_checkpointing": True,
}  # fmt: skip


def named(text):
    return preset(name) if (name := preset_named(text)) else None


def read(launch, files=(), cluster="1x8:h100-sxm"):
    texts = {"ds.json": ENGINE, **dict(files)}
    machines = parse_cluster(cluster) if cluster else None
    request = Request(cluster=machines, text_of=texts.get, model_of=named)
    reader = next(one for one in READERS if one.recognises(launch))
    return reader.read(launch, request)


def file(document, name="x.yaml", **wanted):
    alone = Launch(
        "file", word(name), is_module=False, arguments=(), environment={},
        document=document, format=format_of(document),
    )  # fmt: skip
    return read(alone, {name: yaml.safe_dump(document)}, **wanted)


def command(text, files=(), **wanted):
    return read(launches_of_script(text, "x.sh", {})[0], files, **wanted)


def causes(reading):
    return {problem.cause: problem.verdict for problem in reading.problems}


def figures(reading):
    layout, training = reading.layout, reading.job.training
    return (
        reading.runtime, layout.zero_stage, layout.dp, layout.micro_batch_size,
        training.global_batch_size, training.seq_length, training.precision,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("document", "runtime", "stage"),
    [
        ({**SFT, "deepspeed": "ds.json"}, "deepspeed", 3),
        ({**SFT, "deepspeed": "examples/deepspeed/ds_z2_config.json"}, "deepspeed", 2),
        (SFT, "accelerate", 2),
        ({**SFT, "fsdp": "full_shard auto_wrap"}, "accelerate", 3),
        ({**AXOLOTL, "deepspeed": "deepspeed_configs/zero1.json"}, "deepspeed", 1),
        ({**AXOLOTL, "deepspeed": json.loads(ENGINE)}, "deepspeed", 3),
        ({**AXOLOTL, "fsdp_version": 2, "fsdp_config": {"reshard_after_forward": True}},
         "accelerate", 3),
        ({**AXOLOTL, "fsdp": ["full_shard", "auto_wrap"]}, "accelerate", 3),
        ({**RECIPE, "deepspeed": "ds.json"}, "deepspeed", 3),
        (RECIPE, "accelerate", 2),
    ],
)  # fmt: skip
def test_a_file_of_a_trainer_is_a_launch(document, runtime, stage):
    reading = file(document)
    assert figures(reading) == (runtime, stage, 8, 2, 2 * 4 * 8, 4096, "bf16")
    assert reading.legal
    assert reading.job.model.name == "llama3.1-8b"
    trainer = next(one for one in reading.fields if one.name == "launch.trainer")
    assert trainer.value in {one.title for one in TABLES}


def test_arguments_alone_do_not_state_their_launcher():
    assert causes(file(RECIPE))["starter"] == "unread"
    assert "starter" not in causes(file({**RECIPE, "deepspeed": "ds.json"}))
    assert "starter" not in causes(file(SFT))


def test_what_a_trainer_takes_by_itself_is_a_default():
    reading = file({"model_name_or_path": LLAMA, "stage": "sft", "finetuning_type": "lora"})
    assert reading.job.training.seq_length == 2048
    assert reading.layout.recompute == "full"
    assert reading.job.model.trained.text == "lora:rank=8,modules=all"
    origins = {one.name: one.origin for one in reading.fields}
    assert origins["training.seq_length"] == origins["layout.recompute"] == "default"


def test_the_opposite_of_a_switch_is_read():
    assert file({**SFT, "disable_gradient_checkpointing": True}).layout.recompute == "none"


@pytest.mark.parametrize("nodes", [1, 2])
def test_nodes_whose_gpus_nothing_counts_are_not_of_one(nodes):
    text = f"NNODES={nodes} llamafactory-cli train a.yaml"
    files = {"a.yaml": yaml.safe_dump({**SFT, "deepspeed": "ds.json"})}
    assert command(text, files, cluster=None).layout is None
    assert command(text, files, cluster=f"{nodes}x8:h100-sxm").layout.dp == 8 * nodes


@pytest.mark.parametrize(
    ("text", "runtime", "stage", "ranks"),
    [
        ("FORCE_TORCHRUN=1 NPROC_PER_NODE=8 llamafactory-cli train a.yaml", "deepspeed", 3, 8),
        ("NNODES=2 NPROC_PER_NODE=8 llamafactory-cli train a.yaml", "deepspeed", 3, 16),
        ("CUDA_VISIBLE_DEVICES=0,1,2,3 llamafactory-cli train a.yaml", "deepspeed", 3, 4),
        ("llamafactory-cli train --config a.yaml --deepspeed None", "accelerate", 2, 8),
        ("torchrun --nproc_per_node 8 src/train.py a.yaml", "deepspeed", 3, 8),
        ("accelerate launch --num_processes 8 -m axolotl.cli.train x.yml", "accelerate", 2, 8),
        ("axolotl train x.yml --launcher torchrun -- --nproc_per_node=8 --nnodes=2",
         "accelerate", 2, 16),
        ("srun axolotl train x.yml --launcher torchrun -- --nproc_per_node=8 --nnodes=2",
         "accelerate", 2, 16),
        ("#SBATCH -N 2 --gpus-per-node=8 --ntasks-per-node=1\nsrun llamafactory-cli train a.yaml",
         "deepspeed", 3, 16),
        ("NPROC_PER_NODE=8 swift sft --model " + LLAMA + " --tuner_type full --deepspeed zero3 "
         "--max_length 4096 --per_device_train_batch_size 2 --gradient_accumulation_steps 4",
         "deepspeed", 3, 8),
        ("trl sft --config r.yaml --num_processes 8 --accelerate_config fsdp2", "accelerate", 3, 8),
        ("trl sft --config r.yaml --num_processes 8 --accelerate_config zero3", "deepspeed", 3, 8),
        ("accelerate launch --use_deepspeed --zero_stage 1 --num_processes 8 sft.py --config "
         "r.yaml", "deepspeed", 1, 8),
        ("deepspeed --num_gpus 8 --module openrlhf.cli.train_sft --zero_stage 3 --pretrain "
         + LLAMA + " --micro_train_batch_size 2 --train_batch_size 64 --max_len 4096",
         "deepspeed", 3, 8),
        ("deepspeed --num_gpus 8 --module openrlhf.cli.train_sft --ds.zero_stage 2 "
         "--model.model_name_or_path " + LLAMA + " --train.micro_batch_size 2 "
         "--train.batch_size 64 --data.max_len 4096", "deepspeed", 2, 8),
        ("torchrun --nproc_per_node 8 t.py --model_name_or_path " + LLAMA + " --bf16 --fsdp "
         "'shard_grad_op auto_wrap' --per_device_train_batch_size 2 --gradient_accumulation_steps "
         "4 --max_length 4096", "accelerate", 2, 8),
        ("torchrun --nproc_per_node 8 run_clm.py --model_name_or_path " + LLAMA + " --bf16 "
         "--per_device_train_batch_size 2 --gradient_accumulation_steps 4 --block_size 4096",
         "accelerate", 2, 8),
    ],
)  # fmt: skip
def test_a_command_of_a_trainer_is_a_launch(text, runtime, stage, ranks):
    files = {"a.yaml": {**SFT, "deepspeed": "ds.json"}, "x.yml": AXOLOTL, "r.yaml": RECIPE}
    texts = {name: yaml.safe_dump(one) for name, one in files.items()}
    silent = ranks == 8 and "8" not in text
    reading = command(text, texts, cluster="1x8:h100-sxm" if silent else None)
    whole = 64 if "openrlhf" in text else 2 * 4 * ranks
    assert figures(reading) == (runtime, stage, ranks, 2, whole, 4096, "bf16")
    assert reading.legal


def test_the_command_goes_before_the_file():
    texts = {"r.yaml": yaml.safe_dump(RECIPE)}
    reading = command("trl sft --config r.yaml --max_length 512 --num_processes 8", texts,
                      cluster=None)  # fmt: skip
    assert reading.job.training.seq_length == 512


def test_accumulation_that_ms_swift_chooses_comes_to_sixteen_rows():
    reading = command(f"NPROC_PER_NODE=4 swift sft --model {LLAMA} --max_length 512", cluster=None)
    assert reading.job.training.global_batch_size == 16
    assert reading.job.model.trained.text == "lora:rank=8,modules=all"


def test_an_unpriced_file_is_of_its_trainer():
    reading = file({**AXOLOTL, "base_model": "me/mine"}, cluster=None)
    assert (reading.runtime, reading.job, reading.legal) == ("axolotl", None, None)
    assert "axolotl" in reading.problems[0].says
    assert "me/mine" in reading.problems[0].says


def test_a_file_that_is_not_here_is_named_with_its_trainer():
    made = launch_of_command(["axolotl", "train", "a.yaml", "--launcher", "torchrun"], {})
    with pytest.raises(UnsupportedError, match=r"axolotl starts this from a\.yaml"):
        read(made)


def test_settings_have_the_names_of_the_trainer():
    reading = file({**AXOLOTL, "deepspeed": "ds.json"})
    assert reading.own_name("--per_device_train_batch_size") == "micro_batch_size"
    assert reading.own_name("--gradient_checkpointing") == "gradient_checkpointing"
    assert reading.own_name("zero_optimization.stage") == "zero_optimization.stage"
    length = next(one for one in reading.fields if one.name == "training.seq_length")
    assert (length.written, length.place.line) == ("sequence_len: 4096", 8)


def test_degrees_of_a_mesh_are_read_and_others_are_named():
    sizes = {"tensor_parallel_size": 2, "dp_shard_size": 4, "fsdp_version": 2}
    sharded = {"reshard_after_forward": True, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}
    mesh = file({**AXOLOTL, **sizes, "fsdp_config": sharded})
    assert (mesh.layout.tp, mesh.layout.dp) == (2, 4)
    assert mesh.problems == ()
    engine = file({**AXOLOTL, "deepspeed": "ds.json", "context_parallel_size": 2})
    assert causes(engine) == {"not_priced": "unmodelled"}


@pytest.mark.parametrize(
    "text",
    [
        f"trl dpo --model_name_or_path {LLAMA} --num_processes 8",
        "llamafactory-cli train a.yaml --stage dpo",
        "accelerate launch --num_processes 8 -m axolotl.cli.train x.yml --rl dpo",
    ],
)
def test_another_loss_is_named(text):
    reading = command(text, {"a.yaml": yaml.safe_dump(SFT), "x.yml": yaml.safe_dump(AXOLOTL)})
    assert causes(reading)["loss"] == "unmodelled"


@pytest.mark.parametrize("table", TABLES, ids=lambda one: one.title)
def test_a_table_has_a_source_and_names_of_ours(table):
    assert table.source
    assert table.programs
    assert not {*table.keys.values()} & {*table.keys} - {""}


LINKED = "a0: &a0 [x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]\n" for n in range(1, 20)
)


@pytest.mark.parametrize("more", [LINKED, "a: &a {b: *a}\n", "a: [[1, {b: c}], 2]\n"])
def test_values_that_repeat_without_end_are_left_out(more):
    text = yaml.safe_dump(SFT) + more
    (document,) = document_of(text, ".yaml")
    alone = Launch(
        "file", word("x.yaml"), is_module=False, arguments=(), environment={}, document=document,
        format=format_of(document),
    )  # fmt: skip
    assert read(alone, {"x.yaml": text}).job is not None


def test_a_recipe_that_is_not_here_is_named():
    text = "accelerate launch --num_processes 8 --multi_gpu sft.py --config gone.yaml"
    assert causes(command(text, cluster=None))["no_config"] == "unread"


def test_a_precision_of_the_launcher_fills_what_the_engine_leaves_open():
    reading = command(
        "accelerate launch --mixed_precision bf16 --num_processes 8 --use_deepspeed "
        f"--deepspeed_config_file ds.json train.py --model_name_or_path {LLAMA} --max_length 2048"
    )
    assert reading.job.training.precision == "bf16"
    assert "auto_value" not in {p.cause for p in reading.problems if "bf16" in p.says}


@pytest.mark.parametrize(
    ("words", "known"),
    [
        ("--max_context_width 4096 --hidden_width 5120 --train_batch_size 1", False),
        (f"--model_name_or_path {LLAMA} --stage sft --finetuning_type full", True),
        ("x.yaml", True),
    ],
)
def test_a_path_that_others_have_too_is_no_name_of_a_trainer(words, known):
    text = f"torchrun --nproc_per_node 8 ../src/train.py {words}"
    launch = launches_of_script(text, "x.sh", {})[0]
    reader = next((one for one in READERS if one.recognises(launch)), None)
    assert (reader is not None) is known


def test_a_file_that_is_no_argument_of_the_trainer_makes_no_name_of_it():
    text = "accelerate launch --config_file a.yaml m4/main.py --config x.yaml --save_dir y"
    reading = command(text, {"x.yaml": "answer: 42"})
    assert reading.job is None
    assert not any("Trainer" in one.says for one in reading.problems)
    assert reading.runtime == "accelerate"
