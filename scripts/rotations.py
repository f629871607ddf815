# SPDX-License-Identifier: Apache-2.0
"""What Hugging Face's config.json says of rotary positions, as ppkit's options."""

import math

LARGEST_FLOAT = 3.4028234663852886e38
MOST_TOKENS = 1 << 24
MOST_GROWTH = 100  # of mscale and mscale_all_dim, which published models have at about 1

# What of an object of the file each kind of scaling needs and may have, by ppkit's options. None: what the options
# are made of otherwise.
NEEDED = {
    "llama3": dict(
        factor="rope_factor",
        low_freq_factor="rope_low_freq_factor",
        high_freq_factor="rope_high_freq_factor",
        original_max_position_embeddings="rope_original_tokens",
    ),
    "yarn": dict(factor="rope_factor", original_max_position_embeddings="rope_original_tokens"),
    "linear": dict(factor="rope_factor"),
}
OPTIONAL = {
    "llama3": {},
    "yarn": dict(
        beta_slow="rope_low_freq_factor",
        beta_fast="rope_high_freq_factor",
        attention_factor="rope_attention_factor",
        truncate=None,
        mscale=None,
        mscale_all_dim=None,
    ),
    "linear": {},
}
BANDS = {"llama3": (1.0, 4.0), "yarn": (1.0, 32.0), "linear": (0.0, 1.0)}  # low and high where the file has none


def is_number(value):
    return not isinstance(value, bool) and isinstance(value, (int, float))


def parameters(config):
    """[(name, dict)] of what says more of rotations; newer files have all in rope_parameters."""
    given = [(name, config.get(name, {})) for name in ("rope_scaling", "rope_parameters")]
    return [(name, values) for name, values in given if isinstance(values, dict)]


def theta(config):
    base = config.get("rope_theta", 10000.0)
    for _, given in parameters(config):
        base = given.get("rope_theta", base)
    if not is_number(base) or not 1 <= base <= LARGEST_FLOAT:
        config.refuse("rope_theta", base, "must be a number, at least 1")
    return base


def rotary_dim(config, columns):
    """Option of rotations of some columns of a head."""
    part = config.get("partial_rotary_factor", 1.0)
    for _, given in parameters(config):
        part = given.get("partial_rotary_factor", part)
    if not is_number(part) or not 0 < part <= 1 or int(columns * part) % 2 or int(columns * part) < 2:
        config.refuse("partial_rotary_factor", part, f"must be the part of a head's {columns} columns that is pairs of them")
    return {} if part == 1 else dict(rotary_dim=int(columns * part))


def scaling(config):
    """Options of rotations that are slowed down in a way that ppkit knows; others differ."""
    options = {}
    for name in ("rope_scaling", "rope_parameters"):
        if not isinstance(config.get(name, {}), dict):
            config.differ(name, config.get(name), "it must be an object")
    for name, given in parameters(config):
        kind = given.get("rope_type", given.get("type", "default"))
        more = {key: given[key] for key in given if key not in ("rope_type", "type", "rope_theta", "partial_rotary_factor")}
        more = {key: value for key, value in more.items() if value is not None}
        if kind == "yarn" and config.get("max_position_embeddings"):
            more = {"original_max_position_embeddings": config.get("max_position_embeddings"), **more}
        needed, optional = (table.get(kind, {}) if isinstance(kind, str) else {} for table in (NEEDED, OPTIONAL))
        if needed and set(needed) <= set(more) <= {*needed, *optional}:
            options = scaled(config, name, given, kind, more)
        elif kind != "default" or more:
            config.differ(name, given, f"ppkit slows rotations down by {', '.join(NEEDED)} and all their numbers, or not at all")
    return options


def yarn_magnitude(given):
    """attention_factor, where its two parts are there instead."""
    growths = given.get("mscale", 0), given.get("mscale_all_dim", 0)
    if not all(growths) or "attention_factor" in given:
        return {}
    up, down = (0.1 * growth * math.log(given["factor"]) + 1 for growth in growths)
    return dict(attention_factor=up / down)


def score_factor(config):
    """What a DeepSeek multiplies its scores by where rotations are slowed down."""
    for name, given in parameters(config):
        growth, factor = given.get("mscale_all_dim") or 0, given.get("factor", 1)
        if not is_number(growth) or not is_number(factor) or not 0 <= growth <= MOST_GROWTH or not 1 <= factor <= 1e6:
            config.refuse(name, given, "its numbers make no sense together")
        if growth and factor > 1:
            return dict(score_factor=(0.1 * growth * math.log(factor) + 1) ** 2)
    return {}


def are_bands(kind, low, high):
    """A yarn's may be one, as Kimi K2's."""
    return 0 <= low < high <= 1e6 or (kind == "yarn" and 0 < low == high <= 1e6)


def scaled(config, name, given, kind, more):
    """Options of the kind, of numbers that make sense together."""
    truncate = more.pop("truncate", True)
    low, high = BANDS[kind]
    sound = all(map(is_number, more.values())) and isinstance(truncate, bool) and 1 <= more["factor"] <= 1e6
    sound = sound and all(0 <= more.get(growth, 0) <= MOST_GROWTH for growth in ("mscale", "mscale_all_dim"))
    if sound:
        more.update(yarn_magnitude(more))
    options = {{**NEEDED[kind], **OPTIONAL[kind]}[key]: value for key, value in more.items() if key[:6] != "mscale"}
    low, high = options.get("rope_low_freq_factor", low), options.get("rope_high_freq_factor", high)
    tokens, factor = options.get("rope_original_tokens", 1), options.get("rope_attention_factor", 1)
    if not sound or not (are_bands(kind, low, high) and type(tokens) is int and 1 <= tokens <= MOST_TOKENS and 0 < factor <= 1000):
        config.refuse(name, given, "its numbers make no sense together")
    if more["factor"] == 1:
        return {}
    kinds = {} if kind == "llama3" else dict(rope_scaling=kind)
    return {**kinds, **options, **({} if truncate else dict(rope_truncate="no"))}
