"""A server that other programs ask: each call is a command, in a process of its own.

`requests` says what may be asked and how it is typed as a command line, `documents` puts what is
given inline where commands read it, `work` runs the command, `calls` starts, follows and ends its
process, `shown` keeps an answer within bounds, `server` speaks the protocol.
"""
