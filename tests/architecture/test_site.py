"""The site: every page is in its navigation, and its checker sees what a reader would."""

import importlib
import json
import re
from pathlib import Path

import pytest
import yaml

from trainplan.planner.launchers.registry import LAUNCHERS
from trainplan.planner.runtimes import EXPORTERS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def tools():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS / "generator"))
        yield tuple(importlib.import_module(name) for name in ("site_links", "check_site"))


@pytest.fixture
def links(tools):
    return tools[0]


@pytest.fixture
def written(tools, tmp_path):
    """What is said of a site of these pages."""

    def written(**pages):
        for name, body in pages.items():
            (tmp_path / f"{name}.html").write_text(f"<html>{body}</html>", encoding="utf-8")
        return list(tools[1].complaints(tmp_path))

    return written


def leaves(nav):
    """The pages of a navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from leaves(part)


def test_every_page_is_in_the_navigation_once():
    configured = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    pages = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert sorted(leaves(configured["nav"])) == sorted(pages)


@pytest.mark.parametrize("name", EXPORTERS)
def test_every_runtime_has_a_page_on_launching_it(name):
    pages = (page.read_text("utf-8") for page in (DOCS / "how-to").glob("launch-with-*.md"))
    assert any(re.search(rf"--runtime {name}\b|`{name}`", page) for page in pages)


@pytest.mark.parametrize("name", LAUNCHERS)
def test_every_launcher_is_on_the_page_on_starting_a_job(name):
    assert f"| `{name}` |" in (DOCS / "how-to" / "start-a-job.md").read_text("utf-8")


def test_no_page_links_to_a_folder(links):
    pages = {path: path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md")}
    targets = {one for path, name in pages.items() for one in links.linked(path.read_text(), name)}
    assert len(targets) > 50
    assert [one for one in sorted(targets) if not (ROOT / one).is_file()] == []


def test_a_link_out_of_the_docs_becomes_a_page(links):
    text = "[a](../../CONTRIBUTING.md#tests), [b](../../pyproject.toml) and [c](read-a-plan.md)"
    here = "docs/how-to/my-model.md"
    assert links.for_the_site(text, here) == (
        "[a](../repository/CONTRIBUTING.md#tests), [b](../repository/pyproject.toml.md)"
        " and [c](read-a-plan.md)"
    )
    assert set(links.linked(text, here)) >= {"CONTRIBUTING.md", "pyproject.toml"}


def test_a_page_from_outside_leads_back_into_the_docs(links):
    text = "[a](docs/index.md#decisions) [b](LICENSE) [c](https://example.org/docs/x.md)"
    assert links.as_page(text, "README.md") == (
        "[a](../index.md#decisions) [b](LICENSE.md) [c](https://example.org/docs/x.md)"
    )
    picture = '<source srcset="docs/pictures/a.png"> <img alt="a" src="docs/pictures/b.png">'
    assert links.as_page(picture, "README.md") == picture.replace("docs/", "../")


def test_links_in_code_and_cuts_of_outputs_are_no_links(links):
    text = "`[a](../b.toml)`\n\n```console 12-20\n$ echo '[a](../b.toml)'\n```\n"
    assert links.for_the_site(text, "docs/x.md") == text.replace(" 12-20", "")
    assert list(links.linked(text, "docs/x.md")) == []


def test_code_in_a_table_is_shown_as_typed_and_options_break_between_values(links):
    row = "| `--save PATH\\|a,b` | a `b\\|c` |\n| `a\\|b` | x |\n`a\\|b`"
    shown = '| <code>--save</code> <code class="values">PATH&#124;<wbr>a,<wbr>b</code> | a `b|c` |'
    assert links.for_the_site(row, "docs/x.md") == f"{shown}\n| `a|b` | x |\n`a\\|b`"


def test_long_commands_go_on_in_the_next_line(links):
    long = f"$ plan search --model {'m' * 50} --cluster {'c' * 30} --seq-length 8192"
    page = f"```console 3\n{long}\n{'x' * 120}\n```\n{long}"
    first, second, *rest = links.for_the_site(page, "docs/x.md").splitlines()[1:]
    assert (first, second) == (
        f"$ plan search --model {'m' * 50} \\",
        f"    --cluster {'c' * 30} --seq-length 8192",
    )
    assert rest == ["x" * 120, "```", long]


def test_pages_are_named_in_words():
    configured = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    [reference] = [part["Reference"] for part in configured["nav"] if "Reference" in part]
    assert all(isinstance(page, dict) for page in reference), "name it: its file is no word"


def test_a_file_of_code_is_shown_as_code(links):
    assert links.as_page("a = 1\n", "examples/x.py") == (
        "# examples/x.py\n\n````python\na = 1\n````\n"
    )


def test_a_notebook_is_shown_with_what_it_printed(links):
    cells = [
        {"cell_type": "markdown", "source": ["# One\n", "[all](../docs/index.md)"]},
        {"cell_type": "code", "source": ["print(2)"], "outputs": [{"text": ["2\n"]}]},
        {"cell_type": "code", "source": ["x = 1"], "outputs": []},
    ]
    assert links.as_page(json.dumps({"cells": cells}), "examples/a.ipynb") == (
        "# One\n[all](../../index.md)\n\n````python\nprint(2)\n````\n\n````text\n2\n````\n"
        "\n````python\nx = 1\n````\n"
    )


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ('<a href="gone.html">x</a>', "gone.html leads nowhere"),
        ('<a href="b.html#gone">x</a>', "b.html#gone leads nowhere"),
        ('<img src="gone.svg">', "gone.svg leads nowhere"),
        ('<script src="https://cdn.example/x.js"></script>', "fetches https://cdn.example/x.js"),
        ("<p>so:\n* one\n* two</p>", "Markdown left as typed"),
        ("<p>[a](b.md)</p>", "Markdown left as typed"),
        ("<p>so $$x$$</p>", "Markdown left as typed"),
    ],
)
def test_the_checker_tells_what_is_wrong(written, body, complaint):
    (found,) = written(a=body, b='<p id="here"></p>')
    assert complaint in found


def test_the_checker_tells_of_a_page_that_the_search_does_not_find(tools, tmp_path):
    (tmp_path / "search").mkdir()
    for name in ("a", "b"):
        (tmp_path / f"{name}.html").write_text("<html></html>")
    index = tmp_path / "search" / "search_index.js"
    assert len(list(tools[1].unsearchable(tmp_path))) == 2
    index.write_text('var __index = {"docs":[{"location":"a.html","title":"A"}]}')
    assert list(tools[1].unsearchable(tmp_path)) == ["b.html: the search does not find it"]


def test_the_checker_passes_a_sound_page(written):
    body = '<a href="b.html#here">x</a> <a href="#top" id="top"></a> <a href="https://x.org">x</a>'
    assert written(a=body + "<p>2 * 3</p><pre>* as typed</pre>", b='<p id="here"></p>') == []
