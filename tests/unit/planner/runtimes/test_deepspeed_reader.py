"""DeepSpeed configurations as people write them: what is read, from where, and what is wrong."""

import json
from dataclasses import replace

import pytest

from tests.training_scripts import launch, word
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.runtimes import READERS, Request
from trainplan.planner.runtimes.deepspeed.read import DEEPSPEED
from trainplan.planner.runtimes.megatron_lm.read import MEGATRON_LM
from trainplan.planner.shell import COMMAND_LINE, Launch, Word

BASE = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3, "overlap_comm": True},
}
DRIVE = {"device": "nvme", "nvme_path": "/drives"}
PIPELINED = {**DRIVE, "pipeline_read": True, "pipeline_write": True}
FILE = Launch("file", word("ds.json"), is_module=False, arguments=(), environment={})


def read(config=None, of=FILE, *, cluster="1x8:h100-sxm", model="llama3.1-8b", seq_length=2048,
         **changes):  # fmt: skip
    text = config if isinstance(config, str) else json.dumps({**BASE, **(config or {}), **changes})
    wanted = Request(
        cluster=parse_cluster(cluster) if cluster else None,
        model=preset(model) if model else None,
        seq_length=seq_length,
        text_of={"ds.json": text}.get,
    )
    return DEEPSPEED.read(of, wanted)


def zero(**changes):
    return {"zero_optimization": {**BASE["zero_optimization"], **changes}}


def causes(reading):
    return {problem.cause: problem.verdict for problem in reading.problems}


def test_a_configuration_alone_is_a_job_and_a_layout():
    reading = read()
    assert reading.problems == ()
    assert reading.job.training.global_batch_size == 2 * 4 * 8
    assert (reading.layout.dp, reading.layout.zero_stage) == (8, 3)
    fields = {field.name: field for field in reading.fields}
    assert fields["layout.zero_stage"].written == "zero_optimization.stage = 3"
    assert fields["layout.zero_stage"].place.file == "ds.json"
    assert fields["model.name"].origin == "assumed"
    assert fields["layout.tp"].origin == "default"


def test_what_is_quantised_and_copied_comes_from_the_section():
    changes = zero(
        zero_hpz_partition_size=8, zero_quantized_weights=True, zero_quantized_gradients=True
    )
    reading = read(cluster="2x8:h100-sxm", **changes)
    assert reading.problems == ()
    assert reading.layout.hpz == 8
    assert (reading.job.options.weight_bits, reading.job.options.gradient_bits) == (8, 4)
    lines = {field.name: field.written for field in reading.fields}
    assert lines["options.gradient_bits"] == "zero_optimization.zero_quantized_gradients = true"
    assert lines["layout.hpz"] == "zero_optimization.zero_hpz_partition_size = 8"
    assert read(cluster="1x8:h100-sxm", **changes).layout.hpz == 1, "the first copy is in the node"
    below = read(cluster="2x8:h100-sxm", **zero(stage=2, zero_hpz_partition_size=8))
    assert below.layout.hpz == 1, "the engine reads it in stage 3 alone"


def test_groups_of_shards_come_from_mics():
    """Neighbours among all ranks, those of a sequence as well, and of ZeRO-3 alone."""
    reading = read(cluster="2x8:h100-sxm", **zero(mics_shard_size=8))
    assert reading.problems == ()
    assert (reading.layout.dp, reading.layout.dp_replicate) == (16, 2)
    lines = {field.name: field.written for field in reading.fields}
    assert lines["layout.dp_replicate"] == "zero_optimization.mics_shard_size = 8"
    cut = read(cluster="2x8:h100-sxm", **zero(mics_shard_size=8), sequence_parallel_size=2)
    assert (cut.layout.dp, cut.layout.cp, cut.layout.dp_replicate) == (8, 2, 2)
    assert read(**zero(mics_shard_size=8)).layout.dp_replicate == 1
    assert read(**zero(stage=2, mics_shard_size=4)).layout.dp_replicate == 1


@pytest.mark.parametrize(
    ("arguments", "starter"),
    [
        (("--deepspeed", "--deepspeed_config", "ds.json"), "deepspeed"),
        (("--deepspeed_config=ds.json",), "deepspeed"),
        (("--deepspeed", "ds.json"), "torchrun"),
    ],
)
def test_a_launch_names_the_configuration(arguments, starter):
    made = launch(*arguments, starter=starter, nodes=2, gpus=8)
    assert next(one for one in READERS if one.recognises(made)) is DEEPSPEED
    reading = read(of=made, cluster=None)
    assert reading.layout.dp == 16
    assert reading.job.cluster.num_gpus == 16


