"""A setting is on only where the machine starts it: by search, by default, or with a note."""

import pytest

from trainplan.costmodel import catalog
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.candidates import Context
from trainplan.costmodel.hardware import NicSpec
from trainplan.costmodel.job import RuntimeOptions
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.runtimes import RUNTIMES, stated_needs, traits_of
from trainplan.costmodel.runtimes.megatron.dispatchers import deepep_groups
from trainplan.costmodel.runtimes.traits.needs import NEEDS
from trainplan.planner.settings import combinations

GPUS = catalog.gpu_names()
NIC = NicSpec(per_node=8, gb_per_s=50.0)
NCCL = {"nanotron"}
"""Runtimes whose tensor traffic beside products is NCCL's own."""
NCCLS = ("alltoall", "allgather", "hierarchical")
"""Dispatchers that are collectives or messages of NCCL."""


@pytest.fixture(name="job_of")
def jobs(make_job):
    def job(gpu, model="small-moe", runtime="megatron-lm", nodes=2, **options):
        spec = catalog.gpu(gpu)
        made = make_job(model, f"{nodes}x{spec.gpus_per_node}:{gpu}")
        group = made.cluster.groups[0]
        known = group.model_copy(update={"nic": group.nic or NIC})
        cluster = made.cluster.model_copy(update={"groups": (known,)})
        update = {"runtime": runtime, "options": RuntimeOptions(**options), "cluster": cluster}
        return made.model_copy(update=update)

    return job


def starts(gpu, text):
    """What documents of the libraries ask, stated again on datasheets."""
    spec = catalog.gpu(gpu)
    nvlink = spec.link.startswith("NVLink") and spec.nvlink_domain >= spec.gpus_per_node
    if text.startswith("moe_dispatcher") and not text.endswith(NCCLS):
        ampere = ("ampere",) if text.endswith("=deepep") else ()
        return nvlink and spec.architecture in (*ampere, "hopper", "blackwell")
    if text.startswith("fp8_attention"):
        return spec.architecture in ("hopper", "blackwell", "rubin")
    if text.startswith("overlap_tp_comm"):
        geforce = gpu.startswith("rtx") and "pro" not in gpu
        return spec.vendor in ("nvidia", "amd") and not geforce
    return not text.startswith("cuda_graph") or spec.vendor in ("nvidia", "amd")


@pytest.mark.parametrize("gpu", GPUS)
def test_a_setting_lacks_its_machine_where_it_does_not_start(gpu, job_of):
    """Whatever the model and the other options: neither is what the machine is held against."""
    for runtime in RUNTIMES:
        job = job_of(gpu, runtime=runtime)
        try:
            settings = traits_of(job).settings
        except PlanError:
            continue
        own = [one for one in settings if runtime not in NCCL or one.name != "overlap_tp_comm"]
        assert all(starts(gpu, one.text) for one in own if one.starts_on.missing(job) is None)


@pytest.mark.grid
@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_no_search_tries_what_does_not_start(gpu, runtime, job_of):
    for model in ("small-dense", "small-moe"):
        job = job_of(gpu, model, runtime)
        try:
            on = Context(job, None, traits_of(job))
        except PlanError:
            continue
        tried = {one.text for some in combinations(on, "all") for one in some.settings}
        own = tried - {"overlap_tp_comm=true"} if runtime in NCCL else tried
        assert all(starts(gpu, text) for text in own)


@pytest.mark.parametrize("text", NEEDS)
def test_a_note_names_a_stated_setting_that_does_not_start(text, job_of):
    name, value = text.split("=")
    for gpu in GPUS:
        job = job_of(gpu, **{name: {"true": True}.get(value, value)})
        says = any("will not start here" in one for one in stated_needs(job))
        assert says != starts(gpu, text), gpu


@pytest.mark.parametrize("gpu", GPUS)
def test_no_runtime_takes_by_itself_what_does_not_start(gpu, job_of):
    for runtime in RUNTIMES:
        try:
            traits = traits_of(job_of(gpu, runtime=runtime))
        except PlanError:
            continue
        overlaps = traits.communication.overlaps_tensor_parallel
        assert not overlaps or starts(gpu, "overlap_tp_comm=true")
        across = catalog.gpu(gpu).architecture in ("hopper", "blackwell")
        racks = catalog.gpu(gpu).nvlink_domain > 8
        deepep = traits.experts.dispatcher_across == "deepep"
        assert not deepep or (across and not racks and starts(gpu, "moe_dispatcher=deepep"))


@pytest.mark.parametrize(
    ("gpu", "ep", "refused"),
    [("a100-sxm-80gb", 8, False), ("a100-sxm-80gb", 16, True), ("h100-sxm", 16, False)],
)
def test_deepep_joins_no_nodes_of_ampere(gpu, ep, refused, job_of):
    job = job_of(gpu, moe_dispatcher="deepep")
    table = LayoutTable.of([Layout(dp=16, ep=ep)])
    assert deepep_groups.broken(job, table)[0] == refused


def test_a_release_is_named_where_a_setting_needs_one(job_of):
    job = job_of("h100-sxm", moe_dispatcher="hybridep", overlap_moe_a2a=True)
    (line,) = stated_needs(job)
    assert "moe_dispatcher=hybridep 0.16" in line
    assert "overlap_moe_a2a=true 0.14, with PyTorch 2.6" in line
