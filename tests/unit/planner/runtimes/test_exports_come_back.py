"""What is exported is read with its model, its length and its layout, whatever starts it."""

from functools import partial
from pathlib import Path

import pytest

from trainplan.cli.values.launches import model_next_to
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.formats import document_of
from trainplan.planner.launchers import launches_of_manifest
from trainplan.planner.launchers.registry import LAUNCHERS
from trainplan.planner.runtimes import EXPORTERS, Request, readers
from trainplan.planner.shell import Host, launches_of_script

FULL = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
SHARDED = Layout(dp=16, zero_stage=3, **FULL)
LAYOUTS = {
    "megatron-lm": Layout(tp=2, pp=2, dp=4, zero_stage=1, sequence_parallel=True),
    "megatron-bridge": Layout(tp=2, pp=2, dp=4, zero_stage=1, sequence_parallel=True),
    "torchtitan": SHARDED,
    "accelerate": SHARDED,
    "arctic-training": SHARDED,
    "deepspeed": SHARDED,
    "fsdp2": Layout(tp=2, dp=8, dp_replicate=2, zero_stage=2, sequence_parallel=True),
    "transformers": Layout(tp=2, dp=8, dp_replicate=2, zero_stage=3, **FULL),
}
TRIPS = [
    *((runtime, "torchrun") for runtime in LAYOUTS),
    *(("megatron-lm", launcher) for launcher in LAUNCHERS if launcher != "torchrun"),
    *((runtime, "kubernetes") for runtime in ("torchtitan", "deepspeed", "fsdp2", "transformers")),
    ("accelerate", "pytorchjob"),
    ("arctic-training", "skypilot"),
    ("transformers", "slurm"),
    ("transformers", "mpi"),
]


def exported(runtime, model="llama3-8b", layout=None):
    job = Job(
        model=preset(model),
        training=TrainingSpec(seq_length=4096, global_batch_size=64),
        cluster=parse_cluster("2x8:h100-sxm"),
        runtime=runtime,
    )
    return job, EXPORTERS[runtime](job, layout or LAYOUTS[runtime])


def read(config, launcher, cluster):
    """As `plan check` reads the file in the folder of the export."""
    way, files = LAUNCHERS[launcher], {file.name: file.text for file in config.files}
    text = way.write(config, cluster)
    written = {} if way.carries_files else files

    def alongside(path):
        return written.get(Path(path).name)

    if way.file.endswith(".yaml"):
        documents = document_of(text, ".yaml")
        launches = launches_of_manifest(documents, text, way.file, {}, alongside)
    else:
        launches = launches_of_script(text, way.file, {}, Host(read=alongside))
    launch = launches[-1]
    reader = next(one for one in readers() if one.recognises(launch))
    request = Request(text_of=alongside, model_of=partial(model_next_to, Path()))
    return reader.read(launch, request.over(launch))


@pytest.mark.parametrize(("runtime", "launcher"), TRIPS)
def test_a_launch_comes_back(runtime, launcher):
    job, config = exported(runtime)
    reading = read(config, launcher, job.cluster)
    assert reading.job is not None, reading.problems
    assert (reading.runtime, reading.job.model.name) == (runtime, job.model.name)
    assert reading.job.training.seq_length == job.training.seq_length
    assert reading.job.training.global_batch_size == job.training.global_batch_size
    assert reading.job.cluster.groups[0].gpus_per_node == 8
    assert reading.job.cluster.num_gpus == 16
    assert reading.layout == LAYOUTS[runtime]
    assert not [one for one in reading.problems if one.verdict == "illegal"]


def test_a_module_of_fsdp2_that_lacks_settings_is_not_judged():
    _, config = exported("fsdp2")
    (file,) = config.files
    short = file.text.replace("MICRO_BATCHES = ", "OTHER = ")
    for text in (short, "x = (", "", "VOCAB_SIZE = 5"):
        launch = launches_of_script("torchrun -m train_fsdp2 --steps 1", "run.sh", {})[0]
        reader = next(one for one in readers() if one.recognises(launch))
        reading = reader.read(launch, Request(text_of={"train_fsdp2.py": text}.get))
        assert reading.legal is None
        assert reading.problems[-1].cause == "unread_config"


def test_a_module_of_fsdp2_stops_where_the_ranks_are_others():
    _, config = exported("fsdp2")
    (file,) = config.files
    text = "torchrun --nproc_per_node 8 -m train_fsdp2 --steps 1"
    (launch,) = launches_of_script(text, "run.sh", {})
    reader = next(one for one in readers() if one.recognises(launch))
    reading = reader.read(launch, Request(text_of={file.name: file.text}.get))
    assert [one.cause for one in reading.problems] == ["world_size"]
    assert reading.legal is False


@pytest.mark.parametrize(
    ("model", "layout", "flags"),
    [
        ("llama3-8b", {"tp": 2, "dp": 8, "gtp": 4, "sequence_parallel": True}, ("8", None)),
        ("mixtral-8x7b", {"dp": 16, "ep": 4, "egtp": 2}, (None, "2")),
    ],
)
def test_weights_cut_beyond_tp_come_back(model, layout, flags):
    job, config = exported("megatron-lm", model, Layout(**layout))
    written = {one.flag: " ".join(map(str, one.values)) for one in config.arguments}
    names = ("--tensor-parallel-num-weight-shards", "--expert-tensor-parallel-num-weight-shards")
    assert tuple(written.get(name) for name in names) == flags
    reading = read(config, "torchrun", job.cluster)
    assert reading.layout == Layout(**layout)
    assert reading.legal, reading.problems


@pytest.mark.parametrize("runtime", ["megatron-lm", "megatron-bridge"])
def test_copies_that_share_an_optimizer_come_back(runtime):
    layout = Layout(dp=16, dp_replicate=2, zero_stage=3, replicas_share_optimizer=True)
    job, config = exported(runtime, layout=layout)
    reading = read(config, "torchrun", job.cluster)
    assert reading.layout == layout
    assert reading.legal, reading.problems


@pytest.mark.parametrize("layout", [{"dp": 16}, {"dp": 8, "cp": 2}])
def test_groups_of_shards_come_back_from_deepspeed(layout):
    layout = Layout(dp_replicate=2, zero_stage=3, **layout)
    job, config = exported("deepspeed", "llama3.1-8b", layout)
    assert '"mics_shard_size": 8' in config.files[0].text
    reading = read(config, "torchrun", job.cluster)
    assert reading.layout == layout
    assert reading.legal, reading.problems


def test_linear_attention_comes_back():
    layout = Layout(dp=16, ep=8, zero_stage=1)
    job, config = exported("megatron-lm", "qwen3-next-80b-a3b", layout)
    reading = read(config, "torchrun", job.cluster)
    assert reading.job.model == job.model
    assert not [one for one in reading.problems if one.verdict == "unmodelled"]
