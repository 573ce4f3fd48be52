"""Launches of Accelerate as people write them: what is read, from where, and what is wrong."""

import json

import pytest
import yaml

from tests.training_scripts import launch, word
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.runtimes import READERS, Request
from trainplan.planner.runtimes.accelerate.read import ACCELERATE
from trainplan.planner.shell import Launch

BASE = {
    "compute_environment": "LOCAL_MACHINE",
    "distributed_type": "FSDP",
    "mixed_precision": "bf16",
    "num_machines": 1,
    "num_processes": 8,
    "fsdp_config": {"fsdp_version": 2, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP"},
}
FILE = Launch("file", word("a.yaml"), is_module=False, arguments=(), environment={})


def read(config=None, of=FILE, *, cluster=None, model="llama3.1-8b", batch=64, **changes):
    text = config if isinstance(config, str) else yaml.safe_dump({**BASE, **changes})
    wanted = Request(
        cluster=parse_cluster(cluster) if cluster else None,
        model=preset(model) if model else None,
        seq_length=2048,
        global_batch_size=batch,
        text_of={"a.yaml": text}.get,
    )
    return ACCELERATE.read(of, wanted)


def fsdp(**changes):
    return {"fsdp_config": {**BASE["fsdp_config"], **changes}}


def parallel(**sizes):
    return {"parallelism_config": {f"parallelism_config_{k}": v for k, v in sizes.items()}}


def causes(reading):
    return {problem.cause: problem.verdict for problem in reading.problems}


def test_a_yaml_alone_is_a_job_and_a_layout():
    reading = read()
    assert reading.problems == ()
    assert (reading.layout.dp, reading.layout.zero_stage) == (8, 3)
    assert reading.job.cluster.num_gpus == 8
    fields = {field.name: field for field in reading.fields}
    assert (
        fields["training.precision"].place.line
        == yaml.safe_dump(BASE).split("\n").index("mixed_precision: bf16") + 1
    )
    assert fields["layout.micro_batch_size"].origin == "assumed"


def test_degrees_are_those_of_the_mesh():
    reading = read(**parallel(dp_replicate_size=2, dp_shard_size=2, tp_size=2))
    layout = reading.layout
    assert (layout.tp, layout.dp, layout.dp_replicate) == (2, 4, 2)


def test_options_of_the_starter_win_over_the_file():
    made = launch(
        "--per_device_train_batch_size", 2, starter="accelerate", nodes=None, gpus=None, ranks=16,
        starter_arguments=("--config_file", "a.yaml", "--fsdp_reshard_after_forward", "false",
                           "--mixed_precision=fp16"),
    )  # fmt: skip
    assert next(one for one in READERS if one.recognises(made)) is ACCELERATE
    reading = read(of=made)
    assert reading.problems == ()
    assert (reading.layout.dp, reading.layout.zero_stage) == (16, 2)
    assert reading.layout.micro_batch_size == 2
    assert reading.job.training.precision == "fp16"


def test_without_a_file_and_options_the_default_of_the_machine_is_not_read():
    made = launch(starter="accelerate", nodes=None, gpus=None)
    assert causes(read(of=made)) == {"no_config": "unread"}


@pytest.mark.parametrize(
    ("changes", "cause", "verdict"),
    [
        ({"num_gpus": 8}, "unknown_key", "illegal"),
        (fsdp(fsdp_versions=2), "unknown_key", "ignored"),
        (fsdp(fsdp_version=1), "fsdp_version", "unmodelled"),
        ({**fsdp(fsdp_version=1), **parallel(dp_shard_size=8)},
         "parallelism_needs_fsdp2", "illegal"),
        (parallel(dp_shard_size=4), "world_size", "unread"),
        (parallel(dp_shard_size=3), "world_size", "illegal"),
        (parallel(dp_shard_size=4, tp_size=1, cp_size=1, dp_replicate_size=1),
         "world_size", "illegal"),
        (parallel(dp_shard_size=4, sp_size=2), "sequence_parallel_backend", "illegal"),
        (fsdp(fsdp_offload_params=True), "offload_params", "unmodelled"),
        (fsdp(fsdp_activation_checkpointing=True),
         "activation_checkpointing_parts", "unmodelled"),
        (fsdp(fsdp_state_dict_type="LOCAL_STATE_DICT"), "state_dict_type", "illegal"),
        (fsdp(fsdp_sharding_strategy="FULL_SHARD"), "sharding_strategy", "ignored"),
        (fsdp(fsdp_auto_wrap_policy="NO_WRAP"), "no_wrap", "unmodelled"),
        ({"distributed_type": "MEGATRON_LM"}, "distributed_type", "unread"),
        ({"distributed_type": "NO"}, "distributed_type", "unread"),
        ({"distributed_type": "MULTI_GPU"}, "distributed_type", "unmodelled"),
        ({"compute_environment": "AMAZON_SAGEMAKER"}, "compute_environment", "unread"),
        ({"mixed_precision": "fp8"}, "fp8", "unmodelled"),
        ({"mixed_precision": "bf17"}, "mixed_precision", "illegal"),
        ({"num_processes": "many"}, "wrong_kind", "illegal"),
    ],
)  # fmt: skip
def test_what_is_wrong_has_a_name(changes, cause, verdict):
    assert causes(read(**changes))[cause] == verdict


@pytest.mark.parametrize(("strategy", "stage"), [("FULL_SHARD", 3), ("SHARD_GRAD_OP", 2)])
def test_the_first_fsdp_is_read_with_its_strategy(strategy, stage):
    reading = read(**fsdp(fsdp_version=1, fsdp_sharding_strategy=strategy))
    assert reading.job.options.fsdp_version == 1
    assert reading.layout.zero_stage == stage
    assert read().job.options.fsdp_version is None


def test_shards_of_a_node_that_are_priced_over_all_ranks_are_named():
    reading = read(**fsdp(fsdp_version=1, fsdp_sharding_strategy="HYBRID_SHARD"))
    assert "hybrid_shard" in {one.cause for one in reading.problems}


def test_a_mesh_without_shards_breaks_a_rule_of_the_runtime():
    """The layout is read; the rule that it breaks is the cost model's."""
    assert read(**parallel(tp_size=8)).layout.tp == 8


def test_no_is_a_precision_though_yaml_reads_it_as_false():
    text = yaml.safe_dump(BASE).replace("mixed_precision: bf16", "mixed_precision: no")
    reading = read(text)
    assert reading.job.training.precision == "tf32"
    origins = {field.name: field.origin for field in reading.fields}
    assert origins["training.precision"] == "assumed"


def test_a_batch_that_does_not_divide_is_told():
    assert causes(read(batch=63)) == {"micro_batch_divides_batch": "unread"}
    stated = launch("--per_device_train_batch_size", 2, starter="accelerate", nodes=None, gpus=None,
                    starter_arguments=("--config_file", "a.yaml"))  # fmt: skip
    assert causes(read(of=stated, batch=63)) == {"micro_batch_divides_batch": "illegal"}


def test_variables_that_a_script_sets_are_read_as_keys():
    variables = {
        "ACCELERATE_USE_FSDP": "true",
        "ACCELERATE_MIXED_PRECISION": "bf16",
        "FSDP_VERSION": "2",
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "PARALLELISM_CONFIG_DP_SHARD_SIZE": "4",
        "PARALLELISM_CONFIG_CP_SIZE": "2",
    }
    made = launch("--gradient_checkpointing", environment=variables)
    assert ACCELERATE.recognises(made)
    reading = read(of=made)
    assert reading.problems == ()
    assert (reading.layout.dp, reading.layout.cp, reading.layout.recompute) == (4, 2, "full")


@pytest.mark.parametrize("text", ["", "[", "- 1", "3", "a: *b", "!!python/object:os.system {}"])
def test_text_that_is_no_configuration_is_a_problem(text):
    assert set(causes(read(text))) == {"unread_config"}


BOMB = "".join(f"a{i}: &a{i} [{', '.join(f'*a{i - 1}' for _ in range(9))}]\n" for i in range(1, 30))


@pytest.mark.parametrize("value", ["&x {b: *x}", "*a29", "[1, 2]", "2026-11-25"])
def test_a_value_that_holds_itself_is_no_value(value):
    text = f"a0: &a0 1\n{BOMB}" + yaml.safe_dump(BASE)
    text = text.replace("fsdp_version: 2", f"fsdp_version: {value}")
    assert causes(read(text))["wrong_kind"] == "illegal"


def test_gradients_that_are_accumulated_are_assumed_to_be_sharded():
    names = {field.name: field.origin for field in read(batch=64).fields}
    assert names["training.sync_each_batch"] == "assumed"
    assert "training.sync_each_batch" not in {field.name for field in read(batch=8).fields}


def test_a_yaml_that_names_a_json_of_deepspeed_is_read_as_that():
    engine = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 4,
        "bf16": {"enabled": True},
        "zero_optimization": {
            "stage": 3,
            "offload_optimizer": {"device": "cpu", "ratio": 0.5},
            "offload_param": {"device": "cpu"},
        },
    }
    stated = {"deepspeed_config_file": "ds.json", "zero3_init_flag": True}
    text = yaml.safe_dump(
        {"distributed_type": "DEEPSPEED", "num_processes": 8, "num_machines": 1}
        | {"deepspeed_config": stated}
    )
    wanted = Request(
        model=preset("llama3.1-8b"),
        seq_length=2048,
        text_of={"a.yaml": text, "ds.json": json.dumps(engine)}.get,
    )
    words = ("--config_file", "a.yaml")
    started = launch(starter="accelerate", nodes=None, gpus=None, starter_arguments=words)
    for made in (FILE, started):
        reading = ACCELERATE.read(made, wanted)
        assert reading.problems == ()
        assert reading.runtime == "deepspeed"
        assert (reading.layout.dp, reading.job.training.global_batch_size) == (8, 64)
        offload = reading.layout.offload
        assert (offload.optimizer, offload.parameters) == (0.5, "cpu")


