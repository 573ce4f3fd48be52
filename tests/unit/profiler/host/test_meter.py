"""Watts and joules in the units that each vendor's functions have."""

import sys
from types import SimpleNamespace

import pytest

from trainplan.profiler.host import meter as module
from trainplan.profiler.host.meter import Reading, gpu_meter
from trainplan.profiler.host.nvml import Driver
from trainplan.profiler.task import Place

SECOND_GPU = Place("cuda", 1, 2, 1, 2)


class NvmlError(Exception):
    pass


def silent(*wanted):
    raise NvmlError


def nvml(**more):
    """Answers for the device of a number, in milliwatts and millijoules."""
    written = {
        "NVMLError": NvmlError,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetPowerUsage": lambda device: 650_000 + device,
        "nvmlDeviceGetTotalEnergyConsumption": lambda device: 7_000_000 + 1000 * device,
        "nvmlDeviceGetClockInfo": lambda device, kind: {1: 1755}[kind],
        "nvmlDeviceGetTemperature": lambda device, sensor: {0: 71}[sensor],
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda device: 0x20 | 0x04,
    }
    return SimpleNamespace(**(written | more))


@pytest.fixture
def nvidia(monkeypatch):
    def use(library):
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        monkeypatch.setattr(module, "driver", lambda: library and Driver(library))
        monkeypatch.setattr(module, "torch", SimpleNamespace(version=SimpleNamespace(hip=None)))

    return use


def test_nvidia_says_milliwatts_and_millijoules(nvidia):
    nvidia(nvml())
    assert gpu_meter(SECOND_GPU)() == Reading(
        650.001, 7001.0, 1755, 71, ("software because of heat",)
    )


def test_what_a_card_does_not_say_is_unknown(nvidia):
    names = ("TotalEnergyConsumption", "ClockInfo", "Temperature")
    nvidia(nvml(**{f"nvmlDeviceGet{name}": silent for name in names}))
    assert gpu_meter(SECOND_GPU)() == Reading(
        650.001, None, None, None, ("software because of heat",)
    )


def test_without_driver_or_gpu_there_is_no_meter(nvidia):
    nvidia(None)
    assert gpu_meter(SECOND_GPU) is None
    assert gpu_meter(Place("cpu", 0, 1, 0, 1)) is None
    nvidia(nvml())
    assert gpu_meter(Place("cuda", 5, 8, 5, 8)) is None


class AmdError(Exception):
    pass


def amd(monkeypatch, energy, **cuda):
    smi = SimpleNamespace(AmdSmiException=AmdError, amdsmi_get_energy_count=energy)
    monkeypatch.setitem(sys.modules, "amdsmi", smi)
    written = {
        "power_draw": lambda index: 700 + index,
        "clock_rate": lambda index: 2100,
        "temperature": lambda index: 64,
        "_get_amdsmi_handler": lambda index: f"device {index}",
    }
    torch = SimpleNamespace(
        version=SimpleNamespace(hip="7.0"), cuda=SimpleNamespace(**(written | cuda))
    )
    monkeypatch.setattr(module, "torch", torch)
    return gpu_meter(SECOND_GPU)


@pytest.mark.parametrize("name", ["energy_accumulator", "power"])
def test_amd_says_watts_and_counts_in_parts_of_a_microjoule(monkeypatch, name):
    """Before ROCm 6.4 the counter was called `power`."""

    def energy(handle):
        assert handle == "device 1"
        return {name: 2_000_000, "counter_resolution": 15.25, "timestamp": 1}

    read = amd(monkeypatch, energy)
    assert read() == Reading(701, 30.5, 2100, 64, ())


def test_amd_without_counter_or_known_power(monkeypatch):
    def absent(handle):
        raise AmdError("not supported")

    assert amd(monkeypatch, absent)().joules is None
    assert amd(monkeypatch, absent, power_draw=lambda index: 0) is None
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    assert gpu_meter(SECOND_GPU) is None
