# SPDX-License-Identifier: Apache-2.0
"""The model and the training loop that ppkit reproduces, in plain PyTorch: the oracle of losses, gradients and
trained weights.

The modules are PyTorch's own (nn.Embedding, nn.TransformerEncoderLayer, nn.Linear), but for the attention of --kv-heads,
--positions rope, --qk-norm and --bias qkv, which is made of its scaled_dot_product_attention, and for --experts;
options have the names of ppkit's, as a dict: options({"preset": "lab", "layers": 8}). Targets are paired rightly (row first, like the logits),
the loss is the mean over all tokens of all replicas, so D replicas of r rows train like one batch of D*r rows.
"""

import copy
import functools
import math

import torch
from torch import nn

import text

PRESETS = {
    "tutorial": dict(
        d_model=4096,
        heads=16,
        d_ff=4096,
        layers=8,
        vocab=28782,
        rows=20,
        chunks=8,
        tokens=35,
        mask="none",
        dropout=0.2,
        lr=5.0,
        clip=0.5,
        lr_decay=0.95,
        epochs=3,
        max_batches=50,
        eval_batches=50,
        style="tutorial",
    ),
    "tutorial-12": dict(
        d_model=4096,
        heads=16,
        d_ff=4096,
        layers=12,
        vocab=28782,
        rows=20,
        chunks=8,
        tokens=25,
        mask="none",
        dropout=0.2,
        lr=5.0,
        clip=0.5,
        lr_decay=0.95,
        epochs=3,
        max_batches=50,
        eval_batches=50,
        style="tutorial",
    ),
    "small": dict(
        d_model=200,
        heads=2,
        d_ff=200,
        layers=2,
        vocab=28782,
        rows=20,
        chunks=4,
        tokens=35,
        mask="causal",
        dropout=0.2,
        lr=5.0,
        clip=0.5,
        lr_decay=0.95,
        epochs=1,
        max_batches=0,
        eval_batches=0,
        style="tutorial",
    ),
    "lab": dict(
        d_model=12,
        heads=4,
        d_ff=24,
        layers=2,
        vocab=100,
        rows=4,
        chunks=2,
        tokens=9,
        mask="none",
        dropout=0.1,
        lr=0.01,
        clip=0.0,
        lr_decay=1.0,
        epochs=200,
        max_batches=0,
        eval_batches=0,
        style="lab",
        data="constant",
    ),
}
COMMON = dict(
    preset="small",
    replicas=1,
    context_parallel=1,
    cp_comm_type="a2a",
    seed=1,
    eval_rows=10,
    data=None,
    optimizer="sgd",
    norm="post",
    normalization="layernorm",
    norm_epsilon=1e-5,
    qk_norm="no",
    activation="relu",
    bias="yes",
    kv_heads=0,
    head_dim=0,
    kv_lora_rank=0,
    q_lora_rank=0,
    qk_nope_head_dim=0,
    qk_rope_head_dim=0,
    v_head_dim=0,
    positions="sinusoidal",
    rope_theta=10000.0,
    rotary_dim=0,
    rope_factor=1.0,
    rope_scaling="llama3",
    rope_truncate="yes",
    rope_attention_factor=0.0,
    score_factor=1.0,
    rope_low_freq_factor=None,  # that of the kind of scaling
    rope_high_freq_factor=None,
    rope_original_tokens=8192,
    max_positions=0,
    window_size=0,
    window_attn_skip_freq=0,
    tie_embeddings="no",
    experts=0,
    experts_per_token=2,
    capacity_factor=1.25,
    aux_loss=0.01,
    gates="chosen",
    router_score="softmax",
    gate_scale=1.0,
    expert_groups=1,
    groups_per_token=1,
    group_score="top2",
    expert_bias="no",
    expert_bias_rate=0.001,
    dense_layers=0,
    experts_every=1,
    dense_ff=0,
    shared_ff=0,
    shared_gate="no",
    warmup_steps=0,
    lr_schedule="constant",
    lr_steps=0,
    min_lr=0.0,
)
ADAMW = dict(adam_beta1=0.9, adam_beta2=0.999, adam_eps=1e-8, weight_decay=0.01)


