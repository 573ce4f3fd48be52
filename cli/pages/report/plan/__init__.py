"""The report of a plan, a file for each thing it shows."""