def test_accelerate_names_it_among_its_own_options():
    words = ("--use_deepspeed", "--deepspeed_config_file", "ds.json")
    made = launch(starter="accelerate", nodes=None, gpus=None, ranks=8, starter_arguments=words)
    assert next(one for one in READERS if one.recognises(made)) is DEEPSPEED
    assert read(of=made, cluster=None).layout.dp == 8


@pytest.mark.parametrize(
    ("triad", "batch"),
    [
        ((64, 2, 4), (2, 64)),
        ((64, 2, None), (2, 64)),
        ((64, None, 4), (2, 64)),
        ((None, 2, 4), (2, 64)),
        ((64, None, None), (8, 64)),
        ((None, 2, None), (2, 16)),
    ],
)
def test_the_triad_is_filled_in_as_the_engine_does(triad, batch):
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    stated = {k: v for k, v in BASE.items() if k not in names}
    stated |= {name: value for name, value in zip(names, triad, strict=True) if value}
    reading = read(json.dumps(stated))
    assert (reading.layout.micro_batch_size, reading.job.training.global_batch_size) == batch


def test_a_triad_that_does_not_multiply_stops_the_engine():
    assert causes(read(train_batch_size=63)) == {"micro_batch_divides_batch": "illegal"}
    none = json.dumps({"zero_optimization": {"stage": 1}})
    assert causes(read(none)) == {"batch_size": "unread"}


def test_ranks_of_autotp_count_as_replicas_in_the_triad():
    """The engine lays out AutoTP after it has checked the batch: 128 of 8 ranks, 64 in truth."""
    reading = read(tensor_parallel={"autotp_size": 2}, train_batch_size=64)
    assert reading.legal
    assert (reading.layout.tp, reading.layout.dp) == (2, 4)
    assert reading.job.training.global_batch_size == 32


def test_all_three_numbers_say_how_many_ranks_there_are():
    reading = read(train_batch_size=128, cluster=None)
    assert reading.layout.dp == 16
    assert causes(read(cluster=None)) == {"world_size": "unread"}


@pytest.mark.parametrize(
    ("changes", "cause", "verdict"),
    [
        ({"zero_optimisation": {"stage": 1}}, "unknown_key", "ignored"),
        (zero(stages=3), "unknown_key", "illegal"),
        (zero(stage=7), "wrong_kind", "illegal"),
        (zero(stage=2, offload_optimizer={"device": "cpu", "ratio": 0.5}),
         "engine_offloads_shards", "illegal"),
        (zero(stage=2, offload_param={"device": "cpu"}), "offload_param", "ignored"),
        (zero(stage=0, offload_optimizer={"device": "cpu"}), "offload_stage", "ignored"),
        (zero(stage=2, offload_optimizer={"device": "nvme"}), "offload_nvme", "ignored"),
        (zero(offload_optimizer={"device": "disk"}), "offload_device", "illegal"),
        (zero(offload_param={"device": "cpu", "pin_memory": False}), "offload_pageable",
         "unmodelled"),
        (zero(zero_hpz_partition_size=3), "second_copy_is_shared_by_fewer", "illegal"),
        (zero(mics_shard_size=3), "replicas_divide_dp", "illegal"),
        (zero(mics_shard_size=4, mics_hierarchical_params_gather=True), "not_priced", "unmodelled"),
        ({**zero(mics_shard_size=4), "sequence_parallel_size": 8}, "not_priced", "unmodelled"),
        (zero(zero_quantized_nontrainable_weights=True), "not_priced", "unmodelled"),
        (zero(zeropp_loco_param={"err_beta": 0.8}), "not_priced", "unmodelled"),
        (zero(offload_optimizer={"device": "nvme"}), "offload_path", "unread"),
        (zero(offload_optimizer={"device": "nvme", "nvme_path": ""}), "offload_path", "illegal"),
        (zero(offload_optimizer=DRIVE), "offload_pipeline", "unmodelled"),
        (zero(offload_optimizer=DRIVE, sub_group_size=1e8), "offload_subgroups", "unmodelled"),
        (zero(offload_param=DRIVE), "offload_max_in_cpu", "unmodelled"),
        ({"fp16": {"enabled": True}}, "two_precisions", "illegal"),
        ({"activation_checkpointing": {"partition_activations": True}},
         "activation_checkpointing", "ignored"),
        ({"tensor_parallel": {"autotp_size": 3}}, "world_size", "illegal"),
        ({"train_micro_batch_size_per_gpu": "auto"}, "auto_value", "unread"),
        ({"bf16": {"enabled": "auto"}}, "auto_value", "unread"),
    ],
)  # fmt: skip
def test_what_is_wrong_has_a_name(changes, cause, verdict):
    assert causes(read(**changes))[cause] == verdict


