"""What installed packages add: registries of names, each ours or a plug-in's.

Added: an entry and where it is from.
added: what plug-ins add to the names that are ours.
declared: names that plug-ins give to entries of a kind, in their order.
declaring: folders that record an installation with such an entry point, in the order of the path.
imported: what `module:NAME` names.
Installed: a plug-in and the package that brings it.
installed: every plug-in of this environment, by the name of its package.
LEFT_OUT: what was left out in this process, for `plan doctor`.
Plugin: what an installed package declares.
PluginCommand: a command of a plug-in.
PluginWarning: a plug-in, or a part of one, is left out.
Registry: entries of ours by name, and behind them those of plug-ins.
"""

from typing import TYPE_CHECKING

from trainplan.costmodel.base import door

if TYPE_CHECKING:
    from trainplan.costmodel.plugins.entry_points import declaring
    from trainplan.costmodel.plugins.plugins import (
        LEFT_OUT,
        Added,
        Installed,
        Plugin,
        PluginCommand,
        PluginWarning,
        Registry,
        added,
        declared,
        imported,
        installed,
    )
else:
    __getattr__ = door(__name__)
