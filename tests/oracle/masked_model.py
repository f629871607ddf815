# SPDX-License-Identifier: Apache-2.0
"""The model with ppkit's dropout: the same masks, computed here from the definition, so that training with dropout can be
compared number by number.

Element (row vector v, column j) of the tensor at a dropout site is kept if word j % 4 of
Philox4x32-10(counter = {j / 4, v, step, site}, key = seed) is at least p * 2^32; kept values are scaled by 1 / (1 - p).
v = row * tokens + t, for attention probabilities (row * heads + head) * tokens + t; row counts over the whole batch of all
replicas. Site 1 follows the positions; layer l has 2 + 4 l (attention), + 1 (after attention), + 2 (after the activation), + 3
(after linear2).
"""

import math

import numpy
import torch
from torch.nn import functional

import reference_model

ATTENTION, RESIDUAL1, ACTIVATION, RESIDUAL2 = range(4)


def philox(counter, key):
    """Philox4x32-10 of arrays of uint64 that hold 32-bit words: four in, four out."""
    low = numpy.uint64(0xFFFFFFFF)
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = c0 * numpy.uint64(0xD2511F53), c2 * numpy.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (p1 >> numpy.uint64(32)) ^ c1 ^ k0, p1 & low, (p0 >> numpy.uint64(32)) ^ c3 ^ k1, p0 & low
        k0, k1 = (k0 + numpy.uint64(0x9E3779B9)) & low, (k1 + numpy.uint64(0xBB67AE85)) & low
    return c0, c1, c2, c3


def mask(vectors, columns, probability, seed, step, site):
    """[vectors, columns] of 0 and 1 / (1 - p)."""
    quads = -(-columns // 4)
    shape = vectors, quads
    words = (
        numpy.broadcast_to(numpy.arange(quads, dtype=numpy.uint64), shape),
        numpy.broadcast_to(numpy.arange(vectors, dtype=numpy.uint64)[:, None], shape),
        numpy.full(shape, step, numpy.uint64),
        numpy.full(shape, site, numpy.uint64),
    )
    numbers = philox(words, (numpy.uint64(seed & 0xFFFFFFFF), numpy.uint64(seed >> 32)))
    kept = numpy.stack(numbers, axis=2).reshape(vectors, 4 * quads)[:, :columns] >= int(
        numpy.float32(probability) * 2.0**32
    )
    return torch.from_numpy(kept / (1 - numpy.float64(numpy.float32(probability))))


class MaskedModel(reference_model.Model):
    """Its forward spells out nn.TransformerEncoderLayer, because PyTorch's takes no masks."""

    def __init__(self, o):
        super().__init__(o)
        self.o = o

    def drop(self, x, site, vectors, everywhere_only=True):
        """Dropout at a site. everywhere_only: the lab has none there."""
        p = self.o["dropout"]
        if not self.training or p == 0 or (everywhere_only and not self.tutorial):
            return x
        columns = x.shape[-1]
        return x * mask(vectors, columns, p, self.o["seed"], self.step, site).to(x).reshape(x.shape)

    def project(self, module, x):
        """Queries, keys and values of each head."""
        if isinstance(module, (reference_model.Attention, reference_model.LatentAttention)):
            q, k, v = module.project(x)
            return q, *(part.repeat_interleave(self.o["heads"] // part.shape[1], dim=1) for part in (k, v))
        rows, tokens, d = x.shape
        heads = self.o["heads"]
        qkv = functional.linear(x, module.in_proj_weight, module.in_proj_bias)
        return (part.reshape(rows, tokens, heads, d // heads).transpose(1, 2) for part in qkv.chunk(3, dim=-1))

    def attention(self, i, layer, x, site):
        rows, tokens, _ = x.shape
        heads = self.o["heads"]
        q, k, v = self.project(layer.self_attn, x)
        scores = q @ k.transpose(2, 3) * self.o["score_factor"] / math.sqrt(q.shape[-1])
        if self.causal:
            scores = scores + self.mask(i, tokens, x)
        weights = self.drop(scores.softmax(dim=-1), site, rows * heads * tokens)
        context = (weights @ v).transpose(1, 2).flatten(2)
        return layer.self_attn.out_proj(context)

    def feed_forward(self, layer, x, site, vectors):
        """What experts make between their linears is never dropped."""
        if isinstance(layer, reference_model.Experts):
            return layer.experts(x)
        return layer.linear2(self.drop(layer.activation(layer.linear1(x)), site + ACTIVATION, vectors))

    def forward(self, tokens):
        vectors = tokens.numel()
        x = self.drop(self.embedded(tokens), 1, vectors)
        for i, layer in enumerate(self.layers):
            site = 2 + 4 * i
            first = layer.norm_first
            attended = self.attention(i, layer, layer.norm1(x) if first else x, site + ATTENTION)
            x = x + self.drop(attended, site + RESIDUAL1, vectors, everywhere_only=False)
            x = x if first else layer.norm1(x)
            forward = self.feed_forward(layer, layer.norm2(x) if first else x, site, vectors)
            x = x + self.drop(forward, site + RESIDUAL2, vectors, everywhere_only=False)
            x = x if first else layer.norm2(x)
        if self.training:
            self.step += 1
        return self.decoder(self.last_norm(x))
