"""`plan doctor`: is this installation whole, and does your runtime know what we write?

Of the planner only what the question needs is imported: the installation may not be whole.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
from collections.abc import Iterator
from pathlib import Path

import click

from trainplan.cli.render.findings import Finding, findings_page
from trainplan.cli.terminal.lazily import call
from trainplan.cli.terminal.output import show

DISTRIBUTION = "trainplan"
LIBRARIES = ("click", "numpy", "pydantic", "pyyaml", "rich")
MISSING = 2


def command(profiles: tuple[Path, ...], runtime_path: Path | None) -> None:
    """Print what was found."""
    if profiles:
        call("trainplan.cli.commands.profile_doctor:show_findings", paths=profiles)
        return
    findings = [*_installation(), _torch()]
    if runtime_path is not None:
        runtime = call("trainplan.cli.commands.runtime_doctor:runtime_finding", folder=runtime_path)
        assert isinstance(runtime, Finding)
        findings.append(runtime)
    show(findings_page(findings))
    if not all(finding.good for finding in findings):
        click.get_current_context().exit(MISSING)


def _installation() -> Iterator[Finding]:
    yield Finding("python", good=True, detail=platform.python_version())
    for library in (DISTRIBUTION, *LIBRARIES):
        try:
            yield Finding(library, good=True, detail=importlib.metadata.version(library))
        except importlib.metadata.PackageNotFoundError:
            yield Finding(library, good=False, detail=f"not installed: pip install {library}")


def _torch() -> Finding:
    there = importlib.util.find_spec("torch") is not None
    detail = (
        "found: measurements are possible" if there else "not installed: only measuring needs it"
    )
    return Finding("torch", good=True, detail=detail)
