"""The documentation says what the program does."""

import importlib
import json
import re
from pathlib import Path

import click
import pytest

from trainplan.cli.main import plan
from trainplan.costmodel.hardware.cluster import parse_cluster
from trainplan.costmodel.job.job import Job, TrainingSpec
from trainplan.costmodel.presets.presets import preset
from trainplan.planner.documents.document import plan_json
from trainplan.planner.plan.plan import Plan
from trainplan.planner.questions.best_plan import SearchOptions, search
from trainplan.planner.space import parse_choice

ROOT = Path(__file__).parents[3]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
README = (ROOT / "README.md").read_text("utf-8")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def pages():
    return pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def anchors(page):
    """Names GitHub gives to the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text("utf-8")), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {title.replace(" ", "-") for title in kept}


def commands():
    """Every command of a console block: page and its words."""
    for page in PAGES:
        for block in re.findall(
            r"^```console.*?\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S
        ):
            for command in re.findall(r"^\$ (?:\S*/)?plan ((?:.*\\\n)*.*)$", block, re.MULTILINE):
                yield page, command.replace("\\\n", " ").partition(" > ")[0].split()


def keys(document):
    """Every key of a JSON document, the names of axes and rules left out."""
    if isinstance(document, list):
        for part in document:
            yield from keys(part)
    if isinstance(document, dict):
        for key, part in document.items():
            yield key
            if key not in ("space", "refused"):
                yield from keys(part)


@pages()
def test_links_lead_somewhere(page):
    text = FENCED.sub("", page.read_text("utf-8"))
    for target in LINK.findall(text):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(file), f"{page.name}: {target}"


@pages()
def test_code_fences_are_closed(page):
    assert len(re.findall(r"^```", page.read_text("utf-8"), re.MULTILINE)) % 2 == 0


@pages()
def test_pages_name_no_place_on_the_writers_machine(page):
    assert not re.search(r"(?<!\w)/(home|root|tmp|work|opt)/|\bshared/", page.read_text("utf-8"))


def test_every_page_is_reachable_from_the_index():
    index = ROOT / "docs" / "index.md"
    linked = {
        (index.parent / target).resolve() for target in LINK.findall(index.read_text("utf-8"))
    }
    assert {page for page in PAGES if page.parent != ROOT} - {index} <= linked


def test_commands_are_found():
    assert len(list(commands())) > 10


@pytest.mark.parametrize(("page", "words"), list(commands()))
def test_shown_commands_parse(page, words):
    command, context = plan, click.Context(plan, info_name="plan")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found is not None, f"{page.name}: plan {words[0]}"
        command, words = found, words[1:]
        context = click.Context(command, parent=context)
    parser = command.make_parser(context)
    parser.parse_args(list(words))


def test_every_command_has_its_section():
    text = (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8")
    for name in plan.list_commands(click.Context(plan)):
        assert f"## plan {name}" in text


def test_every_key_of_a_plan_is_explained():
    job = Job(
        model=preset("qwen3-30b-a3b"),
        training=TrainingSpec(seq_length=4096, global_batch_size=64),
        cluster=parse_cluster("2x8:h100-sxm"),
    )
    held = ("tp=1", "cp=1", "micro_batch_size=1")
    fixed = tuple(parse_choice(one, excluded=False) for one in held)
    found = search(job, SearchOptions(search_options="none", fix=fixed))
    assert isinstance(found, Plan)
    explained = (ROOT / "docs" / "reference" / "json.md").read_text("utf-8")
    known = set(re.findall(r"`([\w.]+)`", explained))
    known |= {name.rpartition(".")[2] for name in known}
    assert set(keys(plan_json(found))) <= known


@pytest.fixture(scope="module")
def tools():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs" / "generator"))
        yield tuple(importlib.import_module(name) for name in ("page_figures", "pictures"))


@pytest.mark.parametrize("name", ["README.md", "docs/index.md", "docs/gallery/index.md"])
def test_figures_of_a_page_are_those_of_what_was_recorded_and_printed(tools, name):
    text = (ROOT / name).read_text("utf-8")
    assert tools[0].FIGURE.search(text) or tools[0].ANSWER.search(text)
    assert tools[0].with_figures(text) == text, "run `make docs`"


def test_the_gallery_has_twelve_questions_with_their_answers_and_one_that_has_none():
    gallery = ROOT / "docs" / "gallery"
    rows = re.findall(
        r"^\| \[(.+?)\]\((.+?)\) \| (.+) \|$", (gallery / "index.md").read_text(), re.M
    )
    assert len(rows) == 12
    assert {name for _, name, _ in rows} | {"index.md"} == {page.name for page in gallery.iterdir()}
    for question, name, answer in rows:
        text = (gallery / name).read_text("utf-8")
        assert text.startswith(f"# {question}\n")
        assert "```console" in text
        assert f"<!-- answer: {name.removesuffix('.md')} " in answer
        assert len(FENCED.sub("", text)) < 1200
        assert max(map(len, "\n".join(FENCED.findall(text)).splitlines())) <= 100
    assert sum("Undecided" in answer for *_, answer in rows) == 1


def test_what_is_printed_first_is_an_answer(tools):
    shown = ["cluster 8xh100: one node", "tp 1 · stages", "1+2", "2.50 s a step (80 %)", "", "more"]
    below = ["Cheapest: a, no offer", "costs less.", "tp 1", ""]
    shown = ["$ cat a", "b", "$ plan search --top 3 \\", "    --json", *shown]
    blocks = [["```console 3", *shown, "```"], ["```console", "$ plan sweep a", *below, "```", ""]]
    page = "\n".join(line for block in blocks for line in block)
    assert tools[0].answer(page, 1) == "tp 1 · stages 1+2: 2.50 s a step"
    assert tools[0].answer(page, 2) == "Cheapest: a, no offer costs less"


def test_every_figure_in_the_prose_of_the_readme_is_computed(tools):
    """Others are names: models, GPUs, releases, degrees of a layout that a command repeats."""
    text = FENCED.sub("", README)
    text = re.sub(r"<!-- (?:figure: [^>]*|accuracy) -->.*?<!-- end -->", "", text)
    text = re.sub(r"`[^`]*`|\]\([^)]*\)|(?:src|srcset|width)=\"[^\"]*\"", "", text)
    machines = r"\d+ (?:H100|GB300)|Llama 3 70B|Qwen3-235B|067f987d"
    names = rf"\b(?:{machines}|Python 3\.11 to 3\.14|Apache-2\.0)\b"
    left = re.sub(names, "", text)
    shown = re.search(r'alt="[^"]*', left)[0]
    assert re.findall(r"[\d.,]*\d", left.replace(shown, "")) == []
    assert re.findall(r"[\d.,]*\d", shown) == [tools[0].STEP.search(README)[1].removesuffix(" s")]


def test_dense_recipes_are_close_to_an_optimum_that_is_proved_in_seconds(tools):
    """The claim of the README: within 3 % at the median."""
    over = sorted(map(tools[0].over_bound, tools[0].dense_recipes()))
    assert len(over) > 50
    assert over[len(over) // 2] < 0.03
    assert min(over) > -1e-4
    assert sum(one["proved"] for one in tools[0].dense_recipes()) > 0.9 * len(over)
    assert float(tools[0].printed(README)["recipe against optimum"].removesuffix(" %")) < 3


def test_the_readme_names_a_recipe_that_the_court_refuses():
    [name] = re.findall(r"--recipe (\w+)", README)
    rows = (ROOT / "examples" / "recipe_court" / "verdicts.jsonl").read_text("utf-8").splitlines()
    [row] = [one for one in map(json.loads, rows) if one["recipe"] == name]
    assert row["verdict"] == "does not start"


def test_the_answer_for_racks_is_the_layout_that_was_measured(tools):
    degrees = tools[0].recorded()["model zoo layout"].split(", ")
    answer = next(line for line in README.splitlines() if " · ep " in line)
    assert set(degrees) <= set(answer.split(" · "))
    assert "model zoo estimate" in README  # the command's own speed is of other settings
    assert float(tools[0].recorded()["model zoo estimate"].removesuffix(" %")) < 15


@pytest.mark.parametrize("name", ["report-light.png", "report-dark.png"])
def test_a_picture_of_the_report_is_of_the_answer_below_the_first_command(tools, name):
    picture = (ROOT / "docs" / "pictures" / name).read_bytes()
    shown = tools[1].description(picture)
    assert shown
    assert shown in README, "run `make pictures`"
    assert tools[1].description(tools[1].described(picture, "other")) == "other"


def test_the_picture_of_the_terminal_shows_the_same_answer(tools):
    picture = (ROOT / "docs" / "pictures" / "answer.svg").read_text("utf-8")
    assert tools[0].STEP.search(README)[0].replace(" ", "&#160;") in picture, "run `make pictures`"
