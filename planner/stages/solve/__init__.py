"""The best split of one layout: a master problem proposes, a simulation disposes."""
