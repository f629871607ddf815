# SPDX-License-Identifier: Apache-2.0
"""A small GPT in blocks: an example for scripts/block-times, and the model of bench_pipelining.py."""

import torch
from torch import nn

WIDTH, HEADS, LAYERS, VOCABULARY, TOKENS, ROWS = 256, 4, 8, 2000, 128, 4


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TOKENS, WIDTH)

    def forward(self, words):
        return self.words(words) + self.places.weight


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.decoder = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x):
        return self.decoder(self.norm(x))


def layer():
    return nn.TransformerEncoderLayer(
        WIDTH, HEADS, 4 * WIDTH, dropout=0, activation="gelu", batch_first=True, norm_first=True
    )


def blocks():
    return [Embedding(), *(layer() for _ in range(LAYERS)), Head()]


def example():
    return torch.randint(VOCABULARY, (ROWS, TOKENS))


def loss(output):
    words = torch.zeros(output.shape[:2], dtype=torch.long, device=output.device)
    return nn.functional.cross_entropy(output.flatten(0, 1), words.flatten())


def optimizer(parameters):
    return torch.optim.AdamW(parameters)
