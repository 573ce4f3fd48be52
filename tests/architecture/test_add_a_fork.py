"""The section on a fork is followed to the letter: written, refused, read back, and priced."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.test_add_an_axis import edited

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "add-a-rule-or-exporter.md"
SECTION = PAGE.read_text("utf-8").partition("\n## A fork\n")[2].partition("\n## ")[0]
BLOCK = re.compile(r"^```diff\n\+\+\+ (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EDITS = BLOCK.findall(SECTION)
FILES = {file for file, _ in EDITS}
REQUEST = """
import json
from dataclasses import replace
from trainplan.costmodel.base import UnsupportedError
from trainplan.costmodel.presets.presets import preset
from trainplan.costmodel.hardware import parse_cluster
from trainplan.costmodel.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout import Layout
from trainplan.planner import estimate
from trainplan.planner.runtimes import EXPORTERS, Request, readers
from trainplan.planner.runtimes.compare import missing_flags
from trainplan.planner.shell import launch_of_command

job = Job(
    model=preset("llama3-8b"),
    training=TrainingSpec(seq_length=4096, global_batch_size=16),
    cluster=parse_cluster("1x8:h100-sxm"),
    runtime="megatron-toy",
)
layout = Layout(tp=2, dp=4, zero_stage=1, sequence_parallel=True)
config = EXPORTERS["megatron-toy"](job, layout)
words = [word for one in config.arguments for word in (one.flag, *map(str, one.values))]
start = ["torchrun", "--nproc_per_node", "8", "pretrain_gpt.py"]

def read(*more):
    launch = launch_of_command([*start, *words, *more], {})
    reader = next(one for one in readers() if one.recognises(launch))
    return reader.read(launch, Request(cluster=job.cluster, model=job.model))

reading, unknown = read(), read("--tp-comm-overlap")
overlapped = job.model_copy(update={"options": RuntimeOptions(overlap_tp_comm=True)})
try:
    EXPORTERS["megatron-toy"](overlapped, layout)
    refused = ""
except UnsupportedError as error:
    refused = str(error)
print(json.dumps({
    "words": words,
    "missing": missing_flags(config, EXPORTERS["megatron-toy"].flags),
    "refused": refused,
    "runtime": [config.runtime, reading.runtime, reading.job.runtime],
    "same": reading.layout == layout,
    "tp": next(one.written for one in reading.fields if one.name == "layout.tp"),
    "setting": reading.own_name("--tensor-model-parallel-size"),
    "unknown": [one.says for one in unknown.problems if one.cause == "unknown_flag"],
    "seconds": estimate(reading.job, reading.layout).step_time_s,
}))
"""


@pytest.fixture(scope="module", name="answer")
def _answer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tree")
    for package in (".editable", "cli", "costmodel", "planner", "profiler"):
        shutil.copytree(ROOT / package, folder / package, symlinks=True)
    for file, block in EDITS:
        path = folder / file
        text = path.read_text("utf-8") if path.exists() else ""
        path.write_text(edited(text, block), "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", REQUEST],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder / ".editable")},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_section_touches_three_files():
    assert len(FILES) == 3


def test_own_options_are_written_and_renamed_ones_have_their_names(answer):
    words = answer["words"]
    assert "--toy-kernels" in words
    assert words[words.index("--shard-level") + 1] == "1"
    assert words[words.index("--tensor-parallel-size") + 1] == "2"
    assert not {"--tensor-model-parallel-size", "--use-distributed-optimizer"} & {*words}
    assert answer["missing"] == []


def test_an_option_that_is_gone_is_refused(answer):
    assert answer["refused"].startswith("megatron-toy has no --tp-comm-overlap")


def test_its_launch_is_read_back_in_its_own_words(answer):
    assert answer["runtime"] == ["megatron-toy"] * 3
    assert answer["same"]
    assert answer["tp"] == "--tensor-parallel-size 2"
    assert answer["setting"] == "--tensor-parallel-size"
    assert len(answer["unknown"]) == 1
    assert "--tp-comm-overlap" in answer["unknown"][0]
    assert answer["seconds"] > 0
