"""Every command: help, lazy imports, width, JSON keys."""

import importlib
import importlib.metadata
import inspect
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.e2e.command import LLAMA, PLAN, TINY, plan, with_value
from tests.e2e.measured_runs import sample
from trainplan.cli.commands import COMMANDS, runtime_doctor
from trainplan.cli.main import plan as group
from trainplan.cli.options.headings import HEADING_OF, HEADINGS, LONGEST_LIST
from trainplan.cli.options.help import GROUPS, Command
from trainplan.cli.options.names import OPTIMIZERS, RUNTIME_OPTIONS
from trainplan.cli.terminal.lazily import load, named
from trainplan.costmodel.axes import AXES
from trainplan.costmodel.catalog.entries import gpu_names
from trainplan.costmodel.hardware.cluster import ClusterSpec
from trainplan.costmodel.presets.presets import preset_names
from trainplan.profiler.host.machine import usable_cores

KEYS = Path(__file__).parent / "json_keys.json"
UNEVEN = (".best.layout.stages", ".candidates[].layout.stages", ".least_memory_layout.stages")
LAUNCH = (
    *("torchrun", "--nproc_per_node", "8", "pretrain_gpt.py", "--num-layers", "12"),
    *("--hidden-size", "768", "--num-attention-heads", "12", "--seq-length", "1024"),
    *("--max-position-embeddings", "1024", "--vocab-size", "50257", "--mock-data"),
    *("--tokenizer-type", "NullTokenizer", "--micro-batch-size", "1", "--bf16"),
    *("--global-batch-size", "64", "--train-iters", "10", "--lr", "1e-4"),
    *("--tensor-model-parallel-size", "8"),
)
FEW = ("--fix", "tp=1", "--fix", "pp=1")
LIGHT = (
    "trainplan.costmodel.base",
    "trainplan.costmodel.plugins",
    "trainplan.costmodel.plugins.entry_points",
)
"""All of our packages beside `cli` that a help page may load."""
HEAVY = ("torch", "ortools", "pulp", "highspy", "numpy", "scipy", "pydantic", "rich", "yaml")


def command_of(path: tuple[str, ...]) -> click.Command:
    found: click.Command | None = group
    for name in path:
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), name)
    assert found is not None
    return found


