"""Build what a release is made of into a new folder: `make release`. Uploads nothing.

Sources and a wheel, built twice to the same bytes; an SBOM of what a fresh installation of the
wheel brings; their SHA-256 sums. Needs the extra `release`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

SUMS = "SHA256SUMS"


class NotReadyError(Exception):
    """Why nothing is released: what, where, what to do."""


def main() -> int:
    """Check, build, check again, and show what was made."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--output", type=Path, default=Path("dist"), help="a folder that is not yet"
    )
    parser.add_argument("--tag", default="", help="the tag that is released, such as v1.2.0")
    request = parser.parse_args()
    root = Path(__file__).parents[1]
    try:
        version = ready(root, request.tag)
        release(root, version, request.output)
    except NotReadyError as error:
        sys.stderr.write(f"release: {error}\n")
        return 2
    sys.stdout.write((request.output / SUMS).read_text())
    return 0


def ready(root: Path, tag: str = "") -> str:
    """The version to release.

    Raises:
        NotReadyError: The tree has changes, or version, changelog and tag disagree.
    """
    changed = output(root, "git", "status", "--porcelain")
    if changed:
        raise NotReadyError(f"{changed.split()[-1]} is not committed: commit it, or take it away")
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    version = str(project["version"])
    if tag and tag != f"v{version}":
        raise NotReadyError(
            f"the tag is {tag}, pyproject.toml has {version}: tag v{version}, or change it"
        )
    sections = changelog((root / "CHANGELOG.md").read_text("utf-8"))
    if not sections.get(version):
        raise NotReadyError(f"CHANGELOG.md has no lines under `## {version} - DATE`: write them")
    if sections.get("Unreleased"):
        raise NotReadyError(
            f"CHANGELOG.md has lines under Unreleased: move them below {version} or later"
        )
    return version


def changelog(text: str) -> dict[str, list[str]]:
    """Lines of each version; one that is there has a date, `Unreleased` has none."""
    parts = re.split(r"(?m)^## (Unreleased|\S+ - \d{4}-\d\d-\d\d)$", text)
    bodies = zip(parts[1::2], parts[2::2], strict=True)
    return {
        name.partition(" ")[0]: [line for line in body.splitlines() if line.startswith("* ")]
        for name, body in bodies
    }


def release(root: Path, version: str, folder: Path) -> None:
    """Make the files in a folder of their own, which gets its name when they are whole.

    Raises:
        NotReadyError: The folder exists, two builds differ, or a check of the files fails.
    """
    if folder.exists():
        raise NotReadyError(f"{folder} exists: move it away")
    folder.parent.mkdir(parents=True, exist_ok=True)
    epoch = output(root, "git", "log", "-1", "--format=%ct")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".release-") as work:
        made, again = Path(work, "made"), Path(work, "again")
        for one in (made, again):
            build = ("-m", "build", "--no-isolation", "--outdir", str(one), str(root))
            run(root, sys.executable, *build, SOURCE_DATE_EPOCH=epoch)
        if sums(made) != sums(again):
            raise NotReadyError(
                "two builds of the same commit differ: see what in them has the time"
            )
        run(root, sys.executable, "-m", "twine", "check", "--strict", *map(str, made.iterdir()))
        bill_of_materials(root, made, version, Path(work, "fresh"))
        (made / SUMS).write_text(sums(made))
        made.rename(folder)


def bill_of_materials(root: Path, made: Path, version: str, fresh: Path) -> None:
    """Install the wheel where nothing else is, see that it answers, and write down what came."""
    (wheel,) = made.glob("*.whl")
    venv.create(fresh)
    python, script = (str(fresh / "bin" / name) for name in ("python", "plan"))
    run(root, sys.executable, "-m", "pip", "--python", python, "install", "--quiet", str(wheel))
    written = output(root, script, "--version")
    if written != f"plan, version {version}":
        raise NotReadyError(f"the wheel says {written!r} of itself: it should be version {version}")
    file = str(made / f"trainplan-{version}.cdx.json")
    of = ("--pyproject", "pyproject.toml", "--mc-type", "application", python)
    options = ("--output-reproducible", "--validate", "--output-file", file)
    run(root, sys.executable, "-m", "cyclonedx_py", "environment", *options, *of)


def sums(folder: Path) -> str:
    """SHA-256 of each file, as `sha256sum --check` reads it."""
    files = sorted(folder.iterdir())
    return "".join(f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}\n" for one in files)


def run(root: Path, *command: str, **environment: str) -> None:
    """Run it, and show what it said if it fails.

    Raises:
        NotReadyError: It failed.
    """
    done = subprocess.run(
        command,
        cwd=root,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        raise NotReadyError(f"`{' '.join(command)}` failed: see above")


def output(root: Path, *command: str) -> str:
    """What it prints, without the line end."""
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
