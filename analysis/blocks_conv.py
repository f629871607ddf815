# SPDX-License-Identifier: Apache-2.0
"""A residual network on images, in blocks of unequal cost: an example for scripts/block-times and bench_pipelining.py
of a model that is no Transformer. After He et al., "Deep Residual Learning for Image Recognition" (2015), table 1: the
34-layer network's stages with half of their blocks, rounded up."""

import torch
from torch import nn

CLASSES, IMAGES, SIZE = 100, 8, 96
STAGES = ((64, 2), (128, 2), (256, 3), (512, 2))  # channels, blocks


class Residual(nn.Module):
    """Two convolutions beside a shortcut. stride: of the first."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return torch.relu(self.main(x) + self.shortcut(x))


def blocks():
    yield nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)
    )
    inputs = 64
    for outputs, count in STAGES:
        for i in range(count):
            yield Residual(inputs, outputs, 2 if i == 0 and outputs != 64 else 1)
            inputs = outputs
    yield nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))


def example():
    return torch.randn(IMAGES, 3, SIZE, SIZE)


def loss(output):
    return nn.functional.cross_entropy(output, torch.arange(len(output), device=output.device) % CLASSES)


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.001, momentum=0.9)