@pytest.mark.parametrize(("value", "on"), [((), True), (("true",), True), (("false",), False)])
def test_kernels_of_liger_tile_the_loss(value, on):
    file = {"starter": "accelerate", "starter_arguments": ("--config_file", "a.yaml")}
    reading = read(of=launch("--use_liger_kernel", *value, nodes=None, gpus=None, **file))
    assert reading.layout.tiled_loss is on
    assert reading.job.options.liger == ("0.6" if on else None)


INLINE = {
    "distributed_type": "DEEPSPEED",
    "deepspeed_config": {"zero_stage": 3, "gradient_accumulation_steps": 4,
                         "offload_optimizer_device": "cpu", "offload_param_device": "none"},
    "num_processes": 16,
    "num_machines": 2,
}  # fmt: skip
WORDS = ("--per_device_train_batch_size", 2, "--max_length", 2048)


def test_the_engine_in_the_file_is_what_deepspeed_takes():
    """As `accelerate config` writes it."""
    made = launch(*WORDS, starter="accelerate", nodes=None, gpus=None,
                  starter_arguments=("--config_file", "a.yaml"))  # fmt: skip
    reading = read(of=made, batch=None, **INLINE)
    assert reading.problems == ()
    assert reading.runtime == reading.job.runtime == "deepspeed"
    assert (reading.layout.dp, reading.layout.zero_stage) == (16, 3)
    assert reading.layout.offload.optimizer == 1.0
    assert reading.job.training.global_batch_size == 2 * 4 * 16
    assert reading.job.training.precision == "bf16"
    stage = next(one for one in reading.fields if one.name == "layout.zero_stage")
    assert (stage.origin, stage.place.file) == ("stated", "a.yaml")


