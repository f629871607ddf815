# SPDX-License-Identifier: Apache-2.0
"""A step of training with --precision fp8, computed by PyTorch: every number is rounded where ppkit stores it, and
nowhere else, so that what ppexec computes should be the same but for the last digits of float32.

The models have rows of one token. Attention then hands its values on as they are, which leaves the linears, the norms
and what is between them. Dropout, biases of linears, experts, and workers that share tensors are not here.

Numbers of bfloat16 and FP8 are kept in tensors of float32; sums are made in float64, but for those of forward products
in FP8, which ppkit lets be fast.
"""

import math

import torch

STEP = 16  # FP8 products have sizes that are multiples of it
FAST_BITS = 13  # of a sum's mantissa; a GPU cuts each step of the sum, at about as many
LARGEST = {torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}


def bf16(x):
    return x.float().bfloat16().float()


def fp8(x, kind):
    """(numbers of FP8 of this kind, the scale by which they are x, its largest number being the largest of the kind)"""
    amax = x.abs().max().float()
    factor = torch.minimum(torch.tensor(LARGEST[kind]) / amax, torch.tensor(2.0**126)) if amax > 0 else torch.tensor(1.0)
    codes = (x.float() * factor).clamp(-LARGEST[kind], LARGEST[kind]).to(kind)  # the cast alone would not saturate
    return codes.double(), (1 / factor).double()


def e4m3(x):
    return fp8(x, torch.float8_e4m3fn)


def e5m2(x):
    return fp8(x, torch.float8_e5m2)


def same(x):
    return x.double(), 1.0


def product(a, b):
    """Of numbers and scales, a [m, k] and b [k, n]."""
    return (a[0] @ b[0] * (a[1] * b[1])).float()


def turned(a):
    return a[0].T, a[1]


def cut(x):
    """What a fast sum has of float32's digits: the others are cut off."""
    return (x.float().view(torch.int32) & (-1 << (23 - FAST_BITS))).view(torch.float32).double()


def fast_product(a, b):
    """As forward products in FP8 are added, on the emulated device."""
    return (cut(a[0] @ b[0]) * (a[1] * b[1])).float()


class StoredGradient(torch.autograd.Function):
    """A place where the gradient is stored: the sum of all that flow together there is rounded."""

    @staticmethod
    def forward(_, x):
        return x.clone()

    @staticmethod
    def backward(_, dy):
        return bf16(dy)


class Stored(torch.autograd.Function):
    """A place where the number itself is stored; the gradient goes through as it is."""

    @staticmethod
    def forward(_, x):
        return bf16(x)

    @staticmethod
    def backward(_, dy):
        return dy


stored, gradient_stored = Stored.apply, StoredGradient.apply


class Linear(torch.autograd.Function):
    """x [T, k] times weight [n, k]: in FP8 if `kinds` are e4m3 and e5m2, in bfloat16 if both are same(). The result, and
    the gradient at x, which may be added to another before it is stored, are not rounded here."""

    @staticmethod
    def forward(ctx, x, weight, kinds):
        ctx.kinds = kinds
        ctx.save_for_backward(x, weight)
        multiply = product if kinds[0] is same else fast_product
        return multiply(kinds[0](x), turned(kinds[0](bf16(weight))))

    @staticmethod
    def backward(ctx, dy):
        (x, weight), (plain, gradient) = ctx.saved_tensors, ctx.kinds
        dy = gradient(dy)
        return product(dy, plain(bf16(weight))), product(turned(dy), plain(x)), None


