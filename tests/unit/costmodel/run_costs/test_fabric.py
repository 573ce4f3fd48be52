"""Switches and transceivers, against networks that are built switch by switch."""

import pytest

from trainplan.cli.pages.parts.headline import fabric_lines
from trainplan.costmodel.hardware import NicSpec
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.hardware.switches import SwitchSpec
from trainplan.costmodel.layout.layout import Layout
from trainplan.costmodel.run_costs import fabric_of
from trainplan.costmodel.run_costs.fabric import clos
from trainplan.planner.questions import estimate
from trainplan.planner.questions.assumed_settings import StepFacts


def cluster(text, ports=64, nic=None, **stated):
    spec = parse_cluster(text)
    groups = tuple(g.model_copy(update={"nic": nic} if nic else {}) for g in spec.groups)
    switches = SwitchSpec(ports=ports, price=30_000, transceiver_price=1000)
    return spec.model_copy(update={"groups": groups, "switches": switches, **stated})


@pytest.mark.parametrize("ports", [4, 8, 64])
def test_a_full_fat_tree_has_the_textbook_counts(ports):
    """k^3 / 4 ends have k^2 / 4 switches at the top and k^2 / 2 in each tier below
    (Al-Fares et al., SIGCOMM 2008)."""
    ends = ports**3 // 4
    assert clos(ports, ends) == (3, ports**2 // 4 + ports**2, 6 * ends)
    assert clos(ports, ports**2 // 2) == (2, 3 * ports // 2, 2 * ports**2)
    assert clos(ports, ports) == (1, 1, 2 * ports)


def test_small_rails_share_a_switch():
    assert clos(64, 128, rails=8) == (1, 2, 256)
    assert clos(64, 64, rails=8) == (1, 1, 128)
    assert clos(64, 512, rails=8) == (1, 8, 1024)
    assert clos(64, 520, rails=8)[0] == 2


def test_rails_save_what_is_published():
    """Of 32,768 GPUs on switches of 128 ports: money saved is between switches and transceivers
    saved, whatever their prices; published are 38 % to 77 % (arXiv:2307.12169)."""
    whole = clos(128, 32_768)
    saved = [
        [1 - part / all_ for part, all_ in zip(clos(128, 32_768, k)[1:], whole[1:], strict=True)]
        for k in (8, 256)
    ]
    assert saved[0] == pytest.approx([2 / 5, 1 / 3], rel=1e-3)
    assert saved[1] == pytest.approx([4 / 5, 2 / 3], rel=1e-3)
    assert saved[0][1] < 0.38 < saved[0][0]
    assert saved[1][1] < 0.77 < saved[1][0]


def test_a_cluster_has_an_end_for_each_adapter():
    found = fabric_of(cluster("64x8:h100-sxm"))
    assert (found.any_to_any.tiers, found.any_to_any.switches) == (2, 24)
    assert (found.rail_only.tiers, found.rail_only.switches) == (1, 8)
    assert found.any_to_any.price == 24 * 30_000 + 2048 * 1000
    half = fabric_of(cluster("64x8:h100-sxm", nic=NicSpec(per_node=4, gb_per_s=50)))
    assert half.any_to_any.transceivers == 1024
    assert half.rail_only.switches == 4


def test_what_is_not_known_is_null():
    assert fabric_of(parse_cluster("64x8:h100-sxm")) is None
    assert fabric_of(cluster("1x8:h100-sxm")) is None
    assert fabric_of(cluster("8x8:h100-sxm+8x4:h100-sxm")).rail_only is None
    found = fabric_of(cluster("64x8:h100-sxm", switches=SwitchSpec(ports=64, price=1.0)))
    assert found.any_to_any.price is None


def test_a_plan_shows_what_its_own_shape_takes_first(make_job):
    job = make_job("gpt2", "64x8:h100-sxm", 512, 1024)
    layout = Layout(dp=512)
    for name in ("any-to-any", "rail-only"):
        own = cluster("64x8:h100-sxm", network=name)
        stated = job.model_copy(update={"cluster": own})
        spent, _, _ = StepFacts.of(stated, layout, estimate(stated, layout))
        (line,) = fabric_lines(own, spent)
        assert line.startswith(f"network at full bandwidth: {name} ")
        assert "24 switches in 2 tiers, 2,048 transceivers, 2,768,000 USD" in line
    spent, _, _ = StepFacts.of(job, layout, estimate(job, layout))
    assert list(fabric_lines(job.cluster, spent)) == []


def test_one_switch_is_one(make_job):
    job = make_job("gpt2", "2x8:h100-sxm", 64, 1024)
    job = job.model_copy(update={"cluster": cluster("2x8:h100-sxm")})
    spent, _, _ = StepFacts.of(job, Layout(dp=16), estimate(job, Layout(dp=16)))
    (line,) = fabric_lines(job.cluster, spent)
    assert "any-to-any 1 switch in 1 tier, 32 transceivers" in line
