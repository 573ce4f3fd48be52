"""Parameter counts of mixers against transformers' own modules on the meta device."""

import pytest

from tests.oracles.mixers import MIXERS, built, module_of, spec_of, torch
from trainplan.costmodel.architecture.moe import MoeSpec
from trainplan.costmodel.model.adapters import matrices
from trainplan.costmodel.model.params import feed_forward_params, mixer_params

pytestmark = pytest.mark.oracle


@pytest.mark.parametrize("name", MIXERS)
def test_a_mixer_of_transformers_has_as_many_parameters(name):
    model = spec_of(name)
    own = sum(weight.numel() for weight in module_of(name).parameters())
    assert mixer_params(model) == own + model.hidden_size  # the norm before it


@pytest.mark.parametrize("name", MIXERS)
def test_a_mixer_of_transformers_has_these_linear_layers(name):
    """Adapters stand beside each of them, with rank times inputs and outputs."""
    layers = [one for one in module_of(name).modules() if isinstance(one, torch.nn.Linear)]
    own = [(one.in_features, one.out_features) for one in layers]
    kind = spec_of(name).model_copy(update={"model_type": MIXERS[name][1][0]})
    assert sorted((one.inputs, one.outputs) for one in matrices(kind)) == sorted(own)


@pytest.mark.parametrize("latent", [None, 40])
@pytest.mark.parametrize("bias", [False, True])
def test_experts_in_a_latent_width_have_as_many_parameters(latent, bias):
    moe = MoeSpec(
        num_experts=6,
        num_experts_per_tok=2,
        moe_intermediate_size=56,
        shared_expert_intermediate_size=72,
        latent_size=latent,
    )
    sizes = {"feed_forward": "moe", "gated_mlp": False, "mlp_bias": bias}
    model = spec_of("mamba-2").model_copy(update={"moe": moe, **sizes})
    names = {"n_routed_experts": 6, "moe_intermediate_size": 56, "mlp_bias": bias}
    names |= {"moe_shared_expert_intermediate_size": 72, "moe_latent_size": latent}
    module = built("nemotron_h", "NemotronHMoE", names)
    shared_bias = bias * (72 + 96)  # biases of the shared expert alone have no field
    own = sum(weight.numel() for weight in module.parameters()) - shared_bias
    assert feed_forward_params(model) == own
