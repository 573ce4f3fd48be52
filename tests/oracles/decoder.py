"""A decoder in plain torch, built from a model spec: what the formulas are held against."""

import pytest

from tests.oracles.kernels import efficient_attention, flash_attention, fused_rms_norm
from trainplan.costmodel.architecture.model import ModelSpec

torch = pytest.importorskip("torch", reason="the oracles need torch: run `make oracles`")
nn, functional = torch.nn, torch.nn.functional

ACTIVATIONS = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
    "relu2": lambda x: functional.relu(x).square(),
}


class RmsNorm(nn.Module):
    def __init__(self, size, model, *, fused):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.eps, self.fused = model.norm_eps, fused

    def forward(self, x):
        if self.fused:
            return fused_rms_norm(x, self.weight, self.eps)
        return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)


def norm_of(model, *, fused):
    if model.norm == "layernorm":
        return nn.LayerNorm(model.hidden_size, model.norm_eps)
    return RmsNorm(model.hidden_size, model, fused=fused)


def rotated(x, table):
    """Rotary positions; `table` holds cosines and sines, (2, sequence, head)."""
    low, high = x.chunk(2, -1)
    return x * table[0] + torch.cat((-high, low), -1) * table[1]


class Attention(nn.Module):
    def __init__(self, model, *, fused):
        super().__init__()
        h, d = model.hidden_size, model.head_dim
        self.model = model
        heads, groups = model.num_attention_heads, model.num_key_value_heads
        self.query = nn.Linear(h, heads * d, bias=model.qkv_bias)
        self.key = nn.Linear(h, groups * d, bias=model.qkv_bias)
        self.value = nn.Linear(h, groups * d, bias=model.qkv_bias)
        self.output = nn.Linear(heads * d, h, bias=model.attention_output_bias)
        if model.qk_norm != "none":
            whole = model.qk_norm == "full"
            self.query_norm = RmsNorm(heads * d if whole else d, model, fused=fused)
            self.key_norm = RmsNorm(groups * d if whole else d, model, fused=fused)
        if model.attention_sinks:
            self.sinks = nn.Parameter(torch.empty(heads))

    def forward(self, x, table, core):
        q, k, v = self.query(x), self.key(x), self.value(x)
        if self.model.qk_norm == "full":
            q, k = self.query_norm(q), self.key_norm(k)
        q, k, v = (t.unflatten(-1, (-1, self.model.head_dim)) for t in (q, k, v))
        if self.model.qk_norm == "head":
            q, k = self.query_norm(q), self.key_norm(k)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        if table is not None:
            q, k = rotated(q, table), rotated(k, table)
        return self.output(core(q, k, v).transpose(1, 2).flatten(2))


