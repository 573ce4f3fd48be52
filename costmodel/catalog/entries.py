"""The GPUs this project knows and the constants of its formulas, each number with its source.

The data live in `gpus.toml`, `hosts.toml`, `fitted.toml` and `constants.toml` next to this file,
and in files of plug-ins; nothing here is a number.
"""

import re
import tomllib
from collections.abc import Mapping
from functools import cache, partial
from importlib import resources

from pydantic import TypeAdapter

from trainplan.costmodel.base import CatalogError, unknown_name
from trainplan.costmodel.catalog.plugged import entry, table
from trainplan.costmodel.catalog.spreads import Spreads
from trainplan.costmodel.documents import Constants, Intervals
from trainplan.costmodel.hardware import DriveSpec, FittedConstants, GpuSpec, HostSpec, NodeGroup
from trainplan.costmodel.job import LOW_PRECISION
from trainplan.costmodel.plugins import Added, Installed, added
from trainplan.costmodel.spec import Sourced, Spec


class FittedConstant(Sourced):
    """A constant of the formulas: what is used, and what was known before any fit."""

    prior: float
    spread: float
    """Standard deviation of the prior in log units."""


class SourcedDrives(Spec):
    """Drives of a host of the catalog; figures as in `DriveSpec`."""

    count: Sourced
    tb: Sourced
    read_gb_per_s: Sourced | None = None
    write_gb_per_s: Sourced | None = None
    tb_written: Sourced | None = None


class SourcedHost(Spec):
    """One host of the catalog; figures as in `HostSpec`."""

    memory_gib: Sourced
    memory_gb_per_s: Sourced | None = None
    adam_params_per_s: Sourced | None = None
    gpus_per_switch: Sourced | None = None
    launch_factor: Sourced | None = None
    drives: SourcedDrives | None = None


class _FittedFile(Spec):
    """Contents of `fitted.toml`."""

    stand_in: dict[str, str]
    gpu: dict[str, FittedConstants]


def _text(name: str) -> str:
    return resources.files("trainplan.costmodel.catalog").joinpath(name).read_text(encoding="utf-8")


@cache
def _our_gpus() -> dict[str, GpuSpec]:
    return TypeAdapter(dict[str, GpuSpec]).validate_python(tomllib.loads(_text("gpus.toml")))


@cache
def _plugged_gpus() -> dict[str, Added[GpuSpec]]:
    return added(
        "gpus", _our_gpus(), lambda one: table(one, one.plugin.gpus), partial(entry, GpuSpec)
    )


@cache
def _gpus() -> dict[str, GpuSpec]:
    return _our_gpus() | {name: one.value for name, one in _plugged_gpus().items()}


@cache
def _fitted() -> _FittedFile:
    ours = _FittedFile.model_validate(tomllib.loads(_text("fitted.toml")))
    not_theirs = _our_gpus()
    fits = added(
        "fitted.gpu", not_theirs, partial(_fitted_part, "gpu"), partial(entry, FittedConstants)
    )
    others = added("fitted.stand_in", not_theirs, partial(_fitted_part, "stand_in"), _known_gpu)
    return _FittedFile(
        stand_in=ours.stand_in | {name: one.value for name, one in others.items()},
        gpu=ours.gpu | {name: one.value for name, one in fits.items()},
    )


def _fitted_part(part: str, one: Installed) -> Mapping[str, object]:
    found = table(one, one.plugin.fitted).get(part, {})
    return dict(found)


def _known_gpu(_: Installed, name: object) -> str:
    gpu(str(name))
    return str(name)


@cache
def fitted_constants() -> dict[str, FittedConstant]:
    """Every constant of the formulas with its prior and its source."""
    table = tomllib.loads(_text("constants.toml"))
    return TypeAdapter(dict[str, FittedConstant]).validate_python(table)


@cache
def constants() -> Constants:
    """The values of all constants of the formulas."""
    return Constants(**{name: entry.value for name, entry in fitted_constants().items()})


@cache
def intervals() -> Intervals:
    """Widths of the intervals around a step time."""
    return Intervals.model_validate(tomllib.loads(_text("intervals.toml")))


@cache
def spreads() -> Spreads:
    """How far machines and layouts are from the cost model."""
    return Spreads.model_validate(tomllib.loads(_text("spreads.toml")))


def gpu_names() -> tuple[str, ...]:
    """Names of all GPUs of the catalog, in alphabetical order."""
    return tuple(sorted(_gpus()))


