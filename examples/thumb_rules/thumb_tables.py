"""Results of all rules: their document, and the tables of README and docs that come from it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean, median

from scored_thumbs import TIE
from thumb_jobs import jobs
from thumb_rules import RULES

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = HERE / "results.json"
PAGE, INDEX = ROOT / "docs/explanation/thumb-rules.md", ROOT / "docs/index.md"
ACCURACY = ROOT / "docs/accuracy.md"
README = HERE / "README.md"
START, END = "<!-- thumb rules: {} -->", "<!-- end -->"
INNER = re.compile(r'(?:"summary": |(?<=^    ")[^"\n]+": )\{(?:[^{}]|\{[^{}]*\})*\}', re.MULTILINE)
"""A summary or the score of a job, in JSON with an indent of one."""
Found = Mapping[str, Mapping[str, object]]
Document = dict[str, object]


def document(found: Mapping[str, Found]) -> Document:
    """By rule what it did on every job that it speaks of, and a summary."""
    rules = {}
    for rule in RULES:
        one = {name: scores[rule.name] for name, scores in found.items() if rule.name in scores}
        rules[rule.name] = {"summary": summary(list(one.values())), "jobs": one}
    return {"schema": "trainplan/thumb-rules/v1", "jobs": len(jobs()), "rules": rules}


def summary(scores: list[Mapping[str, object]]) -> Document:
    """Counts, and how much slower than the search as fractions; null where nothing fits."""
    verdicts = [str(one["verdict"]) for one in scores]
    found: Document = {"speaks": len(scores)}
    found["out_of_memory"] = verdicts.count("out of memory")
    found["illegal"] = verdicts.count("illegal")
    found["out_of_memory_as_read"] = verdicts.count("out of memory as read")
    for name in ("best", "read", "read_same_axes"):
        losses = [float(str(one[name])) for one in scores if name in one]
        found[name] = _losses(losses) if losses else None
    return found


def _losses(losses: list[float]) -> Document:
    figures = {"median": median(losses), "mean": fmean(losses), "worst": max(losses)}
    ties = sum(loss < TIE for loss in losses)
    return {"jobs": len(losses), "ties": ties, **{k: round(v, 4) for k, v in figures.items()}}


def rows(results: Document) -> Iterator[tuple[str, ...]]:
    """Of the table of rules that speak."""
    of_rules = results["rules"]
    assert isinstance(of_rules, dict)
    for rule in RULES:
        one = of_rules[rule.name]["summary"]
        if not one["speaks"]:
            continue
        fails = one["out_of_memory"] + one["illegal"]
        first = (rule.title, rule.runtime, str(one["speaks"]), str(fails))
        yield (
            *first,
            *_cells(one["best"]),
            *_read(one),
            *_cells(one["read_same_axes"], ties=False),
        )


def _read(one: Mapping[str, object]) -> tuple[str, ...]:
    more = int(str(one["out_of_memory_as_read"]))
    fails = more + int(str(one["out_of_memory"])) + int(str(one["illegal"]))
    return (str(fails) if one["read"] else "", *_cells(one["read"]))


def _cells(losses: object, *, ties: bool = True) -> tuple[str, ...]:
    if not isinstance(losses, dict):
        return ("", "", "", "")[: 4 if ties else 2]
    first = (str(losses["ties"]),) if ties else ()
    names = ("median", "mean", "worst") if ties else ("median", "worst")
    return (*first, *(percent(losses[name]) for name in names))


def percent(fraction: float) -> str:
    """Slower than the search; a tie's sign is not shown."""
    return f"{max(fraction, 0):.0%}".replace("%", " %")


HEAD = (
    *("rule", "runtime", "covers", "never fits"),
    *("ties", "median", "mean", "worst"),
    *("does not fit as read", "ties", "median", "mean", "worst"),
    *("median, same axes", "worst, same axes"),
)


def table(results: Document) -> str:
    """The rules as Markdown."""
    head = [f"| {' | '.join(HEAD)} |", "|---|---|" + "---:|" * (len(HEAD) - 2)]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows(results))]) + "\n"


def short(results: Document) -> str:
    """What stands on the front page."""
    of_rules = results["rules"]
    assert isinstance(of_rules, dict)
    head = [
        "| advice | jobs | does not fit | ties | slower, median |",
        "|---|---:|---:|---:|---:|",
    ]
    lines = []
    for rule in RULES:
        one = of_rules[rule.name]["summary"]
        if one["read"]:
            fails = _read(one)[0]
            cells = (one["speaks"], fails, one["read"]["ties"], percent(one["read"]["median"]))
            lines.append(f"| {rule.title} | {' | '.join(map(str, cells))} |")
    return "\n".join([*head, *lines]) + "\n"


def by_job(results: Document) -> str:
    """Every job and rule: best completion, and as read."""
    of_rules = results["rules"]
    assert isinstance(of_rules, dict)
    names = [rule.name for rule in RULES]
    head = [f"| job | {' | '.join(names)} |", "|---|" + "---:|" * len(names)]
    lines = []
    for job in jobs():
        cells = [_cell(of_rules[name]["jobs"].get(job)) for name in names]
        lines.append(f"| {job} | {' | '.join(cells)} |")
    return "\n".join([*head, *lines]) + "\n"


def _cell(one: Mapping[str, object] | None) -> str:
    if one is None:
        return ""
    if "best" not in one:
        return "illegal" if one["verdict"] == "illegal" else "no fit"
    best = percent(float(str(one["best"])))
    if "read" in one:
        return f"{best}, {percent(float(str(one['read'])))}"
    return f"{best}, no fit" if one["verdict"] == "out of memory as read" else best


def sources() -> str:
    """What each rule says, and where."""
    return "".join(f"* **{r.title}** (`{r.name}`): {r.says}. Source: {r.source}.\n" for r in RULES)


def error() -> str:
    """What the steps of the cost model are off by, as the page of its accuracy says."""
    page = ACCURACY.read_text(encoding="utf-8")
    first = re.search(
        r"\*\*Step times of [\d,]+ published runs: ([\d.]+ %) off .+?, (.+)\.\*\*", page
    )
    assert first
    return (
        f"Over the published runs its steps are off by {first[1]} at the median of their sources, "
        f"{first[2]}.\n"
    )


PARTS = {PAGE: {"table": table, "error": lambda results: error()}, INDEX: {"short": short}}
README_PARTS = {"table": table, "by job": by_job}


def pages(results: Document) -> Iterator[tuple[Path, str]]:
    """The pages as they are with these results."""
    parts = {**PARTS, README: {**README_PARTS, "sources": lambda results: sources()}}
    for path, some in parts.items():
        page = path.read_text(encoding="utf-8")
        for name, part in some.items():
            before, start, rest = page.partition(START.format(name))
            _, end, after = rest.partition(END)
            assert start, path
            assert end, path
            page = f"{before}{start}\n{part(results)}{end}{after}"
        yield path, page


def results_text(results: Document) -> str:
    """The file of the results, a line for each summary and each job of a rule."""
    text = json.dumps(results, indent=1, ensure_ascii=False)
    return INNER.sub(lambda found: " ".join(found[0].split()), text) + "\n"


def write(results: Document) -> None:
    """Results, then every page that shows them, each at once."""
    for path, page in [(RESULTS, results_text(results)), *pages(results)]:
        alongside = path.with_suffix(".part")
        alongside.write_text(page, encoding="utf-8")
        alongside.replace(path)