def test_steps_that_script_and_file_state_otherwise_are_named():
    made = launch(*WORDS, "--gradient_accumulation_steps", 8, starter="accelerate", nodes=None,
                  gpus=None, starter_arguments=("--config_file", "a.yaml"))  # fmt: skip
    reading = read(of=made, batch=None, **INLINE)
    assert causes(reading) == {"two_accumulations": "unread"}
    assert reading.legal
    assert reading.job.training.global_batch_size == 2 * 8 * 16


@pytest.mark.parametrize(
    ("words", "runtime", "stage"),
    [
        ("--use_deepspeed --zero_stage 3", "deepspeed", 3),
        ("--use_deepspeed", "deepspeed", 2),
        ("--use_fsdp --fsdp_version 2", "accelerate", 3),
        ("--use_fsdp --fsdp_sharding_strategy SHARD_GRAD_OP", "accelerate", 2),
        ("--multi_gpu", "accelerate", 2),
        ("", "accelerate", 2),
    ],
)
def test_switches_of_the_starter_say_what_shards(words, runtime, stage):
    made = launch(*WORDS, starter="accelerate", nodes=None, gpus=None, ranks=8,
                  starter_arguments=("--mixed_precision", "bf16", *words.split()))  # fmt: skip
    reading = read(of=made, batch=None)
    assert (reading.runtime, reading.layout.zero_stage, reading.layout.dp) == (runtime, stage, 8)
    assert reading.legal
    assert ("no_config" in causes(reading)) == (not words)


def test_ulysses_under_the_engine_is_read():
    changes = {**INLINE, **parallel(sp_size=4, sp_backend="deepspeed")}
    changes["deepspeed_config"] = {"zero_stage": 3}
    reading = read(batch=None, **changes)
    assert (reading.layout.cp, reading.layout.dp) == (4, 4)


def test_an_unknown_key_stops_what_is_surely_a_file_of_accelerate():
    config = yaml.safe_dump({"num_processes": 8, "lr": 1e-5, "fsdp_config": {"fsdp_version": 2}})
    assert causes(read(config))["unknown_key"] == "unread"


def test_many_unknown_keys_are_counted():
    changes = {f"k{number}": 1 for number in range(50)}
    unknown = [one for one in read(**changes).problems if one.cause == "unknown_key"]
    assert len(unknown) == 21
    assert "30 more" in unknown[-1].says
