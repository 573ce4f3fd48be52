"""Configurations and commands of other projects: read by tables where one is, named otherwise."""

import re
from collections.abc import Iterator
from dataclasses import replace

from trainplan.costmodel.architecture import ModelSpec
from trainplan.costmodel.base import PlanError
from trainplan.costmodel.job import with_trained
from trainplan.costmodel.presets import gpus_called
from trainplan.planner.formats import FORMATS, command_keys, format_of
from trainplan.planner.runtimes.foreign import megatron, sharded
from trainplan.planner.runtimes.foreign.documents import Keys, keys_of, preset_keys
from trainplan.planner.runtimes.foreign.tables import VALUE, Table, lifted, stated, tables
from trainplan.planner.runtimes.reading import Field, Reader, Reading, Request
from trainplan.planner.runtimes.training_script.names import NAMES, TOWER, sees
from trainplan.planner.shell import Launch, Problem, Word

INSTEAD = "it is not read: give its settings to `plan search`, or the command that it starts"
BEARS = re.compile(
    r"parallel|expert|moe|recompute|remat|checkpoint_(act|layer|num_l)|activations?_checkpoint|offload"
    r"|fp8|fp4|quant|precision|dtype|shard|zero|fsdp|lora|peft|micro_?batch|batch_size|accumul"
    r"|seq(uence)?_?len|num_layers|hidden_size|vocab_size|overlap|packing|fus(ed|ion)|cuda_graph"
)
"""Names of settings that a price may hang on."""
OF_TOWER = re.compile(r"(?:^|[._])freeze_vi(?:t|sion\w*)$", re.IGNORECASE)
"""Names of settings that only a model with a vision tower has."""
IDLE = ("false", "null", "none", "", "0", "1", "[]", "0.0", "1.0")
MOST_NAMED = 12
FILE = "its file"
"""Key under which rules find the path of a configuration."""
MOST_WORDS = 32
"""Modules with adapters that are looked at."""
HYDRA = "hydra"
"""Format of files that are known by those which they are joined to."""
NOT_ADAPTING, ADAPTING = ("fsdp2", "torchtitan"), "accelerate"
"""Runtimes whose adapters are priced as those of another."""
USUAL_RANK = 8
"""Of adapters where nothing is stated. Source: huggingface/peft `tuners/lora/config.py`."""


def _name(launch: Launch) -> str:
    """Of the format: of a configuration alone, or of a command."""
    if launch.document:
        return launch.format
    words = (word.text for word in launch.arguments)
    return format_of(command_keys(launch.program.text, words))


def recognises(launch: Launch) -> bool:
    """Is it of a format that is known?"""
    return _name(launch) in FORMATS


def read(launch: Launch, request: Request) -> Reading:
    """The job and the layout where a table reads the format; else the format by its name."""
    name = _name(launch)
    if name == HYDRA:
        keys = keys_of(launch, name, request.text_of)
        words = (f"{key}={word.text}" for key, word in keys.items())
        name = format_of(command_keys("", words)) or name
    keys = keys_of(launch, name, request.text_of) if name in tables() else {}
    if launch.document:
        keys[FILE] = launch.program
    for table in tables().get(name, ()):
        if not table.when or stated(table.when, lifted(table, keys)):
            keys = preset_keys(table.presets, keys, launch.program.text, request.text_of) | keys
            return _read(table, name, _with_gpu(table, launch), request, keys)
    return Reading(name, "", None, None, (), (*launch.problems, _named(name, launch)))


def _with_gpu(table: Table, launch: Launch) -> Launch:
    """With the GPU that a folder of its path names."""
    if not table.gpu_in_path or launch.gpu is not None:
        return launch
    parts = launch.program.text.split("/")[:-1]
    found = next((one for one in reversed(parts) if len(gpus_called(one)) == 1), None)
    return replace(launch, gpu=Word(found, launch.program.place)) if found else launch


def _named(name: str, launch: Launch) -> Problem:
    one = FORMATS[name]
    says = f"{launch.program.text} is {one.title}: {one.instead or INSTEAD}"
    return Problem("foreign_format", "unread", says, launch.program.place)


def _left_out(table: Table, keys: Keys) -> Iterator[str]:
    """What the price leaves out."""
    own = {**table.usual(), **lifted(table, keys)}
    yield from table.notes
    for rule, says in table.left_out.items():
        if found := stated((rule,), own):
            yield says.replace(VALUE, found[1].text[:20])


def _sees(table: Table, launch: Launch, own: Keys) -> bool:
    """Does a launch name a model of vision and language, or set something of its tower?"""
    here = (launch.program.place.file, *(word.place.file for word in launch.arguments))
    found = stated(table.places.get("model", ()), own)
    names = [launch.program.text, found[1].text if found else ""]
    names += [word.text for key, word in own.items() if key.endswith("tokenizer_type")]
    set_here = (key for key, word in own.items() if word.place.file in here)
    return any(map(sees, names)) or any(OF_TOWER.search(key) for key in set_here)


