"""An optimizer is told once: an exporter that forgets one it lists, or a level, says so here."""

import pytest

from trainplan.costmodel.base.errors import UnsupportedError
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.optimizers import OPTIMIZERS
from trainplan.costmodel.runtimes import RUNTIMES
from trainplan.planner.runtimes import EXPORTERS

LAYOUTS = {
    "arctic-training": {"dp": 8, "zero_stage": 1},
    "accelerate": {"dp": 8, "zero_stage": 3},
    "deepspeed": {"dp": 8, "zero_stage": 1},
    "fsdp2": {"dp": 8, "zero_stage": 3},
    "torchtitan": {"dp": 8, "zero_stage": 3},
    "transformers": {"dp": 8, "zero_stage": 3},
}
WRITTEN = [
    (name, one)
    for name, exporter in EXPORTERS.items()
    for one in sorted(exporter.optimizers - {"adamw"})
]
"""Every optimizer of every exporter, but what all others are held against."""


PLAIN = ("adafactor", "lion", "galore", "galore8bit", "apollo", "apollo-mini")
"""Those that transformers runs on replicas alone, whose states are in bf16."""


def launch(make_job, runtime, optimizer, **training):
    name = f"{optimizer}:rank=8" if "rank" in OPTIMIZERS[optimizer].needs else optimizer
    if runtime == "transformers" and optimizer in PLAIN:
        job = make_job("llama3-8b", "1x8:h100-sxm", optimizer=name, state_precision="bf16")
        job = job.model_copy(update={"runtime": runtime})
        return EXPORTERS[runtime](job, Layout(dp=8, zero_stage=0))
    job = make_job("llama3-8b", "1x8:h100-sxm", optimizer=name, **training)
    layout = LAYOUTS.get(runtime, {"dp": 8, "zero_stage": 0 if optimizer == "sgd" else 1})
    job = job.model_copy(update={"runtime": runtime})
    return EXPORTERS[runtime](job, Layout.model_validate(layout))


@pytest.mark.parametrize(("runtime", "optimizer"), WRITTEN)
def test_an_exporter_writes_the_word_of_its_runtime(make_job, runtime, optimizer):
    word = dict(RUNTIMES[runtime].optimizers)[optimizer]
    stated = launch(make_job, runtime, optimizer).settings
    usual = launch(make_job, runtime, "adamw").settings
    new = [value for pair in set(stated) - set(usual) for value in pair[1].split()]
    spelled = {word, f"dist_{word}", f"optimizer.optimizer={word}"}
    assert spelled & set(new), f"planner/runtimes writes no {word}"


@pytest.mark.parametrize("runtime", EXPORTERS)
def test_an_exporter_refuses_an_optimizer_that_it_does_not_write(make_job, runtime):
    """By name, in one line."""
    for optimizer in set(dict(RUNTIMES[runtime].optimizers)) - EXPORTERS[runtime].optimizers:
        with pytest.raises(UnsupportedError, match=f"optimizer {optimizer}, only for"):
            launch(make_job, runtime, optimizer)
    lacked = set(OPTIMIZERS) - set(dict(RUNTIMES[runtime].optimizers))
    for optimizer in lacked - {"galore", "galore8bit", "apollo"}:
        with pytest.raises(UnsupportedError, match=f"optimizer {optimizer}"):
            launch(make_job, runtime, optimizer)


@pytest.mark.parametrize("runtime", EXPORTERS)
def test_no_exporter_drops_a_level_of_fp8_lm(make_job, runtime):
    with pytest.raises(UnsupportedError, match=r"state-precision o2|states at o2"):
        launch(make_job, runtime, "adamw", state_precision="o2")