class LatentAttention(nn.Module):
    """Multi-head latent attention (arXiv:2405.04434, section 2.1)."""

    def __init__(self, model, *, fused):
        super().__init__()
        h, heads, mla = model.hidden_size, model.num_attention_heads, model.mla
        self.mla, self.heads = mla, heads
        width = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
        if mla.q_lora_rank:
            self.query_down = nn.Linear(h, mla.q_lora_rank, bias=model.qkv_bias)
            self.query_norm = RmsNorm(mla.q_lora_rank, model, fused=fused)
        self.query = nn.Linear(mla.q_lora_rank or h, width, bias=False)
        self.down = nn.Linear(h, mla.kv_lora_rank + mla.qk_rope_head_dim, bias=model.qkv_bias)
        self.norm = RmsNorm(mla.kv_lora_rank, model, fused=fused)
        up = heads * (mla.qk_nope_head_dim + mla.v_head_dim)
        self.up = nn.Linear(mla.kv_lora_rank, up, bias=False)
        self.output = nn.Linear(heads * mla.v_head_dim, h, bias=model.attention_output_bias)

    def forward(self, x, table, core):
        mla, heads = self.mla, (self.heads, -1)
        latent = self.query_norm(self.query_down(x)) if mla.q_lora_rank else x
        query = self.query(latent).unflatten(-1, heads).transpose(1, 2)
        query, turned = query.split((mla.qk_nope_head_dim, mla.qk_rope_head_dim), -1)
        query = torch.cat((query, rotated(turned, table)), -1)
        latent, turned = self.down(x).split((mla.kv_lora_rank, mla.qk_rope_head_dim), -1)
        up = self.up(self.norm(latent)).unflatten(-1, heads).transpose(1, 2)
        key, value = up.split((mla.qk_nope_head_dim, mla.v_head_dim), -1)
        turned = rotated(turned.unsqueeze(1), table).expand(-1, self.heads, -1, -1)
        key, value = torch.cat((key, turned), -1), value.clone()  # frees what both were cut from
        return self.output(core(query, key, value).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, model, width, *, bias):
        super().__init__()
        self.gate = nn.Linear(model.hidden_size, width, bias=bias) if model.gated_mlp else None
        self.up = nn.Linear(model.hidden_size, width, bias=bias)
        self.down = nn.Linear(width, model.hidden_size, bias=bias)
        self.activation = ACTIVATIONS[model.activation]

    def forward(self, x):
        if self.gate is None:
            return self.down(self.activation(self.up(x)))
        return self.down(self.activation(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """Router and experts; tokens are sorted by expert and each product runs over all experts."""

    def __init__(self, model):
        super().__init__()
        moe, h = model.moe, model.hidden_size
        count, width, ups = moe.num_experts, moe.moe_intermediate_size, 1 + model.gated_mlp
        self.moe, self.model = moe, model
        self.router = nn.Linear(h, count, bias=moe.counted_router_bias > 0)
        self.ups = nn.ParameterList(torch.empty(count, h, width) for _ in range(ups))
        self.down = nn.Parameter(torch.empty(count, width, h))
        if moe.expert_bias:
            self.biases = nn.ParameterList(torch.empty(count, size) for size in (*[width] * ups, h))
        if moe.shared_expert_intermediate_size:
            size = moe.shared_expert_intermediate_size
            self.shared = Mlp(model, size, bias=moe.expert_bias)
        if moe.shared_expert_gate:
            self.shared_gate = nn.Linear(h, 1, bias=False)
        self.activation = ACTIVATIONS[model.activation]

    def forward(self, x):
        tokens, k = x.flatten(0, 1), self.moe.num_experts_per_tok
        probabilities = self.router(tokens).float().softmax(-1)
        weights, chosen = probabilities.topk(k, sorted=False)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        order = chosen.flatten().argsort(stable=True)
        source = order // k
        ends = torch.arange(1, 1 + self.moe.num_experts, device=x.device, dtype=torch.int32)
        ends = ends * (len(order) // self.moe.num_experts)  # balanced: shapes must be known
        rows = self._rows(tokens[source], ends) * weights.flatten()[order, None]
        joined = torch.zeros_like(tokens).scatter_add(0, source[:, None].expand_as(rows), rows)
        if self.moe.shared_expert_intermediate_size:
            joined = joined + self.shared(tokens)
        return joined.view_as(x)

    def _rows(self, rows, ends):
        inner = [torch._grouped_mm(rows, weight, ends) for weight in self.ups]
        active = self.activation(inner[0])
        active = active * inner[1] if len(inner) > 1 else active
        return torch._grouped_mm(active, self.down, ends)


class Layer(nn.Module):
    """One layer, its norms before each half, after it, or both."""

    def __init__(self, model, *, moe, fused):
        super().__init__()
        kind = LatentAttention if model.mla else Attention
        self.attention = kind(model, fused=fused)
        self.core = efficient_attention if model.mla else flash_attention
        self.position, self.parallel = model.norm_position, model.parallel_residual
        count = 4 if model.norm_position == "both" else 2
        self.norms = nn.ModuleList(norm_of(model, fused=fused) for _ in range(count))
        if moe:
            self.mlp = Experts(model)
        else:
            self.mlp = Mlp(model, model.intermediate_size, bias=model.mlp_bias)

    def forward(self, x, table, core=None):
        def attended(x):
            return self.attention(x, table, core or self.core)

        norms = self.norms
        if self.position == "post":
            x = x + norms[0](attended(x))
            return x + norms[1](self.mlp(x))
        if self.position == "both":
            x = x + norms[1](attended(norms[0](x)))
            return x + norms[3](self.mlp(norms[2](x)))
        if self.parallel:
            return x + attended(norms[0](x)) + self.mlp(norms[1](x))
        x = x + attended(norms[0](x))
        return x + self.mlp(norms[1](x))


class Decoder(nn.Module):
    """Embedding, layers, norm and head, and the loss in fp32.

    `recompute` is one of the names of the layout: whole layers, or the attention core alone, run
    again in the backward pass (torch.utils.checkpoint, not reentrant).
    """

    def __init__(self, model: ModelSpec, *, fused=True, recompute="none"):
        super().__init__()
        h, width = model.hidden_size, model.embedding_size or model.hidden_size
        self.model, self.recompute = model, recompute
        self.embedding = nn.Embedding(model.vocab_size, width)
        if width != h:
            self.widen = nn.Linear(width, h, bias=False)
            self.narrow = nn.Linear(h, width, bias=False)
        if model.position_embedding == "learned":
            rows = model.max_position_embeddings + model.position_embedding_offset
            self.positions = nn.Embedding(rows, h)
        self.layers = nn.ModuleList(Layer(model, moe=m, fused=fused) for m in model.moe_layers)
        self.norm = norm_of(model, fused=fused) if model.final_norm else nn.Identity()
        self.head = nn.Linear(width, model.vocab_size, bias=False)
        if model.tie_word_embeddings:
            self.head.weight = self.embedding.weight

    def table(self, seq_length):
        """Cosines and sines of the rotation; nothing where positions are learned."""
        if self.model.position_embedding != "rope":
            return None
        width = self.model.mla.qk_rope_head_dim if self.model.mla else self.model.head_dim
        return torch.ones(2, seq_length, width, dtype=self.embedding.weight.dtype)

    def forward(self, ids, labels, table):
        x = self.embedding(ids)
        if self.model.position_embedding == "learned":
            x = x + self.positions(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = self._run(layer, x, table)
        logits = self.head(self.norm(x)).float().flatten(0, 1)
        return functional.cross_entropy(logits, labels.flatten())

    def _run(self, layer, x, table):
        if self.recompute == "full":
            return repeated(layer, x, table)
        if self.recompute == "core_attn":
            return layer(x, table, core=lambda *heads: repeated(layer.core, *heads))
        return layer(x, table)


def repeated(function, *arguments):
    """Run a function and again in the backward pass instead of keeping what is inside."""
    return torch.utils.checkpoint.checkpoint(
        function, *arguments, use_reentrant=False, preserve_rng_state=False
    )
