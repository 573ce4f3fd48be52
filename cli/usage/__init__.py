"""Options and help page of every command, one file each.

A module imports names and texts, and nothing that answers: that is in the module of the same name
in `cli.commands`, which `options.help.page` imports when the command line is read.
`cli.options.names` holds the names of runtimes, schedules, formats and others that help pages list.
"""
