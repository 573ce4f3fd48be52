"""What an answer shows, as frozen values, and its two drawers: a terminal and a page of HTML.

answer: prints an answer as its document or its page, or gives both to who listens.
Block: any of the blocks.
Cell: a cell of a table: what is read, and the number it is sorted by.
Chart: a chart, its finding in a sentence, and its numbers as a table.
Code: a file or a command, to be copied.
Column: a column of a table: its name, how its numbers are written, who draws it.
Columns: those of a table.
Drawn: a picture as wide as the terminal.
Fact: a number of the first lines, with its unit.
Facts: numbers side by side.
Folded: blocks behind a line that opens them.
headed: parts below a heading, on a terminal.
html: the file of a report.
number: a column of numbers, each written by a function.
Page: a report: its answer, how sure that is, sections.
page_text: parts as a terminal of some width shows them.
Paragraph: plain sentences.
Part: what a page of the terminal is made of.
Row: values under the columns of a table.
Section: a part of a report.
section: a heading and lines below it, on a terminal.
show: prints parts one below the other.
stacked: parts without an empty line between them.
Table: rows under columns.
table: makes one of columns and values.
"""

from trainplan.cli.blocks.blocks import (
    Block,
    Cell,
    Chart,
    Code,
    Column,
    Columns,
    Fact,
    Facts,
    Folded,
    Page,
    Paragraph,
    Row,
    Section,
    Table,
    number,
    table,
)
from trainplan.cli.blocks.html import html
from trainplan.cli.blocks.screen import Drawn, Part, headed, stacked
from trainplan.cli.blocks.shown import answer, page_text, section, show
