"""A GPU, a model preset, a launcher and a command for `plan`."""

from trainplan.costmodel.plugins import Plugin, PluginCommand

PLUGIN = Plugin(
    gpus="gpus.toml",
    fitted="fitted.toml",
    models="models",
    launchers={"pbs": "trainplan_example.pbs:PBS"},
    commands={"degrees": PluginCommand("trainplan_example.degrees:command", "Degrees of a plan.")},
)
