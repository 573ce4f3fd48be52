"""A trainer's file or command as the launch of a script under DeepSpeed or Accelerate.

What a trainer has that these do not is in its table; what shards is read by their readers.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from trainplan.costmodel.base import UnsupportedError
from trainplan.planner.formats import document_of, format_of
from trainplan.planner.runtimes.accelerate import keys as mesh
from trainplan.planner.runtimes.accelerate.read import ACCELERATE
from trainplan.planner.runtimes.deepspeed import keys as engine
from trainplan.planner.runtimes.deepspeed.read import DEEPSPEED
from trainplan.planner.runtimes.hf_trainers.tables import SCRIPT, TABLES, Table
from trainplan.planner.runtimes.keys import Notes, is_small, lines_of, nested
from trainplan.planner.runtimes.ranks import ranks_of
from trainplan.planner.runtimes.reading import Field, Reader, Reading, Request
from trainplan.planner.runtimes.training_script.read import text_of
from trainplan.planner.runtimes.training_script.script import DEFAULT_PLACE, OFF, script_of
from trainplan.planner.shell import COMMAND_LINE, Launch, Place, Problem, Word, number

CONSOLE = "console"
"""Starter of a trainer that starts its ranks by itself."""
FILES = (".yaml", ".yml", ".json")
MARKS = ("per_device_train_batch_size", "fsdp", "fsdp_config")
"""Options that only the Trainer of transformers has."""
ARGUMENTS = ("model_name_or_path", "per_device_train_batch_size", "output_dir")
"""Of them, those of a file that its name alone does not give away."""
STARTERS = ("torchrun", "python", "srun", "mpirun", CONSOLE)
"""Starters that say nothing of what shards."""
ENGINE_OPTIONS = ("deepspeed", "deepspeed_config", "deepspeed_config_file")
PRESET = "accelerate_config"
"""Option of TRL's command: a file of Accelerate, or the name of one that it brings."""
STRATEGIES = {
    one.lower(): one
    for one in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
}
"""Of `--fsdp`. Source: transformers training_args.py, FSDPOption."""
SIZES = ("num_machines", "nnodes", "num_nodes"), ("num_processes", "nproc_per_node")
"""Counts of nodes, and of ranks."""
VARIABLES, DEVICES = ("NNODES", "NPROC_PER_NODE"), "CUDA_VISIBLE_DEVICES"
"""Source: hiyouga/LLaMA-Factory launcher.py; modelscope/ms-swift swift/cli/main.py."""
DEGREES = frozenset({"tensor_model_parallel_size", "pipeline_model_parallel_size"})
"""Keys of a file that Megatron reads."""
ON = ("1", "true", "y", "yes", "on")
Options = dict[str, tuple[Word, ...]]
"""The option as it is written, then its values, by our name."""


def recognises(launch: Launch) -> bool:
    """By the format of a file, by its program, or by options of the Trainer."""
    return _table(launch) is not None


def _over_megatron(launch: Launch) -> bool:
    """Does LLaMA-Factory hand it to Megatron? Source: its `launcher.py`, USE_MCA."""
    word = launch.environment.get("USE_MCA")
    return bool(DEGREES & {*launch.document}) or (word is not None and word.text.lower() in ON)


def _table(launch: Launch) -> Table | None:
    if _over_megatron(launch):
        return None
    if launch.alone:
        known = (one for one in TABLES if one.format and one.format == launch.format)
        return next(known, None)
    names = {launch.program.text, PurePosixPath(launch.program.text).name}
    if launch.starter == CONSOLE and launch.arguments:
        names = {f"{name} {launch.arguments[0].text}" for name in names}
    options = script_of(launch.arguments).options
    for one in TABLES[:-1]:
        is_own = bool({*one.marks} & {*options}) or _path(launch) is not None
        programs = (*one.programs, *(one.shared if is_own else ()))
        if any(name == p or name.endswith(f"/{p}") for name in names for p in programs):
            return one
    takes_files = launch.starter not in STARTERS or bool(names & {*SCRIPT.programs})
    bare = launch.starter in STARTERS and not {*ENGINE_OPTIONS} & {*options}
    by_file = takes_files and _path(launch) is not None
    return SCRIPT if by_file or (bare and {*MARKS} & {*options}) else None


