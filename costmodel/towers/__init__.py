"""Encoders next to the decoder: their parameters and products.

encoder_outside_params: of the encoder outside its layers.
layer_weights: weights of the matrices of one layer.
projector_params: all projectors.
spans: how many layers see how many patches.
tower_flop_per_step: forward and backward FLOPs of the tower in one optimizer step.
tower_layer_params: one layer.
tower_params: the whole tower.
"""

from trainplan.costmodel.towers.tower import (
    encoder_outside_params,
    layer_weights,
    projector_params,
    spans,
    tower_flop_per_step,
    tower_layer_params,
    tower_params,
)