@pytest.mark.parametrize(
    "off", [zero(zero_hpz_partition_size=1), zero(mics_shard_size=-1), {"amp": {"enabled": False}}]
)
def test_what_is_off_is_no_problem(off):
    assert read(**off).problems == ()


def test_auto_is_what_the_arguments_of_the_trainer_say():
    words = "--deepspeed ds.json --per_device_train_batch_size 4 --bf16"
    more = "--gradient_accumulation_steps=2 --gradient_checkpointing true"
    made = launch(*words.split(), *more.split())
    stated = dict.fromkeys(("train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
                          "train_batch_size"), "auto")  # fmt: skip
    reading = read({**stated, "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}}, made)
    assert reading.problems == ()
    assert reading.layout.micro_batch_size == 4
    assert reading.layout.recompute == "full"
    assert reading.job.training.global_batch_size == 4 * 2 * 8
    assert reading.job.training.precision == "bf16"


def test_what_the_configuration_has_otherwise_than_the_command_is_named():
    words = "--deepspeed ds.json --per_device_train_batch_size 4 --gradient_accumulation_steps 2"
    reading = read(of=launch(*words.split()), train_micro_batch_size_per_gpu=1,
                   gradient_accumulation_steps=2, train_batch_size=16)  # fmt: skip
    [problem] = [one for one in reading.problems if one.cause == "script_differs"]
    assert "--per_device_train_batch_size 4" in problem.says


@pytest.mark.parametrize("option", ["--beta 0.1", "--num_generations 8"])
def test_a_loss_of_pairs_or_rollouts_is_named_as_not_priced(option):
    [problem] = read(of=launch("--deepspeed", "ds.json", *option.split())).problems
    assert problem.verdict == "unmodelled"
    assert option in problem.says


def test_a_precision_of_the_command_alone_is_that_of_the_engine():
    text = json.dumps({"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1})
    reading = read(text, launch("--deepspeed", "ds.json", "--bf16"))
    assert reading.job.training.precision == "bf16"
    assert read(text).job.training.precision != "bf16"


def test_the_reduction_overlaps_by_default_under_stage_3_alone():
    assert read(zero_optimization={"stage": 3}).job.options.overlap_grad_reduce is None
    assert read(zero_optimization={"stage": 2}).job.options.overlap_grad_reduce is False


def test_the_model_and_the_sequence_are_asked_for():
    reading = read(model=None, seq_length=None)
    assert reading.job is None
    assert causes(reading) == {"unread_model": "unread", "unread_sequence": "unread"}


def test_a_key_that_stands_twice_stops_the_engine():
    assert causes(read('{"bf16": {}, "bf16": {}}')) == {"duplicate_key": "illegal"}


@pytest.mark.parametrize("text", ["", "[]", "{", "// note\n{}", "[" * 100_000, "3"])
def test_text_that_is_no_configuration_is_a_problem(text):
    assert set(causes(read(text))) == {"unread_config"}


def test_a_program_of_megatron_under_deepspeed_is_of_its_own_reader():
    for made in (
        launch("--deepspeed_config", "ds.json", program="pretrain_gpt.py"),
        launch(program="x/pretrain_gpt.py", starter="deepspeed"),
    ):
        assert MEGATRON_LM.recognises(made)
        assert "megatron_deepspeed" in causes(MEGATRON_LM.read(made, Request()))
        assert causes(read(of=made)) == {"megatron_deepspeed": "unread"}


def test_nodes_that_only_a_run_knows_are_those_of_the_cluster():
    named = ("--deepspeed_config", "ds.json")
    hostfile = launch(*named, starter="deepspeed", nodes=None, gpus=8)
    assert read(of=hostfile, cluster="2x8:h100-sxm").layout.dp == 16
    assert read(of=hostfile, cluster=None).layout.dp == 8
    unknown = Word("$NNODES", COMMAND_LINE, ("NNODES",))
    later = replace(launch(*named, gpus=8), nodes=unknown)
    assert read(of=later, cluster="2x8:h100-sxm").layout.dp == 16
    assert causes(read(of=later, cluster=None)) == {"world_size": "unread"}
    alone = launch(*named, nodes=None, gpus=8)
    assert read(of=alone, cluster="2x8:h100-sxm").layout.dp == 16
    both = read(of=launch(*named, nodes=1, gpus=8), cluster="2x8:h100-sxm")
    assert causes(both) == {"cluster_size": "ignored"}
    assert both.job.cluster.num_gpus == both.layout.dp == 8


def test_what_waits_on_the_host_and_on_drives_is_read():
    enough = {**PIPELINED, "buffer_count": 12}
    stated = zero(offload_optimizer=enough, offload_param={**DRIVE, "max_in_cpu": 0})
    reading = read(**stated)
    assert reading.problems == ()
    offload = reading.layout.offload
    assert (offload.optimizer, offload.tier, offload.parameters) == (1.0, "nvme", "nvme")
    reading = read(**zero(offload_optimizer={"device": "cpu", "ratio": 0.4}))
    assert (reading.layout.offload.optimizer, reading.layout.offload.tier) == (0.4, "cpu")


def test_a_pipeline_of_reads_and_writes_needs_buffers_for_the_subgroups_beside_each_other():
    """Llama-3-70B on 8 ranks: 8.8e9 parameters each, so three subgroups of four buffers."""
    few = read(**zero(offload_optimizer=PIPELINED), model="llama3-70b")
    assert causes(few) == {"offload_buffers": "unread"}
    stated = {**PIPELINED, "buffer_count": 4}
    few = read(**zero(offload_optimizer=stated), model="llama3-70b")
    assert causes(few) == {"offload_buffers": "illegal"}
    more = {**PIPELINED, "buffer_count": 12}
    assert read(**zero(offload_optimizer=more), model="llama3-70b").problems == ()


def test_a_buffer_holds_the_share_of_the_largest_weight():
    """128256 x 8192 over 8 ranks are 131,334,144 parameters; the default holds 1e8."""
    default = read(**zero(offload_param={**DRIVE, "max_in_cpu": 0}), model="llama3-70b")
    assert causes(default) == {"offload_buffer_size": "unread"}
    stated = {**DRIVE, "max_in_cpu": 0, "buffer_size": 100_000_000}
    small = read(**zero(offload_param=stated), model="llama3-70b")
    assert causes(small) == {"offload_buffer_size": "illegal"}
    larger = {**DRIVE, "max_in_cpu": 0, "buffer_size": 131_334_144}
    assert read(**zero(offload_param=larger), model="llama3-70b").problems == ()


def test_checkpoints_wait_on_the_host_where_the_script_says_that_the_model_uses_them():
    section = {"activation_checkpointing": {"cpu_checkpointing": True}}
    own = launch("--deepspeed_config", "ds.json", "--offloaded_checkpoints")
    reading = read(of=own, cluster=None, **section)
    assert reading.problems == ()
    assert (reading.layout.recompute, reading.layout.offload.checkpoints) == ("full", 1.0)
    usual = launch("--deepspeed_config", "ds.json", "--gradient_checkpointing")
    reading = read(of=usual, cluster=None, **section)
    assert causes(reading) == {"activation_checkpointing": "ignored"}
    assert (reading.layout.recompute, reading.layout.offload.checkpoints) == ("full", 0.0)


@pytest.mark.parametrize(
    ("size", "found"),
    [(52_428_800, 100), (5e8, None), (None, None), ("auto", 32), (1000, 1000 * 2 / 2**20)],
)
def test_a_size_of_buckets_is_read_where_it_is_not_the_engine_s_own(size, found):
    """The Trainer fills in as many elements as hidden size squared: 4,096 squared in 2 bytes."""
    keys = {} if size is None else {"reduce_bucket_size": size}
    reading = read(zero(**keys))
    assert reading.job.options.bucket_mb == found
    assert "auto_value" not in causes(reading)