def read(launch: Launch, request: Request) -> Reading:
    """The job and the layout that the engine under a trainer reads."""
    table = _table(launch) or SCRIPT
    own, behind = _split(launch)
    path = None if launch.alone else _path(launch)
    if table is SCRIPT and path is not None:
        notes = Notes(problems=list(launch.problems))
        text_of(notes, path, request)
        launch = replace(launch, problems=tuple(notes.problems))
    options, names = _options(table, launch, own, request)
    plain = next((one for one in (ACCELERATE, DEEPSPEED) if one.recognises(launch)), None)
    if plain and table is SCRIPT and not (_is_known(launch) or {*MARKS, *ARGUMENTS} & {*names}):
        return plain.read(launch, request)
    made = _counted(launch, {**options, **_named(behind)}, behind)
    if table.batch and "gradient_accumulation_steps" not in options:
        _accumulate(table, options, ranks_of(made, request))
    files = {name: json.dumps(_of_section(one)) for name, one in table.files.items()}
    inline = _engine(table, options) or _shared(table, options, files, request)
    if inline:
        files[table.title] = json.dumps(inline)
        options["deepspeed"] = _default("deepspeed", table.title)
    shards = "deepspeed" in options and options["deepspeed"][-1].text.lower() not in OFF
    texts = () if shards else tuple(_starter(table, options, made, request))
    for name in () if shards else table.sizes:
        options.pop(name, None)  # of the mesh now
    made = replace(
        made,
        arguments=tuple(word for words in options.values() for word in words),
        starter_arguments=(*made.starter_arguments, *(Word(one, COMMAND_LINE) for one in texts)),
        program=Word(table.title, launch.program.place),
    )
    written = request.text_of

    def with_own(path: str) -> str | None:
        return written(path) or files.get(path) or files.get(PurePosixPath(path).name)

    request = replace(request, text_of=with_own)
    reading = (DEEPSPEED if shards else ACCELERATE).read(made, request)
    return _named_reading(table, launch, options, _in_own_names(names, launch, reading))


def _is_known(launch: Launch) -> bool:
    """Is its program, or its file, by its name one that transformers' Trainer runs?"""
    return launch.alone or PurePosixPath(launch.program.text).name in SCRIPT.programs


def _split(launch: Launch) -> tuple[tuple[Word, ...], tuple[Word, ...]]:
    """Arguments of the trainer, and those that it hands to a starter behind `--`."""
    words = launch.arguments[launch.starter == CONSOLE :]
    at = next((n for n, word in enumerate(words) if word.text == "--"), len(words))
    return words[:at], words[at + 1 :]


def _path(launch: Launch) -> Word | None:
    """The file of arguments that a launch names; null: none."""
    words = _split(launch)[0]
    value = script_of(words).options.get("config", (None,))[0]
    plain = (w for w in words[:1] if w.text[:1] != "-" and w.text.lower().endswith(FILES))
    return value or next(plain, None)


def _options(
    table: Table, launch: Launch, words: tuple[Word, ...], request: Request
) -> tuple[Options, dict[str, str]]:
    """All options by our names: defaults, then what the file says, then the command.

    Beside them the names that the trainer has for those that are written.
    """
    found: Options = {}
    names: dict[str, str] = {}
    for name, text in table.defaults.items():
        found[name] = _default(name, text)
    path = launch.program if launch.alone else _path(launch)
    for options in (_of_file(table, launch, path, request), _named(words)):
        for name, (option, *values) in options.items():
            ours = table.keys.get(name, name)
            taken = [_opposite(values)] if ours.startswith("!") else values
            if ours := ours.removeprefix("!"):
                found[ours] = (replace(option, text=f"--{ours}"), *taken)
                names[ours] = name
    found.pop("config", None)
    return found, names


def _default(name: str, text: str) -> tuple[Word, ...]:
    return Word(f"--{name}", DEFAULT_PLACE), Word(text, DEFAULT_PLACE)


def _opposite(values: list[Word]) -> Word:
    off = bool(values) and values[0].text.lower() in OFF
    return Word("true" if off else "false", values[0].place if values else COMMAND_LINE)


def _named(words: tuple[Word, ...]) -> Options:
    script = script_of(words)
    return {name: (word, *script.more[name]) for name, (_, word) in script.options.items()}


def _of_file(table: Table, launch: Launch, path: Word | None, request: Request) -> Options:
    """What a file of arguments says; none: it is not named."""
    if path is None:
        return {}
    is_open = path.unresolved or "$" in path.text
    name = path.text.rpartition("/")[2] if is_open else path.text
    text = request.text_of(name) if "$" not in name else None
    if text is None and table is SCRIPT:
        return {}
    if text is None:
        raise UnsupportedError(
            f"{table.title} starts this from {path.text[:80]}, which is not here to read: run next "
            "to that file, or give it alone"
        )
    document = launch.document or _document(text, PurePosixPath(name).suffix.lower())
    if table is SCRIPT and format_of(document) not in ("", SCRIPT.format, "llama_factory"):
        return {}
    lines = lines_of(text)
    found: Options = {}
    for key, value in document.items():
        place = Place(path.text, lines.get(key))
        texts = list(_texts(value))
        if value is not None:
            found[key] = (Word(f"--{key}", place), *(Word(one, place) for one in texts))
    return found


