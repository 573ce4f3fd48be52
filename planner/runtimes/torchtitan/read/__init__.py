"""torchtitan: `torchrun -m torchtitan.train --module M --config F`, and its older TOML files."""

from trainplan.planner.runtimes.keys import Entry, Notes, exact
from trainplan.planner.runtimes.python_source import Made, Unread, module_of, returned
from trainplan.planner.runtimes.reading import Reader, Reading, Request
from trainplan.planner.runtimes.torchtitan.keys import CHECKPOINT, LOSS, MODEL, SECTIONS
from trainplan.planner.runtimes.torchtitan.read.command import override, selected
from trainplan.planner.runtimes.torchtitan.read.config import Config, flattened, shown
from trainplan.planner.runtimes.torchtitan.read.job import job_of
from trainplan.planner.runtimes.torchtitan.read.model import ReadModel, read_model
from trainplan.planner.runtimes.torchtitan.read.older import RELEASE, read_toml
from trainplan.planner.runtimes.torchtitan.write import COMMIT
from trainplan.planner.runtimes.torchtitan.write.facts import modules, ready_made
from trainplan.planner.shell import Launch, Place, Verdict, Word

PROGRAMS = ("torchtitan.train", "torchtitan/train.py")
TOML = ("job.config_file", "config_file")


def recognises(launch: Launch) -> bool:
    """By its program; a file named `train.py` by the options that only torchtitan has.

    A TOML alone is known by its keys.
    """
    text = launch.program.text
    if launch.format == "torchtitan":
        return True
    if text in PROGRAMS or text.endswith("/torchtitan/train.py"):
        return True
    old = {f"--{name}" for name in TOML}
    return text.endswith("train.py") and any(w.text.split("=")[0] in old for w in launch.arguments)


def read(launch: Launch, request: Request) -> Reading:
    """The job and the layout of a launch, as far as its text states them."""
    config = Config(Notes(problems=list(launch.problems), strict=request.strict), parse=exact)
    chosen = selected(launch.arguments)
    alone = launch.program if launch.document else None
    toml = next((chosen[name] for name in TOML if name in chosen), alone)
    model = _older(config, toml, request, launch) if toml else _current(config, chosen, request)
    if toml is None:
        override(config, launch.arguments)
    made = _model(config, model, request, chosen)
    job, layout = (None, None) if made is None else job_of(config, launch, request, made)
    if made is not None:
        config.note("model.name", made.model.name, MODEL)
    release = COMMIT if toml is None else RELEASE
    fields, problems = tuple(config.notes.fields), tuple(config.notes.problems)
    return Reading("torchtitan", release, job, layout, fields, problems)


def _older(config: Config, path: Word, request: Request, launch: Launch) -> ReadModel | str:
    return read_toml(config, path, request, launch.arguments)


def _current(config: Config, chosen: dict[str, Word], request: Request) -> ReadModel | str:
    """Keys of the function that `--module` and `--config` name; the model, or why there is none."""
    for name in ("module", "config"):
        if name not in chosen:
            verdict: Verdict = "illegal" if request.strict else "unread"
            config.problem(f"no_{name}", verdict, f"--{name} is missing: name one")
            return f"--{name} is missing"
        if chosen[name].unresolved:
            says = f"--{name} depends on {', '.join(chosen[name].unresolved)}: give it"
            config.notes.problem(f"no_{name}", "unread", says, chosen[name].place)
            return f"--{name} is not known"
    module, function = chosen["module"], chosen["config"]
    short = module.text.removeprefix("torchtitan.models.").removesuffix(".config_registry")
    if ready_made(short, function.text) is not None:
        name = f"torchtitan.models.{short}.config_registry.{function.text}"
        return _of_registry(config, name, function)
    text, path = _text(module.text, request)
    if text is None:
        known = f"; its own are {', '.join(modules())}" if short not in modules() else ""
        says = f"there is no {module.text} with {function.text} to read{known}: give the file"
        config.notes.problem("unread_config", "unread", says, module.place)
        return f"{module.text} is not there"
    return _from_source(config, text, path, function, short)


