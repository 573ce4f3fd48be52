"""Settings of a production run: `settings.toml` has a row for each, with the words of each runtime.

Nothing here moves a step time.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from trainplan.costmodel import catalog
from trainplan.costmodel.base import UnsupportedError
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
from trainplan.planner.operations.saves import (
    MINUTE_S,
    Row,
    Saves,
    copies_of,
    saves_of,
    settings_table,
)

INTERVAL = "save interval"
HUGGING_FACE, SAVES = "huggingface", "save_steps"
"""Column of trainers over transformers, and the key that they are known by."""
TRAINER = " on "
"""Stands between the name of a trainer and that of its runtime."""
BY_RAY = "Ray starts the ranks: it restarts none, and binds none to the NUMA node of its GPU"
NUMA = "--numa_binding of torchrun needs torch 2.9 or later"
"""Source: torch/distributed/run.py of 2.8.0 and 2.9.0."""


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
    table, cluster = settings_table(), job.cluster
    way: Row = table["launcher"].get(launcher, {})
    signal = way.get("signal", "TERM")
    rows = tuple(_rows(saves_of(job)))
    config, written = _with_rows(config, rows, job, step_seconds, signal)
    handles = any("-signal" in one.flag or "_signal" in one.flag for one in written.arguments)
    restarts = 0 if config.by_ray else _restarts(cluster, way, ordered=ordered)
    binds = way.get("binds", True) and not (config.by_ray or cluster.on_cpu)
    without = BY_RAY if config.by_ray else way.get("without", "")
    notes = (
        *([] if restarts or not without else [without]),
        *way.get("notes", ()),
        *(way.get("signal_notes", ()) if handles else ()),
        *([NUMA] if binds else []),
        *_site(cluster),
    )
    return replace(
        config,
        environment=(*config.environment, *_variables(config, job, layout)),
        notes=(*config.notes, *notes),
        operations=Operations(
            restarts=restarts,
            signal=signal if handles else "",
            warning_seconds=table["seconds_of_warning"],
            save_minutes=table["minutes_to_save"],
            binds=binds,
        ),
    )


def with_saves(config: LaunchConfig, job: Job, step_seconds: float) -> LaunchConfig:
    """A launch that saves as its plan is priced; as it is where the cluster states no failures.

    Raises:
        UnsupportedError: The runtime cannot save so.
    """
    saves = saves_of(job)
    if not saves.stated:
        return config
    rows = tuple(row for row in _rows(saves) if "saves" in row)
    return _with_rows(config, rows, job, step_seconds)[0]


def _rows(saves: Saves) -> Iterator[Row]:
    """Those of the way in which the run saves."""
    rows: Iterable[Row] = settings_table()["setting"]
    return (row for row in rows if saves.way in row.get("saves", [saves.way]))


def _filled(saves: Saves, cluster: ClusterSpec, step_seconds: float) -> dict[str, object]:
    """What stands in braces."""
    steps, minutes = saves.steps(step_seconds), settings_table()["minutes_between_saves"]
    copies, apart = copies_of(cluster) if saves.way == "local" else (1, 1)
    in_files = max(1, round(minutes * MINUTE_S / (steps * step_seconds)))
    return {
        "save_steps": steps,
        "save_minutes": f"{saves.seconds / MINUTE_S:.3g}",
        "save_reason": f", {saves.reason}" if saves.stated else ": a failure costs half of that",
        "file_steps": steps * in_files,
        "file_minutes": minutes,
        "copies": copies,
        "copy_ranks": apart,
    }


def _with_rows(
    config: LaunchConfig, rows: Iterable[Row], job: Job, step_seconds: float, signal: str = ""
) -> tuple[LaunchConfig, _Written]:
    """With rows as arguments, or in the file of a trainer that has their keys, and their notes.

    Raises:
        UnsupportedError: It cannot save as the job is priced.
    """
    saves = saves_of(job)
    if saves.stated and saves.way != "sync" and _column(config) == HUGGING_FACE:
        raise UnsupportedError(
            f"{config.runtime}: no words are written for saves that are {saves.way}: take "
            "--save sync"
        )
    filled = {**_filled(saves, job.cluster, step_seconds), "signal": signal}
    written = _settings(config, rows, filled)
    files = tuple(_edited(file, written.arguments) for file in config.files)
    inside = files != config.files
    defaults = {one.name: one for one in (*config.defaults, *_defaults(written.arguments))}
    notes = (
        *_intervals(config, written, saves, step_seconds),
        *written.notes,
        *_lacking(config.runtime, rows, written, saves),
    )
    config = replace(
        config,
        arguments=config.arguments if inside else _merged(config.arguments, written.arguments),
        files=files,
        defaults=tuple(defaults.values()),
        notes=(*config.notes, *notes),
    )
    return config, written


def _settings(config: LaunchConfig, rows: Iterable[Row], filled: Mapping[str, object]) -> _Written:
    """Rows in the words of the runtime."""
    runtime = _column(config)
    have = {word for flag, value in config.settings for word in (flag, f"{flag} {value}")}
    arguments, names, notes = list[Argument](), set[str](), list[str]()
    for row in rows:
        if runtime in row.get("already", {}):
            names.add(row["name"])
        clash = have.intersection(row.get("unless", ()))
        if runtime in row and clash:
            names.add(row["name"])
            notes.append(f"{row['name']}: left out with {clash.pop()}")
        elif runtime in row:
            arguments += [_option(row, text, filled) for text in row[runtime]]
            names.add(row["name"])
            notes += [row["notes"][runtime]] if runtime in row.get("notes", {}) else []
    return _Written(tuple(arguments), frozenset(names), tuple(notes))


def _column(config: LaunchConfig) -> str:
    """Whose words a launch takes: trainers over transformers all have those of its Trainer."""
    names = {flag.removeprefix("--") for flag, _ in config.settings}
    is_trainer = (
        TRAINER in config.runtime or config.runtime in settings_table()["huggingface_runtimes"]
    )
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


def _intervals(
    config: LaunchConfig, written: _Written, saves: Saves, step_seconds: float
) -> Iterator[str]:
    """How often it saves; where the files are not ours, how often it should."""
    text = saves.text(step_seconds)
    if INTERVAL in written.names:
        yield text
    elif saves.stated:
        yield f"set in {_whose(config.runtime) or config.runtime}: {text}"


def _lacking(runtime: str, rows: Iterable[Row], written: _Written, saves: Saves) -> Iterator[str]:
    """In one line what the runtime has no option for."""
    names = dict.fromkeys(row["name"] for row in rows)
    if saves.stated:
        names.pop(INTERVAL)  # has a line of its own
    absent = ", ".join(name for name in names if name not in written.names)
    whose = _whose(runtime)
    if absent and whose:
        yield f"set in {whose}: {absent}"
    elif absent:
        yield f"{runtime} has no option for: {absent}"


def _whose(runtime: str) -> str | None:
    """Where the user sets what a launch does not; null: nowhere."""
    trainer, on, _ = runtime.partition(TRAINER)
    where: str | None = settings_table()["yours"].get(runtime)
    return f"the files of {trainer}" if on else where


def _restarts(cluster: ClusterSpec, way: Row, *, ordered: bool) -> int:
    """Of torchrun; nodes that it restarts it numbers itself, by their names.

    Source: torch 2.14 `elastic/rendezvous/dynamic_rendezvous.py`, sorted participants.
    """
    racks = any((one.segment_nodes(catalog.device(one)) or 1) > 1 for one in cluster.groups)
    numbered = ordered or racks or len(cluster.groups) > 1
    restarts: int = settings_table()["restarts"]
    fits = {"one node": cluster.num_nodes == 1, "any": cluster.num_nodes == 1 or not numbered}
    return restarts if "restarts" in way and fits[way["restarts"]] else 0


def _fabrics(cluster: ClusterSpec) -> set[str]:
    """Transports between nodes; none where there is one node."""
    if cluster.num_nodes == 1:
        return set()
    return {(one.nic and one.nic.transport) or "infiniband" for one in cluster.groups}


def _site(cluster: ClusterSpec) -> Iterator[str]:
    yield from (settings_table()["site"][one] for one in sorted(_fabrics(cluster)))


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
    for row in settings_table()["variable"]:
        if row["name"] not in there and all(has[key](row[key]) for key in has if key in row):
            reason = f"{row['reason']} ({row['source']})"
            yield EnvironmentVariable(row["name"], row["value"].format_map(filled), reason)


def _defaults(arguments: tuple[Argument, ...]) -> Iterator[DefaultVariable]:
    """Of the variables that these name."""
    named = {one.name for a in arguments for one in a.values if isinstance(one, UserVariable)}
    for row in settings_table()["default"]:
        if row["name"] in named:
            yield DefaultVariable(row["name"], row["value"], row["sentence"])