def _document(text: str, suffix: str) -> Mapping[str, Any]:
    return next(iter(document_of(text, suffix)), {})


def _texts(value: object) -> Iterator[str]:
    """A value of YAML as words of a command; mappings as JSON."""
    if not is_small(value):
        return
    if isinstance(value, Mapping):
        yield json.dumps(value, default=str)
    elif isinstance(value, list):
        yield from (
            json.dumps(one, default=str) if _is_nested(one) else _word(one) for one in value
        )
    else:
        yield _word(value)


def _is_nested(value: object) -> bool:
    return isinstance(value, (Mapping, list))


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _counted(launch: Launch, options: Options, behind: tuple[Word, ...]) -> Launch:
    """The launch on as many ranks as a trainer that starts them by itself takes."""
    if not launch.alone and launch.starter != CONSOLE:
        return launch
    given = [
        next((options[one][-1] for one in names if one in options), launch.environment.get(own))
        for names, own in zip(SIZES, VARIABLES, strict=True)
    ]
    visible = launch.environment.get(DEVICES)
    if given[1] is None and visible and not visible.unresolved and visible.text:
        given[1] = replace(visible, text=str(len(visible.text.split(","))))
    nodes, ranks = given[0] or launch.nodes, given[1] or launch.gpus_per_node
    total = "num_processes" in options
    if nodes and not ranks:  # every GPU of a node, which torchrun itself would take for one
        ranks = replace(nodes, text=f"${VARIABLES[1]}", unresolved=(VARIABLES[1],))
    each = None if total else ranks
    return replace(
        launch, starter="torchrun", nodes=nodes, gpus_per_node=each,
        ranks=ranks if total else None, starter_arguments=behind, format="", document={},
    )  # fmt: skip


