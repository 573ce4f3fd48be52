"""Writes docs/reference from the code, and what the commands in README and docs really print.

python docs/generator/generate.py            write the files
python docs/generator/generate.py --check    name those out of date, exit code 1 if any is
python docs/generator/generate.py PAGE ...   write these alone, pages with commands
"""

from __future__ import annotations

import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click
from axis_pages import axes_page, rules_page
from catalog_pages import constants_page, gpus_page, runtimes_page
from console import replayed, timeless
from limit_pages import limits_page
from model_type_pages import model_types_page
from names import NAMES_FILE, names_text
from page_figures import with_figures
from page_parts import QUESTIONS, Lines, table
from profile_pages import profile_page, schema_text
from pydantic import BaseModel
from room_pages import rooms_page
from schedule_pages import schedules_page

from trainplan.cli.documents import schedules, validate
from trainplan.cli.documents.check import CheckDocument
from trainplan.cli.documents.registry import documented
from trainplan.cli.main import plan
from trainplan.cli.options.help import Command
from trainplan.costmodel import step
from trainplan.costmodel.architecture import layers, model, tower
from trainplan.costmodel.documents import calibration
from trainplan.costmodel.documents import calibration as trial
from trainplan.costmodel.hardware import cluster
from trainplan.costmodel.hardware import cluster as host
from trainplan.costmodel.hardware import cluster as links
from trainplan.costmodel.job import job
from trainplan.costmodel.job import job as lengths
from trainplan.costmodel.layout import layout
from trainplan.costmodel.model.params import num_active_parameters, num_parameters
from trainplan.costmodel.presets.presets import preset, preset_config, preset_names
from trainplan.costmodel.step import results
from trainplan.costmodel.uncertainty import intervals as uncertainty
from trainplan.costmodel.validate import intervals, one_step, ranking, steps
from trainplan.planner.documents.document import (
    OfJob,
    PlanDocument,
    WrittenLayout,
    WrittenModel,
    WrittenOffload,
)
from trainplan.planner.evidence import envelope, evidence
from trainplan.planner.plan import apart, settings, spent, target
from trainplan.planner.plan import plan as plans
from trainplan.planner.settings import assumed
from trainplan.planner.tuning import events as tuning

FOLDER = Path(__file__).parents[1]
REFERENCE = FOLDER / "reference"
EXAMPLES = (FOLDER.parent / "README.md", *sorted(FOLDER.rglob("*.md")))
"""Pages whose console blocks are run."""
HEAD = (
    "<!-- Written by docs/generator/generate.py (`make docs`): edit the code, not this file. -->\n"
)


def cli_page() -> Lines:
    """Every command with every option."""
    yield from ("# Commands", "")
    yield "What `plan --help` and `plan COMMAND --help` print. Exit codes: 0 an answer, 2 nothing"
    yield "fits or bad input, 1 a bug of ours, 130 Ctrl-C. Results go to stdout, remarks to stderr."
    yield "The first Ctrl-C ends `plan search` as a time limit would, with the best so far; a"
    yield "second one ends it at once."
    yield ""
    yield from _commands(click.Context(plan, info_name="plan"), plan)


def _commands(context: click.Context, group: click.Group) -> Lines:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context, **command.context_settings)
        yield from _command(inner, command)
        if isinstance(command, click.Group):
            yield from _commands(inner, command)


def _command(context: click.Context, command: click.Command) -> Lines:
    usage = " ".join((context.command_path, *command.collect_usage_pieces(context)))
    yield from (f"## {context.command_path}", "")
    yield from _help_text(command.help or command.short_help or "")
    yield from ("```text", usage, "```", "")
    if isinstance(command, Command):
        for heading, rows in command.sections(context):
            named = [(f"`{name}`", text) for name, text in rows if name != "-h, --help"]
            yield from table((heading, "meaning"), named)
        for heading, names in command.lists():
            yield from (f"{heading}: {', '.join(f'`{name}`' for name in names.split())}.", "")


