"""A launch that ends after a few steps runs the steps that the launch of the training runs."""

import json
import os
import subprocess
import sys

import pytest
import yaml

from tests.runtimes.plans import PLANS
from trainplan.costmodel.base.errors import UnsupportedError
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.launch.config import ModuleEntry
from trainplan.planner.launchers.registry import LAUNCHERS
from trainplan.planner.runtimes import EXPORTERS
from trainplan.planner.runtimes.trial_steps import SHORT_RUNS, trial_launch

ALL = frozenset({"DATA_PATH", "TOKENIZER_MODEL", "CHECKPOINT_PATH", "OUTPUT_PATH"})
OF_THE_RUN = {
    "--train-iters", "--lr-warmup-iters", "--eval-iters", "--log-interval", "--mock-data",
    "--data-path", "--split", "--tokenizer-type", "--tokenizer-model", "--save", "--load",
    "--save-interval", "train.train_iters", "scheduler.lr_warmup_iters", "validation.eval_iters",
    "logger.log_interval", "--training.steps", "--metrics.log_freq", "--checkpoint.no-enable",
    "--steps",
}  # fmt: skip
"""What a trial may set otherwise: how long it is, what it reads, logs and saves."""
CASES = [(runtime, plan) for runtime in PLANS if runtime in SHORT_RUNS for plan in PLANS[runtime]]


def fsdp2():
    training = TrainingSpec(seq_length=4096, global_batch_size=16, precision="bf16")
    job = Job(
        model=preset("llama3-8b"),
        training=training,
        cluster=parse_cluster("1x8:h100-sxm"),
        runtime="fsdp2",
    )
    return EXPORTERS["fsdp2"](job, Layout(dp=8, zero_stage=3, micro_batch_size=1))


def exported(runtime, number=0):
    if runtime == "fsdp2":
        return fsdp2()
    plan = PLANS[runtime][number]
    return EXPORTERS[runtime](plan.job(runtime), plan.layout)


def argument(launch, flag):
    return next(one.values for one in launch.arguments if one.flag == flag)


def flags(launch):
    return [one.flag for one in launch.arguments]


@pytest.mark.parametrize(("runtime", "plan"), CASES, ids=lambda one: getattr(one, "name", one))
@pytest.mark.parametrize("given", [frozenset(), ALL], ids=["nothing", "all"])
def test_nothing_of_a_step_changes(runtime, plan, given):
    whole = EXPORTERS[runtime](plan.job(runtime), plan.layout)
    short = trial_launch(whole, 12, given)
    before = [(a.flag, a.values) for a in whole.arguments if a.flag not in OF_THE_RUN]
    after = [(a.flag, a.values) for a in short.arguments if a.flag not in OF_THE_RUN]
    files = {file.name for file in whole.files}
    assert [(f, named(v, files)) for f, v in after] == [(f, named(v, files)) for f, v in before]
    assert len(flags(short)) == len({*flags(short)})
    assert short.environment == whole.environment


def named(values, files):
    return [getattr(one, "name", one) for one in values]


@pytest.mark.parametrize("runtime", SHORT_RUNS)
def test_every_variable_that_is_asked_for_is_read_and_the_other_way_round(runtime):
    short = trial_launch(exported(runtime), 12, ())
    text = LAUNCHERS["torchrun"].write(short, parse_cluster("1x8:h100-sxm"))
    text += "".join(file.text for file in short.files)
    wanted = {one.name for one in short.required_environment}
    assert not wanted & {"DATA_PATH", "CHECKPOINT_PATH", "OUTPUT_PATH", "TOKENIZER_MODEL"}
    for name in ALL - wanted:
        assert name not in text


def test_megatron_makes_up_the_data_and_the_tokenizer_that_nobody_gave():
    short = trial_launch(exported("megatron-lm"), 12, ())
    assert argument(short, "--train-iters") == ("12",)
    assert argument(short, "--eval-iters") == ("0",)
    assert argument(short, "--tokenizer-type") == ("NullTokenizer",)
    assert "--mock-data" in flags(short)
    assert not {"--data-path", "--save", "--load", "--tokenizer-model"} & {*flags(short)}


