"""What the GPU of this process draws, how hot it is and how fast its clock runs.

Never run on a GPU so far; the functions and their units are those of the sources named below.
"""

import importlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, cast

from trainplan.profiler.host.nvml import driver
from trainplan.profiler.task import Place
from trainplan.profiler.torch_on_use import torch


@dataclass(frozen=True, slots=True)
class Reading:
    """What the driver says at one moment; null: it does not."""

    watts: float | None = None
    joules: float | None = None
    """Drawn so far: differences count."""
    sm_mhz: float | None = None
    celsius: float | None = None
    slowed_by: tuple[str, ...] = ()


Meter = Callable[[], Reading]


class AmdSmi(Protocol):
    """The functions of `amdsmi` that are used."""

    AmdSmiException: type[Exception]

    def amdsmi_get_energy_count(self, device: object) -> Mapping[str, float]: ...  # noqa: D102


def gpu_meter(place: Place) -> Meter | None:
    """Reads the GPU of this process; null on a CPU, or without the vendor's package or driver."""
    if place.device == "cpu":
        return None
    read = _amd(place) if torch.version.hip else _nvidia(place)
    return read if read is not None and read().watts is not None else None


def _nvidia(place: Place) -> Meter | None:
    found = driver()
    device = found.device_of(place.local_rank) if found else None
    if found is None or device is None:
        return None
    return lambda: Reading(
        found.watts(device),
        found.joules(device),
        found.sm_mhz(device),
        found.celsius(device),
        found.slowed_by(device),
    )


def _amd(place: Place) -> Meter | None:
    """Through torch, which finds the device among those that are visible.

    Source: pytorch/pytorch at cf30153c, torch/cuda/__init__.py: on ROCm `power_draw` returns what
    amdsmi calls the power of the socket, in watts and 0 where it is not known, although its page
    says mW; ROCm/amdsmi at 0ceca28f, docs/how-to/using-amdsmi-for-python.md: the accumulator of
    energy times its resolution are microjoules.
    """
    try:
        smi = cast("AmdSmi", importlib.import_module("amdsmi"))
    except (ImportError, OSError, KeyError):  # its library may be absent, too
        return None
    cuda, index = torch.cuda, place.local_rank
    handle = cast("Callable[[int], object] | None", getattr(cuda, "_get_amdsmi_handler", None))

    def number(ask: Callable[[], float]) -> float | None:
        with suppress(smi.AmdSmiException, RuntimeError, ValueError):
            return float(ask()) or None
        return None

    def joules() -> float:
        if handle is None:
            raise RuntimeError("this torch finds devices of amdsmi in another way")
        reading = smi.amdsmi_get_energy_count(handle(index))
        count = reading.get("energy_accumulator", reading.get("power", 0))
        return count * reading["counter_resolution"] / 1e6

    return lambda: Reading(
        number(lambda: cuda.power_draw(index)),
        number(joules),
        number(lambda: cuda.clock_rate(index)),
        number(lambda: cuda.temperature(index)),
    )