def _read(table: Table, name: str, launch: Launch, request: Request, keys: Keys) -> Reading:
    own_keys = lifted(table, keys)
    why = next((says for rule, says in table.refused.items() if stated((rule,), own_keys)), "")
    if why:
        says = f"{launch.program.text} is {FORMATS[name].title}; {why}"
        problem = Problem("foreign_format", "unread", says, launch.program.place)
        return Reading(name, "", None, None, (), (*launch.problems, problem))
    model, lacks = _model(table, request, keys)
    engine = megatron if table.of_megatron else sharded
    reading = engine.read(table, launch, request, keys, model)
    if reading.job is not None:
        lacks = ()
    reading = _trained(table, request, keys, reading)
    own = [_whose(table, name, launch, reading), *lacks]
    own += [Problem("left_out", "unmodelled", says) for says in _left_out(table, keys)]
    priced = reading.job.model if reading.job else model
    if not (priced and priced.tower) and _sees(table, launch, own_keys):
        own.append(Problem("left_out", "unmodelled", TOWER))
    of_model = "give --model" if lacks else "\n"
    read = (one for one in reading.problems if not one.says.endswith(of_model))
    return replace(
        reading, problems=tuple(dict.fromkeys((*own, *read, *_unused(table, launch, keys))))
    )


def _trained(table: Table, request: Request, keys: Keys, reading: Reading) -> Reading:
    """With the adapters that the keys or the user state."""
    own = lifted(table, keys)
    found, job = stated(table.places.get("lora", ()), own), reading.job
    if job is None or job.model.trained or not (found or request.train):
        return reading
    rank = stated(table.places.get("lora_rank", ()), own)
    own = {**table.usual(), **own}
    text = f"lora:rank={rank[1].text if rank else USUAL_RANK},modules="
    modules, left = _modules(table, own, job.model, text)
    text = request.train or f"{text}{','.join(modules) or 'all'}"
    if left and not request.train:
        says = f"adapters of {', '.join(left)[:80]} are not priced: priced with {text}"
        problem = Problem("adapter_modules", "unmodelled", says)
        reading = replace(reading, problems=(*reading.problems, problem))
    try:
        model = with_trained(job.model, text)
    except PlanError as error:
        return replace(
            reading, problems=(*reading.problems, Problem("adapters", "unread", str(error)))
        )
    place = found and found[1].place
    field = Field("model.trained", text, "stated", found[0] if found else "--train", place)
    runtime = ADAPTING if job.runtime in NOT_ADAPTING else job.runtime
    job = job.model_copy(update={"model": model, "runtime": runtime})
    return replace(reading, job=job, runtime=runtime, fields=(*reading.fields, field))


def _modules(table: Table, own: Keys, model: ModelSpec, start: str) -> tuple[list[str], list[str]]:
    """Modules with adapters that a model has, and names of others; none: all."""
    found = stated(table.places.get("lora_modules", ()), own)
    words = re.split(r"[\[\]\s,'\"]+", found[1].text)[:MOST_WORDS] if found else []
    if {*NAMES["adapters"]["all"]} & {*words}:
        return [], []
    named = [name for name, rules in table.adapted.items() if stated(rules, own)]
    modules: list[str] = []
    left: list[str] = []
    for word in (*named, *(one for one in words if one)):
        try:
            with_trained(model, start + word)
        except PlanError:
            left.append(word)
        else:
            modules.append(word)
    return modules, left


def _whose(table: Table, name: str, launch: Launch, reading: Reading) -> Problem:
    says = (
        f"{launch.program.text} is {FORMATS[name].title}, read as {table.called} and priced as "
        f"{table.priced_as}"
    )
    return Problem("foreign_format", "unmodelled", says, launch.program.place)


def _model(
    table: Table, request: Request, keys: Keys
) -> tuple[ModelSpec | None, tuple[Problem, ...]]:
    """The model that was given, or the one that a key names."""
    if request.model is not None:
        return request.model, ()
    found = stated(table.places.get("model", ()), lifted(table, keys))
    if found is None:
        return None, ()
    text = found[1].text.removesuffix(".yaml").removesuffix(".yml")
    last = text.rstrip("/").rpartition("/")[2]
    matches = ((re.fullmatch(name, last), to) for name, to in table.aliases.items())
    alias = next((match.expand(to) for match, to in matches if match), last)
    for one in (text, last, last.replace("_", "-"), alias):
        if (model := request.model_of(one)) is not None:
            return model, ()
    shape = table.config.get("num_hidden_layers") or table.rules().get("--num-layers")
    if stated(shape or ("num_layers={}",), lifted(table, keys)):
        return None, ()
    says = f"{found[0]} names {text[:80]}, no preset and no folder with config.json: give --model"
    if text.startswith("["):
        says = "its code names no model that is a preset: give --model"
    return None, (Problem("unread_model", "unread", says, found[1].place),)


def _unused(table: Table, launch: Launch, keys: Keys) -> tuple[Problem, ...]:
    """One line of what may set a price, is in the launch itself and is not read."""
    known = megatron.used(table)
    here = (launch.program.place.file, *(word.place.file for word in launch.arguments))
    names = [
        key
        for key, word in lifted(table, keys).items()
        if BEARS.search(key)
        and word.place.file in here
        and key not in known
        and word.text.lower() not in IDLE
        and not any(re.fullmatch(one, key) for one in table.silent)
    ]
    if not names:
        return ()
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    says = f"not used in the price: {', '.join(names[:MOST_NAMED])}{more}"
    return (Problem("unused_keys", "unread", says),)


FOREIGN = Reader("foreign", recognises, read)
