"""ArcticTraining's YAML, as exported and as people write it: job and layout again."""

import pytest

from tests.training_scripts import launch, launch_of, word
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout, OffloadSpec
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.formats import document_of, format_of
from trainplan.planner.runtimes import EXPORTERS, READERS, Request
from trainplan.planner.runtimes.arctic_training import READER as ARCTIC_TRAINING
from trainplan.planner.shell import Launch

FULL = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
LONG = {"cp": 8, "zero_stage": 3, "tiled_loss": True, **FULL}
HOST = OffloadSpec(optimizer=1, parameters="cpu", checkpoints=1)
DRIVES = OffloadSpec(optimizer=1, tier="nvme", parameters="nvme")
RECIPE = """
type: sft
micro_batch_size: 1
exit_iteration: 5
sequence_parallel_size: 8
activation_checkpoint_cpu_offload: true
tiled_mlp_compute: true
deepspeed:
  zero_optimization:
    stage: 3
    offload_optimizer: {device: cpu}
  seq_parallel_communication_data_type: bf16
optimizer: {type: cpu_adam, learning_rate: 1e-5}
model:
  type: liger
  name_or_path: some/model
  attn_implementation: flash_attention_2
data:
  sources: [some/data]
  max_length: 512_000
"""


def job_of(seq=1 << 19, batch=16, **options):
    return Job(
        model=preset("llama3.1-8b"),
        training=TrainingSpec(seq_length=seq, global_batch_size=batch),
        cluster=parse_cluster("1x8:h100-sxm@dgx-2"),
        runtime="arctic-training",
        options=RuntimeOptions(**options),
    )


@pytest.mark.parametrize(
    ("layout", "job"),
    [
        (LONG, job_of()),
        (LONG | {"tiled_mlp": True, "offload": HOST}, job_of(1 << 20)),
        (LONG | {"tiled_mlp": True, "offload": DRIVES}, job_of()),
        (LONG | {"offload": OffloadSpec(checkpoints=1)}, job_of()),
        (LONG | {"offload": OffloadSpec(optimizer=0.34)}, job_of()),
        (LONG | {"cp": 2, "dp": 4}, job_of(1 << 16, 64)),
        ({"dp": 8, "zero_stage": 2, **FULL}, job_of(4096, 64)),
        ({"dp": 8, "zero_stage": 1, "micro_batch_size": 2}, job_of(4096, 64)),
        ({"dp": 8, "zero_stage": 3, "tiled_loss": True, **FULL}, job_of(1 << 15, liger="0.6")),
        (LONG, job_of(overlap_grad_reduce=False, gradient_dtype="fp32")),
    ],
)
def test_what_is_exported_is_read_back(layout, job):
    config = EXPORTERS["arctic-training"](job, Layout(**layout))
    made, wanted = launch_of(config, job)
    made = launch(*(word.text for word in made.arguments), program="/bin/arctic_training_run")
    assert next(one for one in READERS if one.recognises(made)) is ARCTIC_TRAINING
    reading = ARCTIC_TRAINING.read(made, wanted)
    assert not reading.problems
    assert reading.layout == Layout(**layout)
    assert reading.job == job


def read(text, *words, **wanted):
    usual = {"cluster": parse_cluster("1x8:h100-sxm"), "model": preset("llama3.1-8b")}
    wanted = Request(**{**usual, **wanted}, text_of={"run.yml": text}.get)
    return ARCTIC_TRAINING.read(launch(*(words or ("run.yml",)), program="arctic_training"), wanted)


def causes(reading):
    return {problem.cause: problem.verdict for problem in reading.problems}


def test_a_recipe_as_people_write_it():
    reading = read(RECIPE)
    layout = reading.layout
    assert (layout.cp, layout.dp, layout.zero_stage) == (8, 1, 3)
    assert (layout.tiled_mlp, layout.tiled_loss) == (True, True)
    assert (layout.offload.optimizer, layout.offload.checkpoints) == (1.0, 1.0)
    assert reading.job.training.seq_length == 512_000
    assert reading.job.training.global_batch_size == 1
    assert reading.legal


@pytest.mark.parametrize(
    ("old", "new", "cause", "verdict"),
    [
        ("exit_iteration: 5", "exit_iterations: 5", "unknown_key", "illegal"),
        ("    stage: 3", "    stage: 3\n    stages: 3", "unknown_key", "illegal"),
        ("type: sft", "type: dpo\nbeta: 0.1", "trainer_type", "unmodelled"),
        ("exit_iteration: 5", "expert_parallel_size: 4", "not_priced", "unmodelled"),
        ("  type: liger", "  type: liger\n  peft_config: {peft_type: Lora}", "not_priced",
         "unmodelled"),
        ("  seq_parallel_communication_data_type: bf16", "", "message_type", "unmodelled"),
        ("sequence_parallel_size: 8", "sequence_parallel_size: 3", "world_size", "illegal"),
        ("  max_length: 512_000", "", "unread_sequence", "unread"),
        (RECIPE, "- a", "unread_config", "unread"),
        (RECIPE, "{", "unread_config", "unread"),
    ],
)  # fmt: skip
def test_what_is_wrong_has_a_name(old, new, cause, verdict):
    assert causes(read(RECIPE.replace(old, new)))[cause] == verdict


def test_a_file_that_is_not_there_is_asked_for():
    assert causes(read(RECIPE, "--config", "other.yml")) == {"no_config": "unread"}


def test_a_yaml_alone_is_known_by_its_keys():
    (document,) = document_of(RECIPE, ".yaml")
    alone = Launch(
        "file", word("run.yml"), is_module=False, arguments=(), environment={}, document=document,
        format=format_of(document),
    )  # fmt: skip
    assert next(one for one in READERS if one.recognises(alone)) is ARCTIC_TRAINING
    wanted = Request(
        cluster=parse_cluster("1x8:h100-sxm"),
        model=preset("llama3.1-8b"),
        text_of={"run.yml": RECIPE}.get,
    )
    assert ARCTIC_TRAINING.read(alone, wanted).layout.cp == 8
