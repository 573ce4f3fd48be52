"""A script that we write reads back, through the shell, as the job and layout it starts."""

import pytest

from tests import megatron_jobs as models
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.launchers.registry import LAUNCHERS
from trainplan.planner.runtimes import Request
from trainplan.planner.runtimes.megatron_lm.read import MEGATRON_LM
from trainplan.planner.shell import launches_of_script

CLUSTER = "4x8:h100-sxm"
LAYOUTS = {
    "llama3-70b": {"tp": 8, "pp": 4, "sequence_parallel": True, "zero_stage": 1},
    "deepseek-v3": {"pp": 4, "vpp": 2, "schedule": "interleaved", "ep": 8, "dp": 8},
    "gpt-oss-20b": {"ep": 4, "zero_stage": 3, "dp_replicate": 2},
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_written_script_reads_back(name, launcher):
    cluster, layout = parse_cluster(CLUSTER), LAYOUTS[name]
    training = {"global_batch_size": 64}
    config = models.export(preset(name), CLUSTER, training, **layout)
    script = LAUNCHERS[launcher](config, cluster)
    launch, *others = launches_of_script(script.text, script.name, {})
    words = [word.text for word in launch.arguments]
    assert all([word.text for word in one.arguments] == words for one in others)  # of each replica
    assert MEGATRON_LM.recognises(launch)
    reading = MEGATRON_LM.read(launch, Request())
    used = layout.get("tp", 1) * layout.get("pp", 1)
    assert reading.legal
    assert reading.layout == Layout(**{"dp": cluster.num_gpus // used} | layout)
    assert reading.job.model == preset(name)
    assert reading.job.cluster == cluster
    lines = {one.name: one.place.line for one in reading.fields if one.place is not None}
    written = script.text.splitlines()
    assert "--pipeline-model-parallel-size" in written[lines["layout.pp"] - 1]
