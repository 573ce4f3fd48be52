"""Options and help page of each command.

A module imports names and texts, and nothing that answers: that is in `cli.commands`, which
`cli.lazily.call` imports when the command line is read. `cli.names` holds the names of runtimes,
schedules, formats and others that help pages list.
"""
