"""Rows of several sequences: what exports write, say or refuse."""

import pytest

from trainplan.costmodel.base.errors import UnsupportedError
from trainplan.costmodel.job.job import LengthSpec, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.runtimes import EXPORTERS

FLAG = {
    "megatron-lm": ("--dataloader-inter-document-masking", ""),
    "megatron-bridge": ("dataset.inter_document_masking", "true"),
}
IN_SCRIPT = ("deepspeed", "arctic-training", "accelerate")
LAYOUTS = {
    "accelerate": {"zero_stage": 3},
    "fsdp2": {"zero_stage": 3},
    "torchtitan": {"zero_stage": 3},
    "transformers": {"zero_stage": 3},
}


def wanted(make_job, runtime, packing):
    job = make_job("llama3-8b", "1x8:h100-sxm", 16).model_copy(update={"runtime": runtime})
    lengths = LengthSpec(counts=((512, 3), (1024, 1)))
    stated = {**dict(job.training), "lengths": lengths, "packing": packing}
    job = job.model_copy(update={"training": TrainingSpec.model_validate(stated)})
    return job, Layout(dp=8, **LAYOUTS.get(runtime, {}))


def packing_notes(launch):
    return [note for note in launch.notes if note.startswith("rows are packed")]


@pytest.mark.parametrize("runtime", FLAG)
def test_documents_are_kept_apart_where_an_option_says_so(make_job, runtime):
    launch = EXPORTERS[runtime](*wanted(make_job, runtime, "balanced"))
    assert FLAG[runtime] in launch.settings
    assert packing_notes(launch)[0].startswith("rows are packed balanced: ")
    padded = EXPORTERS[runtime](*wanted(make_job, runtime, "none"))
    assert FLAG[runtime] not in padded.settings
    assert not packing_notes(padded)


@pytest.mark.parametrize("runtime", IN_SCRIPT)
def test_a_script_or_a_trainer_packs_and_says_so(make_job, runtime):
    launch = EXPORTERS[runtime](*wanted(make_job, runtime, "greedy"))
    assert "position_ids that start anew" in packing_notes(launch)[0]


@pytest.mark.parametrize("runtime", sorted({*EXPORTERS} - {*FLAG} - {*IN_SCRIPT}))
def test_a_runtime_whose_rows_would_mix_sequences_is_refused_by_name(make_job, runtime):
    with pytest.raises(UnsupportedError, match=f"^{runtime}: .*--packing none, or another"):
        EXPORTERS[runtime](*wanted(make_job, runtime, "greedy"))
    assert EXPORTERS[runtime](*wanted(make_job, runtime, "none"))
