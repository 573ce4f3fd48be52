"""Power and energy of a GPU that is played, alone and with all of its node."""

from types import SimpleNamespace

import pytest

from tests.unit.profiler.host.fake_gpu import FakeGpu
from trainplan.costmodel.profiles.profile import PowerPoint, Timing
from trainplan.profiler.bench import power
from trainplan.profiler.host.meter import Reading
from trainplan.profiler.task import Place

IDLE_WATTS, BUSY_WATTS, CALL_SECONDS = 90.0, 700.0, 1.6e-3
TWO_GPUS = Place("cuda", 1, 2, 1, 2)


class Card(FakeGpu):
    """Draws more while it runs; its driver says so at any moment."""

    counter = True

    def read(self):
        busy = self.free > self.host
        joules = IDLE_WATTS * self.host + (BUSY_WATTS - IDLE_WATTS) * self.run_seconds
        return Reading(
            BUSY_WATTS if busy else IDLE_WATTS,
            1000 + joules if self.counter else None,
            1700 if busy else 345,
            60 + self.host,
            ("hardware",) if busy else (),
        )


@pytest.fixture
def card(monkeypatch):
    card = Card()
    torch = card.torch()
    monkeypatch.setattr(power, "torch", torch)
    monkeypatch.setattr(power, "time", SimpleNamespace(monotonic=card.now, sleep=card.sleep))
    monkeypatch.setattr(power, "gpu_meter", lambda place: card.read)
    monkeypatch.setattr(power.socket, "gethostname", lambda: "node3")
    return card


CLOCK = SimpleNamespace(time=lambda call: Timing(seconds=CALL_SECONDS))


def loaded(card, **more):
    (point,) = power._loaded(
        "product", lambda place: card.kernel(CALL_SECONDS), TWO_GPUS, CLOCK, **more
    )
    return point


@pytest.mark.parametrize("counter", [True, False])
def test_joules_of_a_call_are_by_the_counter_or_by_power(card, counter):
    card.counter = counter
    point = loaded(card)
    assert point.joules_per_call == pytest.approx(BUSY_WATTS * CALL_SECONDS, rel=0.01)
    assert point.watts == pytest.approx(BUSY_WATTS, rel=0.01)
    assert point.seconds_per_call == pytest.approx(CALL_SECONDS, rel=0.01)
    assert (point.gpu, point.gpus, point.sm_mhz) == ("node3:1", 1, 1700)
    assert point.celsius == pytest.approx(60 + card.host, abs=0.2)
    assert point.slowed_by == ("hardware",)


def test_a_counter_that_stands_still_is_none(card, monkeypatch):
    read = card.read
    monkeypatch.setattr(power, "gpu_meter", lambda place: lambda: Reading(read().watts, 1000.0))
    assert loaded(card).joules_per_call == pytest.approx(BUSY_WATTS * CALL_SECONDS, rel=0.01)


def test_a_gpu_that_does_nothing_has_no_call(card):
    (point,) = power._idle(TWO_GPUS, CLOCK)
    assert (point.watts, point.joules_per_call, point.seconds_per_call) == (IDLE_WATTS, None, None)
    assert (point.sm_mhz, point.slowed_by) == (345, ())


def test_all_gpus_of_a_node_are_loaded_at_once_and_each_gives_a_point(card, monkeypatch):
    """Nobody begins before all are there, and one whose driver is silent is left out."""
    other = PowerPoint(state="product", gpu="node3:0", watts=680.0)
    wanted = []

    def all_gather_object(written, mine):
        wanted.append((card.host, mine))
        written[:] = [other.model_dump_json() if mine else "", mine]

    monkeypatch.setattr(power, "dist", SimpleNamespace(all_gather_object=all_gather_object))
    load = lambda place: card.kernel(CALL_SECONDS)  # noqa: E731
    points = list(power._together("product", load, 1.5, TWO_GPUS, CLOCK))
    assert wanted[0] == (0.0, "")
    assert [(p.gpu, p.gpus) for p in points] == [("node3:0", 2), ("node3:1", 2)]
    assert points[0].watts == 680.0
    assert points[1].watts == pytest.approx(BUSY_WATTS, rel=0.01)


def test_all_at_once_is_a_task_of_all_ranks_where_a_node_has_several(monkeypatch):
    monkeypatch.setattr(power, "find_spec", lambda name: name == "pynvml")
    request = SimpleNamespace(quick=True)
    tasks = {task.key: task.together for task in power.power_tasks(request, TWO_GPUS)}
    assert tasks == {"idle": False, "product": False, "product gpus=2": True}
    alone = [task.key for task in power.power_tasks(request, Place("cuda", 0, 1, 0, 1))]
    assert alone == ["idle", "product"]
    assert list(power.power_tasks(request, Place("cpu", 0, 2, 0, 2))) == []
