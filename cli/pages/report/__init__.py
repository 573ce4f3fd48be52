"""Reports: one HTML file that works offline, with charts.

`blocks` is what a page is made of, `charts` how numbers are drawn, `page` writes the file with the
style, the script and the drawing library of `assets`. What is in the report of a document is
one file a kind of document.
"""
