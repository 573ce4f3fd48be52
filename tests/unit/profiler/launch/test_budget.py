"""A budget is kept on a simulated node of eight GPUs, and doubtful timings are measured again."""

from collections import Counter

import pytest

from tests.unit.profiler.launch.simulated_node import Node
from trainplan.costmodel.presets.presets import preset
from trainplan.profiler.fit.reference_step import error_shares
from trainplan.profiler.journal.records import TaskName
from trainplan.profiler.launch.costs import Ahead, Costs, family_of, marginal, most_telling, shares
from trainplan.profiler.task import Item

WORTH = {"gemm", "attention", "stream", "collectives"}
"""Items that set most of a step."""


@pytest.mark.parametrize(("budget", "seed"), [(60.0, 0), (300.0, 9)])
def test_a_run_takes_its_budget_and_not_a_tenth_more(monkeypatch, budget, seed):
    node = Node(monkeypatch, seed)
    taken = node.run(budget)
    assert 0.9 * budget < taken < 1.1 * budget
    assert {item for item, _ in node.measured} >= WORTH
    assert node.measured[0][0] == "memory"
    assert node.probe_seconds <= 0.02 * budget
    left, content = node.content.left_out, node.content
    assert left.budget_seconds == budget
    names = {TaskName(item, key) for item, keys in left.keys.items() for key in keys}
    assert names.isdisjoint(content.done)
    assert len(names) + len(content.done) == node.num_tasks


def test_the_largest_groups_and_the_ends_of_a_curve_come_first(monkeypatch):
    node = Node(monkeypatch, noisy=0)
    node.run(60.0)
    sums = [key for item, key in node.measured if item == "collectives" and "all_reduce" in key]
    whole = [key for key in sums if "ranks=8" in key]
    assert sums[0] == whole[0]
    sizes = [int(key.rpartition("=")[2]) for key in whole]
    assert (sizes[0], sizes[1]) == (2**29, 2**13)


def test_a_resumed_run_goes_on_with_what_was_left_out(monkeypatch):
    node = Node(monkeypatch, noisy=0)
    node.run(60.0)
    left = node.content.left_out
    before = len(node.measured)
    assert node.run() < 400
    assert node.content.left_out is None
    again = Counter(node.measured)
    assert max(again.values()) == 1
    assert len(node.measured) - before == sum(map(len, left.keys.values()))


def test_a_budget_that_the_start_takes_measures_nothing_and_says_so(monkeypatch):
    node = Node(monkeypatch)
    node.run(20.0)
    assert node.measured == []
    assert sum(map(len, node.content.left_out.keys.values())) == node.num_tasks


def test_doubtful_tasks_are_measured_again_after_the_others(monkeypatch):
    node = Node(monkeypatch, noisy=0.05)
    node.run()
    first, again = node.measured[: node.num_tasks], node.measured[node.num_tasks :]
    assert len(set(first)) == node.num_tasks
    assert again
    assert set(again) <= set(first)
    assert node.content.doubts == {}
    assert not any(point.time.flags for point in node.content.points)


def test_repeats_end_after_a_few_and_after_their_share_of_the_time(monkeypatch):
    node = Node(monkeypatch, noisy=1.0)
    node.run()
    counts = Counter(node.measured)
    assert max(counts.values()) <= 3
    seconds = node.content.seconds.values()
    first = sum(one[0] for one in seconds)
    assert 0.15 * first < sum(map(sum, seconds)) - first < 0.27 * first


def test_a_run_killed_in_a_repeat_goes_on_with_the_repeats(monkeypatch):
    node = Node(monkeypatch, noisy=0.05)
    first = node.num_tasks
    node.stop_in = first + 2
    with pytest.raises(KeyboardInterrupt):
        node.run()
    doubts = node.content.doubts
    node.run()
    assert set(node.measured[first:]) <= {(name.item, name.key) for name in doubts} | {
        node.measured[first],
        node.measured[first + 1],
    }
    assert node.content.doubts == {}


def test_with_a_budget_what_is_left_of_it_goes_to_repeats(monkeypatch):
    node = Node(monkeypatch, noisy=0.2)
    taken = node.run(600.0)
    assert node.content.left_out is None
    assert len(node.measured) > node.num_tasks
    assert taken < 600.0
    assert node.content.doubts == {}