def options(given):
    """All options: common defaults, then the preset, whose decay is not for rates that fall by themselves, then what was
    given."""
    preset = PRESETS[given.get("preset", COMMON["preset"])]
    if given.get("lr_schedule", "constant") != "constant":
        preset = {**preset, "lr_decay": 1.0}
    return {**COMMON, **ADAMW, **preset, **given}


def frequencies(o, columns):
    """Radians for each token, by pairs of columns; slowed down where rope_factor is above 1, as Hugging Face's
    modeling_rope_utils.py does it: Llama 3.1's by their wavelengths, YaRN's by their numbers."""
    made = 1.0 / o["rope_theta"] ** (torch.arange(0, columns, 2, dtype=torch.float64) / columns)
    factor, low, high, original = (o["rope_" + n] for n in ("factor", "low_freq_factor", "high_freq_factor", "original_tokens"))
    low, high = low if low is not None else 1.0, high or {"llama3": 4.0, "yarn": 32.0, "linear": 0.0}[o["rope_scaling"]]
    if factor <= 1 or o["rope_scaling"] == "linear":
        return made / max(factor, 1.0)
    if o["rope_scaling"] == "yarn":
        first, last = (columns * math.log(original / (n * 2 * math.pi)) / (2 * math.log(o["rope_theta"])) for n in (high, low))
        if o["rope_truncate"] == "yes":
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, columns - 1)
        ramp = (torch.arange(columns // 2, dtype=torch.float64) - first) / ((last - first) or 0.001)
        ramp = ramp.clamp(0, 1)
        return made / factor * ramp + made * (1 - ramp)
    wavelength = 2 * torch.pi / made
    smooth = (original / wavelength - low) / (high - low)
    between = (1 - smooth) * made / factor + smooth * made
    slowed = torch.where(wavelength > original / low if low else wavelength < 0, made / factor, between)
    return torch.where(wavelength < original / high, made, slowed)


def magnitude(o):
    """What sines and cosines are multiplied by."""
    if o["rope_factor"] <= 1 or o["rope_scaling"] != "yarn":
        return 1.0
    return o["rope_attention_factor"] or 0.1 * math.log(o["rope_factor"]) + 1.0


def rotate(x, frequency, factor):
    """Rotary positions of x [rows, heads, tokens, columns], as Hugging Face's Llama computes them: of the first columns
    that there are frequencies for, as its GLM-4.5."""
    tokens, columns = x.shape[2], 2 * len(frequency)
    x, others = x[..., :columns], x[..., columns:]
    angle = torch.outer(torch.arange(tokens, dtype=torch.float64), frequency)
    angle = torch.cat((angle, angle), dim=-1)
    half = torch.cat((-x[..., columns // 2 :], x[..., : columns // 2]), dim=-1)
    return torch.cat((x * (factor * angle.cos()).to(x) + half * (factor * angle.sin()).to(x), others), dim=-1)


class Attention(nn.Module):
    """What nn.MultiheadAttention does not have: fewer heads of keys and values, rotary positions, norms of queries and
    keys, a bias of in_proj alone. Parameters have its names, and take its place in nn.TransformerEncoderLayer."""

    def __init__(self, o):
        super().__init__()
        d, self.heads = o["d_model"], o["heads"]
        self.columns, self.kv = o["head_dim"] or d // self.heads, o["kv_heads"] or self.heads
        self.frequency = frequencies(o, o["rotary_dim"] or self.columns) if o["positions"] == "rope" else None
        self.magnitude, self.scale = magnitude(o), o["score_factor"] / math.sqrt(self.columns)
        width = (self.heads + 2 * self.kv) * self.columns
        bias = o["bias"] in ("yes", "layers")
        self.in_proj_weight = nn.Parameter(torch.empty(width, d))
        self.register_parameter("in_proj_bias", nn.Parameter(torch.zeros(width)) if o["bias"] != "no" else None)
        self.out_proj = nn.Linear(self.heads * self.columns, d, bias=bias)
        self.embed_dim, self.dropout = d, 0.0
        self.q_norm, self.k_norm = nn.Identity(), nn.Identity()
        if o["qk_norm"] == "yes":
            self.q_norm, self.k_norm = (nn.RMSNorm(self.columns, eps=o["norm_epsilon"]) for _ in range(2))
        nn.init.xavier_uniform_(self.in_proj_weight)
        if bias:
            nn.init.zeros_(self.out_proj.bias)

    def project(self, x):
        """Queries, keys, values: [rows, heads, tokens, columns]."""
        rows, tokens, _ = x.shape
        qkv = nn.functional.linear(x, self.in_proj_weight, self.in_proj_bias)
        parts = qkv.reshape(rows, tokens, -1, self.columns).transpose(1, 2)
        q, k, v = parts.split((self.heads, self.kv, self.kv), dim=1)
        q, k = self.q_norm(q), self.k_norm(k)
        if self.frequency is None:
            return q, k, v
        return *(rotate(part, self.frequency, self.magnitude) for part in (q, k)), v

    def forward(self, x, _key, _value, attn_mask=None, **_other):
        q, k, v = self.project(x)
        made = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask, scale=self.scale, enable_gqa=True)
        return self.out_proj(made.transpose(1, 2).flatten(2)), None


class LatentAttention(nn.Module):
    """Multi-head latent attention, as Hugging Face's DeepseekV3Attention with the rotated columns in Llama's order. Takes
    the place of Attention."""

    def __init__(self, o):
        super().__init__()
        d, self.heads = o["d_model"], o["heads"]
        self.still, self.turned, self.values = o["qk_nope_head_dim"], o["qk_rope_head_dim"], o["v_head_dim"]
        self.rank, columns = o["kv_lora_rank"], self.heads * (self.still + self.turned)
        self.frequency, self.magnitude = frequencies(o, self.turned), magnitude(o)
        self.scale = o["score_factor"] / math.sqrt(self.still + self.turned)
        if o["q_lora_rank"]:
            self.q_a_proj = nn.Linear(d, o["q_lora_rank"], bias=False)
            self.q_a_norm = nn.RMSNorm(o["q_lora_rank"], eps=o["norm_epsilon"])
            self.q_b_proj = nn.Linear(o["q_lora_rank"], columns, bias=False)
        else:
            self.q_proj = nn.Linear(d, columns, bias=False)
        self.kv_a_proj = nn.Linear(d, self.rank + self.turned, bias=False)
        self.kv_a_norm = nn.RMSNorm(self.rank, eps=o["norm_epsilon"])
        self.kv_b_proj = nn.Linear(self.rank, self.heads * (self.still + self.values), bias=False)
        self.out_proj = nn.Linear(self.heads * self.values, d, bias=False)
        self.embed_dim, self.dropout = d, 0.0

    def project(self, x):
        """Queries, keys, values: [rows, heads, tokens, columns]."""
        rows, tokens, _ = x.shape
        q = self.q_b_proj(self.q_a_norm(self.q_a_proj(x))) if hasattr(self, "q_a_proj") else self.q_proj(x)
        q = q.view(rows, tokens, self.heads, -1).transpose(1, 2)
        latent, shared = self.kv_a_proj(x).split((self.rank, self.turned), dim=-1)
        kv = self.kv_b_proj(self.kv_a_norm(latent)).view(rows, tokens, self.heads, -1).transpose(1, 2)
        k, v = kv.split((self.still, self.values), dim=-1)
        q_still, q_turned = q.split((self.still, self.turned), dim=-1)
        q = torch.cat((q_still, rotate(q_turned, self.frequency, self.magnitude)), dim=-1)
        shared = rotate(shared.view(rows, 1, tokens, self.turned), self.frequency, self.magnitude)
        return q, torch.cat((k, shared.expand(-1, self.heads, -1, -1)), dim=-1), v

    forward = Attention.forward


class LabLayer(nn.TransformerEncoderLayer):
    """The lab's layer: dropout on the two residual branches only."""

    def __init__(self, d, heads, ff, dropout, **extra):
        super().__init__(d, heads, ff, dropout, **extra)
        self.self_attn.dropout = 0.0
        self.dropout = nn.Identity()


def microbatches(o, training, x):
    """Parts of x [rows, ...] that ppkit works on at a time: an evaluation is made by one replica, in as many as training
    has, which may be fewer than chunks."""
    chunks = o["chunks"] if training else len(torch.arange(o["rows"]).chunk(o["chunks"]))
    return [part for rows in x.chunk(o["replicas"] if training else 1) for part in rows.chunk(chunks)]


class Experts:
    """For a layer with o["experts"] feed-forwards: what of it is its own. linear1 and linear2 hold those of all experts,
    one behind the other."""

    def make_experts(self, o):
        self.o, self.aux = o, 0.0
        width = 2 * o["d_ff"] if o["activation"] == "swiglu" else o["d_ff"]
        self.router = nn.Linear(o["d_model"], o["experts"], bias=False)
        if o["expert_bias"] == "yes":  # no gradient leads to it
            self.router.expert_bias = nn.Parameter(torch.zeros(o["experts"]), requires_grad=False)
        self.loads = 0  # tokens of the step that have chosen each
        self.linear1 = nn.Linear(o["d_model"], o["experts"] * width, bias=False)
        self.linear2 = nn.Linear(o["d_ff"], o["experts"] * o["d_model"], bias=False)
        if o["shared_ff"]:
            self.shared = nn.Module()
            width = 2 * o["shared_ff"] if o["activation"] == "swiglu" else o["shared_ff"]
            self.shared.linear1 = nn.Linear(o["d_model"], width, bias=False)
            self.shared.linear2 = nn.Linear(o["shared_ff"], o["d_model"], bias=False)
            if o["shared_gate"] == "yes":
                self.shared.gate = nn.Linear(o["d_model"], 1, bias=False)

    def route(self, x):
        """Of a microbatch's tokens x [tokens, d]: the experts that each chooses, the weights of these, and whether they
        have a place for it: [tokens, chosen]. First choices find places before any second ones."""
        o, tokens = self.o, len(x)
        logits, sigmoid = self.router(x), o["router_score"] == "sigmoid"
        probabilities = logits.sigmoid() if sigmoid else logits.softmax(dim=-1)
        normalised = probabilities / (probabilities.sum(dim=-1, keepdim=True) + 1e-20) if sigmoid else probabilities
        scores = probabilities + self.router.expert_bias if o["expert_bias"] == "yes" else probabilities
        if o["expert_groups"] > 1:
            scores = self.of_best_groups(scores)
        experts = scores.sort(dim=-1, descending=True, stable=True).indices[:, : o["experts_per_token"]]
        likeliest = probabilities.gather(-1, experts)
        chosen = nn.functional.one_hot(experts, o["experts"])
        if self.training:
            self.loads = self.loads + chosen.sum(dim=(0, 1))
        most = min(tokens, math.ceil(o["capacity_factor"] * (tokens * o["experts_per_token"] / o["experts"]) * (1 - 1e-12)))
        before = chosen.transpose(0, 1).flatten(0, 1).cumsum(dim=0).unflatten(0, (-1, tokens)).transpose(0, 1)
        share = chosen.to(x).mean(dim=(0, 1))  # of all choices, for each expert
        self.aux = self.aux + o["aux_loss"] * o["experts"] * (share * normalised.mean(dim=0)).sum() * tokens
        sums = likeliest.sum(dim=-1, keepdim=True) + (1e-20 if sigmoid else 0.0)
        gates = o["gate_scale"] * (likeliest if o["gates"] == "all" else likeliest / sums)
        return experts, gates, ((before <= most) * chosen).any(dim=-1)

    def of_best_groups(self, scores):
        """-inf for experts of other groups."""
        o, groups = self.o, scores.unflatten(-1, (self.o["expert_groups"], -1))
        of_group = groups.topk(2 if o["group_score"] == "top2" else 1, dim=-1).values.sum(dim=-1)
        best = of_group.sort(dim=-1, descending=True, stable=True).indices[:, : o["groups_per_token"]]
        stays = torch.zeros_like(of_group, dtype=torch.bool).scatter(-1, best, True)
        return groups.masked_fill(~stays[..., None], -math.inf).flatten(-2)

    def change_of_bias(self):
        """By the loads since the last step."""
        loads, self.loads = self.loads, 0
        return self.o["expert_bias_rate"] * torch.sign(loads.sum() / len(loads) - loads).to(self.router.expert_bias)

    def of_microbatch(self, x):
        experts, gates, placed = self.route(x)
        made = torch.zeros_like(x)
        first, second = (linear.weight.chunk(self.o["experts"]) for linear in (self.linear1, self.linear2))
        for i in range(self.o["experts"]):
            token, choice = (placed & (experts == i)).nonzero(as_tuple=True)
            y = self.activation(x[token] @ first[i].T) @ second[i].T
            made = made.index_add(0, token, gates[token, choice, None] * y)
        return made

    def experts(self, x):
        """x [rows, tokens, d]. self.aux becomes the sum over tokens of the loss that makes the router even."""
        self.aux = 0.0
        made = [self.of_microbatch(part.flatten(0, 1)) for part in microbatches(self.o, self.training, x)]
        made = torch.cat(made).reshape(x.shape)
        if self.o["shared_ff"]:
            beside = self.shared.linear2(self.activation(self.shared.linear1(x)))
            made = made + (self.shared.gate(x).sigmoid() * beside if self.o["shared_gate"] == "yes" else beside)
        return made

    def _ff_block(self, x):
        """What nn.TransformerEncoderLayer calls."""
        return self.dropout2(self.experts(x))


class TutorialExperts(Experts, nn.TransformerEncoderLayer):
    pass


class LabExperts(Experts, LabLayer):
    pass


def swiglu(x):
    """Of linear1's output, in halves."""
    gate, up = x.chunk(2, dim=-1)
    return nn.functional.silu(gate) * up


# Those that PyTorch's layer does not know by name.
ACTIVATIONS = {"swiglu": swiglu, "gelu-tanh": functools.partial(nn.functional.gelu, approximate="tanh")}


def make_norm(o):
    kind = nn.RMSNorm if o["normalization"] == "rmsnorm" else nn.LayerNorm
    return kind(o["d_model"], eps=o["norm_epsilon"])


def has_experts(o, i):
    """Layer i, counted from 0."""
    return o["experts"] > 0 and i >= o["dense_layers"] and (i - o["dense_layers"]) % o["experts_every"] == 0


def make_layer(o, i):
    """PyTorch's layer; its bias=False takes those of layer norms too, which ppkit keeps."""
    experts = has_experts(o, i)
    ff = o["dense_ff"] if o["experts"] and not experts and o["dense_ff"] else o["d_ff"]
    dense, sparse = {
        "tutorial": (nn.TransformerEncoderLayer, TutorialExperts),
        "lab": (LabLayer, LabExperts),
    }[o["style"]]
    kind = sparse if experts else dense
    gated, bias = o["activation"] == "swiglu", o["bias"] in ("yes", "layers")
    layer = kind(
        o["d_model"],
        o["heads"],
        ff,
        o["dropout"],
        batch_first=True,
        norm_first=o["norm"] == "pre",
        activation=ACTIVATIONS.get(o["activation"], o["activation"]),
        bias=bias,
    )
    if gated:
        layer.linear1 = nn.Linear(o["d_model"], 2 * ff, bias=bias)
    if experts:
        layer.make_experts(o)
    layer.norm1, layer.norm2 = make_norm(o), make_norm(o)
    return layer


class Model(nn.Module):
    """Embedding, sinusoidal positions unless they are learnt or rotary, encoder layers, a norm where the layers begin with
    theirs (as nn.TransformerEncoder's), decoder. Input [rows, tokens], output [rows, tokens, vocab]."""

    def __init__(self, o):
        super().__init__()
        d = o["d_model"]
        self.tutorial = o["style"] == "tutorial"
        self.embedding = nn.Embedding(o["vocab"], d)
        self.positions = None
        if o["positions"] == "learned":
            self.positions = nn.Embedding(o["max_positions"] or o["tokens"], d)
        self.layers = nn.ModuleList(make_layer(o, i) for i in range(o["layers"]))
        if o["norm"] == "pre":
            self.norm = make_norm(o)
        self.decoder = nn.Linear(d, o["vocab"], bias=o["bias"] == "yes")
        if o["tie_embeddings"] == "yes":
            self.decoder.weight = self.embedding.weight
        self.after_positions = nn.Dropout(o["dropout"] if self.tutorial else 0.0)
        self.rotary = o["positions"] == "rope"
        if o["kv_lora_rank"]:
            for layer in self.layers:
                layer.self_attn = LatentAttention(o)
        elif o["kv_heads"] or o["head_dim"] or self.rotary or o["qk_norm"] == "yes" or o["bias"] == "qkv":
            for layer in self.layers:
                layer.self_attn = Attention(o)
        self.scale = math.sqrt(d) if self.tutorial and o["positions"] == "sinusoidal" else 1.0
        self.causal = o["mask"] == "causal"
        self.window, self.window_skip = o["window_size"], o["window_attn_skip_freq"]
        self.step = 0  # training steps so far, for masked_model.py
        self.initialise()

    def initialise(self):
        if self.tutorial:
            nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
            nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
            if self.positions is not None:
                nn.init.uniform_(self.positions.weight, -0.1, 0.1)
            if self.decoder.bias is not None:
                nn.init.zeros_(self.decoder.bias)
            for layer in self.layers:
                bound = 1 / math.sqrt(layer.self_attn.out_proj.in_features)
                nn.init.uniform_(layer.self_attn.out_proj.weight, -bound, bound)
            return
        for layer in self.layers:  # the lab has separate nn.Linear for q, k, v and the output
            bound = 1 / math.sqrt(layer.self_attn.embed_dim)
            for name, p in layer.self_attn.named_parameters():
                if "norm" not in name:
                    nn.init.uniform_(p, -bound, bound)

    def sinusoids(self, tokens, d, like):
        index = torch.arange(tokens, dtype=torch.float64).unsqueeze(1)
        frequency = torch.exp(torch.arange(0, d, 2, dtype=torch.float64) * (-math.log(10000.0) / d))
        table = torch.zeros(tokens, d, dtype=torch.float64)
        table[:, 0::2] = torch.sin(index * frequency)
        table[:, 1::2] = torch.cos(index * frequency[: d // 2])
        return table.to(like)

    def forward(self, tokens):
        x = self.after_positions(self.embedded(tokens))
        for i, layer in enumerate(self.layers):
            x = layer(x, src_mask=self.mask(i, tokens.shape[1], x))
        return self.decoder(self.last_norm(x))

    def mask(self, i, tokens, like):
        """Of layer i: -inf where a token does not see another; None where it sees all."""
        if not self.causal:
            return None
        made = nn.Transformer.generate_square_subsequent_mask(tokens, dtype=like.dtype)
        skipped = self.window_skip and (i + 1) % self.window_skip == 0
        return made if skipped or not self.window else made + torch.full_like(made, -math.inf).tril(-self.window)

    def embedded(self, tokens):
        x = self.embedding(tokens) * self.scale
        if self.positions is not None:
            return x + self.positions(torch.arange(tokens.shape[1]))
        return x if self.rotary else x + self.sinusoids(tokens.shape[1], x.shape[2], x)

    def last_norm(self, x):
        return self.norm(x) if hasattr(self, "norm") else x


def row_parts(o):
    """Equal parts of a row that the workers who share it have."""
    halves = o["cp_comm_type"] != "a2a" and o["context_parallel"] > 1
    return o["context_parallel"] * (2 if halves else 1)


def data(o):
    """{"train": batches of all replicas, "valid": ..., "test": ...}; a text folder sets o["vocab"]."""
    if o["data"] == "constant":
        return {"train": text.constant_batches(o["rows"] * o["replicas"], o["tokens"], o["vocab"], o["max_batches"])}
    table, ids = text.load(o["data"])
    o["vocab"] = len(table)
    made = {
        "train": text.batches(
            text.replica_columns(ids["train"], o["rows"], o["replicas"]),
            o["tokens"],
            o["max_batches"],
            row_parts(o),
        )
    }
    for name in ("valid", "test"):
        made[name] = text.batches(
            text.columns(ids[name], o["eval_rows"]), o["tokens"], o["eval_batches"], row_parts(o)
        )
    return made


def loss_sum(model, batch):
    inputs, targets = (torch.tensor(part) for part in batch)
    logits = model(inputs)
    return (
        nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), reduction="sum"),
        targets.numel(),
    )


def evaluate(model, batches):
    """Mean loss over tokens."""
    model.eval()
    with torch.no_grad():
        sums = [loss_sum(model, batch) for batch in batches]
    model.train()
    return float(sum(s for s, _ in sums)) / sum(n for _, n in sums)


def gradients(model, batch):
    """(mean loss, {name: gradient}) of one batch; the gradients stay in the parameters, and are also those of the loss
    that makes routers even, which is not in the mean."""
    model.zero_grad(set_to_none=True)
    total, count = loss_sum(model, batch)
    aux = sum(layer.aux for layer in model.layers if isinstance(layer, Experts))
    ((total + aux) / count).backward()
    for layer in biased(model):  # what a step of rate 1 would subtract
        layer.bias_grad = -layer.change_of_bias()
    grads = {name: p.grad.clone() for name, p in model.named_parameters() if p.requires_grad}
    return float(total.detach()) / count, {**grads, **{name: grad for name, grad in bias_grads(model)}}


def biased(model):
    """Layers whose experts have a bias."""
    return [layer for layer in model.layers if isinstance(layer, Experts) and layer.o["expert_bias"] == "yes"]


def bias_grads(model):
    for i, layer in enumerate(model.layers):
        if layer in biased(model):
            yield f"layers.{i}.router.expert_bias", layer.bias_grad


def make_optimizer(model, o):
    if o["optimizer"] == "sgd":
        return torch.optim.SGD(model.parameters(), lr=o["lr"])
    betas = o["adam_beta1"], o["adam_beta2"]
    return torch.optim.AdamW(
        model.parameters(), lr=o["lr"], betas=betas, eps=o["adam_eps"], weight_decay=o["weight_decay"]
    )


def part_of_rate(o, batches, step):
    """What step `step` of epochs of so many batches has of the learning rate."""
    decay = o["lr_decay"] ** (step // batches)
    warmup, least = o["warmup_steps"], o["min_lr"] / o["lr"]
    if step < warmup:
        return decay * (step + 1) / warmup
    if o["lr_schedule"] == "constant":
        return decay
    done = min(1.0, (step - warmup) / (o["lr_steps"] - warmup))
    fall = {"cosine": (1 + math.cos(math.pi * done)) / 2, "linear": 1 - done}[o["lr_schedule"]]
    return decay * (least + (1 - least) * fall)


def train(model, o, parts, after_step=None):
    """Epochs of the optimizer's steps with clipping, at the rate of each. Returns losses, valid losses, test loss (of the best weights) and leaves
    the last weights in the model. after_step(step, loss) may look on."""
    result = {"loss": [], "valid_loss": [], "test_loss": None}
    optimizer, best = make_optimizer(model, o), None
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, functools.partial(part_of_rate, o, len(parts["train"])))
    model.step = 0
    model.train()
    for _ in range(o["epochs"]):
        for batch in parts["train"]:
            loss, _ = gradients(model, batch)
            if o["clip"] > 0:
                nn.utils.clip_grad_norm_(model.parameters(), o["clip"])
            optimizer.step()
            rate.step()
            with torch.no_grad():
                for layer in biased(model):
                    layer.router.expert_bias -= layer.bias_grad
            result["loss"].append(loss)
            if after_step:
                after_step(len(result["loss"]), loss)
        if parts.get("valid"):
            result["valid_loss"].append(evaluate(model, parts["valid"]))
            if best is None or result["valid_loss"][-1] < best[0]:
                best = result["valid_loss"][-1], copy.deepcopy(model.state_dict())
    if best:
        last = copy.deepcopy(model.state_dict())
        model.load_state_dict(best[1])
        result["test_loss"] = evaluate(model, parts["test"])
        model.load_state_dict(last)
    return result


def build(o, kind=Model):
    """The initialised model; never PyTorch's fused inference path, which computes something slightly different."""
    torch.backends.mha.set_fastpath_enabled(False)
    torch.manual_seed(o["seed"])
    return kind(o)