def commands(parent: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of all commands and subcommands."""
    context = click.Context(parent)
    found = []
    for name in parent.list_commands(context):
        command = parent.get_command(context, name)
        assert command is not None
        found.append((*path, name))
        if isinstance(command, click.Group):
            found += commands(command, (*path, name))
    return found


@pytest.mark.parametrize("path", commands(group), ids=" ".join)
def test_every_command_has_help_with_an_example(path: tuple[str, ...]):
    outcome = plan(*path, "--help")
    assert outcome.code == 0
    assert "Example:" in outcome.out
    assert f"plan {path[0]}" in outcome.out
    assert all(len(line) <= 100 for line in outcome.out.splitlines())


def test_options_of_a_long_help_page_are_below_the_question_that_they_answer():
    found = [command_of((name,)) for name in COMMANDS]
    long = [one for one in found if isinstance(one, Command) and len(one.params) > LONGEST_LIST]
    assert len(long) >= 8
    for one in long:
        sections = dict(one.sections(click.Context(one)))
        assert [*sections] == [name for name in HEADINGS if name in sections]
        stated = {str(each.name) for each in one.params if isinstance(each, click.Option)}
        assert stated <= set(HEADING_OF)
        assert sum(map(len, sections.values())) == len(stated) + 1  # the help page itself


def test_names_of_a_long_list_are_below_the_options():
    page = plan("search", "--help").out
    options, _, lists = page.partition("\nNames of --optimizer:")
    assert (
        options.index("\nThe job:") < options.index("\nThe machines:") < options.index("\nOutput:")
    )
    assert " ".join(OPTIMIZERS) in " ".join(lists.split())
    assert " ".join(RUNTIME_OPTIONS) in " ".join(lists.split())
    assert "megatron-bridge" not in options
    assert "[1<=x<=1073741824" not in page


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_of_the_registry_is_the_command_s_own(name: str):
    command = group.get_command(click.Context(group), name)
    assert command is not None
    assert command.help is not None
    assert command.help.splitlines()[0] == COMMANDS[name].summary
    assert command.name == name


def imported_by(*lines: tuple[str, ...]) -> set[str]:
    """Modules that a process of its own has imported when `plan` has answered these lines."""
    program = (
        "import json, sys; from trainplan.cli.main import run; "
        "codes = [run(words) for words in json.loads(sys.argv[1])]; "
        "print(*sys.modules, file=sys.stderr); sys.exit(max(codes))"
    )
    words = [sys.executable, "-c", program, json.dumps(lines)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


def ours_that_answer(modules: set[str]) -> set[str]:
    layer_capacities = {
        name for name in modules if name.count(".") >= 2 and name.startswith("trainplan.")
    }
    assert any(name.startswith("trainplan.cli.") for name in layer_capacities)
    return {
        name
        for name in layer_capacities
        if not name.startswith(("trainplan.cli.", LIGHT[0])) and name not in LIGHT
    }


def test_no_help_page_imports_anything_that_answers():
    found = imported_by(*((*path, "--help") for path in [(), *commands(group)]))
    assert not found & set(HEAVY)
    assert not ours_that_answer(found)


def test_a_search_imports_no_optional_library_and_nothing_that_measures():
    found = imported_by(("search", *TINY, "--fix", "tp=1", "--fix", "pp=1", "--fix", "cp=1"))
    assert not found & {"torch", "plotly", "ortools", "pulp", "scipy", "matplotlib"}
    other_work = ("profiler.launch", "profiler.train", "profiler.trials", "solvers.schedules")
    assert not [name for name in found if any(one in name for one in other_work)]


def test_the_doctor_imports_no_planner():
    found = imported_by(("doctor",))
    assert not found & (set(HEAVY) - {"rich"})
    assert not ours_that_answer(found)


def test_names_of_help_pages_are_those_of_the_registries():
    """`make docs` writes them."""
    written = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "generator" / "names.py"))
    assert written["NAMES_FILE"].read_text() == written["names_text"]()


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="this system lists no threads")
@pytest.mark.parametrize(
    ("chosen", "threads", "target"),
    [
        (None, 1, "trainplan.cli.commands.search:pair_of"),
        ("2", min(2, usable_cores()), "numpy:dot"),
    ],
)
def test_products_of_numpy_take_no_cores_from_a_search_unless_the_user_says_so(
    chosen: str | None, threads: int, target: str
):
    program = (
        "import os; from trainplan.cli.terminal.lazily import named; "
        f"named({target!r}); "
        "print(os.environ.get('OPENBLAS_NUM_THREADS'), len(os.listdir('/proc/self/task')))"
    )
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=kept if chosen is None else {**kept, "OPENBLAS_NUM_THREADS": chosen},
    )
    assert done.stdout.split() == [str(chosen), str(threads)]


def test_without_arguments_there_are_three_examples_that_work():
    outcome = plan()
    assert outcome.code == 0
    whole = outcome.out.replace("\\\n", "")
    quick = ("--search-options", "none", "--fix", "stages=even", "--slack", "0")
    search, gpus, check = (line for line in whole.splitlines() if line.startswith("  plan "))
    assert re.match(r"tp \d+ · ", plan(*shlex.split(search)[1:], *quick).out)
    fewest = plan(*shlex.split(gpus)[1:], *quick[:-2]).out
    assert re.match(r"\d+ GPUs are the fewest that end the run in time: in ", fewest)
    words = shlex.split(check)[1:]
    given = plan("check", "--time-limit", "0.3", *words[1:]).out
    assert given.startswith("It runs and fits: ")
    assert max(len(line) for line in outcome.out.splitlines()) <= 80


def test_a_group_alone_shows_its_commands_and_ends_as_click_ends_it():
    outcome = plan("catalog")
    assert outcome.code == 2
    assert outcome.err.startswith("Usage: plan catalog [OPTIONS] COMMAND")
    assert "\n  gpus " in outcome.err
    assert "error" not in outcome.err


def test_the_version_is_printed():
    assert plan("--version").out.startswith("plan, version ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_its_completion(shell: str):
    assert "_PLAN_COMPLETE" in plan("completion", shell).out


def test_a_shell_completes_commands():
    done = subprocess.run(
        [*PLAN],
        env={"_PLAN_COMPLETE": "bash_complete", "COMP_WORDS": "plan se", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "search" in done.stdout


def test_a_shell_completes_documents():
    typed = {"COMP_WORDS": "plan schema why", "COMP_CWORD": "2"}
    done = subprocess.run(
        [*PLAN],
        env={**os.environ, "_PLAN_COMPLETE": "bash_complete", **typed},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "why-not" in done.stdout


def test_the_doctor_finds_this_installation_whole():
    outcome = plan("doctor")
    assert outcome.code == 0
    assert "MISSING" not in outcome.out


@pytest.mark.parametrize("library", ["torch", "ortools", "mcp"])
def test_the_doctor_says_what_an_extra_would_bring(library: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, library, None)
    outcome = plan("doctor")
    assert outcome.code == 0
    assert re.search(rf"ok +{library} +not installed: only ", outcome.out)


def test_the_doctor_compares_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    outcome = plan("doctor", "--runtime-path", tmp_path)
    assert outcome.code == 2
    assert "no megatron/training/arguments.py" in " ".join(outcome.out.split())
    source = tmp_path / "megatron" / "training" / "arguments.py"
    source.parent.mkdir(parents=True)
    source.write_text("parser.add_argument('--num-layers')\n")
    outcome = plan("doctor", "--runtime-path", tmp_path)
    assert outcome.code == 2
    assert "does not know" in outcome.out
    assert "--num-layers," not in outcome.out
    source.write_text("def broken(:\n")
    monkeypatch.setattr(runtime_doctor, "_emitted_flags", lambda _: frozenset({"--num-layers"}))
    assert plan("doctor", "--runtime-path", tmp_path).code == 2


def test_the_template_and_the_schema_describe_clusters(tmp_path: Path):
    path = tmp_path / "cluster.yaml"
    path.write_text(plan("catalog", "clusters", "--template").out)
    job = with_value(TINY, "--cluster", str(path))
    job = with_value(job, "--global-batch-size", "64")
    document = plan("estimate", *job, "--layout", "tp=1", "--json").json
    assert document["cluster"]["name"] == "my-cluster"
    assert plan("catalog", "clusters", "--schema").json == json.loads(
        json.dumps(ClusterSpec.model_json_schema())
    )


def test_the_catalog_lists_everything_it_knows():
    assert set(plan("catalog", "gpus", "--json").json["gpus"]) == set(gpu_names())
    assert set(plan("catalog", "models", "--json").json["models"]) == set(preset_names())
    model = plan("catalog", "models", "llama3-70b", "--json").json
    assert model["num_parameters"] == 70_553_706_496
    assert "70,553,706,496" in plan("catalog", "models", "llama3-70b").out


LITTLE = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "architectures": ["LlamaForCausalLM"],
    "colour": "blue",
}


def test_the_catalog_shows_what_it_read_of_a_config_and_what_it_assumed(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LITTLE))
    for name in (path, tmp_path):
        entry = plan("catalog", "models", str(name), "--json").json
        assert entry["num_parameters"] == 4 * (4 * 64**2 + 3 * 64 * 160 + 128) + 2 * 64_000 + 64
        assert entry["read"]["hidden_size"] == 64
        assert entry["assumed"]["rope_theta"] == 10_000.0
        assert entry["ignored"] == ["colour"]
    page = plan("catalog", "models", str(path)).out
    assert "Not in the file, assumed" in page
    assert "Read past, no part of this model: colour" in page


@pytest.mark.parametrize(("stated", "shown"), [(5, True), (316_992, False)])
def test_an_index_of_weights_that_says_otherwise_is_named(tmp_path, stated, shown):
    (tmp_path / "config.json").write_text(json.dumps(LITTLE))
    index = {"metadata": {"total_parameters": stated}, "weight_map": {}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    out = plan("catalog", "models", str(tmp_path)).out
    assert ("states 5 parameters, 316,992 were read" in out) == shown


def test_a_model_read_by_its_fields_says_so_in_the_catalog_and_in_an_answer(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(
            {k: v for k, v in LITTLE.items() if k != "colour"}
            | {"model_type": "mine", "time_step_limit": [0.0, float("inf")]}
        )
    )
    assert "it was read by its fields" in plan("catalog", "models", str(path)).out
    found = plan(
        "search", *with_value(with_value(TINY, "--model", str(path)), "--seq-length", "512")
    )
    assert "'mine' is of no known family: read by its fields" in " ".join(found.out.split())


def test_the_template_of_a_model_is_a_model(tmp_path):
    path = tmp_path / "model.yaml"
    path.write_text(plan("catalog", "models", "--template").out)
    entry = plan("catalog", "models", str(path), "--json").json
    assert entry["num_parameters"] == 8_030_261_248  # the sizes of Llama-3-8B


def test_the_template_of_a_model_uncommented_is_a_model_too(tmp_path):
    text = plan("catalog", "models", "--template").out
    lines = [line.removeprefix("# ") for line in text.splitlines()]
    begin = next(i for i, line in enumerate(lines) if line.startswith("name:"))
    parts = [line for line in lines[begin:] if not line.startswith(("mixer:", "sliding_window:"))]
    path = tmp_path / "model.yaml"
    body = "\n".join(parts).replace("num_hidden_layers: 32", "num_hidden_layers: 2")
    body = body.replace("mixer: sliding_attention", "mixer: full_attention")
    path.write_text(body)
    assert plan("catalog", "models", str(path)).code == 0


def test_a_template_and_a_model_exclude_each_other():
    assert plan("catalog", "models", "gpt2", "--template").code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("catalog", "gpus"),
        ("catalog", "models"),
        ("catalog", "clusters"),
        ("catalog", "clusters", "--template"),
        *(("catalog", "gpus", name) for name in gpu_names()),
        ("catalog", "models", "deepseek-v3"),
        ("doctor",),
        ("search", *with_value(TINY, "--model", "qwen3-30b-a3b"), *FEW, "--top", "100"),
        ("search", *with_value(LLAMA, "--cluster", "1x8:a100-sxm-40gb")),
        ("estimate", *LLAMA, "--layout", "tp=2,pp=16,vpp=5,sp=true,mbs=2,offload=0.5"),
    ],
    ids=" ".join,
)
def test_no_line_is_wider_than_a_hundred_columns(arguments: tuple[str, ...]):
    outcome = plan(*arguments)
    assert max(len(line) for line in outcome.out.splitlines()) <= 100
    assert "…" not in outcome.out


def keys(value: object, path: str = "") -> set[str]:
    """Paths of all keys; names of rules are data, and so is whether stages are even."""
    if isinstance(value, dict):
        if path in (".refused", ".certificate.space", ".overall.skipped"):
            return {path}
        inner = (keys(item, f"{path}.{key}") for key, item in value.items())
        return {path}.union(*inner)
    if isinstance(value, list) and path not in UNEVEN:
        return {path}.union(*(keys(item, f"{path}[]") for item in value))
    return {path}


def assert_frozen(documents: dict[str, set[str]], file: Path) -> None:
    """Keys are as recorded; an axis adds its own, as the page on adding one says."""
    recorded = {name: set(paths) for name, paths in json.loads(file.read_text()).items()}
    of_axes = tuple(f"layout.{axis.name}" for axis in AXES)
    new = {
        name: {path for path in paths - recorded.get(name, set()) if path.endswith(of_axes)}
        for name, paths in documents.items()
    }
    assert {name: paths - new[name] for name, paths in documents.items()} == recorded


def calibrated_run(folder: Path) -> tuple[str | Path, ...]:
    """A log and what ran, for `plan calibrate`."""
    log = folder / "train.log"
    log.write_text("iteration 10/ 100 | elapsed time per iteration (ms): 100.0 |")
    return (*TINY, "--log", log, "--layout", "tp=1")


def test_the_keys_of_json_are_frozen(tmp_path: Path):
    """Public: a key is never renamed or removed within a schema version."""
    infeasible = with_value(LLAMA, "--cluster", "1x8:a100-sxm-40gb")
    moe = (*with_value(TINY, "--model", "deepseek-v2-lite"), *FEW, "--fix", "ep=8")
    held = (*LLAMA, "--fix", "tp=4", "--fix", "pp=4", "--fix", "micro_batch_size=1")
    safe = ("--search-options", "safe", "--json")
    layout = "pp=8,dp=1,recompute=full"
    runs = sample(tmp_path / "runs.jsonl")
    documents = {
        "search": keys(plan("search", *held, *safe).json),
        "search, mixture of experts": keys(plan("search", *moe, *safe).json),
        "search, nothing fits": keys(plan("search", *infeasible, "--json").json),
        "estimate": keys(plan("estimate", *TINY, "--layout", layout, "--json").json),
        "check": keys(plan("check", "--json", "--", *LAUNCH).json),
        "validate": keys(plan("validate", runs, "--calibrate", "--json").json),
        "calibrate": keys(plan("calibrate", *calibrated_run(tmp_path), "--json").json),
    }
    assert_frozen(documents, KEYS)


def test_what_a_command_imports_when_it_answers_is_there():
    folder = Path(__file__).parents[2] / "cli"
    texts = [path.read_text("utf-8") for path in folder.rglob("*.py")]
    targets = {one for text in texts for one in re.findall(r'"(trainplan\.[\w.]+:\w+)"', text)}
    for path in commands(group):
        stated = inspect.unwrap(command_of(path).callback)
        load(sys.modules[stated.__module__])
        targets |= {build for _, build, _ in getattr(stated, GROUPS, ())}
    assert len(targets) > 10
    for target in targets:
        assert callable(named(target)), target


def test_the_doctor_tells_versions_as_python_does():
    given = {line.split()[1]: line.split()[-1] for line in plan("doctor").out.splitlines()[1:]}
    for library in ("click", "numpy", "pydantic", "pyyaml", "rich", "trainplan"):
        assert given[library] == importlib.metadata.version(library)


def test_a_config_with_infinity_is_read_and_written_as_json(tmp_path):
    text = {**LITTLE, "time_step_limit": [0.0, float("inf")]}
    config = {"model_type": "seeing", "text_config": text, "vision_config": {}}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    outcome = plan("catalog", "models", str(path), "--json")
    assert outcome.code == 0
    assert outcome.json["read"]["text_config"]["time_step_limit"] == [0.0, "Infinity"]
