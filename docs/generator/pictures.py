"""Draws the pictures of the README: the answer as a terminal shows it, and the report of the plan.

make pictures       writes docs/pictures; needs Chromium and chromedriver of the system
"""

from __future__ import annotations

import contextlib
import io
import shlex
import struct
import sys
import tempfile
import zlib
from base64 import b64decode
from pathlib import Path
from unittest import mock

from rich.console import Console
from rich.text import Text

from tests.browser.chromium import Browser
from trainplan.cli.blocks import shown
from trainplan.cli.main import run
from trainplan.cli.terminal import WIDTH

FOLDER = Path(__file__).parents[1] / "pictures"
JOB = "--model llama3-70b --cluster 8x8:h100-sxm --global-batch-size 128 --seq-length 8192"
LINES = 45
"""Of the answer that are drawn: down to the last row of the table."""
SIZE = {"width": 1280, "height": 1410}
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
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for line in text.splitlines()[:LINES]:
        console.print(Text.from_ansi(line), no_wrap=True, crop=True)
    return console.export_svg(title=title, code_format=SVG, unique_id="answer")


def printed(arguments: str) -> str:
    """What `plan` prints on a terminal."""
    out = io.StringIO()
    terminal = mock.patch.object(shown, "is_terminal", return_value=True)
    wide = mock.patch.object(shown, "page_width", return_value=WIDTH)
    with terminal, wide, contextlib.redirect_stdout(out):
        assert run(shlex.split(arguments)) == 0
    return out.getvalue()


HEADER_BYTES = 8 + 25
"""Of a PNG: its signature and the chunk that comes first."""
KEY = b"Description\0"


def described(png: bytes, text: str) -> bytes:
    """The picture with a text in it: the answer that it shows."""
    kept = KEY + text.encode("latin-1")
    sealed = struct.pack(">I", zlib.crc32(b"tEXt" + kept))
    chunk = struct.pack(">I", len(kept)) + b"tEXt" + kept + sealed
    return png[:HEADER_BYTES] + chunk + png[HEADER_BYTES:]


def description(png: bytes) -> str:
    """The text in a picture; empty where there is none."""
    (size,) = struct.unpack(">I", png[HEADER_BYTES : HEADER_BYTES + 4])
    chunk = png[HEADER_BYTES + 4 : HEADER_BYTES + 8 + size]
    return chunk[4 + len(KEY) :].decode("latin-1") if chunk[4:].startswith(KEY) else ""


def photographed(browser: Browser, page: Path, picture: Path, scheme: str, answer: str) -> None:
    """The top of a page as a browser shows it, its first chart drawn."""
    browser.open(page, scheme=scheme)
    browser.draw()
    browser.ask("scrollTo(0, 0)")
    clip = {"x": 0, "y": 0, **SIZE, "scale": 1}
    shot = browser.driver.execute_cdp_cmd(
        "Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True, "clip": clip}
    )
    picture.write_bytes(described(b64decode(shot["data"]), answer))


def main() -> None:
    """Write the pictures."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        text = printed(f"search {JOB} --time-limit none --report {shlex.quote(str(report))}")
        picture = answer_svg(text, f"plan search {JOB}")
        (FOLDER / "answer.svg").write_text(picture, encoding="utf-8")
        answer = "\n".join(Text.from_ansi(text).plain.splitlines()[:2])
        browser = Browser()
        for scheme in ("light", "dark"):
            photographed(browser, report, FOLDER / f"report-{scheme}.png", scheme, answer)
        browser.quit()


if __name__ == "__main__":
    sys.exit(main())