def _accumulate(table: Table, options: Options, ranks: int | None) -> None:
    """Micro batches that a trainer takes to come to the batch that it aims at."""
    micro = number(options["per_device_train_batch_size"][-1])
    if ranks and micro:
        steps = max(1, -(-table.batch // (micro * ranks)))
        options["gradient_accumulation_steps"] = _default("gradient_accumulation_steps", str(steps))


def _of_section(section: Mapping[str, object]) -> dict[str, object]:
    """A configuration of DeepSpeed as trainers bring it: what a script has is filled in."""
    open_keys = map(str, (engine.BATCH, engine.MICRO, engine.STEPS))
    enabled = {name: {"enabled": "auto"} for name in ("bf16",)}
    return {engine.ZERO: dict(section), **dict.fromkeys(open_keys, "auto"), **enabled}


def _engine(table: Table, options: Options) -> Mapping[str, Any]:
    """The configuration of DeepSpeed that a trainer writes, or that stands in its file."""
    values: dict[str, Any] = {}
    for name, key in table.engine.items():
        if name in options and len(options[name]) > 1:
            values[key] = _plain(options[name][-1].text)
    for name, keys in table.switches.items():
        on = name in options and options[name][-1].text.lower() not in OFF
        values |= dict(keys) if on else {}
    if values:
        return nested(values)  # type: ignore[arg-type]
    text = options["deepspeed"][-1].text if "deepspeed" in options else ""
    return _document(text, ".json") if text.startswith("{") else {}


def _shared(
    table: Table, options: Options, files: Mapping[str, str], request: Request
) -> Mapping[str, Any]:
    """The section with the ranks that share a sequence, where an option of its own says them."""
    if table.ulysses not in options or "deepspeed" not in options:
        return {}
    ranks, path = number(options[table.ulysses][-1]), options["deepspeed"][-1]
    name = path.text.rpartition("/")[2] if "$" in path.text else path.text
    section = _document(files.get(name) or request.text_of(name) or "", ".json")
    if not ranks or not section:
        return {}
    del options[table.ulysses]
    return {**section, str(engine.SP): ranks}


def _plain(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _starter(table: Table, options: Options, launch: Launch, request: Request) -> Iterator[str]:
    """Options of `accelerate launch` that say what an option of the Trainer does."""
    if launch.starter == mesh.RUNTIME:
        return
    preset = options.get(PRESET, ())
    if preset:
        name = preset[-1].text
        yield from table.starters.get(name, f"--config_file {name}").split()
        return
    for name, size in table.sizes.items():
        if name in options:
            yield from (f"--parallelism_config_{size}_size", options[name][-1].text)
    yield from _fsdp(options, request) or ["--multi_gpu"]


def _fsdp(options: Options, request: Request) -> list[str]:
    """Options of FSDP; none: it is not switched on."""
    words = {part for word in options.get("fsdp", ())[1:] for part in word.text.lower().split()}
    config = {
        "version" if key == "fsdp_version" else key.removeprefix("fsdp_"): text
        for key, value in _fsdp_config(options, request).items()
        for text in _texts(value)
    }
    if not words - {*OFF} and not config:
        return []
    if "fsdp_version" in options:
        config["version"] = options["fsdp_version"][-1].text
    for name in words & {*STRATEGIES}:
        config["sharding_strategy"] = STRATEGIES[name]
    if "auto_wrap" in words:
        config.setdefault("auto_wrap_policy", "TRANSFORMER_BASED_WRAP")
    if "offload" in words:
        config["offload_params"] = "true"
    return ["--use_fsdp", *(f"--fsdp_{name}={text}" for name, text in config.items())]


def _fsdp_config(options: Options, request: Request) -> Mapping[str, object]:
    """The mapping behind `fsdp_config`: in the file, or in a JSON that it names."""
    word = options.get("fsdp_config", ())
    text = word[-1].text if len(word) > 1 else ""
    if text and not text.startswith("{"):
        text = request.text_of(text) or ""
    return _document(text, ".json")


def _in_own_names(names: Mapping[str, str], launch: Launch, reading: Reading) -> Reading:
    """With the trainer's own names of options, and as its file has them."""
    dashes = "" if launch.alone else "--"

    def own_name(name: str) -> str:
        ours = name.removeprefix("--")
        return name if ours == name else f"{dashes}{names.get(ours, ours)}"

    def written(one: Field) -> Field:
        ours, blank, value = one.written.removeprefix("--").partition(" ")
        if one.place is None or ours not in names or not one.written.startswith("--"):
            return one
        in_file = (one.place.file or "").lower().endswith(FILES)
        text = f"{names[ours]}: {value or 'true'}" if in_file else f"--{names[ours]}{blank}{value}"
        return replace(one, written=text)

    return replace(reading, fields=tuple(map(written, reading.fields)), own_name=own_name)


def _named_reading(table: Table, launch: Launch, options: Options, reading: Reading) -> Reading:
    """What was read, with the trainer named; of its own name where it is not priced."""
    place = launch.program.place
    named = Field("launch.trainer", table.title, "stated", launch.program.text, place)
    added: list[Problem] = []
    if (
        table is SCRIPT
        and launch.alone
        and reading.runtime == mesh.RUNTIME
        and not {*("fsdp", "fsdp_config")} & {*options}
    ):
        says = (
            "what starts the script is not stated, and may name ZeRO, FSDP and a precision: priced "
            "as replicas; give the command"
        )
        added.append(Problem("starter", "unread", says, place))
    loss = launch.arguments[0].text if launch.starter == CONSOLE and launch.arguments else ""
    chosen = [options[name][-1].text for name in ("stage", "rl", "rlhf_type") if name in options]
    for name in (loss, launch.program.text, *chosen):
        if name in table.losses:
            added.append(Problem("loss", "unmodelled", table.losses[name], place))
    if reading.job is not None:
        fields, problems = (named, *reading.fields), (*reading.problems, *added)
        return replace(reading, fields=fields, problems=problems)
    read = ", ".join(
        f"{one.name.rpartition('.')[2]} {one.value}"
        for one in reading.fields
        if one.origin in ("stated", "derived") and one.name.startswith(("model.", "training."))
    )
    name = PurePosixPath(launch.program.text).name
    says = f"{name} is of {table.title}" + (f"; read: {read}" if read else "")
    verdicts = {one.verdict for one in reading.problems}
    worst = "illegal" if "illegal" in verdicts else "unread"
    found = (one for one in reading.problems if one.verdict == worst)
    lacks = ", and ".join(one.says for one in found if one.cause != "model_by_name")
    lead = Problem("trainer", "unread", f"{says}; not priced, since {lacks}", place)
    return replace(
        reading,
        runtime=table.title,
        runtime_version="",
        fields=(named, *reading.fields),
        problems=(lead, *reading.problems),
    )


HF_TRAINERS = Reader(mesh.RUNTIME, recognises, read)
