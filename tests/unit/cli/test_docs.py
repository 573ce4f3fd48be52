"""The documentation says what the program does."""

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

ROOT = Path(__file__).parents[3]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
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
    found = search(job, SearchOptions(search_options="none"))
    assert isinstance(found, Plan)
    explained = (ROOT / "docs" / "reference" / "json.md").read_text("utf-8")
    known = set(re.findall(r"`([\w.]+)`", explained))
    known |= {name.rpartition(".")[2] for name in known}
    assert set(keys(plan_json(found))) <= known


def test_the_readme_has_of_recipes_what_the_table_has():
    table = (ROOT / "docs" / "index.md").read_text("utf-8").partition("<!-- thumb rules: short -->")
    slower = [int(one) for one in re.findall(r"\| (\d+) % \|$", table[2], re.MULTILINE)]
    assert len(slower) > 10
    shown = f"{min(slower)} to {max(slower)} % slower"
    assert shown in (ROOT / "README.md").read_text("utf-8")


def test_what_a_picture_shows_is_described_without_figures_that_change():
    texts = re.findall(r'!\[([^\]]+)\]|alt="([^"]+)"', (ROOT / "README.md").read_text("utf-8"))
    assert len(texts) >= 2
    assert not any(re.search(r"\d", "".join(one)) for one in texts)
