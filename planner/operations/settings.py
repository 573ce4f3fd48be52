"""Settings of a production run: `settings.toml` has a row for each, with the words of each runtime.

Nothing here moves a step time.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from trainplan.costmodel import catalog
from trainplan.costmodel.hardware import ClusterSpec
from trainplan.costmodel.job import Job
from trainplan.costmodel.layout import Layout
from trainplan.planner.launch import (
    Argument,
    ConfigFile,
    DefaultVariable,
    EnvironmentVariable,
    LaunchConfig,
    Operations,
    UserVariable,
)

Row = Mapping[str, Any]
INTERVAL = "save interval"
MINUTE_S = 60
HUGGING_FACE, SAVES = "huggingface", "save_steps"
"""Column of trainers over transformers, and the key that they are known by."""
TRAINER = " on "
"""Stands between the name of a trainer and that of its runtime."""
BY_RAY = "Ray starts the ranks: it restarts none, and binds none to the NUMA node of its GPU"
NUMA = "--numa_binding of torchrun needs torch 2.9 or later"
"""Source: torch/distributed/run.py of 2.8.0 and 2.9.0."""


@cache
def _table() -> Row:
    text = resources.files(__package__).joinpath("settings.toml").read_text("utf-8")
    return tomllib.loads(text)


@dataclass(frozen=True, slots=True)
class _Written:
    """What became of the rows."""

    arguments: tuple[Argument, ...]
    names: frozenset[str]
    """Of the rows that are written, or that the runtime does unasked."""
    notes: tuple[str, ...]


def with_operations(
    config: LaunchConfig,
    job: Job,
    layout: Layout,
    launcher: str,
    step_seconds: float,
    *,
    ordered: bool = False,
) -> LaunchConfig:
    """A launch with what a production run has, as far as its runtime and launcher have it.

    `ordered`: the nodes have a chosen order. What cannot be written is said in the notes.
    """
    table, cluster = _table(), job.cluster
    way: Row = table["launcher"].get(launcher, {})
    minutes = table["minutes_between_saves"]
    steps = max(1, round(minutes * MINUTE_S / step_seconds))
    signal = way.get("signal", "TERM")
    filled = {"save_steps": steps, "save_minutes": minutes, "signal": signal}
    written = _settings(config, filled)
    handles = any("-signal" in one.flag or "_signal" in one.flag for one in written.arguments)
    restarts = 0 if config.by_ray else _restarts(cluster, way, ordered=ordered)
    binds = way.get("binds", True) and not (config.by_ray or cluster.on_cpu)
    without = BY_RAY if config.by_ray else way.get("without", "")
    files = tuple(_edited(file, written.arguments) for file in config.files)
    inside = files != config.files
    notes = (
        *_intervals(written, steps, minutes, step_seconds),
        *written.notes,
        *_lacking(config.runtime, written),
        *([] if restarts or not without else [without]),
        *way.get("notes", ()),
        *(way.get("signal_notes", ()) if handles else ()),
        *([NUMA] if binds else []),
        *_site(cluster),
    )
    return replace(
        config,
        arguments=config.arguments if inside else _merged(config.arguments, written.arguments),
        files=files,
        environment=(*config.environment, *_variables(config, job, layout)),
        defaults=tuple(_defaults(written.arguments)),
        notes=(*config.notes, *notes),
        operations=Operations(
            restarts=restarts,
            signal=signal if handles else "",
            warning_seconds=table["seconds_of_warning"],
            save_minutes=table["minutes_to_save"],
            binds=binds,
        ),
    )


def _settings(config: LaunchConfig, filled: Mapping[str, object]) -> _Written:
    """Every row in the words of the runtime."""
    runtime, table = _column(config), _table()
    have = {word for flag, value in config.settings for word in (flag, f"{flag} {value}")}
    arguments, names, notes = list[Argument](), set[str](), list[str]()
    for row in table["setting"]:
        if runtime in row.get("already", {}):
            names.add(row["name"])
        clash = have.intersection(row.get("unless", ()))
        if runtime in row and clash:
            names.add(row["name"])
            notes.append(f"{row['name']}: left out beside {clash.pop()}")
        elif runtime in row:
            arguments += [_option(row, text, filled) for text in row[runtime]]
            names.add(row["name"])
            notes += [row["notes"][runtime]] if runtime in row.get("notes", {}) else []
    return _Written(tuple(arguments), frozenset(names), tuple(notes))


def _column(config: LaunchConfig) -> str:
    """Whose words a launch takes: trainers over transformers all have those of its Trainer."""
    names = {flag.removeprefix("--") for flag, _ in config.settings}
    is_trainer = TRAINER in config.runtime or config.runtime in _table()["huggingface_runtimes"]
    return HUGGING_FACE if is_trainer and SAVES in names else config.runtime


def _edited(file: ConfigFile, arguments: tuple[Argument, ...]) -> ConfigFile:
    """A YAML of the trainer's own, in which a key that is there takes the new value."""
    text = file.text
    for one in arguments:
        key, value = one.flag.removeprefix("--"), " ".join(map(str, one.values))
        there = rf"^( *{re.escape(key)}: ).*$"
        text = re.sub(there, rf"\g<1>{value}", text, flags=re.MULTILINE)
    return replace(file, text=text)


