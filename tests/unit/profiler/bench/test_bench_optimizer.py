"""Steps of optimizers other than AdamW."""

import sys
from types import ModuleType

import pytest

from trainplan.costmodel.optimizers.registry import OPTIMIZERS
from trainplan.costmodel.profiles.profile import Timing
from trainplan.profiler.bench import optimizer
from trainplan.profiler.bench.optimizer import OTHERS, SIDE, SIZES, device_tasks
from trainplan.profiler.errors import ProfilerError
from trainplan.profiler.launch.requests import request_for
from trainplan.profiler.task import Place

torch = pytest.importorskip("torch", reason="the steps are torch's")

CPU = Place("cpu", 0, 1, 0, 1)
SMALL, NARROW = 2**13, 2**6


class OnceClock:
    """Calls once."""

    def time(self, call):
        call()
        return Timing(seconds=1e-3)


def step_of(name, monkeypatch):
    """The task of one optimizer, over two matrices."""
    monkeypatch.setitem(SIZES, "cpu", (SMALL, 2 * SMALL))
    monkeypatch.setitem(SIDE, "cpu", NARROW)
    found = {t.key: t for t in device_tasks(wanted(name), CPU)}
    assert list(found)[:2] == [f"params={SMALL}", f"params={2 * SMALL}"], "Adam's as ever"
    return found[f"params={SMALL} {name}"]


def wanted(*names):
    return request_for(None, "cpu", 1, quick=False, stated={"optimizers": names})


@pytest.mark.parametrize("name", ["sgd", "adafactor", "muon"])
def test_what_torch_has_is_stepped_by_its_name(monkeypatch, name):
    updated = []

    def checked(weight, what):
        updated.append(weight)

    monkeypatch.setattr(optimizer, "check_finite", checked)
    (point,) = step_of(name, monkeypatch).measure(OnceClock())
    assert (point.name, point.num_params, point.side) == (name, SMALL, NARROW)
    assert [tuple(weight.shape) for weight in updated] == [(NARROW, NARROW)] * 2
    fresh = torch.randn(NARROW, NARROW, generator=torch.Generator().manual_seed(0))
    assert not torch.equal(updated[0], fresh), "the step changes the weights"


def test_a_package_that_is_installed_is_used(monkeypatch):
    package, seen = ModuleType("bitsandbytes.optim"), []

    class Lion:
        def __init__(self, weights, lr):
            seen.append(len(weights))

        def step(self):
            seen.append("step")

    package.Lion = Lion
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", package)
    monkeypatch.setitem(sys.modules, "bitsandbytes", ModuleType("bitsandbytes"))
    (point,) = step_of("lion", monkeypatch).measure(OnceClock())
    assert point.name == "lion"
    assert seen == [2, "step"]


def test_one_whose_package_is_not_there_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(ProfilerError, match=r"no bitsandbytes.optim.AdamW8bit here: install"):
        step_of("adamw8bit", monkeypatch).measure(OnceClock())
    monkeypatch.delattr(torch.optim, "Muon")
    with pytest.raises(ProfilerError, match=r"no torch.optim.Muon here: install torch, or a newer"):
        step_of("muon", monkeypatch).measure(OnceClock())


def test_adamw_is_measured_once_and_all_names_are_those_of_the_cost_model():
    keys = [task.key for task in device_tasks(wanted("adamw", "sgd", "sgd"), CPU)]
    assert keys == [*(f"params={size}" for size in SIZES["cpu"]), f"params={SIZES['cpu'][0]} sgd"]
    assert set(OTHERS) <= set(OPTIMIZERS)
