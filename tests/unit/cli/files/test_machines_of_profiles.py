"""Clusters named beside a profile, or by one."""

from pathlib import Path

import pytest

from trainplan.cli.files.profiles import load_measured, machines_of

PROFILE = Path(__file__).parents[3] / "replay" / "host_h200.json"


@pytest.mark.parametrize("cluster", ["2x8:h200-sxm", str(PROFILE)], ids=["short form", "profile"])
def test_nodes_have_the_drive_that_the_profile_measured(cluster):
    found, _ = machines_of(cluster, load_measured([PROFILE], alone=False))
    (group,) = found.groups
    assert group.host.drives.read_gb_per_s == pytest.approx(2.41, rel=0.01)
    assert group.host.drives.tb == pytest.approx(0.0687, rel=0.01)


def test_without_a_profile_nodes_have_no_drive():
    found, _ = machines_of("2x8:h200-sxm", load_measured([], alone=False))
    assert found.groups[0].host is None
