"""A launch's own saves: read back as they were written, and against what loses least."""

from pathlib import PurePath

import pytest

from tests.unit.planner.operations.test_saves import STEP_S, exported
from trainplan.cli.pages.check import _saves_line
from trainplan.cli.pages.parts.headline import goodput_line
from trainplan.costmodel.hardware.failures import FailureSpec
from trainplan.costmodel.run_costs import goodput_of
from trainplan.planner.launch_checks.saves import save_lints, saves_of_launch
from trainplan.planner.launchers.registry import LAUNCHERS
from trainplan.planner.operations.read_saves import SAVE_STEPS, SAVE_WAY, with_saves_read
from trainplan.planner.runtimes import Request, readers
from trainplan.planner.shell import Host, launches_of_script


def read(config, job, stated="sync", **failures):
    """As `plan check` reads the script, of a cluster whose failures are stated."""
    files = {file.name: file.text for file in config.files}

    def alongside(path):
        return files.get(PurePath(path).name)

    text = LAUNCHERS["torchrun"].write(config, job.cluster)
    launch = launches_of_script(text, "run.sh", {}, Host(read=alongside))[-1]
    reader = next(one for one in readers() if one.recognises(launch))
    own = FailureSpec(
        **{"mtbf_node_days": 730, "checkpoint_gb_per_s": 50, "save": stated} | failures
    )
    cluster = job.cluster.model_copy(update={"failures": own})
    request = Request(text_of=alongside, cluster=cluster)
    return with_saves_read(launch, reader.read(launch, request))


def fields(reading):
    return {one.name: one.value for one in reading.fields if one.name in (SAVE_STEPS, SAVE_WAY)}


@pytest.mark.parametrize("way", ["sync", "async", "local"])
@pytest.mark.parametrize("runtime", ["megatron-lm", "megatron-bridge", "torchtitan"])
def test_saves_come_back_as_they_were_written(runtime, way):
    if (runtime, way) == ("torchtitan", "local"):
        return
    _, job, saved = exported(runtime, way)
    reading = read(saved, job, stated="sync" if way != "sync" else "async")
    steps = round(goodput_of(job).save_interval_s / STEP_S)
    stated = way != "sync" or runtime == "megatron-lm"
    assert fields(reading) == {SAVE_STEPS: steps} | ({SAVE_WAY: way} if stated else {})
    if stated:
        assert reading.job.cluster.failures.save == way


def test_the_interval_of_a_config_module_is_not_known():
    config, job, _ = exported("torchtitan", None)
    reading = read(config, job)
    assert fields(reading) == {}
    found = saves_of_launch(reading, job.model_copy(update={"cluster": reading.job.cluster}), 5.0)
    assert found.steps is None
    assert found.goodput == found.best
    assert not list(save_lints(reading, found))


def test_an_interval_that_loses_more_is_a_slip_with_its_edit():
    config, job, _ = exported("megatron-lm", None)
    reading = read(config, job, mtbf_node_days=20)
    found = saves_of_launch(reading, reading.job, 60.0)
    assert found.steps == 500
    assert found.goodput.fraction < found.best.fraction
    assert found.goodput.save_interval_s == 500 * 60.0
    (lint,) = save_lints(reading, found)
    assert lint.name == "save_interval"
    (change,) = lint.settings
    assert (change.name, change.before) == ("--save-interval", "500")
    assert change.after == str(found.best_steps)
    near = saves_of_launch(reading, reading.job, found.best.save_interval_s / 500)
    assert not list(save_lints(reading, near))


@pytest.mark.parametrize("words", ["--save-interval 500", "--save $DIR --save-interval 0"])
def test_a_launch_without_a_folder_or_an_interval_saves_nothing(words):
    _, job, _ = exported("megatron-lm", None)
    text = f"torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 {words}"
    launch = launches_of_script(text, "run.sh", {}, Host())[-1]
    reader = next(one for one in readers() if one.recognises(launch))
    reading = with_saves_read(launch, reader.read(launch, Request()))
    assert fields(reading)[SAVE_STEPS] == 0
    failing = read(exported("megatron-lm", None)[0], job).job
    found = saves_of_launch(reading, failing, STEP_S)
    assert (found.steps, found.goodput) == (0, None)
    assert not list(save_lints(reading, found))
    line = _saves_line(found)
    assert line.startswith("the launch saves nothing, so a failure undoes the whole run; with a ")
    assert goodput_line(found.best) in line


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 $SAVES",
        "NPROC_PER_NODE=8 megatron sft --num_layers 2 --output_dir out",
    ],
)
def test_how_a_launch_saves_is_not_known_where_other_words_may_say_it(line):
    launch = launches_of_script(line, "run.sh", {}, Host())[-1]
    reader = next(one for one in readers() if one.recognises(launch))
    assert not fields(with_saves_read(launch, reader.read(launch, Request())))


def test_a_launch_that_saves_another_way_needs_to_say_how_fast():
    _, job, saved = exported("megatron-lm", "async")
    reading = read(saved, job, stated="local", checkpoint_gb_per_s=None)
    (problem,) = (one for one in reading.problems if one.cause == "save_rate")
    assert problem.says == "the launch saves async, and nothing states how fast: give --checkpoint"
    assert reading.job.cluster.failures.save == "local"


def test_without_failures_a_launch_is_as_it_was():
    config, job, _ = exported("megatron-lm", None)
    reading = read(config, job)
    assert saves_of_launch(reading, job, STEP_S) is None
    assert not list(save_lints(reading, None))
