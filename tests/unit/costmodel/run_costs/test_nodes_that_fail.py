"""Goodput of a run against its nodes followed one by one: failures, repairs, spares and saves."""

import heapq
import random

import pytest

from trainplan.costmodel.hardware import FailureSpec
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.run_costs.goodput import available_fraction, training_fraction

HOUR, DAY = 3600.0, 86_400.0


class Nodes:
    """Nodes in use and spare ones: each fails by itself, whatever the run does, and comes back."""

    def __init__(self, failures, used, seed):
        self.random, self.used, self.failures = random.Random(seed), used, failures
        self.up = used + failures.spare_nodes
        self.back, self.now = [], 0.0

    def fails(self):
        self.up -= 1
        back = self.now + self.random.expovariate(1 / self.failures.repair_s)
        heapq.heappush(self.back, back)

    def wait_for_all(self):
        while self.up < self.used:
            then = self.now + self.random.expovariate(self.up / self.failures.mtbf_node_s)
            if then < self.back[0]:
                self.now = then
                self.fails()
            else:
                self.now = heapq.heappop(self.back)
                self.up += 1

    def pass_well(self, seconds):
        """Does none in use fail in so long?"""
        end = self.now + seconds
        while True:
            then = self.now + self.random.expovariate(self.up / self.failures.mtbf_node_s)
            comes = self.back[0] if self.back else end
            if min(then, comes) >= end:
                self.now = end
                return True
            if comes < then:
                self.now = heapq.heappop(self.back)
                self.up += 1
                continue
            self.now, in_use = then, self.random.random() < self.used / self.up
            self.fails()
            if in_use:
                return False


def trained(nodes, days, interval, stall, stored):
    """Share of the time whose training is saved."""
    total, restart = 0.0, nodes.failures.restart_s
    while nodes.now < days * DAY:
        nodes.wait_for_all()
        waits = False
        well = nodes.pass_well(restart)
        while well and nodes.now < days * DAY:
            if waits:
                well = nodes.pass_well(stored)
                total += interval * well
                well = well and nodes.pass_well(interval + stall - stored)
            else:
                well = nodes.pass_well(interval + stall)
            waits = well
    return total / nodes.now


@pytest.mark.parametrize(
    ("used", "stated", "interval", "stall", "stored"),
    [
        (16, {"mtbf_node_days": 10, "restart_minutes": 30, "spare_nodes": 2}, HOUR, 5, 900),
        (8, {"mtbf_node_days": 5, "restart_minutes": 60, "spare_nodes": 0}, 3 * HOUR, 300, 0),
    ],
)
def test_goodput_is_that_of_nodes_followed_one_by_one(used, stated, interval, stall, stored):
    failures = FailureSpec(save="local", repair_hours=12, **stated)
    shares = [
        trained(Nodes(failures, used, seed), 6000, interval, stall, stored) for seed in range(6)
    ]
    rate = used / failures.mtbf_node_s
    there = available_fraction(parse_cluster(f"{used}x8:h100-sxm"), failures)
    ours = there * training_fraction(interval, stall, stored, failures.restart_s, rate)
    assert ours == pytest.approx(sum(shares) / len(shares), rel=0.01)