def gpu(name: str) -> GpuSpec:
    """Datasheet of one GPU.

    Raises:
        CatalogError: No GPU of that name; the message carries the nearest names.
    """
    if name not in _gpus():
        hint, intended = "`plan catalog gpus` lists them all", gpu_named(name)
        if intended:
            raise CatalogError(f"unknown GPU {name!r}: it is {intended!r} here; {hint}")
        raise unknown_name("GPU", name, _gpus(), hint)
    return _gpus()[name]


def plugged_gpus() -> dict[str, str]:
    """GPUs of plug-ins, and which plug-in each is from."""
    return {name: one.origin.who for name, one in _plugged_gpus().items()}


def gpu_named(name: str) -> str | None:
    """The catalog's name of a GPU in another spelling, or as its driver calls it; null: none."""
    return _spellings().get(_plain(name))


@cache
def _spellings() -> dict[str, str]:
    calls = ((name, (name, *spec.device_names)) for name, spec in _gpus().items())
    return {_plain(called): name for name, names in calls for called in names}


def _plain(name: str) -> str:
    """A name without case, vendor and what is between its words."""
    words = re.split(r"[\s_-]+", name.strip().lower())
    return "-".join(word for word in words if word not in ("nvidia", "amd"))


def device(group: NodeGroup) -> GpuSpec:
    """Numbers of the GPU of a node group: its own, or the catalog's.

    Raises:
        CatalogError: It brings none, and no GPU has that name.
    """
    return group.device or gpu(group.gpu)


@cache
def hosts() -> dict[str, SourcedHost]:
    """Every host of the catalog by name."""
    return _our_hosts() | {name: one.value for name, one in _plugged_hosts().items()}


@cache
def _our_hosts() -> dict[str, SourcedHost]:
    return TypeAdapter(dict[str, SourcedHost]).validate_python(tomllib.loads(_text("hosts.toml")))


@cache
def _plugged_hosts() -> dict[str, Added[SourcedHost]]:
    return added(
        "hosts", _our_hosts(), lambda one: table(one, one.plugin.hosts), partial(entry, SourcedHost)
    )


def plugged_hosts() -> dict[str, str]:
    """Hosts of plug-ins, and which plug-in each is from."""
    return {name: one.origin.who for name, one in _plugged_hosts().items()}


def host(name: str) -> SourcedHost:
    """One host of the catalog.

    Raises:
        CatalogError: No host of that name; the message carries the nearest names.
    """
    if name not in hosts():
        raise unknown_name("host", name, hosts(), "`plan catalog hosts` lists them all")
    return hosts()[name]


def host_of(group: NodeGroup) -> HostSpec | None:
    """The host of a node group: what it states, and of the rest what the catalog knows of it.

    Raises:
        CatalogError: No host has the name that it is stated to be like.
    """
    if group.host is None or group.host.like is None:
        return group.host
    known = host(group.host.like)
    usual = HostSpec(
        **{
            name: round(one.value) if name == "gpus_per_switch" else one.value
            for name in SourcedHost.model_fields
            if isinstance(one := getattr(known, name), Sourced)
        },
        drives=known.drives and _drives(known.drives),
    )
    stated = {name: getattr(group.host, name) for name in HostSpec.model_fields}
    return usual.model_copy(update={name: x for name, x in stated.items() if x is not None})


def _drives(known: SourcedDrives) -> DriveSpec:
    figures = {name: getattr(known, name) for name in SourcedDrives.model_fields}
    values = {name: one.value for name, one in figures.items() if one}
    return DriveSpec(**values | {"count": round(known.count.value)})


def fitted(name: str) -> FittedConstants:
    """What was fitted on measurements of one GPU; empty where nothing was."""
    return _fitted().gpu.get(name, FittedConstants())


def products_fit(precision: str) -> str:
    """Name of the fit of linear layers in training."""
    if precision == "nvfp4":
        return "nvfp4_training"
    return "fp8_training" if precision in LOW_PRECISION else "bf16"


def sustained_fits(precision: str) -> tuple[str, ...]:
    """Precisions whose sustained factor a precision takes: its own, the next lower ones', bf16."""
    family = {"mxfp8": ("mxfp8", "fp8"), "nvfp4": ("nvfp4", "mxfp8", "fp8"), "fp16": ()}
    return (*family.get(precision, (precision,)), "bf16")


def stand_in(name: str) -> str | None:
    """GPU whose fitted constants are used where `name` has none of its own; null if none may.

    The table is `stand_in` in `fitted.toml`: the same chip first, else the same architecture, else
    the nearest generation of the vendor. It never crosses vendors and ends after a few steps, so a
    caller may follow it. Collectives of another GPU hold only where `link` is the same.
    """
    return _fitted().stand_in.get(name)
