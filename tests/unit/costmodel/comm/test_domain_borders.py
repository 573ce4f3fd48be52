"""Groups that borders of scale-up domains cut, against where the groups of a job start."""

import numpy as np
import pytest

from trainplan.costmodel import catalog
from trainplan.costmodel.calibration import context_for
from trainplan.costmodel.comm import group
from trainplan.costmodel.hardware import NodeGroup, parse_cluster
from trainplan.costmodel.job import RuntimeOptions
from trainplan.costmodel.layout import Layout
from trainplan.costmodel.layouts import LayoutTable
from trainplan.costmodel.machine import machine_of
from trainplan.costmodel.runtimes.megatron.dispatchers import hybridep_fills_domains
from trainplan.planner.questions import notes
from trainplan.planner.questions.domain_notes import expert_notes

NODES = [*range(1, 49), 57, 64, 72, 76, 128]


def divisors(number):
    return [one for one in range(1, number + 1) if number % one == 0]


def members(num_gpus, domain, size, stride):
    """Members in each domain of every group that starts at a multiple of its ranks."""
    domains = (np.arange(num_gpus) // domain).reshape(-1, size, stride)
    groups = np.unique(domains.transpose(0, 2, 1).reshape(-1, size), axis=0)
    return [np.unique(one, return_counts=True)[1] for one in groups]


@pytest.fixture(name="moe_job")
def jobs(make_job):
    def job(nodes, **options):
        made = make_job("small-moe", f"{nodes}x4:gb200")
        return made.model_copy(update={"options": RuntimeOptions(**options)})

    return job


def on(nodes, gpu="gb200", per_node=4):
    return parse_cluster(f"{nodes}x{per_node}:{gpu}")


@pytest.mark.parametrize(("gpu", "per_node"), [("gb200", 4), ("h100-sxm", 8), ("h100-sxm", 6)])
def test_no_group_has_fewer_members_in_a_domain_than_it_is_priced_with(gpu, per_node):
    """Brute force of every size and stride; exact where groups fill domains or lie inside."""
    for nodes in NODES:
        machine = machine_of(on(nodes, gpu, per_node), "bf16")
        domain = machine.domain_gpus
        every = [
            (one, ranks // one) for ranks in divisors(machine.num_gpus) for one in divisors(ranks)
        ]
        links = group(machine, *np.array(every).T)
        for (size, stride), inside, domains in zip(every, links.inside, links.nodes, strict=True):
            there, ranks = members(machine.num_gpus, domain, size, stride), size * stride
            emptiest = min(int(one.min()) for one in there)
            widest = max(len(one) for one in there)
            assert inside <= emptiest
            assert domains >= widest
            fills = ranks % domain == 0 and (domain % stride == 0 or stride % domain == 0)
            if domain % ranks == 0 or fills:
                assert (inside, domains) == (emptiest, widest)


@pytest.mark.parametrize("nodes", NODES)
def test_a_segment_is_the_most_nodes_of_a_domain_that_divide_the_job(nodes):
    one, device = NodeGroup(gpu="gb200", num_nodes=nodes, gpus_per_node=4), catalog.gpu("gb200")
    fit = [size for size in range(9, 19) if nodes % size == 0]
    segment = nodes if nodes <= 18 else max(fit, default=None)
    assert one.segment_nodes(device) == segment
    assert one.domain_gpus(device) == 4 * (segment or 18)


def test_nodes_that_are_domains_have_no_segments():
    one = NodeGroup(gpu="h100-sxm", num_nodes=64, gpus_per_node=8)
    assert one.segment_nodes(catalog.gpu("h100-sxm")) is None


@pytest.mark.parametrize("nodes", [16, 18, 19, 32, 36, 38, 54, 57, 64, 76])
def test_hybridep_is_refused_on_racks_exactly_where_some_group_leaves_its_domain(nodes, moe_job):
    job = moe_job(nodes, moe_dispatcher="hybridep")
    domain, gpus = job.cluster.groups[0].domain_gpus(catalog.gpu("gb200")), 4 * nodes
    for ep in divisors(gpus):
        leaves = any(len(one) > 1 for one in members(gpus, domain, ep, 1))
        table = LayoutTable.of([Layout(dp=gpus, ep=ep)])
        assert hybridep_fills_domains.broken(job, table)[0] == leaves


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        (64, "each NVLink domain of 72 GPUs gives 64 to the job: 4 segments of 16 nodes"),
        (16, "taken to lie in one NVLink domain of 72 GPUs: all 16 nodes"),
        (38, "groups that cross a border are priced as cut there; 36 nodes divide evenly"),
    ],
)
def test_a_note_has_how_nodes_lie_in_racks(nodes, says, moe_job):
    assert any(says in one for one in notes(moe_job(nodes)))


@pytest.mark.parametrize(("ep", "leaves"), [(32, False), (64, False), (128, True)])
def test_a_note_names_experts_that_leave_their_domain(ep, leaves, moe_job):
    found = list(expert_notes(context_for(moe_job(64)), Layout(dp=256, ep=ep)))
    assert bool(found) == leaves
    assert not leaves or "span 2 domains of 64 GPUs" in found[0]
