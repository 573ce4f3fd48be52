"""What electricity of a step means at the meter of a site, and in carbon dioxide."""

JOULES_PER_KWH = 3.6e6
"""Source: derived: 1000 W over 3600 s are one kilowatt-hour, so 3.6 million joules, by definition
of both units."""
WORLD_KG_CO2_PER_KWH = 0.445
"""Carbon dioxide of a kilowatt-hour of electricity, mean of the world in 2024, in kg.

Source: IEA, Electricity 2025, section "Emissions", 445 g CO2/kWh in 2024;
https://www.iea.org/reports/electricity-2025/emissions"""


def site_kwh(joules: float, pue: float | None) -> float:
    """Kilowatt-hours a site draws for joules of its machines; without a PUE, those of the machines.

    Source: the definition of power usage effectiveness, energy of the whole site over that of its
    computing equipment; ISO/IEC 30134-2:2016.
    """
    return joules / JOULES_PER_KWH * (1.0 if pue is None else pue)


def kg_co2(kwh: float, kg_per_kwh: float) -> float:
    """Carbon dioxide of electricity, in kg.

    Source: derived: energy times what a unit of it emits, both at the meter of the site; what
    machines took to build is not counted.
    """
    return kwh * kg_per_kwh
