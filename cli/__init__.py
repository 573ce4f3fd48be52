"""Terminal front end: the only package that reads argv, files and the clock, and that prints.

`main` picks one of `commands`, which has its options, its help page and what answers, `options`
readers of option values, `files` the documents a user gives, `render` the tables, `documents`
what is written as JSON, `serve` the server that other programs ask, `terminal` what is written
where.
"""
