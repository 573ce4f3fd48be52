"""The figure of unlike node groups: two fabrics joined by Ethernet."""

from trainplan.costmodel.hardware.cluster import BetweenGroups, ClusterSpec, NicSpec, NodeGroup
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.layout.layout import SCHEDULE_NAMES
from trainplan.costmodel.pipeline.node_groups import rank_groups
from trainplan.costmodel.presets import presets as models
from trainplan.planner.questions import estimate
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space import parse_choice

FAST = NodeGroup(gpu="h100-sxm", num_nodes=4, gpus_per_node=8, nic=NicSpec(per_node=8, gb_per_s=50))
OTHER = FAST.model_copy(update={"nic": NicSpec(per_node=8, gb_per_s=25)})
ETHERNET = BetweenGroups(gb_per_s=3.125)
"""25 GbE."""


def best(*groups, between=None):
    job = Job(
        model=models.preset("llama3-70b"),
        training=TrainingSpec(global_batch_size=512, seq_length=4096),
        cluster=ClusterSpec(groups=groups, between_groups=between),
    )
    held = tuple(parse_choice(one, excluded=False) for one in ("cp=1", "micro_batch_size=1"))
    return search(job, SearchOptions(only_answer=True, top=1, search_options="none", fix=held))


def test_only_the_pipeline_crosses_25_gbe_and_keeps_nine_tenths_of_the_throughput():
    mixed = best(FAST, OTHER, between=ETHERNET)
    alike = best(FAST.model_copy(update={"num_nodes": 8}))
    layout = mixed.best.layout
    groups = rank_groups(layout.stages, SCHEDULE_NAMES.index(layout.schedule), layout.pp)
    assert layout.tp * layout.cp * layout.dp <= 32
    assert groups.tolist() == sorted(groups.tolist()) or groups.tolist() == sorted(groups)[::-1]
    ratio = alike.best.estimate.step_time_s / mixed.best.estimate.step_time_s
    assert 0.9 < ratio < 1
    assert mixed.certificate.lower_bound_s <= mixed.best.estimate.step_time_s
    again = estimate(mixed.job, layout, memory_margin=mixed.memory_margin)
    assert again.step_time_s == mixed.best.estimate.step_time_s
    assert again.memory.fits