def test_data_and_tokenizer_of_the_user_are_kept():
    whole = exported("megatron-lm")
    short = trial_launch(whole, 12, ALL)
    for flag in ("--data-path", "--tokenizer-model", "--tokenizer-type", "--split"):
        assert argument(short, flag) == argument(whole, flag)
    assert "--mock-data" not in flags(short)
    assert {one.name for one in short.required_environment} == {
        "MEGATRON_PATH", "DATA_PATH", "TOKENIZER_MODEL",
    }  # fmt: skip


def test_the_recipe_of_bridge_saves_nothing():
    recipe = trial_launch(exported("megatron-bridge"), 12, ()).files[0].text
    compile(recipe, "bridge_recipe.py", "exec")
    assert "recipe.checkpoint.save = recipe.checkpoint.load = None" in recipe
    assert "recipe.dataset.data_path" not in recipe
    assert 'tokenizer_type = "NullTokenizer"' in recipe
    recipe = trial_launch(exported("megatron-bridge"), 12, ALL).files[0].text
    assert 'recipe.dataset.data_path = [os.environ["DATA_PATH"]]' in recipe


def test_torchtitan_is_told_on_its_command_line():
    short = trial_launch(exported("torchtitan"), 12, ())
    assert argument(short, "--training.steps") == ("12",)
    assert argument(short, "--metrics.log_freq") == ("1",)
    compile(short.files[0].text, "trainplan_config.py", "exec")
    assert [one.name for one in short.required_environment] == ["HF_ASSETS_PATH"]


def test_the_engine_of_deepspeed_prints_each_step():
    whole, short = exported("deepspeed"), trial_launch(exported("deepspeed"), 12, ())
    before, after = json.loads(whole.files[0].text), json.loads(short.files[0].text)
    assert after == before | {"steps_per_print": 1}
    (file,) = argument(short, "--deepspeed_config")
    assert file == short.files[0]
    assert short.files[0].filled_in == whole.files[0].filled_in


def test_a_module_lets_the_engine_tell_and_runs_the_script_of_the_user(tmp_path):
    short = trial_launch(exported("deepspeed"), 12, ())
    assert short.entry_point == ModuleEntry("told_train")
    text = LAUNCHERS["torchrun"].write(short, parse_cluster("1x8:h100-sxm"))
    assert "  -m told_train \\" in text
    assert "export PYTHONPATH=" in text
    (tmp_path / "told_train.py").write_text(short.files[-1].text)
    (tmp_path / "train.py").write_text("import sys, mine; print(mine.A, __name__, sys.argv[1:])")
    (tmp_path / "mine.py").write_text("A = 1")
    utils = tmp_path / "site" / "deepspeed" / "utils"
    utils.mkdir(parents=True)
    (utils.parent / "__init__.py").touch()
    (utils / "__init__.py").write_text("set_log_level_from_string = print")
    folders = f"{tmp_path}{os.pathsep}{utils.parents[1]}"
    written = subprocess.run(
        [sys.executable, "-m", "told_train", "--x", "1"],
        env={"PYTHONPATH": folders, "TRAIN_FOLDER": str(tmp_path)},
        cwd=utils,
        capture_output=True,
        text=True,
        check=True,
    )
    assert written.stdout == "info\n1 __main__ ['--x', '1']\n"


def test_arctic_training_ends():
    whole, short = exported("arctic-training"), trial_launch(exported("arctic-training"), 12, ())
    before, after = (yaml.safe_load(one.files[0].text) for one in (whole, short))
    assert after == before | {"train_iters": 12}


def test_a_program_of_ours_ends():
    assert argument(trial_launch(fsdp2(), 12, ()), "--steps") == ("12",)


def test_a_launch_that_prints_no_steps_is_refused():
    with pytest.raises(UnsupportedError, match=r"accelerate has no trials.*plan calibrate"):
        trial_launch(exported("accelerate"), 12, ())
