"""Terminal front end: the only package that reads argv, files and the clock, and that prints.

`main` picks one of `commands`, each a file with its help page and what answers. `options` are what
a command line takes, `values` what it means, `files` the documents a user gives, `trials` the runs
of `plan tune`. An answer is written as JSON by `documents` and shown by `pages`, which are made of
`blocks` and `words`. `serve` is the server for other programs, `processes` are those that
share work, `terminal` is what is written where.
"""