class Norm(torch.autograd.Function):
    """The backward reads the normalised numbers as they were stored."""

    @staticmethod
    def forward(ctx, x, gamma, beta, epsilon):
        rms, x = beta is None, x.double()
        mean = 0.0 if rms else x.mean(dim=1, keepdim=True)
        rstd = 1 / ((x - mean).square().mean(dim=1, keepdim=True) + epsilon).sqrt()
        normal = (x - mean) * rstd
        ctx.rms = rms
        ctx.save_for_backward(bf16(normal), rstd, gamma)
        return bf16(normal * gamma + (0.0 if rms else beta))

    @staticmethod
    def backward(ctx, dy):
        normal, rstd, gamma = (t.double() for t in ctx.saved_tensors)
        g = dy.double() * gamma
        mean = 0.0 if ctx.rms else g.mean(dim=1, keepdim=True)
        dx = (g - mean - normal * (g * normal).mean(dim=1, keepdim=True)) * rstd
        of_beta = None if ctx.rms else dy.double().sum(dim=0).float()
        return dx.float(), (dy.double() * normal).sum(dim=0).float(), of_beta, None


# Those with one input of the same width.
ACTIVATIONS = {"relu": torch.relu, "gelu": torch.nn.functional.gelu}
ACTIVATIONS["gelu-tanh"] = lambda x: torch.nn.functional.gelu(x, approximate="tanh")


class Step:
    """One batch through the model. weights: {name: tensor}; o: ppkit's options; in_fp8: False: all as in bf16. products:
    how many linears had sizes for FP8, and how many had not."""

    def __init__(self, weights, o, in_fp8=True):
        self.o, self.in_fp8, self.products = o, in_fp8, {True: 0, False: 0}
        self.weights = {name: w.clone().float().requires_grad_() for name, w in weights.items()}

    def linear(self, x, name):
        weight = self.weights[name]
        fits = all(size % STEP == 0 for size in (len(x), *weight.shape))
        self.products[fits] += 1
        return Linear.apply(x, weight, (e4m3, e5m2) if fits and self.in_fp8 else (same, same))

    def norm(self, x, name):
        gamma, beta = self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias")
        return gradient_stored(Norm.apply(x, gamma, beta, self.o["norm_epsilon"]))

    def activation(self, a):
        """u, of what linear1 has made."""
        a = gradient_stored(stored(a)).double()
        if self.o["activation"] == "swiglu":
            gate, up = a.chunk(2, dim=1)
            u = torch.nn.functional.silu(gate) * up
        else:
            u = ACTIVATIONS[self.o["activation"]](a)
        return gradient_stored(stored(u.float()))

    def attention(self, x, at):
        """Of rows of one token: its value."""
        qkv = gradient_stored(stored(self.linear(x, f"{at}.self_attn.in_proj_weight")))
        values = gradient_stored(qkv.chunk(3, dim=1)[2])
        return stored(self.linear(values, f"{at}.self_attn.out_proj.weight"))

    def feed_forward(self, x, at):
        return stored(self.linear(self.activation(self.linear(x, f"{at}.linear1.weight")), f"{at}.linear2.weight"))

    def layer(self, x, at):
        if self.o["norm"] == "post":
            x = self.norm(gradient_stored(x + self.attention(x, at)), f"{at}.norm1")
            return self.norm(gradient_stored(x + self.feed_forward(x, at)), f"{at}.norm2")
        r = gradient_stored(x + self.attention(self.norm(x, f"{at}.norm1"), at))
        # the second norm reads r before it is stored
        return gradient_stored(stored(stored(r) + self.feed_forward(self.norm(r, f"{at}.norm2"), at)))

    def logits(self, tokens):
        d, weight = self.o["d_model"], self.weights["embedding.weight"]
        scale = math.sqrt(d) if self.o["style"] == "tutorial" else 1.0
        first_place = torch.tensor([0.0, 1.0]).repeat(d // 2)  # sines and cosines of zero
        x = gradient_stored(stored(weight[tokens] * scale + first_place))
        for i in range(self.o["layers"]):
            x = self.layer(x, f"layers.{i}")
        if self.o["norm"] == "pre":
            x = self.norm(x, "norm")
        return Linear.apply(x, self.weights["decoder.weight"], (same, same))

    def run(self, inputs, targets):
        """(mean loss, {name: gradient})"""
        logits = gradient_stored(self.logits(torch.tensor(inputs).flatten()))
        loss = torch.nn.functional.cross_entropy(logits.double(), torch.tensor(targets).flatten())
        loss.backward()
        return float(loss.detach()), {name: w.grad for name, w in self.weights.items()}
