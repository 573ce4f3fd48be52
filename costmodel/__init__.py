"""Pure arithmetic of a training step: seconds and bytes of every candidate layout.

Rooms stand on those below them: `base`, `spec` (what is asked), `layouts` and `model` (what is
counted), `catalog`, `schedules`, `machine`, `runtimes` (what is given), `comm`, `blocks`,
`pipeline`, `memory`, `axes`, `traffic`, `step` (what a step costs), `measured` and `validate` (what
measurements say). Nothing here reads a clock, a file beside the catalog, or the environment.
"""
