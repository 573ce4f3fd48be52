"""How many tokens a token is compared with."""

from trainplan.costmodel.architecture import ModelSpec


def window_span(window: int | None, seq_length: int) -> float:
    """Tokens that a token attends to on average where it sees so many at most; null: all before it.

    Source: derived: token t sees min(t, w) tokens, the mean over s of them is w (1 - w / 2s); a
    window of s tokens or more is a plain causal mask, s / 2.
    """
    window = min(window or seq_length, seq_length)
    return window * (1 - window / (2 * seq_length))


def chunk_span(chunk: int | None, seq_length: int) -> float:
    """Tokens that a token attends to on average where it sees those of its chunk alone.

    Source: derived: a chunk of c tokens has c^2 / 2 pairs, so n whole ones and a rest of r tokens
    have (n c^2 + r^2) / 2 pairs of s tokens.
    """
    chunk = min(chunk or seq_length, seq_length)
    whole, rest = divmod(seq_length, chunk)
    return (whole * chunk**2 + rest**2) / (2 * seq_length)


def compressed_span(model: ModelSpec, every: int, seq_length: int) -> float:
    """Keys that a token is compared with on average: its window, and compressed ones before it.

    Source: derived; `window_span` over as many keys as `every` tokens make, of sparse attention at
    most `top_k`; DeepSeek-V4, transformers `modeling_deepseek_v4.py`, DeepseekV4Attention.
    """
    picked = model.indexer.top_k if model.mixer == "sparse_attention" and model.indexer else None
    keys = max(1, seq_length // every)
    return window_span(model.sliding_window, seq_length) + window_span(picked, keys)


def attention_span(model: ModelSpec, seq_length: int) -> float:
    """Tokens that a token attends to on average in a layer of a model with one kind.

    Source: Narayanan et al., arXiv:2104.04473, appendix, halved by the mask; `window_span` (of
    sparse attention the last `top_k` tokens stand for those picked, which are as many);
    `chunk_span`. Bidirectional attention has no mask (Dosovitskiy et al., arXiv:2010.11929,
    section 3.1).
    """
    if model.key_compression:
        return compressed_span(model, model.key_compression, seq_length)
    if model.mixer == "sliding_attention":
        return window_span(model.sliding_window, seq_length)
    if model.mixer == "sparse_attention" and model.indexer:
        return window_span(model.indexer.top_k, seq_length)
    if model.mixer == "chunked_attention":
        return chunk_span(model.attention_chunk_size, seq_length)
    if model.mixer == "bidirectional_attention":
        return float(seq_length)
    return seq_length / 2


def kernel_length(model: ModelSpec, seq_length: int) -> float:
    """Length of a causal sequence whose queries see as many keys as those of this layer.

    A block of queries that visits few blocks of keys starts and ends as often as one that visits
    many: forward kernels of 64 heads of 64 with a window of 128 tokens take 0.30 (GB200), 0.30
    (B200) and 0.29 (H100) of the time without in sequences of 4k, and 0.086, 0.086 and 0.082 of
    16k; this says 0.35, 0.32 and 0.28, and 0.072, 0.068 and 0.059.
    Source: derived; ai-dynamo/aiconfigurator @095f58a5 (Apache-2.0), context_attention_perf of
    sglang 0.5.14 and vllm 0.24.0.
    """
    if model.mixer in ("sliding_attention", "chunked_attention"):
        return min(seq_length, 2 * attention_span(model, seq_length))
    return seq_length
