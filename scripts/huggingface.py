# SPDX-License-Identifier: Apache-2.0
"""What Hugging Face's config.json says of a model: ppkit's options, and how its tensors are put together.

Of a conversion what ppkit would compute otherwise is refused; of a plan, which needs sizes alone, it is told."""

import json

import rotations
import weight_files
from rotations import is_number
from weight_files import MOST_LAYERS, Refused

MOST = 1 << 24  # of ppkit's options
MOST_EXPERTS = 1 << 12  # of a layer; of all layers together this many times 256


class Config:
    """config.json: values, and what they must be. notes: a list to put what differs in, or None: it is refused. slides:
    does layer i have the window, if a file with one does not say it? None: such a model has none."""

    slides = None

    def __init__(self, path, notes=None):
        self.path, self.values, self.notes = path, weight_files.read_json(path), notes

    def get(self, name, default=None):
        value = self.values.get(name)
        return default if value is None else value

    def said(self, name, value):
        """For messages: "name is value", in a word where the file says nothing of it."""
        text = json.dumps(value) if value is not None or name in self.values else "missing"
        return f"{name} is {text if len(text) <= 80 else text[:77] + '...'}"

    def refuse(self, name, value, why):
        raise Refused(f"{self.path}: {self.said(name, value)}, but {why}")

    def differ(self, name, value, why):
        """The sizes are the same."""
        if self.notes is None:
            self.refuse(name, value, why)
        self.notes.append(f"{self.said(name, value)}, but {why}")

    def count(self, name, default=None, most=MOST):
        value = self.get(name, default)
        if type(value) is not int or not 1 <= value <= most:
            self.refuse(name, value, f"must be a number of things, at most {most}")
        return value

    def flag(self, name, default):
        value = self.get(name, default)
        if not isinstance(value, bool):
            self.refuse(name, value, "must be true or false")
        return value

    def choice(self, name, default, known):
        value = self.get(name, default)
        if not isinstance(value, str) or value not in known:
            self.refuse(name, value, f"only {', '.join(known)} are known")
        return known[value]

    def must_divide(self, name, count, whole):
        if whole % count:
            self.refuse(name, count, f"{whole} cannot be divided by it")

    def must(self, name, default, why):
        """The one value that ppkit knows; it is that of files that do not name it."""
        value = self.get(name, default)
        if value != default:
            self.differ(name, value, why)

    def epsilon(self, name, default):
        """Of all norms. ppkit has it as a float."""
        value = self.get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1e-37 <= value <= 1:
            self.refuse(name, value, "must be a number above 0, at most 1")
        return value


class Row:
    """A tensor of ppkit: the other's tensors one below the other, as [(name, rows)]; columns None: numbers, not rows.
    turned: theirs are [columns, rows]. order: of one part, the number of their row for each of ours; None: the same.
    fused: (name, shape) of one tensor that has the same numbers in the same order,
    as newer versions of transformers keep it; or None."""

    def __init__(self, name, columns, parts, turned=False, fused=None, order=None):
        self.name, self.columns, self.parts, self.turned, self.fused = name, columns, parts, turned, fused
        self.order = order
        self.rows = sum(rows for _, rows in parts)
        self.shape = self.shape_of(self.rows)

    def read_from(self, tensors):
        """[(name, rows, shape)] of what there is of their tensors."""
        if self.fused and self.fused[0] in tensors:
            return [(self.fused[0], self.rows, self.fused[1])]
        return [(name, rows, self.their_shape(rows)) for name, rows in self.parts]

    def shape_of(self, rows):
        return (rows,) if self.columns is None else (rows, self.columns)

    def their_shape(self, rows):
        return self.shape_of(rows)[::-1] if self.turned else self.shape_of(rows)


def linear(name, theirs, rows, columns, bias=False, turned=False):
    parts = [(theirs, rows)] if isinstance(theirs, str) else theirs
    made = [Row(name + ".weight", columns, [(part + ".weight", n) for part, n in parts], turned)]
    return made + ([Row(name + ".bias", None, [(part + ".bias", n) for part, n in parts])] if bias else [])


def norm(name, theirs, d, bias=False):
    kinds = (".weight", ".bias") if bias else (".weight",)
    return [Row(name + kind, None, [(theirs + kind, d)]) for kind in kinds]


