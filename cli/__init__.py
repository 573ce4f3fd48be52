"""Terminal front end: the only package that reads argv, files and the clock, and that prints.

`main` picks a command; `usage` has its options and help page, `commands` what it does, `options`
readers of option values, `files` the documents a user gives, `render` the tables, `schemas` the
forms of documents, `serve` the server that other programs ask, `terminal` what is written where.
"""
