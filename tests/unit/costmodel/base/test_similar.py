"""Names that are suggested are those someone meant."""

import pytest

from trainplan.cli.commands import COMMANDS
from trainplan.cli.commands.tune import TRIAL_LAUNCHERS
from trainplan.cli.options import names
from trainplan.costmodel.axes import AXIS_OF_OPTION
from trainplan.costmodel.base.errors import did_you_mean, intended, near, shortened
from trainplan.costmodel.job.job import RuntimeOptions
from trainplan.costmodel.optimizers import OPTIMIZERS
from trainplan.costmodel.presets.presets import preset_names
from trainplan.costmodel.runtimes import RUNTIMES


@pytest.mark.parametrize("typed", ["minimax_m2", "phi-4", "bloom", "mamba", "x", "", "claude"])
def test_a_name_of_another_family_suggests_nothing(typed: str):
    assert near("model", typed, preset_names()) == ()


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("llama-3-8b", "llama3-8b"),
        ("llama3_8b", "llama3-8b"),
        ("LLAMA3.1-8B-instruct", "llama3.1-8b"),
        ("qwen3-30b", "qwen3-30b-a3b"),
        ("mixtral", "mixtral-8x22b"),
        ("gptneox-20b", "gpt-neox-20b"),
        ("deepseekv3", "deepseek-v3"),
    ],
)
def test_the_nearest_name_comes_first(typed: str, first: str):
    assert near("model", typed, preset_names())[0] == first


def test_at_most_three_names_are_suggested():
    assert len(near("model", "llama", preset_names())) == 3


def test_what_another_project_calls_it_counts_before_letters():
    assert near("runtime", "HF", RUNTIMES) == ("accelerate",)
    assert near("runtime", "megatron", RUNTIMES) == ("megatron-lm", "megatron-bridge")
    assert near("layout field", "tensor-model-parallel-size", AXIS_OF_OPTION) == ("tp",)
    assert near("layout field", "tp_size", AXIS_OF_OPTION) == ("tp",)
    assert did_you_mean("launcher", "k8s", names.LAUNCHERS) == "did you mean 'kubernetes'?"


OPTION_WORDS = {
    *("--fix tp=8", "--fix pp=4", "--fix mbs=1", "--global-batch-size", "--seq-length", "--model"),
    *("--cluster", "--nodes", "--gpus", "--gpu", "--precision", "--runtime", "--nic", "--price"),
    "--power-limit",
    "--output",
}
KNOWN = {
    "runtime": RUNTIMES,
    "launcher": (*names.LAUNCHERS, *TRIAL_LAUNCHERS),
    "precision": names.PRECISIONS,
    "optimizer": OPTIMIZERS,
    "layout field": AXIS_OF_OPTION,
    "option": RuntimeOptions.model_fields,
    "objective": names.OBJECTIVES,
    "command option": OPTION_WORDS,
    "command": (*COMMANDS, *(f"catalog {one}" for one in ("models", "gpus", "clusters", "hosts"))),
}


@pytest.mark.parametrize("kind", intended())
def test_every_name_of_another_project_means_one_there_is_and_is_none_itself(kind: str):
    for typed, here in intended()[kind].items():
        assert set(here) <= set(KNOWN[kind]), (typed, here)
        assert typed not in KNOWN[kind]
        assert typed == "".join(filter(str.isalnum, typed.lower()))


def test_a_long_text_keeps_its_ends():
    text = shortened("a" * 3000 + "b" * 3000)
    assert (len(text), text[0], text[-1]) == (63, "a", "b")
    assert shortened("short") == "short"
