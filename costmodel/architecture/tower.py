"""What turns images or sound into tokens of the decoder: an encoder and its projectors."""

from typing import Literal, Self

from pydantic import Field, PositiveInt, model_validator

from trainplan.costmodel.architecture.layers import MOST_LAYERS, Count, Size
from trainplan.costmodel.spec import Spec

Activation = Literal["silu", "gelu", "gelu_tanh", "relu", "relu2"]


class LinearSpec(Spec):
    """One matrix of weights."""

    in_features: Size
    """Inputs."""
    out_features: Size
    """Outputs."""
    bias: bool = True
    """It has a bias."""
    rows: PositiveInt = Field(default=1, le=1_000)
    """Times it is applied for each patch (in an embedding) or token handed over (in a
    projector)."""

    @property
    def parameters(self) -> int:
        """Weights and biases."""
        return self.in_features * self.out_features + (self.out_features if self.bias else 0)


class ProjectorSpec(Spec):
    """Matrices behind each other, an activation between two of them, maybe behind a norm."""

    linears: tuple[LinearSpec, ...] = Field(min_length=1, max_length=16)
    """Its matrices in order."""
    norm_size: Count = 0
    """Width that is normed first; 0: none."""
    norm: Literal["rmsnorm", "layernorm"] = "layernorm"
    """Kind of that norm."""

    @model_validator(mode="after")
    def _chained(self) -> Self:
        for one, following in zip(self.linears, self.linears[1:], strict=False):
            if one.out_features != following.in_features:
                raise ValueError(
                    f"projector: a matrix of {following.in_features} inputs follows one of "
                    f"{one.out_features} outputs; make them equal"
                )
        return self

    @property
    def parameters(self) -> int:
        """Of the matrices and the norm."""
        norm = self.norm_size * (2 if self.norm == "layernorm" else 1)
        return norm + sum(one.parameters for one in self.linears)


class TowerSpec(Spec):
    """An encoder of images or sound whose tokens are in the sequence of the decoder.

    A sample is one image, one stretch of video or of sound; a patch is one token of the encoder.
    """

    modality: Literal["vision", "audio"] = "vision"
    """Images or sound."""
    num_hidden_layers: PositiveInt = Field(le=MOST_LAYERS)
    """Layers of the encoder."""
    hidden_size: Size
    """Width of the encoder."""
    intermediate_size: Size
    """Width of its MLPs."""
    num_attention_heads: Size
    """Heads of its attention, of queries and of keys."""
    head_dim: Size | None = None
    """Null: hidden_size / num_attention_heads."""
    gated_mlp: bool = False
    """Its MLPs have a gate."""
    activation: Activation = "gelu"
    """Of its MLPs."""
    norm: Literal["rmsnorm", "layernorm"] = "layernorm"
    """Kind of its norms."""
    qkv_bias: bool = True
    """Biases of queries, keys and values."""
    key_bias: bool = True
    """False: with `qkv_bias`, keys have none all the same (Whisper)."""
    attention_output_bias: bool = True
    """Bias of the output of attention."""
    mlp_bias: bool = True
    """Biases of the MLP."""
    qk_norm: Literal["none", "head", "full"] = "none"
    """Norms of queries and keys, as of the decoder."""
    layer_scale: bool = False
    """A learned factor for each column behind both halves of a layer (InternViT)."""
    position_embedding: Literal["rope", "learned", "none"] = "learned"
    """Kind of positions."""

    patch_size: Size | None = None
    """Side of a patch in pixels; null: `embedding` has how patches are made."""
    temporal_patch_size: Size = 1
    """Frames of a video in a patch."""
    num_channels: Size = 3
    """Channels of a pixel."""
    patch_bias: bool = True
    """Bias of what makes a patch."""
    embedding: tuple[LinearSpec, ...] = ()
    """Matrices that make a patch, convolutions of sound, where `patch_size` does not give it."""
    position_rows: Count = 0
    """Rows of the position table that are parameters."""
    class_tokens: Count = 0
    """Learned tokens added to the patches of each sample; the decoder does not get them."""
    norms_outside: Count = 0
    """Norms over hidden_size before and behind the layers."""
    extra_parameters: Count = 0
    """Parameters of the encoder that nothing here counts."""

    window_patches: Size | None = None
    """Patches that a patch of a windowed layer sees; null: all of its sample, in every layer."""
    full_attention_layers: tuple[Count, ...] = ()
    """Layers, by number, that are not windowed."""

    merged_patches: PositiveInt = Field(default=1, le=1_000_000)
    """Patches that become one token of the decoder."""
    projectors: tuple[ProjectorSpec, ...] = ()
    """Each runs once for every token handed over."""

    samples_per_sequence: PositiveInt = Field(default=1, le=1_000_000)
    """Samples in each sequence of the decoder."""
    patches_per_sample: PositiveInt = Field(le=10_000_000)
    """Patches of one sample."""
    patches_assumed: bool = False
    """The configuration does not state how many patches a sample has."""
    frozen: Literal["none", "encoder", "all"] = "none"
    """What is not trained: nothing, all but the projectors, or the whole tower."""
    tensor_parallel: bool = False
    """Are its matrices cut over the tensor ranks of the decoder? If not, each rank runs it whole.
    """

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.head_dim is None and self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"tower: hidden_size = {self.hidden_size} is not a multiple of "
                f"num_attention_heads = {self.num_attention_heads}; correct one or give head_dim"
            )
        if self.patches_per_sample % self.merged_patches:
            raise ValueError(
                f"tower: patches_per_sample = {self.patches_per_sample} is not a multiple of "
                f"merged_patches = {self.merged_patches}; change one"
            )
        if (self.patch_size is None) != bool(self.embedding):
            raise ValueError("tower: give patch_size or embedding, one of them")
        beyond = [one for one in self.full_attention_layers if one >= self.num_hidden_layers]
        if beyond:
            raise ValueError(
                f"tower: full_attention_layers names layer {beyond[0]}, there are "
                f"{self.num_hidden_layers} from 0; correct it"
            )
        if self.window_patches is None and self.full_attention_layers:
            raise ValueError("tower: full_attention_layers without window_patches: give both")
        return self

    @property
    def called(self) -> str:
        """As a noun phrase, in messages."""
        return "a vision tower" if self.modality == "vision" else "an audio tower"

    @property
    def dims_per_head(self) -> int:
        """Width of one head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def embeddings(self) -> tuple[LinearSpec, ...]:
        """Matrices that make a patch of pixels or of sound."""
        if self.patch_size is None:
            return self.embedding
        pixels = self.num_channels * self.temporal_patch_size * self.patch_size**2
        out = self.hidden_size
        bias = self.patch_bias
        return (LinearSpec.model_construct(in_features=pixels, out_features=out, bias=bias),)

    @property
    def tokens_per_sample(self) -> int:
        """Tokens that the decoder gets."""
        return self.patches_per_sample // self.merged_patches

    @property
    def tokens_per_sequence(self) -> int:
        """Tokens of a sequence of the decoder that the tower makes."""
        return self.samples_per_sequence * self.tokens_per_sample

    @property
    def num_windowed_layers(self) -> int:
        """Layers whose patches see a window."""
        if self.window_patches is None:
            return 0
        return self.num_hidden_layers - len(set(self.full_attention_layers))
