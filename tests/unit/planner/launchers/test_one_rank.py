"""One rank of a whole job on one GPU: which processes it believes in, and what it does without."""

import subprocess

import pytest

from tests.unit.planner.runtimes.test_megatron_export import DENSE
from trainplan.costmodel.base.errors import SpecError, UnsupportedError
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.planner.launchers.one_rank import one_rank
from trainplan.planner.runtimes import EXPORTERS

LAYOUT = Layout(tp=2, pp=2, dp=4)


def exported(runtime):
    training = TrainingSpec(seq_length=1024, global_batch_size=16)
    cluster = parse_cluster("2x8:h100-sxm")
    job = Job(model=DENSE, training=training, cluster=cluster, runtime=runtime)
    return EXPORTERS[runtime](job, LAYOUT), job.cluster


def test_it_is_one_process_that_believes_in_all_ranks_and_needs_no_data(tmp_path):
    config, file = one_rank(*exported("megatron-lm"), rank=9)
    assert "export WORLD_SIZE=16 RANK=9 LOCAL_RANK=0" in file.text
    assert "--fake-process-group" in file.text
    assert "torchrun" not in file.text
    assert "--train-iters 3" in file.text
    assert [variable.name for variable in config.required_environment] == ["MEGATRON_PATH"]
    path = tmp_path / file.name
    path.write_text(file.text)
    assert subprocess.run(["bash", "-n", path], check=False).returncode == 0


def test_a_rank_that_the_job_does_not_have_is_refused_with_those_it_has():
    with pytest.raises(SpecError, match="ranks 0 to 15"):
        one_rank(*exported("megatron-lm"), rank=16)


def test_a_runtime_that_cannot_fake_communication_is_refused_with_one_that_can():
    with pytest.raises(UnsupportedError, match="megatron-lm"):
        one_rank(*exported("torchtitan"), rank=0)
