"""Exports of models with towers: every runtime refuses them by name, or tells what they need."""

import pytest

from tests.conftest import TOWER
from trainplan.costmodel.base.errors import UnsupportedError
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.runtimes import EXPORTERS

HUGGING_FACE = ("accelerate", "deepspeed")
"""Their script builds the model, which brings its tower along."""
STAGE = {"accelerate": 2, "torchtitan": 2}


def exported(make_job, name, tower):
    job = make_job("small-seeing", "1x4:h100-sxm", 16)
    model = job.model.model_copy(update={"tower": tower})
    job = job.model_copy(update={"model": model, "runtime": name})
    return EXPORTERS[name](job, Layout(dp=4, zero_stage=STAGE.get(name, 1)))


@pytest.mark.parametrize("modality", ["vision", "audio"])
@pytest.mark.parametrize("name", EXPORTERS)
def test_a_runtime_trains_a_tower_or_refuses_it_by_name(make_job, name, modality):
    tower = TOWER.model_copy(update={"modality": modality})
    called = {"vision": "a vision tower", "audio": "an audio tower"}[modality]
    if name in HUGGING_FACE:
        notes = exported(make_job, name, tower).notes
        assert any(called in note and "4 samples of 1024 patches" in note for note in notes)
    else:
        with pytest.raises(UnsupportedError, match=called):
            exported(make_job, name, tower)


@pytest.mark.parametrize("name", HUGGING_FACE)
@pytest.mark.parametrize("frozen", ["encoder", "all"])
def test_a_script_is_told_what_is_frozen(make_job, name, frozen):
    notes = exported(make_job, name, TOWER.model_copy(update={"frozen": frozen})).notes
    [stated] = [note for note in notes if "requires_grad" in note]
    assert ("but the projectors" in stated) == (frozen == "encoder")


@pytest.mark.parametrize("name", HUGGING_FACE)
def test_a_model_without_a_tower_is_exported_as_ever(make_job, name):
    assert not any("tower" in note for note in exported(make_job, name, None).notes)
