"""Writes docs/accuracy.md, its pictures, figures, intervals and table of runs from published runs.

python docs/generator/accuracy.py            write both, and list the figures that moved
python docs/generator/accuracy.py --check    list what is out of date or worse, exit code 1 then
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import accuracy_left_out
import accuracy_pictures
import headlines
from accuracy_findings import REPLACEMENTS, Findings, Json
from accuracy_page import page
from evidence_table import FILE, evidence_text

from trainplan.cli.files.runs import InvalidRun, read_runs
from trainplan.costmodel import catalog
from trainplan.costmodel.documents.constants import Intervals
from trainplan.costmodel.documents.measured_run import MeasuredRun
from trainplan.costmodel.validate.intervals import intervals, of_sources
from trainplan.costmodel.validate.memory_scores import peak_rows
from trainplan.costmodel.validate.peaks import peaks

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "accuracy"
DATA = (FOLDER / "runs.jsonl", FOLDER / "fits.jsonl")
LEAVE_ONE_OUT = FOLDER / "leave_one_out.json"
PAGE = ROOT / "docs" / "accuracy.md"
README = ROOT / "README.md"
PHRASE = re.compile(r"(<!-- accuracy -->)(.*?)(<!-- end -->)", re.S)
NUMBER = re.compile(r"(?<![\w.-])[-+]?\d+(?:\.\d+)?(?![\w.-])")
INTERVALS = ROOT / "costmodel" / "catalog" / "intervals.toml"
FIGURES = ROOT / "tests" / "golden" / "accuracy.json"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that the project publishes."""

    value: float
    tolerance: float
    better: str
    """`lower`, `higher`, or `near`: to a goal, so that any move is to be explained."""

    def verdict(self, now: float) -> str | None:
        """What is wrong with a new value; null: it is as stated."""
        move = now - self.value
        if abs(move) <= self.tolerance:
            return None
        improved = {"lower": move < 0, "higher": move > 0, "near": False}[self.better]
        moved = f"{self.value:.4g} -> {now:.4g}, tolerance {self.tolerance:g}"
        return f"better than stated ({moved})" if improved else f"worse than stated ({moved})"


def figures(findings: Findings) -> Mapping[str, Figure]:
    """The headline numbers."""
    found = findings.scores
    study, one_step, verdicts = found.layout_study, found.one_step, found.verdicts
    assert found.headline
    assert found.step_time
    assert one_step
    assert study
    values = {
        "step_time_mean_of_source_medians": (found.headline.error_fraction, 0.002, "lower"),
        "step_time_median": (found.step_time.median_fraction, 0.002, "lower"),
        "step_time_mean": (found.step_time.mean_fraction, 0.002, "lower"),
        "step_time_after_one_step": (one_step.after_fraction, 0.003, "lower"),
        "layout_study_mean": (study.mean_fraction, 0.003, "lower"),
        "layout_study_spearman": (study.ranking.mean_spearman, 0.02, "higher"),
        "layout_study_regret": (study.ranking.mean_regret_fraction, 0.005, "lower"),
        "coverage_of_the_80_percent_interval_source_left_out": (
            of_sources(findings.residuals, catalog.intervals().widened)[0].inside_fraction,
            0.02,
            "near",
        ),
        "false_fits": (verdicts.false_fit_fraction or 0.0, 0.012, "lower"),
        "false_refusals": (verdicts.false_refusal_fraction or 0.0, 0.005, "lower"),
        "rows_priced": (len(found.rows), 0.0, "higher"),
        "labels_answered": (verdicts.answered, 0.0, "higher"),
    }
    if findings.leave_one_out:
        left_out = findings.leave_one_out["mean_of_medians"]
        values["step_time_source_left_out"] = (left_out, 0.003, "lower")
    for loop in findings.closed_loops:
        values[f"profile_{loop.name}_mean"] = (loop.means[1], 0.005, "lower")
    for one in found.memory.by_kind:
        values[f"memory_{one.name}_median"] = (one.median_fraction, 0.003, "lower")
    return {
        name: Figure(round(value, 5), tolerance, better)
        for name, (value, tolerance, better) in values.items()
    }


def stated_figures() -> Mapping[str, Figure]:
    """Those on file."""
    values = read_json(FIGURES) or {}
    return {name: Figure(**entry) for name, entry in values.items()}


def read_data() -> tuple[MeasuredRun, ...]:
    """The published runs and labels."""
    records = [record for path in DATA for record in read_runs(path)]
    odd = [record for record in records if isinstance(record, InvalidRun)]
    assert not odd, odd
    return tuple(record for record in records if isinstance(record, MeasuredRun))


def complaints(findings: Findings) -> Iterator[str]:
    """What is worse than stated, or stale."""
    stated, now = stated_figures(), figures(findings)
    for name in sorted(now.keys() ^ stated.keys()):
        yield f"figure {name} is new or gone: run `make accuracy`"
    for name in sorted(now.keys() & stated.keys()):
        verdict = stated[name].verdict(now[name].value)
        if verdict:
            yield f"figure {name} is {verdict}: mend the model, or run `make accuracy` and say why"
    if wanted_intervals(findings) != catalog.intervals():
        yield f"{INTERVALS.relative_to(ROOT)} is out of date: run `make accuracy`"
    yield from accuracy_pictures.complaints(findings.scores.rows, agree)
    dropped = [one.name for one in REPLACEMENTS if one not in findings.replacements]
    yield from _stale(PAGE, page(findings), dropped)
    yield from _stale(FILE, evidence_text(findings.scores.rows))
    yield from _stale(README, readme_text(findings))


