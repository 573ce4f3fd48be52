"""Pure arithmetic of a training step: seconds and bytes of every candidate layout.

Rooms import those below them: `base`, `spec` (what is given), `layouts` and `model` (what is
counted), `catalog`, `schedules`, `machine`, `runtimes` (what is given), `comm`, `blocks`,
`pipeline`, `memory`, `axes`, `traffic`, `step` (what a step costs), `measured` and `validate` (what
measurements show). Nothing here reads a clock, a file but the catalog, or the environment.
"""