def _text(module: str, request: Request) -> tuple[str | None, str]:
    base = module.replace(".", "/")
    for path in (f"{base}/config_registry.py", f"{base}.py", f"{base.rsplit('/', 1)[-1]}.py"):
        text = request.text_of(path)
        if text is not None:
            return text, path
    return None, base


def _of_registry(config: Config, name: str, function: Word) -> ReadModel | str:
    """A config of the registry: what it sets is recorded."""
    made = _followed(name)
    assert isinstance(made, Made)
    for key, entry in flattened(made, name):
        written = f"{entry.written} in {name}"
        config.entries[key] = entry._replace(written=written, place=function.place)
    return read_model(made.named[MODEL], name)


def _from_source(
    config: Config, text: str, path: str, function: Word, short: str
) -> ReadModel | str:
    try:
        module = module_of(text)
    except ValueError as error:
        config.notes.problem(
            "unread_config", "unread", f"{path} is no Python: {error}", Place(path, None)
        )
        return f"{path} is no Python"
    if function.text not in module.functions:
        known = ", ".join(module.functions) or "none"
        says = f"{path} has no function {function.text}, only {known}: name one"
        verdict: Verdict = "illegal" if config.notes.strict else "unread"
        config.notes.problem("no_config", verdict, says, Place(path, None))
        return f"{function.text} is missing"
    value = returned(module, function.text, _followed)
    if isinstance(value, Made) and value.name.endswith("Trainer.Config"):
        config.entries |= dict(flattened(value, path))
        for section in (name for name in SECTIONS if name in config.entries):
            says = (
                f"{config.entries[section].written} cannot be read: call {SECTIONS[section]}(...)"
            )
            config.problem("unread_value", "unread", says, section)
        return read_model(value.named.get(MODEL), short)
    says = f"{function.text} returns {shown(value)}, no Trainer.Config that can be read: write one"
    line = value.line if isinstance(value, Unread) else None
    config.notes.problem("unread_config", "unread", says, Place(path, line))
    return "there is no config"


def _followed(name: str) -> object:
    """A config of a registry of torchtitan, called by name."""
    parts = name.split(".")
    registry = parts[-3] if len(parts) > 2 and parts[-2] == "config_registry" else ""
    found = ready_made(registry, parts[-1])
    if found is None:
        return None
    made = Made("Trainer.Config", 0)
    for key, value in found.items():
        section, dot, last = key.rpartition(".")
        owner = made.named.setdefault(section, Made(SECTIONS[section], 0)) if dot else made
        assert isinstance(owner, Made)
        policy = key == CHECKPOINT and value
        owner.named[last] = Made(f"{value}.Config", 0) if policy else value
    for section, kind in SECTIONS.items():
        made.named.setdefault(section, Made(kind, 0))
    if not parts[-1].endswith(("_ce_loss", "_mtp")):  # all other configs of the registries
        made.named[LOSS] = Made("ChunkedLossWrapper.Config", 0)
    spec = Made(f"torchtitan.models.{registry}.model_registry", 0, {}, (found["flavour"],))
    spec.named |= {n: found[n] for n in ("num_mtp_layers", "moe_comm_backend") if n in found}
    if "precision" in found:
        prefix = {"fp8": "Float8", "mxfp8": "MXFP8", "nvfp4": "NVFP4"}[str(found["precision"])]
        spec.named["converters"] = [Made(f"{prefix}LinearConverter.Config", 0)]
    made.named[MODEL] = spec
    return made


def _model(
    config: Config, read: ReadModel | str, request: Request, chosen: dict[str, Word]
) -> ReadModel | None:
    """The model read, or the one given; else a problem."""
    if isinstance(read, ReadModel):
        return read
    if request.model is not None:
        return ReadModel(request.model, None, None)
    if not any(problem.verdict in ("illegal", "unread") for problem in config.notes.problems):
        says = f"the model cannot be read, since {read}: give it with --model"
        config.problem("unread_model", "unread", says, MODEL)
    return None


TORCHTITAN = Reader("torchtitan", recognises, read)
