"""What installed packages add: registries of names, each ours or a plug-in's."""