def _stale(path: Path, now: str, dropped: Sequence[str] = ()) -> Iterator[str]:
    """Is a file as it is now? Rows of tables with the names that are `dropped` may be there."""
    rows = tuple(f"| {name} |" for name in dropped)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else ()
    if not agree("".join(line for line in lines if not line.startswith(rows)), now):
        yield f"{path.relative_to(ROOT)} is out of date: run `make accuracy`"


def _headlines_page(findings: Findings) -> str:
    return headlines.page(headlines.headlines(read_data()), accuracy_text(findings))


def accuracy_text(findings: Findings) -> str:
    """How far off step times are, in one phrase."""
    return accuracy_left_out.headline_text(findings.scores.rows, findings.left_out_rows)


def readme_text(findings: Findings) -> str:
    """The README with that phrase."""
    stated = README.read_text(encoding="utf-8")
    return PHRASE.sub(lambda found: f"{found[1]}{accuracy_text(findings)}{found[3]}", stated)


def agree(stated: str, now: str) -> bool:
    """Are two pages the same, but for one unit in the last digit of a number: another machine's?"""
    if NUMBER.split(stated) != NUMBER.split(now):
        return False
    pairs = zip(NUMBER.findall(stated), NUMBER.findall(now), strict=True)
    return all(abs(float(one) - float(other)) < 1.5 * _unit(one) for one, other in pairs)


def _unit(number: str) -> float:
    decimals = len(number.partition(".")[2])
    return float(10**-decimals) if decimals else 0.5


def read_json(path: Path) -> Json | None:
    """Content of a file; null where there is none."""
    if not path.exists():
        return None
    values: Json = json.loads(path.read_text(encoding="utf-8"))
    return values


def wanted_intervals(findings: Findings) -> Intervals:
    """Ends of the intervals that the runs give."""
    peaks_seen = peaks(peak_rows(findings.predictions, everything=False))
    return intervals(findings.residuals, peaks_seen)


def write_intervals(wanted: Intervals) -> None:
    """Put the ends into the catalog."""
    rows = "".join(
        f'"{name}" = {{ half_width = {one.half_width}, runs = {one.runs}, '
        f"sources = {one.sources} }}\n"
        for name, one in sorted(wanted.regimes.items())
    )
    head = (
        "# Written by `make accuracy` from examples/accuracy; "
        "how is told in costmodel/validate/intervals.py.\n"
    )
    pair = ", ".join(f"{name} = {value}" for name, value in wanted.comparison)
    names = ", ".join(f'{name} = "{one}"' for name, one in sorted(wanted.libraries.items()))
    shares = f"widened = {wanted.widened}\nleft_out = {wanted.left_out}\n"
    above = f"comparison = {{ {pair} }}\n{shares}libraries = {{ {names} }}\n"
    seen = wanted.peaks
    scales = "".join(f'"{name}" = {one}\n' for name, one in sorted(seen.scales.items()))
    below = (
        f"[peaks]\nwidened = {seen.widened}\nleft_out = {seen.left_out}\n"
        f"libraries = {json.dumps(seen.libraries)}\n\n[peaks.scales]\n{scales}"
    )
    INTERVALS.write_text(f"{head}{above}\n[regimes]\n{rows}\n{below}", encoding="utf-8")
    catalog.intervals.cache_clear()


def main(arguments: Sequence[str]) -> int:
    """Write the page, the figures and the intervals, or check them."""
    findings = Findings(read_data(), read_json(LEAVE_ONE_OUT))
    wanted = wanted_intervals(findings)
    if "--check" not in arguments and wanted != catalog.intervals():
        write_intervals(wanted)
        findings = Findings(read_data(), read_json(LEAVE_ONE_OUT))
    if "--check" in arguments:
        found = [*complaints(findings), *_stale(headlines.PAGE, _headlines_page(findings))]
        sys.stderr.writelines(f"{line}\n" for line in found)
        return 1 if found else 0
    stated, now = stated_figures(), figures(findings)
    for name, figure in now.items():
        before = f"{stated[name].value:g} -> " if name in stated else ""
        sys.stdout.write(f"{name:36} {before}{figure.value:g}\n")
    accuracy_pictures.write(findings.scores.rows)
    PAGE.write_text(page(findings), encoding="utf-8")
    FILE.write_text(evidence_text(findings.scores.rows), encoding="utf-8")
    text = json.dumps({name: asdict(figure) for name, figure in now.items()}, indent=1)
    FIGURES.write_text(text + "\n", encoding="utf-8")
    headlines.PAGE.write_text(_headlines_page(findings), encoding="utf-8")
    README.write_text(readme_text(findings), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