def in_proj(rows):
    """ppkit's name has no dot before weight and bias."""
    for row in rows:
        row.name = row.name.replace("in_proj.", "in_proj_")
    return rows


def gpt2(config):
    """(options, rows)"""
    d, heads, layers = config.count("n_embd"), config.count("n_head"), config.count("n_layer", most=MOST_LAYERS)
    ff, vocab, places = config.count("n_inner", 4 * d), config.count("vocab_size"), config.count("n_positions", 1024)
    activations = {"gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "gelu": "gelu", "relu": "relu"}
    activation = config.choice("activation_function", "gelu_new", activations)
    config.must_divide("n_head", heads, d)
    config.must("scale_attn_weights", True, "ppkit divides scores by the root of a head's columns")
    config.must("scale_attn_by_inverse_layer_idx", False, "ppkit scales the scores of all layers alike")
    config.must("add_cross_attention", False, "ppkit has no cross-attention")
    tied = config.flag("tie_word_embeddings", True)
    options = dict(d_model=d, heads=heads, d_ff=ff, layers=layers, vocab=vocab, normalization="layernorm")
    options.update(norm_epsilon=config.epsilon("layer_norm_epsilon", 1e-5), activation=activation, bias="layers")
    options.update(positions="learned", max_positions=places)
    rows = [Row("embedding.weight", d, [("transformer.wte.weight", vocab)])]
    rows += [Row("positions.weight", d, [("transformer.wpe.weight", places)])]
    for i in range(layers):
        mine, theirs, more = f"layers.{i}.", f"transformer.h.{i}.", dict(bias=True, turned=True)
        rows += in_proj(linear(mine + "self_attn.in_proj", theirs + "attn.c_attn", 3 * d, d, **more))
        rows += linear(mine + "self_attn.out_proj", theirs + "attn.c_proj", d, d, **more)
        rows += linear(mine + "linear1", theirs + "mlp.c_fc", ff, d, **more)
        rows += linear(mine + "linear2", theirs + "mlp.c_proj", d, ff, **more)
        rows += norm(mine + "norm1", theirs + "ln_1", d, bias=True)
        rows += norm(mine + "norm2", theirs + "ln_2", d, bias=True)
    rows += norm("norm", "transformer.ln_f", d, bias=True)
    return decoder(options, rows, tied, vocab, d)


def all_but_each(n):
    return lambda i: (i + 1) % n != 0


def in_all(_):
    return True


def windows(config, layers):
    """Options of sliding windows, which all layers have, or all but each N-th."""
    width = config.get("sliding_window")
    if width is None or config.slides is None:
        config.must("sliding_window", None, "this kind of model has no windows")
        return {}
    width, types = config.count("sliding_window"), config.get("layer_types")
    sliding = [config.slides(i) for i in range(layers)]
    if types is not None:
        known = ("sliding_attention", "full_attention")
        if not isinstance(types, list) or len(types) != layers or any(kind not in known for kind in types):
            config.refuse("layer_types", types, "must be sliding_attention or full_attention for each layer")
        sliding = [kind == "sliding_attention" for kind in types]
    if config.slides is in_all and not all(sliding):
        config.refuse("layer_types", types, "all layers of this kind of model have the window")
    if all(sliding):
        return dict(window_size=width)
    for n in range(2, layers + 1) if any(sliding) else ():
        if sliding == [all_but_each(n)(i) for i in range(layers)]:
            return dict(window_size=width, window_attn_skip_freq=n)
    if any(sliding):
        config.differ("sliding_window", width, "ppkit has windows in all layers, or in all but each N-th")
    return {}


def mistral(config):
    """Llama's, but for what a file that does not name these two means; null means what it does there."""
    config.values = {"sliding_window": 4096, "num_key_value_heads": 8, **config.values}
    config.slides = in_all
    return llama(config)


MIXTRAL = dict(num_key_value_heads=8, rms_norm_eps=1e-5, rope_theta=1e6, num_local_experts=8, num_experts_per_tok=2)


def mixtral(config):
    config.values = {**MIXTRAL, **config.values}
    config.slides = in_all
    config.must("router_jitter_noise", 0, "ppkit's routers see what there is, without noise")
    return llama(config, OLD_MIXTRAL, experts_of(config))


QWEN2_MOE = dict(num_key_value_heads=16, num_experts=60, num_experts_per_tok=4, moe_intermediate_size=1408)
QWEN2_MOE.update(shared_expert_intermediate_size=5632, norm_topk_prob=False, intermediate_size=5632)
QWEN3_MOE = dict(num_key_value_heads=4, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768)
QWEN3_MOE.update(intermediate_size=6144)
# Mixtures whose layers are DeepSeek-V3's, but for attention.
DEEPSEEK = dict(first_k_dense_replace=0, norm_topk_prob=True, router_aux_loss_coef=0.0, intermediate_size=10944)
DOTS1 = dict(DEEPSEEK, num_key_value_heads=32, moe_intermediate_size=1408, norm_topk_prob=False, sliding_window=4096)
DOTS1.update(max_window_layers=62)
GLM4_MOE = dict(DEEPSEEK, num_key_value_heads=8, moe_intermediate_size=1408, n_routed_experts=128, n_shared_experts=1)
GLM4_MOE.update(num_experts_per_tok=8, first_k_dense_replace=1, partial_rotary_factor=0.5, rms_norm_eps=1e-5)
SOLAR_OPEN = dict(DEEPSEEK, num_key_value_heads=8, moe_intermediate_size=1280, n_routed_experts=128, n_shared_experts=1)
SOLAR_OPEN.update(num_experts_per_tok=8, head_dim=128, rms_norm_eps=1e-5, rope_theta=1e6)


def qwen_slides(config, kind, experts):
    """Which layers have a window where a file says that some do."""
    most = config.get("max_window_layers", 28)
    if type(most) is not int:
        config.refuse("max_window_layers", most, "must be a number of layers")
    if not experts:
        return lambda i: i >= most
    return in_all if kind.qk_norm else lambda i: i % 2 == 0 and i < most


def qwen(kind, values):
    """What a file means that does not name it: values."""

    def make(config):
        config.values = {"use_sliding_window": False, "sliding_window": 4096, **values, **config.values}
        config.slides = qwen_slides(config, kind, "num_experts" in values)
        without_window(config)
        if "num_experts" not in values:
            return llama(config, kind)
        biased = kind.qkv_bias and config.flag("qkv_bias", True)
        return like_mixtral(config, kind if biased == kind.qkv_bias else LLAMA)

    return make


def without_window(config):
    """There is none where a file says so, whatever its width."""
    if config.get("use_sliding_window") is False:
        config.values["sliding_window"] = None


def experts_of(config):
    """Options. No token is left out where each expert has room for all."""
    name = "num_experts" if config.get("num_local_experts") is None else "num_local_experts"
    experts = config.count(name, most=MOST_EXPERTS)
    chosen = config.count("num_experts_per_tok", most=min(experts, 64))
    options = dict(experts=experts, experts_per_token=chosen, capacity_factor=experts / chosen)
    options.update(aux_loss=number(config, "router_aux_loss_coef", 0.001, 0, 1000))
    if not config.flag("norm_topk_prob", True):
        options.update(gates="all")
    if config.get("shared_expert_intermediate_size"):
        options.update(shared_ff=config.count("shared_expert_intermediate_size"), shared_gate="yes")
    return options


def number(config, name, default, least, most):
    value = config.get(name, default)
    if not is_number(value) or not least <= value <= most:
        config.refuse(name, value, f"must be a number from {least:g} to {most:g}")
    return value


def have_experts(config, layers):
    """[layers] whether each has, by what configurations of Qwen's mixtures say."""
    step, only = config.count("decoder_sparse_step", 1, MOST_LAYERS), config.get("mlp_only_layers", [])
    if not isinstance(only, list) or any(type(i) is not int for i in only):
        config.refuse("mlp_only_layers", only, "must be a list of layers")
    return [i not in only and (i + 1) % step == 0 for i in range(layers)]


def layer_options(config, name, have):
    """Options by which the layers of have[] have experts, and the others a feed-forward of the configuration's width.
    name: of what says so."""
    found = [i for i, has in enumerate(have) if has]
    if not found:
        config.refuse(name, config.get(name), "then no layer has experts")
    first, every = found[0], found[1] - found[0] if len(found) > 1 else len(have) - found[0]
    if found != list(range(first, len(have), every)):
        config.refuse(name, config.get(name), "of ppkit's layers every N-th has experts, from one of them on")
    return {} if all(have) else dict(dense_layers=first, experts_every=every, dense_ff=config.count("intermediate_size"))


def has_experts(mixture, i):
    first = mixture.get("dense_layers", 0)
    return mixture["experts"] > 0 and i >= first and (i - first) % mixture.get("experts_every", 1) == 0


class Kind:
    """What models with Llama's layers differ in: norms of queries and keys, biases of these and of values, what experts
    are in, and the names of what makes their gates, what these open, and the way back: those of files that every
    version of transformers reads; the name of what is beside experts, and that of the bias that only chooses experts,
    if there is such; whether attention is DeepSeek's latent one."""

    def __init__(self, qk_norm=False, qkv_bias=False, experts="mlp.", parts=("gate_proj", "up_proj", "down_proj"),
                 shared="shared_expert", bias=None, latent=False):
        self.qk_norm, self.qkv_bias, self.experts, self.parts = qk_norm, qkv_bias, experts, parts
        self.shared, self.bias, self.latent = shared, bias, latent


LLAMA = Kind()
OLD_MIXTRAL = Kind(experts="block_sparse_moe.", parts=("w1", "w3", "w2"))
QWEN2, QWEN3 = Kind(qkv_bias=True), Kind(qk_norm=True)
DEEPSEEK_V2 = Kind(shared="shared_experts", latent=True)


def deepseek_kind(qk_norm=False, qkv_bias=False, latent=False):
    bias = "gate.e_score_correction_bias"
    return Kind(qk_norm=qk_norm, qkv_bias=qkv_bias, shared="shared_experts", bias=bias, latent=latent)


def experts_rows(kind, mine, theirs, experts, ff, d):
    """A layer's feed-forward."""
    old, new = theirs + kind.experts, theirs + "mlp."
    parts = [(f"{old}experts.{i}.{name}.weight", ff) for i in range(experts) for name in kind.parts[:2]]
    down = [(f"{old}experts.{i}.{kind.parts[2]}.weight", d) for i in range(experts)]
    gate, ups, downs = (experts, d), (experts, 2 * ff, d), (experts, d, ff)
    bias = [Row(mine + "router.expert_bias", None, [(new + kind.bias, experts)])] if kind.bias else []
    return bias + [
        Row(mine + "router.weight", d, [(old + "gate.weight", experts)], fused=(new + "gate.weight", gate)),
        Row(mine + "linear1.weight", d, parts, fused=(new + "experts.gate_up_proj", ups)),
        Row(mine + "linear2.weight", ff, down, fused=(new + "experts.down_proj", downs)),
    ]


def shared_rows(kind, mine, theirs, mixture, d):
    """A feed-forward beside them, and its gate, if they have these."""
    ff, place = mixture.get("shared_ff", 0), f"{theirs}mlp.{kind.shared}"
    if not ff:
        return []
    made = linear(mine + "shared.linear1", [(f"{place}.{name}_proj", ff) for name in ("gate", "up")], None, d)
    made += linear(mine + "shared.linear2", place + ".down_proj", d, ff)
    return made + (linear(mine + "shared.gate", place + "_gate", 1, d) if "shared_gate" in mixture else [])


def feed_forward(mine, theirs, ff, d):
    parts = [(f"{theirs}mlp.{name}_proj", ff) for name in ("gate", "up")]
    return linear(mine + "linear1", parts, None, d) + linear(mine + "linear2", theirs + "mlp.down_proj", d, ff)


def grouped_attention(config, kind, d, heads):
    """(options, function from a layer's prefixes to its rows)"""
    groups, columns = config.count("num_key_value_heads", heads), config.count("head_dim", max(d // heads, 1))
    if config.get("head_dim") is None:
        config.must_divide("num_attention_heads", heads, d)
    config.must_divide("num_key_value_heads", groups, heads)
    if columns % 2:
        config.refuse("head_dim", columns, "ppkit rotates pairs of columns")

    def rows(mine, theirs):
        parts = [("q_proj", heads), ("k_proj", groups), ("v_proj", groups)]
        parts = [(theirs + name, n * columns) for name, n in parts]
        made = in_proj(linear(mine + "in_proj", parts, None, d, bias=kind.qkv_bias))
        made += linear(mine + "out_proj", theirs + "o_proj", d, heads * columns)
        for name in ("q_norm", "k_norm") if kind.qk_norm else ():
            made += norm(mine + name, theirs + name, columns)
        return made

    return dict(kv_heads=groups, head_dim=columns), rows


def pairs_apart(still, turned, times=1):
    """The order of rows, `times` over, of which the first `still` stay and the next `turned` are rotated: their pairs are
    neighbours, ppkit's are halves apart."""
    one = [*range(still), *range(still, still + turned, 2), *range(still + 1, still + turned, 2)]
    return [k * (still + turned) + row for k in range(times) for row in one]


def latent_attention(config, _, d, heads):
    """The same of DeepSeek's."""
    rank, still, values = (config.count(name) for name in ("kv_lora_rank", "qk_nope_head_dim", "v_head_dim"))
    turned, queries = config.count("qk_rope_head_dim"), config.get("q_lora_rank")
    if config.count("num_key_value_heads", heads) != heads:
        config.refuse("num_key_value_heads", config.get("num_key_value_heads"), "latent attention has as many as heads")
    if turned % 2:
        config.refuse("qk_rope_head_dim", turned, "ppkit rotates pairs of columns")
    if config.get("rms_norm_eps", 1e-6) != 1e-6:
        config.differ("rms_norm_eps", config.get("rms_norm_eps"), "norms of latent vectors have 1e-06 there, and in ppkit that of all norms")
    neighbours = config.flag("rope_interleave", True)
    options = dict(kv_heads=0, kv_lora_rank=rank, qk_nope_head_dim=still, qk_rope_head_dim=turned, v_head_dim=values)
    options.update(rotations.score_factor(config))
    if queries is not None:
        options.update(q_lora_rank=config.count("q_lora_rank"))

    def row(name, theirs, rows, columns, order):
        return [Row(name + ".weight", columns, [(theirs + ".weight", rows)], order=order if neighbours else None)]

    def rows(mine, theirs):
        width, order = heads * (still + turned), pairs_apart(still, turned, heads)
        if queries is None:
            made = row(mine + "q_proj", theirs + "q_proj", width, d, order)
        else:
            made = linear(mine + "q_a_proj", theirs + "q_a_proj", queries, d)
            made += row(mine + "q_b_proj", theirs + "q_b_proj", width, queries, order)
            made += norm(mine + "q_a_norm", theirs + "q_a_layernorm", queries)
        made += row(mine + "kv_a_proj", theirs + "kv_a_proj_with_mqa", rank + turned, d, pairs_apart(rank, turned))
        made += linear(mine + "kv_b_proj", theirs + "kv_b_proj", heads * (still + values), rank)
        made += norm(mine + "kv_a_norm", theirs + "kv_a_layernorm", rank)
        return made + linear(mine + "out_proj", theirs + "o_proj", d, heads * values)

    return options, rows


def llama(config, kind=LLAMA, mixture=None):
    """(options, rows); mixture: options of experts."""
    d, heads = config.count("hidden_size"), config.count("num_attention_heads")
    mixture = mixture or dict(experts=0)
    experts = mixture["experts"]
    layers = config.count("num_hidden_layers", most=min(MOST_LAYERS, 256 * MOST_EXPERTS // max(experts, 1)))
    ff, vocab = config.count("intermediate_size"), config.count("vocab_size")
    of_heads, heads_rows = (latent_attention if kind.latent else grouped_attention)(config, kind, d, heads)
    config.must("hidden_act", "silu", "ppkit's swiglu has silu")
    for name in () if kind.qkv_bias else ("attention_bias", "mlp_bias"):  # a Qwen2's are what they are
        config.must(name, False, "ppkit has biases in all linears of a layer, in none, or of queries, keys and values alone")
    options = dict(d_model=d, heads=heads, **of_heads, d_ff=ff, layers=layers, vocab=vocab)
    options.update(normalization="rmsnorm", norm_epsilon=config.epsilon("rms_norm_eps", 1e-6), activation="swiglu")
    options.update(bias="qkv" if kind.qkv_bias else "no", **(dict(qk_norm="yes") if kind.qk_norm else {}))
    options.update(positions="rope", rope_theta=rotations.theta(config), **rotations.scaling(config))
    options.update({} if kind.latent else rotations.rotary_dim(config, of_heads["head_dim"]))
    options.update(mixture if experts else {}, **windows(config, layers))
    rows = [Row("embedding.weight", d, [("model.embed_tokens.weight", vocab)])]
    for i in range(layers):
        mine, theirs = f"layers.{i}.", f"model.layers.{i}."
        rows += heads_rows(mine + "self_attn.", theirs + "self_attn.")
        if has_experts(mixture, i):
            rows += experts_rows(kind, mine, theirs, experts, ff, d) + shared_rows(kind, mine, theirs, mixture, d)
        else:
            rows += feed_forward(mine, theirs, mixture.get("dense_ff", ff), d)
        rows += norm(mine + "norm1", theirs + "input_layernorm", d)
        rows += norm(mine + "norm2", theirs + "post_attention_layernorm", d)
    rows += norm("norm", "model.norm", d)
    return decoder(options, rows, config.flag("tie_word_embeddings", False), vocab, d)


def dots1(config):
    config.values = {**DOTS1, **config.values}
    kind = deepseek_kind(qk_norm=True, qkv_bias=False)
    config.slides = qwen_slides(config, kind, experts=False)
    return deepseek(config, kind)


# What files mean that do not name it.
LATENT = dict(hidden_act="silu", kv_lora_rank=512, q_lora_rank=1536, qk_nope_head_dim=128, qk_rope_head_dim=64)
LATENT.update(v_head_dim=128, router_aux_loss_coef=0.0)
V2 = dict(LATENT, moe_intermediate_size=1407, n_routed_experts=64, n_shared_experts=2, first_k_dense_replace=0)
V2.update(intermediate_size=11008, norm_topk_prob=False, routed_scaling_factor=1.0)
V3 = dict(LATENT, moe_intermediate_size=2048, n_routed_experts=256, n_shared_experts=1, first_k_dense_replace=3)
V3.update(intermediate_size=18432, norm_topk_prob=True, routed_scaling_factor=2.5, num_experts_per_tok=8)
V3.update(n_group=8, topk_group=4)


def deepseek_v2(config):
    config.values = {**V2, **config.values}
    config.must("norm_topk_prob", False, "gates of a deepseek_v2 are probabilities among all experts")
    if not config.choice("topk_method", "greedy", dict(greedy=0, group_limited_greedy=1)):
        config.values.update(n_group=1, topk_group=1)
    return deepseek(config, DEEPSEEK_V2)


def deepseek_v3(config):
    config.values = {**V3, **config.values}
    return deepseek(config, deepseek_kind(latent=True))


def glm4_moe(config):
    config.values = {**GLM4_MOE, **config.values}
    kind = deepseek_kind(qk_norm=config.flag("use_qk_norm", False), qkv_bias=config.flag("attention_bias", False))
    return deepseek(config, kind)


def solar_open(config):
    config.values = {**SOLAR_OPEN, **config.values}
    return deepseek(config, deepseek_kind(qk_norm=False, qkv_bias=config.flag("attention_bias", False)))


def deepseek(config, kind):
    """Of a DeepSeek's mixture: one feed-forward beside experts, first layers without these, groups of experts. With the
    bias that chooses experts scores are a DeepSeek-V3's, without it a DeepSeek-V2's."""
    layers = config.count("num_hidden_layers", most=MOST_LAYERS)
    config.must("moe_layer_freq", 1, "of ppkit's layers behind the dense ones all have experts")
    dense = config.get("first_k_dense_replace")
    if dense != 0:
        dense = config.count("first_k_dense_replace", most=MOST_LAYERS)
    width, beside = config.count("moe_intermediate_size"), config.count("n_shared_experts")
    if beside * width > MOST:
        config.refuse("n_shared_experts", beside, f"so many of {width} columns are wider than any model")
    config.values["num_local_experts"] = config.get("n_routed_experts")
    mixture = dict(experts_of(config), **(dict(router_score="sigmoid") if kind.bias else {}), shared_ff=beside * width)
    mixture.update(dict(expert_bias="yes") if kind.bias else {})
    mixture.update(gate_scale=number(config, "routed_scaling_factor", 1.0, 1e-6, 1000))
    mixture.update(expert_groups(config, {} if kind.bias else dict(group_score="best")))
    mixture.update(layer_options(config, "first_k_dense_replace", [i >= dense for i in range(layers)]))
    config.values["intermediate_size"] = width
    return llama(config, kind, mixture)


def expert_groups(config, more):
    """Options of groups of experts that tokens choose from, and more where there are such."""
    groups, picked = config.count("n_group", 1), config.count("topk_group", 1)
    size, rest = divmod(config.count("n_routed_experts"), groups)
    if groups == 1:
        return {}
    if rest or size < 2:
        config.refuse("n_group", groups, "experts must be in equal groups of two or more")
    if picked > groups or picked * size < config.count("num_experts_per_tok"):
        config.refuse("topk_group", picked, "so many groups must be there, and have the experts of a token")
    return dict(expert_groups=groups, groups_per_token=picked, **more)


def decoder(options, rows, tied, vocab, d):
    options = dict(options, tie_embeddings="yes" if tied else "no")
    return options, rows if tied else rows + linear("decoder", "lm_head", vocab, d)


MODELS = {
    "gpt2": (gpt2, "GPT2LMHeadModel"),
    "llama": (llama, "LlamaForCausalLM"),
    "mistral": (mistral, "MistralForCausalLM"),
    "mixtral": (mixtral, "MixtralForCausalLM"),
    "qwen2": (qwen(QWEN2, dict(num_key_value_heads=32)), "Qwen2ForCausalLM"),
    "qwen3": (qwen(QWEN3, dict(num_key_value_heads=32, head_dim=128)), "Qwen3ForCausalLM"),
    "qwen2_moe": (qwen(QWEN2, QWEN2_MOE), "Qwen2MoeForCausalLM"),
    "qwen3_moe": (qwen(QWEN3, dict(QWEN3_MOE, norm_topk_prob=False)), "Qwen3MoeForCausalLM"),
    "dots1": (dots1, "Dots1ForCausalLM"),
    "glm4_moe": (glm4_moe, "Glm4MoeForCausalLM"),
    "solar_open": (solar_open, "SolarOpenForCausalLM"),
    "deepseek_v2": (deepseek_v2, "DeepseekV2ForCausalLM"),
    "deepseek_v3": (deepseek_v3, "DeepseekV3ForCausalLM"),
    "kimi_k2": (deepseek_v3, "DeepseekV3ForCausalLM"),
}

GEMMA = dict(tie_word_embeddings=True, head_dim=256, num_key_value_heads=4)
LIKE_LLAMA = {  # what a file means that does not name it, and what is another: these have Llama's sizes, but for little
    "gemma": (dict(GEMMA, num_key_value_heads=16), "a norm that adds 1 to its weight"),
    "gemma2": (dict(GEMMA, sliding_window=4096), "two more norms in a layer, and capped logits"),
    "gemma3_text": (dict(GEMMA, sliding_window=4096), "norms of queries and keys, and two more in a layer"),
    "phi3": ({}, ""),
    "olmo2": ({}, "norms of queries and keys, and norms behind the parts of a layer"),
    "olmo3": (dict(sliding_window=4096), "norms of queries and keys, and norms behind the parts of a layer"),
    "smollm3": (dict(num_key_value_heads=4, tie_word_embeddings=True), "layers without rotation"),
    "granite": ({}, "constant factors"),
    "glm4": (
        dict(num_key_value_heads=2, head_dim=128, partial_rotary_factor=0.5),
        "two more norms in a layer, biases of queries, keys and values, and pairs of neighbours rotated",
    ),
}
LIKE_MIXTRAL = {  # the same, of experts; all their layers have them
    "olmoe": (dict(num_experts=64, num_experts_per_tok=8, norm_topk_prob=False), "norms of queries and keys"),
    "granitemoe": (dict(num_local_experts=8, num_experts_per_tok=2), "constant factors"),
    "phimoe": (
        dict(MIXTRAL, num_local_experts=16),
        "layer norms, biases of attention and decoder, and a router of its own kind",
    ),
    "gpt_oss": (
        dict(num_key_value_heads=8, head_dim=64, num_local_experts=128, num_experts_per_tok=4, sliding_window=128),
        "biases, a sink for attention, and gates of its own kind",
    ),
}


SLIDING = {"phi3": in_all, "phimoe": in_all, "gemma2": all_but_each(2), "gpt_oss": all_but_each(2)}
SLIDING.update(gemma3_text=all_but_each(6), olmo3=all_but_each(4))


def describe(config):
    """(options, rows) of the model."""
    make, architecture = config.choice("model_type", None, MODELS)
    given = config.get("architectures")
    if given and given != [architecture]:
        config.refuse("architectures", given, f"of this model_type only {architecture} can be converted")
    if config.get("quantization_config"):
        raise Refused(f"{config.path}: the weights are quantised (quantization_config); convert those that are not")
    return make(config)


PLANNED_ON = {  # a preset, where config.json has the longest row, and the preset's
    "gpt2": ("gpt-small", "n_positions", 1024),
    "llama": ("llama-2-7b", "max_position_embeddings", 4096),
    "experts": ("mixtral-8x7b", "max_position_embeddings", 4096),
}
# Who have shared experts.
SHARING = ("qwen2_moe", "dots1", "glm4_moe", "solar_open", "deepseek_v2", "deepseek_v3", "kimi_k2")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
SHARED = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
SHARED += ("shared_expert_intermediate_size", "shared_intermediate_size")


def like_llama(config, kind):
    values, other = LIKE_LLAMA[kind] if kind in LIKE_LLAMA else LIKE_MIXTRAL[kind]
    config.values = {**values, **config.values}
    config.slides = SLIDING.get(kind)
    if kind == "gemma3_text":
        config.slides = all_but_each(config.count("sliding_window_pattern", 6))
    without_window(config)
    config.values["hidden_act"] = config.get("hidden_activation", config.get("hidden_act"))
    if other:
        mine = "Mixtral" if kind in LIKE_MIXTRAL else "Llama"
        config.notes.append(f"model_type is {json.dumps(kind)}: taken for a {mine} of these sizes, it has {other}")
    return like_mixtral(config, OLD_MIXTRAL) if kind in LIKE_MIXTRAL else llama(config)


def like_mixtral(config, kind):
    name = "mlp_only_layers" if config.get("mlp_only_layers") else "decoder_sparse_step"
    have = have_experts(config, config.count("num_hidden_layers", most=MOST_LAYERS))
    layers = layer_options(config, name, have)
    config.values["intermediate_size"] = config.get("moe_intermediate_size", config.get("intermediate_size"))
    return llama(config, kind, {**experts_of(config), **layers})


def plan(config):
    """Words of a plan for the model, or one that takes as long, on a preset of its kind; config has notes."""
    kind = config.choice("model_type", None, {name: name for name in (*MODELS, *LIKE_LLAMA, *LIKE_MIXTRAL)})
    mixture = kind in ("mixtral", "qwen3_moe", *SHARING) or kind in LIKE_MIXTRAL
    for name in SHARED if kind not in SHARING else ():
        if config.get(name, 0) != 0:
            config.refuse(name, config.get(name), f"ppkit knows shared experts of {', '.join(SHARING)} alone")
    for name in EXPERTS:
        if not mixture and config.get(name, 0) not in (0, 1):
            config.refuse(name, config.get(name), f"ppkit knows no experts of a {kind}")
    given = config.get("architectures", [])
    if not isinstance(given, list) or any(not str(name).endswith(("ForCausalLM", "LMHeadModel")) for name in given):
        config.differ("architectures", given, "the plan is of a language model")
    options, _ = MODELS[kind][0](config) if kind in MODELS else like_llama(config, kind)
    if mixture:
        del options["capacity_factor"]
        config.notes.append("the model leaves out no token; here experts have --capacity-factor times their even share")
    preset, places, tokens = PLANNED_ON["experts" if mixture else "gpt2" if kind == "gpt2" else "llama"]
    tokens = min(tokens, config.count(places, tokens))
    return ["--preset", preset, "--tokens", str(tokens), *option_words(options)]


def option_words(options):
    words = ["--norm", "pre", "--mask", "causal", "--dropout", "0"]
    for name, value in options.items():
        words += ["--" + name.replace("_", "-"), str(value)]
    return words