def _option(row: Row, text: str, filled: Mapping[str, object]) -> Argument:
    """`--flag value`, or `key=value`."""
    is_key = not text.startswith("--")
    flag, *values = re.split("[= ]", text.format_map(filled))
    words = (UserVariable(one[1:]) if one.startswith("$") else one for one in values)
    reason, given = row["reason"].format_map(filled), row.get("given", "")
    return Argument(flag, tuple(words), "operations", is_key, reason, given)


def _merged(before: tuple[Argument, ...], added: tuple[Argument, ...]) -> tuple[Argument, ...]:
    """An option that is there takes the new value in its place."""
    named = {one.flag: one for one in added}
    there = {one.flag for one in before}
    changed = (
        replace(one, values=named[one.flag].values) if one.flag in named else one for one in before
    )
    return (*changed, *(one for one in added if one.flag not in there))


def _intervals(written: _Written, steps: int, minutes: int, step_seconds: float) -> Iterator[str]:
    if INTERVAL in written.names:
        yield (
            f"a checkpoint every {steps} steps: {minutes} minutes, assumed, of the plan's "
            f"{step_seconds:.3g} s a step"
        )


def _lacking(runtime: str, written: _Written) -> Iterator[str]:
    """In one line what the runtime has no option for."""
    names = dict.fromkeys(row["name"] for row in _table()["setting"])
    absent = ", ".join(name for name in names if name not in written.names)
    trainer, on, _ = runtime.partition(TRAINER)
    whose = f"the files of {trainer}" if on else _table()["yours"].get(runtime)
    if absent and whose:
        yield f"set in {whose}: {absent}"
    elif absent:
        yield f"{runtime} has no option for: {absent}"


def _restarts(cluster: ClusterSpec, way: Row, *, ordered: bool) -> int:
    """Of torchrun; nodes that it restarts it numbers itself, by their names.

    Source: torch 2.14 `elastic/rendezvous/dynamic_rendezvous.py`, sorted participants.
    """
    nodes = sum(one.num_nodes for one in cluster.groups)
    racks = any((one.segment_nodes(catalog.device(one)) or 1) > 1 for one in cluster.groups)
    numbered = ordered or racks or len(cluster.groups) > 1
    restarts: int = _table()["restarts"]
    fits = {"one node": nodes == 1, "any": nodes == 1 or not numbered}
    return restarts if "restarts" in way and fits[way["restarts"]] else 0


def _fabrics(cluster: ClusterSpec) -> set[str]:
    """Transports between nodes; none where there is one node."""
    if sum(one.num_nodes for one in cluster.groups) == 1:
        return set()
    return {(one.nic and one.nic.transport) or "infiniband" for one in cluster.groups}


def _site(cluster: ClusterSpec) -> Iterator[str]:
    yield from (_table()["site"][one] for one in sorted(_fabrics(cluster)))


def _variables(config: LaunchConfig, job: Job, layout: Layout) -> Iterator[EnvironmentVariable]:
    """Those of the fabric and the kernels that the launch does not set already."""
    cluster, group = job.cluster, job.cluster.groups[0]
    domain = group.domain_gpus(catalog.device(group))
    filled = {
        "domain": domain,
        "ranks_in_domain": min(layout.ep, domain),
        "spans_nodes": int(domain > group.gpus_per_node),
    }
    has: Mapping[str, Callable[[list[str]], bool]] = {
        "of": lambda names: config.runtime in names,
        "not_of": lambda names: config.runtime not in names,
        "fabrics": lambda names: not _fabrics(cluster).isdisjoint(names),
        "gpus": lambda names: any(one.gpu.startswith(tuple(names)) for one in cluster.groups),
        "dispatchers": lambda names: job.options.moe_dispatcher in names,
    }
    there = {one.name for one in config.environment}
    for row in _table()["variable"]:
        if row["name"] not in there and all(has[key](row[key]) for key in has if key in row):
            reason = f"{row['reason']} ({row['source']})"
            yield EnvironmentVariable(row["name"], row["value"].format_map(filled), reason)


def _defaults(arguments: tuple[Argument, ...]) -> Iterator[DefaultVariable]:
    """Of the variables that these name."""
    named = {one.name for a in arguments for one in a.values if isinstance(one, UserVariable)}
    for row in _table()["default"]:
        if row["name"] in named:
            yield DefaultVariable(row["name"], row["value"], row["sentence"])
