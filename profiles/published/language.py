"""Transformers behind the published measurements, built as their authors describe them.

Each function returns a compiled Keras model and can be named in the MODEL grammar:
``language.py:bert_pretraining?layers=24&width=1024&heads=16&sequence_length=128``.

Where the source trained with LAMB the models are compiled with Adam: both keep two numbers a weight; LAMB's
two norms a tensor are left out. Fused and vendor-made kernels are the stack's business, not the model's.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops
from language_layers import (
    Bias,
    GatherPositions,
    LearnedPositions,
    RotaryPositions,
    SinusoidPositions,
    TokenEmbedding,
    encoder_block,
    feed_forward,
)
from tensorflow1_layers import rewritten_block

__all__ = [
    "bert_classification", "bert_pretraining", "bert_span", "bert_tagging", "llama", "mpt", "transformer",
]  # fmt: skip

Tensor = Any
SEGMENTS = 2
BERT_POSITIONS = 512


def _cross_entropy() -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _token_ids(name: str, length: int) -> Tensor:
    return keras.Input((length,), dtype="int32", name=name)


def _bert_encoder(
    *, num_layers: int, width: int, heads: int, length: int, vocabulary: int, dropout: float = 0.1,
    rewritten: bool = False,
) -> tuple[list[Tensor], Tensor, TokenEmbedding]:  # fmt: skip
    """Devlin et al., 2019, arXiv:1810.04805, section 3: the encoder, its inputs and its token table.

    Args:
        rewritten: As in TensorFlow 1, mixed precision put in by its graph rewrite: see `rewritten_block`.
    """
    ids, segments = _token_ids("token_ids", length), _token_ids("segment_ids", length)
    present = _token_ids("input_mask", length)
    tokens = TokenEmbedding(vocabulary, width)
    x = layers.Add()([tokens(ids), layers.Embedding(SEGMENTS, width)(segments)])
    outside = "float32" if rewritten else None
    x = layers.LayerNormalization(epsilon=1e-12, dtype=outside)(LearnedPositions(BERT_POSITIONS, dtype=outside)(x))
    x = layers.Dropout(dropout, dtype=outside)(x)
    mask = ops.cast(ops.expand_dims(present, 1), "bool")
    for _ in range(num_layers):
        if rewritten:
            x = rewritten_block(x, mask, heads=heads, inner=4 * width, dropout=dropout)
        else:
            x = encoder_block(x, mask, heads=heads, inner=4 * width, activation="gelu", dropout=dropout)
    return [ids, segments, present], x, tokens


def _pooled(x: Tensor) -> Tensor:
    return layers.Dense(x.shape[-1], activation="tanh")(x[:, 0])


def bert_pretraining(
    *, layers: int = 12, width: int = 768, heads: int = 12, sequence_length: int = 128, predictions: int = 20,
    vocabulary: int = 30522, rewritten: bool = False,
) -> keras.Model:  # fmt: skip
    """BERT with both heads of its pre-training, masked tokens and next sentence (arXiv:1810.04805, 3.1).

    Args:
        predictions: Positions a sequence whose token is predicted; 0 computes the logits of all positions,
            as NVIDIA's PyTorch code did until its "dense sequence output" of 2020.
    """
    inputs, x, tokens = _bert_encoder(
        num_layers=layers,
        width=width,
        heads=heads,
        length=sequence_length,
        vocabulary=vocabulary,
        rewritten=rewritten,
    )
    next_sentence = keras.layers.Dense(2, name="next_sentence")(_pooled(x))
    if predictions:
        positions = _token_ids("masked_positions", predictions)
        inputs, x = [*inputs, positions], GatherPositions()(x, positions)
    x = keras.layers.Dense(width, activation="gelu")(x)
    x = keras.layers.LayerNormalization(epsilon=1e-12)(x)
    masked = Bias(name="masked_tokens")(tokens(x, reverse=True))
    model = keras.Model(inputs, [masked, next_sentence], name="bert_pretraining")
    model.compile(optimizer="adam", loss=[_cross_entropy(), _cross_entropy()])
    return model


def bert_span(
    *, layers: int = 24, width: int = 1024, heads: int = 16, sequence_length: int = 384,
    vocabulary: int = 30522, rewritten: bool = False,
) -> keras.Model:  # fmt: skip
    """BERT fine-tuned on SQuAD: where the answer starts and ends (arXiv:1810.04805, 4.2); no pooler."""
    inputs, x, _ = _bert_encoder(
        num_layers=layers,
        width=width,
        heads=heads,
        length=sequence_length,
        vocabulary=vocabulary,
        rewritten=rewritten,
    )
    logits = keras.layers.Dense(2)(x)
    model = keras.Model(inputs, [logits[..., 0], logits[..., 1]], name="bert_span")
    model.compile(optimizer="adam", loss=[_cross_entropy(), _cross_entropy()])
    return model


def bert_classification(
    *, layers: int = 12, width: int = 768, heads: int = 12, sequence_length: int = 128,
    vocabulary: int = 28996, classes: int = 2,
) -> keras.Model:  # fmt: skip
    """BERT fine-tuned on GLUE: a class a sequence (arXiv:1810.04805, section 4.1); AdamW."""
    inputs, x, _ = _bert_encoder(
        num_layers=layers, width=width, heads=heads, length=sequence_length, vocabulary=vocabulary
    )
    logits = keras.layers.Dense(classes)(keras.layers.Dropout(0.1)(_pooled(x)))
    model = keras.Model(inputs, logits, name="bert_classification")
    model.compile(optimizer="adamw", loss=_cross_entropy())
    return model


def bert_tagging(
    *, layers: int = 12, width: int = 768, heads: int = 12, sequence_length: int = 128,
    vocabulary: int = 28996, classes: int = 4, rewritten: bool = False,
) -> keras.Model:  # fmt: skip
    """BERT fine-tuned to name entities, a class a token: BioBERT (Lee et al., 2020, arXiv:1901.08746)."""
    inputs, x, _ = _bert_encoder(
        num_layers=layers,
        width=width,
        heads=heads,
        length=sequence_length,
        vocabulary=vocabulary,
        rewritten=rewritten,
    )
    model = keras.Model(inputs, keras.layers.Dense(classes)(x), name="bert_tagging")
    model.compile(optimizer="adam", loss=_cross_entropy())
    return model


def _mpt_block(x: Tensor, heads: int) -> Tensor:
    length, width = x.shape[1:]
    qkv = layers.Dense(3 * width)(layers.LayerNormalization(epsilon=1e-5)(x))
    q, k, v = ops.split(layers.Reshape((length, 3 * heads, width // heads))(qkv), 3, axis=2)
    attended = layers.Reshape((length, width))(ops.dot_product_attention(q, k, v, is_causal=True))
    x = layers.Add()([x, layers.Dense(width)(attended)])
    normed = layers.LayerNormalization(epsilon=1e-5)(x)
    return layers.Add()([x, feed_forward(normed, inner=4 * width, activation="gelu", dropout=0.0)])


def mpt(
    *, layers: int = 12, width: int = 768, heads: int = 12, sequence_length: int = 2048,
    vocabulary: int = 50368,
) -> keras.Model:  # fmt: skip
    """MosaicML's MPT: a GPT with learned positions and one table for input and output (llm-foundry, 2023).

    Normalization comes first, all dense layers have biases, nothing is dropped, query, key and value are one
    matrix product; DecoupledAdamW (AdamW here).
    """
    ids = _token_ids("token_ids", sequence_length)
    tokens = TokenEmbedding(vocabulary, width)
    x = LearnedPositions(sequence_length)(tokens(ids))
    for _ in range(layers):
        x = _mpt_block(x, heads)
    logits = tokens(keras.layers.LayerNormalization(epsilon=1e-5)(x), reverse=True)
    model = keras.Model(ids, logits, name="mpt")
    model.compile(optimizer="adamw", loss=_cross_entropy())
    return model


def _llama_block(x: Tensor, *, heads: int, key_heads: int, inner: int, base: float) -> Tensor:
    length, width = x.shape[1:]
    size = width // heads

    def project(y: Tensor, n: int) -> Tensor:
        return layers.Reshape((length, n, size))(layers.Dense(n * size, use_bias=False)(y))

    y = layers.RMSNormalization(epsilon=1e-5)(x)
    q, k = (RotaryPositions(base)(project(y, n)) for n in (heads, key_heads))
    attended = ops.dot_product_attention(q, k, project(y, key_heads), is_causal=True)
    x = layers.Add()([x, layers.Dense(width, use_bias=False)(layers.Reshape((length, width))(attended))])
    y = layers.RMSNormalization(epsilon=1e-5)(x)
    gate = layers.Dense(inner, activation="silu", use_bias=False)(y)
    gated = layers.Multiply()([gate, layers.Dense(inner, use_bias=False)(y)])
    return layers.Add()([x, layers.Dense(width, use_bias=False)(gated)])


def llama(
    *, layers: int = 32, width: int = 4096, heads: int = 32, key_heads: int = 8, inner: int = 14336,
    sequence_length: int = 8192, vocabulary: int = 128256, base: float = 5e5,
) -> keras.Model:  # fmt: skip
    """Llama 2 and 3 (Touvron et al., 2023, arXiv:2307.09288; Grattafiori et al., 2024, arXiv:2407.21783).

    RMS normalization first, rotary positions, several heads of queries to one of keys and values, a feed-forward
    layer gated by SiLU, no biases, and a table of its own for the logits; AdamW.

    Args:
        key_heads: Heads of keys and values.
        inner: Width between the dense layers of a block.
        base: Of the rotary positions: 10,000 in Llama 2, 500,000 in Llama 3.
    """
    ids = _token_ids("token_ids", sequence_length)
    x = keras.layers.Embedding(vocabulary, width)(ids)
    for _ in range(layers):
        x = _llama_block(x, heads=heads, key_heads=key_heads, inner=inner, base=base)
    x = keras.layers.RMSNormalization(epsilon=1e-5)(x)
    logits = keras.layers.Dense(vocabulary, use_bias=False)(x)
    model = keras.Model(ids, logits, name="llama")
    model.compile(optimizer="adamw", loss=_cross_entropy())
    return model


def _attend(x: Tensor, memory: Tensor, *, heads: int, causal: bool, mask: Tensor, words: Tensor) -> Tensor:
    attention = layers.MultiHeadAttention(heads, x.shape[-1] // heads, dropout=0.1)
    attended = attention(x, memory, attention_mask=mask, use_causal_mask=causal)
    x = layers.LayerNormalization(epsilon=1e-5)(layers.Add()([x, layers.Dropout(0.1)(attended)]))
    return layers.Multiply()([x, words])


def _feed(x: Tensor, inner: int, *, words: Tensor) -> Tensor:
    fed = feed_forward(x, inner=inner, activation="relu", dropout=0.1)
    x = layers.LayerNormalization(epsilon=1e-5)(layers.Add()([x, fed]))
    return layers.Multiply()([x, words])


def _padding(ids: Tensor) -> tuple[Tensor, Tensor]:
    """Return which tokens may be attended to, (batch, 1, length), and 1 or 0 for each, (batch, length, 1)."""
    real = ops.not_equal(ids, 0)
    return ops.expand_dims(real, 1), ops.expand_dims(ops.cast(real, keras.config.floatx()), -1)


def transformer(
    *, layers: int = 6, width: int = 512, heads: int = 8, inner: int = 2048, source_length: int = 30,
    target_length: int = 30, source_vocabulary: int = 2911, target_vocabulary: int = 3149,
) -> keras.Model:  # fmt: skip
    """The Transformer of Vaswani et al., 2017, arXiv:1706.03762, base size, translating.

    As in jadore801120/attention-is-all-you-need-pytorch: a table for each language, the target's also makes
    the logits, which are scaled, and the sinusoids are tables that are not trained. Token 0 is padding: it is
    not attended to, and every sublayer's result is multiplied by 0 there.
    """
    source, target = _token_ids("source_ids", source_length), _token_ids("target_ids", target_length)
    real, words = _padding(source)
    x = SinusoidPositions()(keras.layers.Embedding(source_vocabulary, width)(source))
    for _ in range(layers):
        x = _attend(x, x, heads=heads, causal=False, mask=real, words=words)
        x = _feed(x, inner, words=words)
    tokens = TokenEmbedding(target_vocabulary, width)
    real_target, words_target = _padding(target)
    y = SinusoidPositions()(tokens(target))
    for _ in range(layers):
        y = _attend(y, y, heads=heads, causal=True, mask=real_target, words=words_target)
        y = _attend(y, x, heads=heads, causal=False, mask=real, words=words_target)
        y = _feed(y, inner, words=words_target)
    logits = keras.layers.Rescaling(width**-0.5)(tokens(y, reverse=True))
    model = keras.Model([source, target], logits, name="transformer")
    model.compile(optimizer="adam", loss=_cross_entropy())
    return model
