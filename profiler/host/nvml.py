"""What the NVIDIA driver says of its devices, where the package `nvidia-ml-py` is installed.

Source: NVIDIA, NVML API Reference Guide, release 580.
"""

import importlib
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Protocol, cast

SLOWED_BY = {
    0x08: "hardware",
    0x20: "software because of heat",
    0x40: "hardware because of heat",
    0x80: "the power supply",
}
"""Bits of the clock event reasons. The power cap is none of them: training is capped as well.

Source: NVML API Reference Guide, nvmlClocksEventReasons.
"""
GRAPHICS_CLOCK, SM_CLOCK, MEMORY_CLOCK = 0, 1, 2
DIE = 0
"""Source: NVML API Reference Guide, NVML_TEMPERATURE_GPU."""
LEVELS = {
    0: "on one board",
    10: "through one PCIe switch",
    20: "through several PCIe switches",
    30: "through a PCIe host bridge",
    40: "in one NUMA node",
    50: "across NUMA nodes",
}
"""Source: NVML API Reference Guide, nvmlGpuTopologyLevel_t."""
MOST_LINKS = 18
"""Source: NVML API Reference Guide, NVML_NVLINK_MAX_LINKS."""


class Handle(Protocol):
    """A device of the driver."""


class Nvml(Protocol):
    """The functions of `pynvml` that are used."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> None: ...  # noqa: D102, N802
    def nvmlSystemGetDriverVersion(self) -> str: ...  # noqa: D102, N802
    def nvmlDeviceGetCount(self) -> int: ...  # noqa: D102, N802
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Handle: ...  # noqa: D102, N802
    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Handle: ...  # noqa: D102, N802
    def nvmlDeviceGetMaxClockInfo(self, device: Handle, kind: int) -> int: ...  # noqa: D102, N802
    def nvmlDeviceGetPowerManagementLimit(self, device: Handle) -> int: ...  # noqa: D102, N802
    def nvmlDeviceGetPowerUsage(self, device: Handle) -> int: ...  # noqa: D102, N802
    def nvmlDeviceGetTotalEnergyConsumption(self, device: Handle) -> int: ...  # noqa: D102, N802
    def nvmlDeviceGetClockInfo(self, device: Handle, kind: int) -> int: ...  # noqa: D102, N802
    def nvmlDeviceGetTemperature(self, device: Handle, sensor: int) -> int: ...  # noqa: D102, N802
    def nvmlDeviceGetCurrentClocksThrottleReasons(self, device: Handle) -> int: ...  # noqa: D102, N802
    def nvmlDeviceGetNvLinkState(self, device: Handle, link: int) -> int: ...  # noqa: D102, N802
    def nvmlDeviceGetTopologyCommonAncestor(self, one: Handle, other: Handle) -> int: ...  # noqa: D102, N802


class Driver:
    """Reads the driver; what it does not answer is left out."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml

    def version(self) -> str | None:
        """Of the driver."""
        with suppress(self._nvml.NVMLError):
            return self._nvml.nvmlSystemGetDriverVersion()
        return None

    def devices(self) -> tuple[Handle, ...]:
        """Those this process may use, in its order."""
        with suppress(self._nvml.NVMLError, ValueError):
            chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
            names = (
                [str(index) for index in range(self._nvml.nvmlDeviceGetCount())]
                if chosen is None
                else [name.strip() for name in chosen.split(",") if name.strip()]
            )
            return tuple(self._device(name) for name in names)
        return ()

    def device_of(self, local_rank: int) -> Handle | None:
        """That of one process of the node; null where the driver has fewer."""
        devices = self.devices()
        return devices[local_rank] if local_rank < len(devices) else None

    def _device(self, name: str) -> Handle:
        if name.isdecimal():
            return self._nvml.nvmlDeviceGetHandleByIndex(int(name))
        return self._nvml.nvmlDeviceGetHandleByUUID(name)

    def slowed_by(self, device: Handle) -> tuple[str, ...]:
        """What keeps the clocks of a device low at this moment."""
        with suppress(self._nvml.NVMLError):
            bits = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device)
            return tuple(name for bit, name in SLOWED_BY.items() if bits & bit)
        return ()

    def watts(self, device: Handle) -> float | None:
        """Mean of the last second, before Ampere of the last tenth; the driver counts in mW."""
        with suppress(self._nvml.NVMLError):
            return self._nvml.nvmlDeviceGetPowerUsage(device) / 1000
        return None

    def joules(self, device: Handle) -> float | None:
        """Drawn since the driver was loaded, which counts in mJ; Volta and later."""
        with suppress(self._nvml.NVMLError):
            return self._nvml.nvmlDeviceGetTotalEnergyConsumption(device) / 1000
        return None

    def sm_mhz(self, device: Handle) -> float | None:
        """Clock of the multiprocessors at this moment."""
        with suppress(self._nvml.NVMLError):
            return float(self._nvml.nvmlDeviceGetClockInfo(device, SM_CLOCK))
        return None

    def celsius(self, device: Handle) -> float | None:
        """Temperature of the die."""
        with suppress(self._nvml.NVMLError):
            return float(self._nvml.nvmlDeviceGetTemperature(device, DIE))
        return None

    def clocks(self, device: Handle) -> str:
        """Largest clocks, power limit and what slows it down, as one phrase."""
        return ", ".join((*self._limits(device), *self._slow(device)))

    def _limits(self, device: Handle) -> Iterator[str]:
        with suppress(self._nvml.NVMLError):
            yield f"SM {self._nvml.nvmlDeviceGetMaxClockInfo(device, SM_CLOCK)} MHz"
        with suppress(self._nvml.NVMLError):
            yield f"memory {self._nvml.nvmlDeviceGetMaxClockInfo(device, MEMORY_CLOCK)} MHz"
        with suppress(self._nvml.NVMLError):
            yield f"power limit {self._nvml.nvmlDeviceGetPowerManagementLimit(device) // 1000} W"

    def _slow(self, device: Handle) -> Iterator[str]:
        yield from (f"slowed down by {reason}" for reason in self.slowed_by(device))

    def num_links(self, device: Handle) -> int:
        """NVLinks of a device that are up."""
        count = 0
        with suppress(self._nvml.NVMLError):
            for link in range(MOST_LINKS):
                count += self._nvml.nvmlDeviceGetNvLinkState(device, link)
        return count

    def path(self, one: Handle, other: Handle) -> str | None:
        """How two devices reach each other over PCIe: `through one PCIe switch`."""
        with suppress(self._nvml.NVMLError):
            return LEVELS.get(self._nvml.nvmlDeviceGetTopologyCommonAncestor(one, other))
        return None


def driver() -> Driver | None:
    """The driver; null where there is none, or no package to ask it with."""
    try:
        nvml = cast("Nvml", importlib.import_module("pynvml"))
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return Driver(nvml)
