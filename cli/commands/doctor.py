"""`plan doctor`: is this installation whole, and does your runtime know what we write?

Of the planner only what the question needs is imported: the installation may not be whole.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import click

from trainplan.cli.options import PATH, names, page
from trainplan.cli.terminal import imported_on_answer, named

with imported_on_answer():
    from importlib.util import find_spec
    from platform import python_version

    from trainplan.cli.blocks import show
    from trainplan.cli.pages import Finding, findings_page
    from trainplan.costmodel.plugins import declaring

DISTRIBUTION = "trainplan"
LIBRARIES = ("click", "highspy", "numpy", "pulp", "pydantic", "pyyaml", "rich")
WANTED = {
    "torch": ("measurements are possible", "only measuring needs it"),
    "ortools": (
        "--synthesise and orders of nodes are proved",
        "only proofs of --synthesise and of orders of nodes need it",
    ),
    "mcp": ("plan serve answers other programs", "only plan serve needs it"),
}
"""What it is good for where it is there, and where it is not."""
MISSING = 2


@page("doctor", "plan doctor --runtime-path path/to/checkout", "plan doctor profile.json")
@click.argument("profiles", nargs=-1, metavar="[PROFILE.json...]", type=PATH)
@click.option(
    "--runtime-path",
    type=PATH,
    help=f"A checkout of {' or '.join(names.CHECKOUTS)}: does it know every option we write?",
)
def command(profiles: tuple[Path, ...], runtime_path: Path | None) -> None:
    """Check installation, plug-ins, runtime or a profile.

    Of a profile: which numbers are measured, which are fitted or assumed, and which measurement
    would shrink the error most.
    """
    if profiles:
        named("trainplan.cli.commands.profile_doctor:show_findings")(paths=profiles)
        return
    findings = [*_installation(), *map(_wanted, WANTED)]
    if declaring():
        findings += cast("list[Finding]", named("trainplan.cli.commands.plugin_doctor:findings")())
    if runtime_path is not None:
        runtime = named("trainplan.cli.commands.runtime_doctor:runtime_finding")(
            folder=runtime_path
        )
        assert isinstance(runtime, Finding)
        findings.append(runtime)
    show(findings_page(findings))
    if not all(finding.good for finding in findings):
        click.get_current_context().exit(MISSING)


def _installation() -> Iterator[Finding]:
    yield Finding("python", good=True, detail=python_version())
    for library in (DISTRIBUTION, *LIBRARIES):
        version = _version(library)
        missing = f"not installed: pip install {library}"
        yield Finding(library, good=version is not None, detail=version or missing)


def _version(library: str) -> str | None:
    """By the name of the folder that records an installation; other ways of recording are slower.

    Source: packaging.python.org, "Recording installed projects", section on .dist-info.
    """
    for path in sys.path:
        for folder in Path(path).glob("*.dist-info"):
            name, _, version = folder.stem.partition("-")
            if name.lower() == library:
                return version
    import importlib.metadata  # noqa: PLC0415 (half of the time of the whole command)

    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def _wanted(library: str) -> Finding:
    there, not_there = WANTED[library]
    found = find_spec(library) is not None
    detail = f"found: {there}" if found else f"not installed: {not_there}"
    return Finding(library, good=True, detail=detail)
