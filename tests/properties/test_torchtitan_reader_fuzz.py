"""Whatever a config of torchtitan says, reading it ends with an answer, never with a crash."""

import random

import pytest

from tests.torchtitan_jobs import launch
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.runtimes import EXPORTERS, Request
from trainplan.planner.runtimes.torchtitan.read import TORCHTITAN

VALUES = ("0", "-1", "None", "''", "[]", "[[1], 'x']", "True", "2**70", "1.5", "{}", "f()", "x.y.z",
          "lambda: 0", "10**400", "float('nan')", "'a' * 9", "[] * 3", "1 / 0", "-'a'")  # fmt: skip
TOML = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 8
seq_len = 8192
[parallelism]
tensor_parallel_degree = 2
pipeline_parallel_degree = 2
[activation_checkpoint]
mode = "selective"
"""


def module():
    job = Job(
        model=preset("deepseek-v2-lite"),
        training=TrainingSpec(seq_length=4096, global_batch_size=64),
        cluster=parse_cluster("1x8:h100-sxm"),
        runtime="torchtitan",
    )
    return EXPORTERS["torchtitan"](job, Layout(pp=2, dp=4, ep=4, zero_stage=1)).files[0].text


def changed(text, rng):
    """A text with some values exchanged, or some lines gone or doubled."""
    lines = text.splitlines()
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(lines))
        head, equals, tail = lines[at].partition("=")
        if equals and rng.random() < 0.8:
            comma = "," if tail.rstrip().endswith(",") else ""
            lines[at] = f"{head}={rng.choice(VALUES)}{comma}"
        elif rng.random() < 0.5:
            lines.insert(at, lines[at])
        else:
            del lines[at]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (module(), ("--module", "x", "--config", "trainplan")),
        (TOML, ("--job.config_file", "x.py")),
    ],
)
def test_a_changed_config_is_read_or_refused(text, arguments):
    rng, read = random.Random(20261125), 0
    for _ in range(400):
        files = {"x.py": changed(text, rng)}
        reading = TORCHTITAN.read(launch(*arguments), Request(text_of=files.get))
        assert reading.layout is not None or reading.problems
        read += reading.layout is not None
    assert read > 40


@pytest.mark.parametrize("value", [v for v in VALUES if " " not in v])
@pytest.mark.parametrize(
    "key",
    [
        "training.num_tokens_per_microbatch_per_dp_rank",
        "training.max_context_length",
        "parallelism.data_parallel_shard_degree",
        "parallelism.pipeline_parallel_degree",
        "parallelism.pipeline_parallel_schedule",
        "parallelism.module_fqns_per_model_part",
        "compile.components",
    ],
)
def test_any_value_of_an_option_is_read_or_refused(key, value):
    words = ("--module", "llama3", "--config", "llama3_8b", f"--{key}", value)
    reading = TORCHTITAN.read(launch(*words), Request())
    assert reading.layout is not None or reading.problems
