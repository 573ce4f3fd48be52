"""Formats for `plan import`: profiles of other planners and simulators."""

from trainplan.costmodel.plugins import Plugin

PLUGIN = Plugin(
    importers={
        "aceso": "trainplan_importers.formats:ACESO",
        "galvatron": "trainplan_importers.formats:GALVATRON",
        "metis": "trainplan_importers.formats:METIS",
        "sailor": "trainplan_importers.formats:SAILOR",
        "simumax": "trainplan_importers.formats:SIMUMAX",
    }
)