def _help_text(text: str) -> Lines:
    """Paragraphs; those click must not rewrap become blocks of text."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b"):
            block = textwrap.dedent(paragraph.lstrip("\b").strip("\n"))
            yield from ("```text", block, "```", "")
        else:
            yield from (paragraph, "")


def models_page() -> Lines:
    """Presets with exact parameter counts."""
    yield from ("# Model presets", "")
    yield "Names for `--model`. Counts are exact: tied embeddings once, multi-token-prediction"
    yield "modules left out; *active* is what one token visits. Any Hugging Face `config.json` of a"
    yield "decoder works as well: see [your own model](../how-to/my-model.md) and which [model"
    yield "types](model-types.md) are read."
    yield ""
    head = ("name", "model_type", "parameters", "active", "layers", "hidden", "source")
    yield from table(head, (_model_row(name) for name in preset_names()))


def _model_row(name: str) -> Sequence[str]:
    spec, config = preset(name), preset_config(name)
    counts = (num_parameters(spec), num_active_parameters(spec))
    shape = (spec.num_hidden_layers, spec.hidden_size)
    numbers = [f"{count:,}" for count in (*counts, *shape)]
    return (f"`{name}`", str(config["model_type"]), *numbers, str(config["_source"]))


SECTIONS: Sequence[tuple[str, str, type]] = (
    ("candidates[]", "One layout of the table of alternatives.", plans.Candidate),
    ("layout", "One complete parallel layout.", layout.Layout),
    ("estimate", "All a layout is expected to cost.", step.Estimate),
    ("estimate.terms", "They sum to `step_time_s`.", step.Terms),
    ("estimate.memory", "Peak memory of a step.", step.Memory),
    ("estimate.memory.pipeline_ranks[]", "One pipeline rank.", step.RankMemory),
    ("estimate.memory.host", "What a node keeps off its GPUs.", results.NodeMemory),
    ("estimate.lanes[]", "A lane of a step with something off the GPU.", results.LaneUse),
    ("estimate.idle", "Who waits in the pipeline.", results.Idle),
    ("layout.offload", "What is kept off the GPU.", layout.OffloadSpec),
    ("estimate.uncertainty", "How far the step time may be off.", uncertainty.Interval),
    ("certificate", "What was searched and what is proven.", plans.Certificate),
    ("certificate.objective", "What the layout is best by.", target.Target),
    (
        "certificate.uneven_stages",
        "What a search for other splits of the layers found.",
        plans.UnevenStages,
    ),
    ("certificate.trusted", "What it costs to keep to what was measured.", target.Trusted),
    ("certificate.trusted.not_taken", "The best without.", target.NotTaken),
    ("certificate.reserve", "What `--reserve` costs.", target.Reserve),
    ("certificate.settings", "What was searched of settings.", settings.Settings),
    (
        "certificate.settings.combinations[]",
        "A combination of settings and what is known of it.",
        settings.TriedSettings,
    ),
    ("certificate.objective.ladder[]", "What one more technique adds.", target.Rung),
    ("certificate.objective.tried[]", "A size of the cluster that was tried.", target.Tried),
    ("evidence", "How far the best layout is from what was measured.", evidence.Evidence),
    ("evidence.nearest[]", "A published run near it, the nearest first.", evidence.NearRun),
    ("evidence.beyond[]", "An axis in which it leaves what was measured.", envelope.Beyond),
    (
        "other_schedules[]",
        "The best layout under a schedule that the runtime does not execute.",
        plans.OtherSchedule,
    ),
    ("placement", "Which node holds which ranks.", links.Placement),
    ("assumed[]", "A setting that the answer is priced with.", assumed.Assumed),
    ("spent", "What a step and the run take.", spent.Spent),
    ("apart", "A tower on GPUs of its own.", apart.Apart),
    ("apart.splits[]", "One split of the GPUs.", apart.SplitTried),
    ("provenance.sources[]", "Where a number of the machine comes from.", plans.Source),
    ("training", "The job, apart from how it is laid out.", job.TrainingSpec),
    ("training.lengths", "Lengths of sequences, one of both.", lengths.LengthSpec),
    ("training.lengths.lognormal", "A distribution.", lengths.Lognormal),
    ("model", "A decoder-only transformer.", model.ModelSpec),
    ("model.layer_kinds[]", "A kind of layer, where it differs.", layers.LayerKind),
    ("model.mla", "Multi-head latent attention.", layers.MlaSpec),
    ("model.low_rank", "Queries and output through a low rank.", layers.LowRankSpec),
    ("model.tower", "What turns images or sound into tokens.", tower.TowerSpec),
    ("model.tower.projectors[]", "What hands tokens over.", tower.ProjectorSpec),
    ("model.tower.projectors[].linears[]", "A matrix, as in `embedding`.", tower.LinearSpec),
    ("model.moe", "Mixture of experts.", model.MoeSpec),
    ("model.rope_scaling", "Position scaling, for the exporters.", model.RopeScaling),
    ("cluster", "One or more groups of equal nodes.", cluster.ClusterSpec),
    ("cluster.groups[]", "Equal nodes.", cluster.NodeGroup),
    ("cluster.groups[].nic", "Network adapters of one node.", cluster.NicSpec),
    ("cluster.groups[].host", "Memory, processors and drives of one node.", host.HostSpec),
    ("cluster.groups[].host.drives", "Drives of one node.", host.DriveSpec),
    ("cluster.fabric[]", "One level of the scale-out network.", cluster.FabricTier),
    ("cluster.between_groups", "How node groups are joined.", cluster.BetweenGroups),
    ("cluster.links", "Measured bandwidth between the nodes.", links.LinkSpec),
)
DERIVED: Mapping[type, type[BaseModel]] = {
    layout.Layout: WrittenLayout,
    layout.OffloadSpec: WrittenOffload,
    model.ModelSpec: WrittenModel,
}
"""Classes whose JSON has more keys than fields, and its form."""


def json_page() -> Lines:
    """Keys of the documents, and the schema of the cluster file."""
    yield from ("# JSON", "")
    yield "`plan search --json` and `--output` write a document of schema"
    yield f"`{PlanDocument.SCHEMA}`. Keys are never renamed or removed within a version; new ones"
    yield "may appear. Every document states the `trainplan_version` that wrote it; older ones lack"
    yield "the key and are read the same. Seconds end in `_s`,"
    yield "bytes in `_bytes`. `plan estimate --json` has `model`, `layout`, `estimate`, `evidence`."
    yield "`plan schema` lists all documents, and prints the JSON Schema of each."
    yield ""
    yield from ("## The document", "", *table(("key", "meaning"), _keys(OfJob, PlanDocument)))
    for path, text, owner in SECTIONS:
        rows = [*_fields(owner), *_derived(owner)]
        yield from (f"## {path}", "", text, "", *table(("key", "meaning"), rows))
    yield from _validate_sections()
    yield from _calibration_sections()
    yield from _check_sections()
    yield from _schedule_sections()
    yield from _tune_sections()
    for path, owner in QUESTIONS:
        yield from (path, "", *table(("key", "meaning"), _keys(owner)))
    yield from ("## Schema of a cluster file", "")
    yield "YAML or JSON; [your own cluster](../how-to/my-cluster.md) explains it by example."
    schema = json.dumps(cluster.ClusterSpec.model_json_schema(), indent=2)
    yield from ("", "```json", schema, "```", "")


VALIDATE_SECTIONS: Sequence[tuple[str, str, type]] = (
    ("rows[]", "One record of the files, in order.", validate.ValidatedRow),
    ("groups[]", "Error of a group of rows.", validate.ValidatedGroup),
    ("overall", "All rows together.", validate.Overall),
    ("overall.ranking.groups[]", "Layouts of one job.", ranking.RankingGroup),
    ("overall.ranking.sizes[]", "Means by the number of layouts.", ranking.RankingSize),
    ("overall.coverage[]", "All scored rows, then by regime.", intervals.Coverage),
    ("overall.after_one_step.sources[]", "One source.", one_step.Calibrated),
)


def _validate_sections() -> Lines:
    """Keys of `plan validate --json`."""
    yield from ("## plan validate --json", "")
    yield "Errors are predicted / measured - 1. Null: not measured, or not predicted."
    yield from ("", *table(("key", "meaning"), _keys(validate.ValidateDocument)))
    for path, text, owner in VALIDATE_SECTIONS:
        rows = _keys(validate.Grouped, steps.Errors) if path == "groups[]" else _keys(owner)
        yield from (f"### {path}", "", text, "", *table(("key", "meaning"), rows))


CALIBRATION_SECTIONS: Sequence[tuple[str, str, type]] = (
    ("The three scalars", "Value and range of one.", calibration.FittedScalar),
    ("speeds[]", "Speed of jobs like those that ran.", calibration.SharedSpeed),
    ("runs[]", "One run the scalars were fitted on.", calibration.CalibrationRun),
)


def _calibration_sections() -> Lines:
    """Keys of `plan calibrate --json` and of the file that `--profile` reads."""
    yield from ("## plan calibrate --json", "")
    schema = calibration.Calibration.SCHEMA
    yield f"`plan calibrate --json` and `--output` write schema `{schema}`, which"
    yield "`--profile` reads. Keys are as stable as those of a plan."
    rows = [("`schema`", "Name and version of this form."), *_fields(calibration.Calibration)]
    yield from ("", *table(("key", "meaning"), rows))
    for path, text, owner in CALIBRATION_SECTIONS:
        yield from (f"### {path}", "", text, "", *table(("key", "meaning"), _fields(owner)))


def _check_sections() -> Lines:
    """Keys of `plan check --json`."""
    yield from ("## plan check --json", "", *table(("key", "meaning"), _keys(CheckDocument)))


def _tune_sections() -> Lines:
    """Keys of `plan tune --json`."""
    yield from ("## plan tune --json", "")
    yield "One event a line while it runs; the last one is `finished`. `plan.json` of its folder"
    yield "has that as `tuned`, with the keys of a plan."
    for path, text, owner in TUNE_SECTIONS:
        rows = [*_fields(owner)]
        yield from (f"### {path}", "", text, "", *table(("key", "meaning"), rows))


def _schedule_sections() -> Lines:
    """Keys of `plan schedule --json` and of `plan simulate --json`."""
    yield from ("## plan schedule --json", "")
    yield "`--kind all` prints `schedules`, a list of these by makespan, and `refused`, a list of"
    yield "`kind` and `reason`. Times are in the unit of the durations."
    yield from ("", *table(("key", "meaning"), _keys(schedules.ScheduleDocument)))
    rows, ranks = _keys(schedules.SimulateDocument), _keys(schedules.SimulatedRank)
    yield from ("## plan simulate --json", "", *table(("key", "meaning"), rows))
    yield from ("### pipeline_ranks[]", "", *table(("key", "meaning"), ranks))


def _keys(*owners: type) -> list[tuple[str, str]]:
    """Keys that documents explain where they state them, `schema` first."""
    texts: dict[str, str] = {}
    for owner in owners:
        texts |= {name: text for name, text in documented(owner) if text}
        texts |= vars(owner).get("TEXTS", {})
    rows = [(f"`{name}`", text) for name, text in texts.items()]
    return sorted(rows, key=lambda row: row[0] != "`schema`")


def _derived(owner: type) -> Iterator[tuple[str, str]]:
    """Keys that come to those of a class in its document."""
    if owner in DERIVED:
        for name, field in DERIVED[owner].model_fields.items():
            if field.description:
                yield f"`{name}`", field.description


def _fields(owner: type) -> Iterator[tuple[str, str]]:
    """Fields of a class with their meaning."""
    for name, text in documented(owner):
        assert text, f"say what {owner.__name__}.{name} means below it"
        yield f"`{name}`", text


TUNE_SECTIONS: Sequence[tuple[str, str, type]] = (
    ("started", "Before the first trial.", tuning.Started),
    ("trial_started", "A layout is launched.", tuning.TrialStarted),
    ("trial_ended", "How it ended.", tuning.TrialEnded),
    ("outcome", "Of a trial.", trial.Outcome),
    ("learned", "What is believed after it.", tuning.Learned),
    ("finished", "The result.", tuning.Finished),
    ("best", "The fastest layout that was measured.", tuning.Best),
    ("trials[]", "A trial of the run.", tuning.Tried),
    ("remains", "What is possible beyond the best.", tuning.Remains),
    ("likeliest[], forecast", "What is believed of an untried layout.", tuning.Forecast),
    ("scalars[]", "What is believed of the machine.", tuning.ScalarRange),
    ("memory_factor", "What is believed of memory.", tuning.MemoryRange),
)


PAGES: Mapping[str, Callable[[], Lines]] = {
    "cli.md": cli_page,
    "axes.md": axes_page,
    "limits.md": limits_page,
    "rooms.md": rooms_page,
    "rules.md": rules_page,
    "models.md": models_page,
    "model-types.md": model_types_page,
    "gpus.md": gpus_page,
    "constants.md": constants_page,
    "runtimes.md": runtimes_page,
    "schedules.md": schedules_page,
    "json.md": json_page,
    "profile.md": profile_page,
}


def rendered() -> dict[Path, str]:
    """Content of every page."""
    pages = {
        REFERENCE / name: "\n".join((HEAD, *page())).rstrip() + "\n" for name, page in PAGES.items()
    }
    examples = [path for path in EXAMPLES if path not in pages]
    pages[REFERENCE / "profile.schema.json"] = schema_text()
    pages[NAMES_FILE] = names_text()
    return pages | with_commands(examples)


def with_commands(paths: Iterable[Path]) -> dict[Path, str]:
    """Pages with what their commands print."""
    texts = {path: replayed(path.read_text(encoding="utf-8")) for path in paths}
    return {path: with_figures(text, texts) for path, text in texts.items()}


def outdated() -> list[Path]:
    """Pages that differ from the code."""
    return [
        path
        for path, text in rendered().items()
        if not path.exists() or timeless(path.read_text(encoding="utf-8")) != timeless(text)
    ]


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or check them."""
    if "--check" in arguments:
        stale = outdated()
        for path in stale:
            sys.stderr.write(f"{path} is out of date: run `make docs`\n")
        return 1 if stale else 0
    named = [Path(one).resolve() for one in arguments]
    for path, text in (with_commands(named) if named else rendered()).items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
