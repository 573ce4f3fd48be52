"""What is exported to DeepSpeed and Accelerate is read back: job and layout, field by field."""

import random

import pytest

from tests.grids import number
from tests.training_scripts import launch_of
from trainplan.costmodel.base.errors import PlanError
from trainplan.costmodel.hardware.cluster import ClusterSpec, HostSpec, parse_cluster
from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout, OffloadSpec
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.questions import check
from trainplan.planner.runtimes import EXPORTERS, READERS

MODELS = ("llama2-7b", "llama3.1-8b", "llama3.2-1b", "qwen3-8b", "mixtral-8x7b", "gemma3-1b")
OPTIONS = {
    "deepspeed": {
        "overlap_grad_reduce": (None, None, False),
        "gradient_dtype": (None, "fp32", "bf16"),
        "overlap_tp_comm": (None, True),
        "weight_bits": (None, None, 8),
        "gradient_bits": (None, None, 4),
    },
    "accelerate": {"compile": (None, True), "cp_comm_type": (None, "p2p")},
}
DRAWS = number(6, by_night=60)
DRIVES = {"count": 8, "tb": 4, "read_gb_per_s": 6, "write_gb_per_s": 4}
(GROUP,) = parse_cluster("2x8:h100-sxm").groups
HOST = HostSpec(memory_gib=2048, drives=DRIVES)
CLUSTER = ClusterSpec(name="2x8 with drives", groups=(GROUP.model_copy(update={"host": HOST}),))


def drawn(rng, runtime):
    """A job and a layout for 16 GPUs; many are illegal."""
    tp, cp = rng.choice([1, 1, 2, 4]), rng.choice([1, 1, 2, 4])
    dp = 16 // (tp * cp)
    full = {"recompute": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    offload = OffloadSpec(
        optimizer=rng.choice([0.0, 0.0, 0.34, 1.0, 1.0]),
        tier=rng.choice(["cpu", "cpu", "nvme"]),
        parameters=rng.choice([None, None, "cpu", "nvme"]),
        checkpoints=rng.choice([0, 0, 1]),
    )
    layout = Layout(
        tp=tp,
        cp=cp,
        dp=dp,
        dp_replicate=rng.choice([1, 1, 2]) if dp > 1 else 1,
        zero_stage=rng.choice([0, 1, 2, 3, 3]),
        hpz=rng.choice([1, 1, 1, 2, 8]),
        micro_batch_size=rng.choice([1, 2, 4]),
        offload=offload,
        tiled_loss=rng.random() < 0.3,
        tiled_mlp=rng.random() < 0.3,
        **rng.choice([{}, full]),
    )
    training = TrainingSpec(
        seq_length=rng.choice([1024, 4096, 65536]),
        global_batch_size=rng.choice([32, 64, 128]),
        precision=rng.choice(["bf16", "bf16", "fp16", "tf32"]),
    )
    options = {name: rng.choice(values) for name, values in OPTIONS[runtime].items()}
    job = Job(
        model=preset(rng.choice(MODELS)),
        training=training,
        cluster=CLUSTER,
        runtime=runtime,
        options=RuntimeOptions(**options),
    )
    return job, layout


def wanted(job, layout):
    """Of equal jobs the one with the fewest words: an option that means nothing is not told."""
    without = {
        "overlap_tp_comm": layout.tp == 1,
        "cp_comm_type": layout.cp == 1,
    }
    changes = {name: None for name, idle in without.items() if idle}
    return job.model_copy(update={"options": job.options.model_copy(update=changes)})


@pytest.mark.parametrize(
    ("runtime", "by_file"), [("deepspeed", False), ("accelerate", False), ("accelerate", True)]
)
def test_what_is_exported_is_read_back(runtime, by_file):
    rng, found = random.Random(20261125), 0
    reader = [one for one in READERS if one.runtime == runtime][-1]  # before it: its trainers
    while found < DRAWS:
        job, layout = drawn(rng, runtime)
        try:
            check(job, layout)
            config = EXPORTERS[runtime](job, layout)
        except PlanError:
            continue
        found += 1
        launch, question = launch_of(config, job, by_file=by_file)
        assert reader.recognises(launch)
        reading = reader.read(launch, question)
        assert not reading.problems, (layout, reading.problems)
        assert reading.layout == layout
        assert reading.job == wanted(job, layout)
