"""What a run takes, with its seconds: energy, carbon dioxide, money, failures, a network.

Energy: joules of the layouts of one job.
energy_of: energy of the layouts of a job.
Goodput: share of the time that trains, and where the rest goes.
Built: switches and transceivers of one network.
Fabric: what the scale-out network takes, any-to-any and on rails alone.
fabric_of: the same of a cluster; null where its switches are not stated.
goodput_of: goodput of a job on its cluster; null where nothing is stated of failures.
hourly_price: money an hour of a cluster and its spare nodes costs; null without a price.
JOULES_PER_KWH: joules of a kilowatt-hour.
kg_co2: carbon dioxide of electricity, in kg.
lasting: a time of any length, in words.
longest_step_seconds: seconds a step may take so that the run ends in time.
paid_gpus: GPUs of all islands and of their spare nodes.
price_per_second: money a second of the whole cluster costs, in `cluster.currency`.
refuse_endless: raise where nodes fail so often that a run does not end.
run_steps: optimizer steps of the whole run.
site_kwh: kilowatt-hours a site draws for joules of its machines.
stretch_of: seconds that pass for a second of training.
WORLD_KG_CO2_PER_KWH: carbon dioxide of a kilowatt-hour of electricity, mean of the world in 2024,
    in kg.
"""

from trainplan.costmodel.run_costs.energy import Energy, energy_of
from trainplan.costmodel.run_costs.fabric import Built, Fabric, fabric_of
from trainplan.costmodel.run_costs.footprint import (
    JOULES_PER_KWH,
    WORLD_KG_CO2_PER_KWH,
    kg_co2,
    site_kwh,
)
from trainplan.costmodel.run_costs.goodput import (
    Goodput,
    goodput_of,
    lasting,
    refuse_endless,
    stretch_of,
)
from trainplan.costmodel.run_costs.money import (
    hourly_price,
    longest_step_seconds,
    paid_gpus,
    price_per_second,
    run_steps,
)
