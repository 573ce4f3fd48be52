"""Figures in the prose of README and docs: each is in a comment that names it, and is computed.

    <!-- figure: dense recipes -->81<!-- end -->

`make docs` writes them, `generate.py --check` compares. A figure is of recorded data (`recorded`)
or of what the page's own commands print above (`printed`). The step in the text of a picture, which
holds no comment, is that of the page's first answer. `answer: lost-node 2` is the first line that
the second command of docs/gallery/lost-node.md prints.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import dropwhile, takewhile
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

from console import BLOCK, commands

from trainplan.costmodel.documents.measured_run import MeasuredRun
from trainplan.costmodel.validate import predict, timed_rows

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "docs" / "gallery"
FIGURE = re.compile(r"(<!-- figure: ([\w -]+) -->)(.*?)(<!-- end -->)")
ANSWER = re.compile(r"(<!-- answer: ([\w-]+) (\d+) -->)(.*?)(<!-- end -->)")
READ_FROM_OPTIONS = re.compile(r"(?:cluster|model) \S|--[\w-]+: ")
"""Begins a line on how an option was read, above the answer."""
STEP = re.compile(r"^([\d.,]+ m?s) a step", re.MULTILINE)
IN_PICTURE = re.compile(r'((?:alt="|!\[)[^"\]]*?)[\d.,]+ m?s step')
LOSES = re.compile(r"loses [\d.,]+ m?s a step, ([\d.]+ %)")
COURT = re.compile(r"(\d+) of (\d+) recipes are\s+refused. Within a month (\d+)")
ZOO = "moezoo-qwen3-235b-gb300-mxfp8"
"""A run of examples/accuracy/runs.jsonl."""


def with_figures(page: str, pages: Mapping[Path, str] = MappingProxyType({})) -> str:
    """The page with its figures as they are now; `pages` are newer texts than those on disk."""
    step = STEP.search(page)
    if step:
        page = IN_PICTURE.sub(rf"\g<1>{step[1]} step", page)
    page = FIGURE.sub(lambda found: f"{found[1]}{_figure(found[2], page)}{found[4]}", page)

    def answered(found: re.Match[str]) -> str:
        path = GALLERY / f"{found[2]}.md"
        text = pages[path] if path in pages else path.read_text(encoding="utf-8")
        return f"{found[1]}{answer(text, int(found[3]))}{found[5]}"

    return ANSWER.sub(answered, page)


def answer(page: str, number: int) -> str:
    """The answer in what the command of that number, from 1, prints first on a page."""
    blocks = (block[3] for block in BLOCK.finditer(page))
    printed = [below for block in blocks for command, below in commands(block) if _runs(command)]
    below = dropwhile(READ_FROM_OPTIONS.match, printed[number - 1])
    first = list(takewhile(bool, below))
    if first[0].startswith("tp "):
        layout = list(takewhile(lambda line: not STEP.match(line), first))
        step = STEP.match(first[len(layout)])
        assert step
        return f"{' '.join(layout)}: {step[0]}"
    return " ".join(takewhile(lambda line: not line.startswith(("tp ", " ")), first)).rstrip(".")


def _runs(command: Sequence[str]) -> bool:
    return command[0].startswith("$ plan ")


def _figure(name: str, page: str) -> str:
    known = {**recorded(), **printed(page)}
    assert name in known, f"no figure is named {name}: there are {', '.join(known)}"
    return known[name]


def printed(page: str) -> Mapping[str, str]:
    """Figures that a command of the page prints."""
    loses = LOSES.search(page)
    return {"recipe against optimum": loses[1]} if loses else {}


@cache
def recorded() -> Mapping[str, str]:
    """Figures of recorded verdicts, measured runs and tables of the docs."""
    dense = dense_recipes()
    cpu_s = median(recipe["cpu_s"] for recipe in dense)
    court = COURT.search(_read("docs/recipe-court.md"))
    runs = {run["id"]: run for run in _lines("examples/accuracy/runs.jsonl")}
    layout = runs[ZOO]["layout"]
    table = _read("docs/index.md").partition("<!-- thumb rules: short -->")[2]
    guides = [int(one) for one in re.findall(r"\| (\d+) % \|$", table, re.MULTILINE)]
    assert court
    return {
        "dense recipes": str(len(dense)),
        "dense recipes over bound": f"{100 * median(map(over_bound, dense)):.1f} %",
        "dense recipes search": f"{cpu_s:.1f} s",
        "recipes refused": f"{court[1]} of {court[2]}",
        "recipes repaired": court[3],
        "model zoo layout": ", ".join(f"{name} {layout[name]}" for name in ("tp", "pp", "ep")),
        "model zoo speed": f"{runs[ZOO]['measured']['tokens_per_s_per_gpu']:,.0f} tokens/s/GPU",
        "model zoo batch": f"{runs[ZOO]['training']['global_batch_size']:,}",
        "model zoo estimate": f"{100 * abs(_error(runs[ZOO])):.1f} %",
        "guides slower": f"{min(guides)} to {max(guides)} %",
    }


def _error(run: Mapping[str, Any]) -> float:
    """Predicted over measured step time, less one, of a run as it was made."""
    [row] = timed_rows(predict([MeasuredRun.model_validate(run)]), everything=True)
    return row.estimate.step_time_s / row.measured_s - 1


@cache
def dense_recipes() -> Sequence[Mapping[str, Any]]:
    """Steps of NVIDIA's dense recipes, lower bounds of their jobs, and what finding them took."""
    return _lines("examples/recipe_court/optimum.jsonl")


def over_bound(recipe: Mapping[str, Any]) -> float:
    """By which share its step is above the least that any layout can have."""
    return float(recipe["step_s"]) / float(recipe["bound_s"]) - 1


def _read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def _lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in _read(path).splitlines()]
