"""The head of a launch names what its price rests on and no option says."""

from trainplan.costmodel.job.job import Job, RuntimeOptions, TrainingSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.presets.clusters import cluster_of
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.launch import summary

ACROSS = Layout(dp=32, ep=32)


def lines(model="qwen3-30b-a3b", cluster="4xp5.48xlarge", layout=ACROSS, release=None, **options):
    job = Job(
        model=preset(model),
        training=TrainingSpec(seq_length=4096, global_batch_size=64),
        cluster=cluster_of(cluster) if isinstance(cluster, str) else cluster,
        options=RuntimeOptions(**options),
        release=release,
    )
    return [one for one in summary(job, layout) if one.startswith("priced with: ")]


def test_a_release_is_named_where_a_price_hangs_on_it():
    assert lines()[0].endswith(", assumed")
    assert lines(release="nemo 25.07")[0] == "priced with: release nemo 25.07"
    assert lines("llama3-8b", layout=Layout(dp=32)) == []


def test_a_power_limit_is_named():
    limited = cluster_of("4x8:h100-sxm")
    group = limited.groups[0].model_copy(update={"power_limit_w": 500.0})
    found = lines("llama3-8b", limited.model_copy(update={"groups": (group,)}), Layout(dp=32))
    assert found == ["priced with: boards that draw 500 W (nvidia-smi --power-limit)"]


def test_a_build_of_deepep_is_named_where_hosts_post_its_messages():
    deepep = {"moe_dispatcher": "deepep"}
    assert "priced with: DeepEP over uccl, assumed: install that build" in lines(**deepep)
    stated = lines(deepep_proxy="nvshmem", **deepep)
    assert "priced with: DeepEP over nvshmem: install that build" in stated
    assert len(lines(cluster="4x8:h100-sxm", **deepep)) == 1
    assert len(lines(layout=Layout(dp=32, ep=8), **deepep)) == 1
