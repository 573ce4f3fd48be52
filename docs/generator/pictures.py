"""Draws the pictures of the README: the answer as a terminal shows it, and the report of the plan.

python docs/generator/pictures.py       writes docs/pictures; needs a Chromium on the PATH
"""

from __future__ import annotations

import contextlib
import io
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

from rich.console import Console
from rich.text import Text

from trainplan.cli.main import run
from trainplan.cli.terminal import output

FOLDER = Path(__file__).parents[1] / "pictures"
JOB = "--model llama3-70b --cluster 8x8:h100-sxm --global-batch-size 128 --seq-length 8192"
LINES = 42
"""Of the answer that are drawn: down to the last row of the table."""
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SIZE = (1280, 1480)
"""Pixels of the report that are drawn."""
SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>What plan search prints</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""Rich's picture without its font, which it would load from elsewhere."""


def answer_svg(text: str, title: str) -> str:
    """What a terminal shows, with its colours, as a picture."""
    console = Console(record=True, width=output.WIDTH, file=io.StringIO(), force_terminal=True)
    for line in text.splitlines()[:LINES]:
        console.print(Text.from_ansi(line), no_wrap=True, crop=True)
    return console.export_svg(title=title, code_format=SVG, unique_id="answer")


def printed(arguments: str) -> str:
    """What `plan` prints on a terminal."""
    out = io.StringIO()
    terminal = mock.patch.object(output, "_is_terminal", return_value=True)
    with terminal, contextlib.redirect_stdout(out):
        assert run(shlex.split(arguments)) == 0
    return out.getvalue()


def photographed(page: Path, picture: Path, *, dark: bool) -> None:
    """The top of a page as a browser shows it."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        raise SystemExit(f"none of {', '.join(BROWSERS)} is on the PATH")
    width, height = SIZE
    theme = ("--blink-settings=preferredColorScheme=0",) if dark else ()
    subprocess.run(
        (
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            f"--window-size={width},{height}", "--virtual-time-budget=5000", *theme,
            f"--screenshot={picture}", page.as_uri(),
        ),
        check=True,
        capture_output=True,
    )  # fmt: skip


def main() -> None:
    """Write the pictures."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        text = printed(f"search {JOB} --report {shlex.quote(str(report))}")
        picture = answer_svg(text, f"plan search {JOB}")
        (FOLDER / "answer.svg").write_text(picture, encoding="utf-8")
        for dark in (False, True):
            name = "report-dark.png" if dark else "report-light.png"
            photographed(report, FOLDER / name, dark=dark)


if __name__ == "__main__":
    sys.exit(main())