def test_a_slow_doubtful_task_does_not_keep_others_from_being_repeated(monkeypatch):
    node = Node(monkeypatch, noisy=1.0, only=("optimizer", "stream"))
    node.slow = {"params=67108864": 40.0}
    assert node.run(100.0) < 100.0
    counts = Counter(key for _, key in node.measured)
    assert counts.pop("params=67108864") == 1
    assert set(counts.values()) == {3}


ITEM = Item("collectives", "", list, 0.6)


def ahead(key, step=0):
    return Ahead(step, TaskName("collectives", key), ITEM)


def test_tasks_of_one_curve_differ_in_sizes_alone():
    near, far = "all_reduce ranks=8 per_node=8 stride=1 bytes=", "all_reduce ranks=4 per_node=4 "
    assert ahead(near + "8192").family == ahead(near + "65536").family
    assert ahead(near + "8192").family != ahead(far + "stride=2 bytes=8192").family
    assert "m=" not in family_of(TaskName("gemm", "m=4 n=5 k=6 bf16")).key


def test_the_next_point_of_a_curve_is_the_farthest_and_tells_less_than_the_one_before():
    tasks = [ahead(f"bytes={2**power}") for power in (10, 14, 20, 30)]
    assert most_telling(tasks, []).name.key == f"bytes={2**30}"
    assert most_telling(tasks[:3], [2.0**30]).name.key == f"bytes={2**10}"
    assert most_telling(tasks[1:3], [2.0**30, 2.0**10]).name.key == f"bytes={2**20}"
    assert [marginal(0), marginal(1)] == pytest.approx([1 - 2**-0.5, 2**-0.5 - 3**-0.5])
    found = shares([ahead("a ranks=2 bytes=1"), ahead("b ranks=8 bytes=1")])
    assert sum(found.values()) == pytest.approx(1.0)
    assert found[ahead("b ranks=8 bytes=1").family] > found[ahead("a ranks=2 bytes=1").family]


def test_what_a_task_takes_is_learned_from_its_neighbours_and_one_disturbance_forgotten():
    costs, names = Costs(pace=0.5), [TaskName("collectives", f"bytes={n}") for n in (1, 3, 5)]
    assert costs.at_worst(names[0], ITEM) == pytest.approx(0.3)
    costs.took(names[0], ITEM, 1.0)
    costs.took(names[2], ITEM, 2.0)
    assert costs.at_worst(names[1], ITEM) == pytest.approx(1.5)
    assert costs.at_worst(TaskName("collectives", "other bytes=1"), ITEM) == pytest.approx(1.5)
    slow = Costs()
    slow.took(names[0], ITEM, 0.6)
    slow.took(TaskName("collectives", "other bytes=1"), ITEM, 60.0)
    other = TaskName("collectives", "other bytes=9")
    assert slow.at_worst(other, ITEM) == 60.0
    assert slow.expected(other, ITEM) == pytest.approx((60.0 * 30.3) ** 0.5)


def test_one_slow_task_does_not_make_those_of_other_items_slow():
    costs, step, other = Costs(), Item("optimizer", "", list, 0.6), TaskName("gemm", "m=1")
    for number in (1, 2, 3):
        costs.took(TaskName("optimizer", f"params={number}"), step, 6.0)
        assert costs.at_worst(other, ITEM) == pytest.approx(0.6 * (1.0, 5.5, 10.0)[number - 1])


def test_of_an_unknown_device_what_describes_it_goes_first():
    found = dict(error_shares(None, preset("llama3-8b"), 4096, "fp32", (1, 2)))
    describing = found.pop("gemm"), found.pop("stream")
    assert min(describing) * marginal(3) > max(found.values()) * marginal(0)


def test_a_task_that_took_no_time_still_costs_some():
    costs, name = Costs(), TaskName("collectives", "bytes=1")
    costs.took(name, ITEM, 0.0)
    assert costs.expected(name, ITEM) > 0
    assert costs.expected(TaskName("stream", "bytes=1"), ITEM) > 0
