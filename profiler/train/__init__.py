"""Real training steps of small models, in processes of this machine.

`request` says what is run and what each rank reports; `server` imports the libraries once and forks
the ranks of one run after the other; `trainers` is the registry of what trains.
"""
