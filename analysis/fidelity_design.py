# SPDX-License-Identifier: Apache-2.0
"""What fidelity.py predicts and runs: models, configurations, and the blocks in which they are profiled and run."""

import itertools
import random

WIDE = dict(preset="small", d_model=512, heads=8, d_ff=2048, layers=8, vocab=2000, rows=16, tokens=64)
DEEP = dict(preset="small", d_model=128, heads=4, d_ff=512, layers=16, vocab=1000, rows=20, tokens=32)
LLAMA = dict(preset="small", d_model=256, heads=4, kv_heads=2, head_dim=48, d_ff=512, layers=8, vocab=1000, rows=20)
LLAMA.update(tokens=48, norm="pre", normalization="rmsnorm", activation="swiglu", bias="no", positions="rope")
LLAMA.update(attention="flash", mask="causal", dropout=0, optimizer="adamw", lr=3e-4)
EXPERTS = dict(LLAMA, d_ff=256, experts=8, aux_loss=0.01)
TINY = dict(preset="tutorial", replicas=1, d_model=8, heads=2, d_ff=8, layers=4, vocab=20, rows=8, tokens=2)
# Options for the programs; steps of a run.
MODELS = {
    "small": dict(options={"preset": "small"}, steps=16),
    "wide": dict(options=WIDE, steps=10),
    "deep": dict(options=DEEP, steps=16),
    "llama": dict(options=LLAMA, steps=16),
    "experts": dict(options=EXPERTS, steps=16),
    "lab": dict(options={"preset": "lab"}, steps=16),
    "tiny": dict(options=TINY, steps=5),
    "tutorial": dict(options={"preset": "tutorial", "replicas": 1}, steps=8),
    "tutorial-12": dict(options={"preset": "tutorial-12", "replicas": 1}, steps=8),
}
SCHEDULES = ("gpipe", "1f1b", "interleaved")  # if nothing else is asked for
CHUNKS = (1, 2, 4, 5, 8, 10, 20)
CHECKPOINTS = ("never", "except_last", "always")  # if nothing else is asked for
QUICK = dict(chunks=(1, 4, 10), checkpoints=("never", "always"))
KEY = ("model", "transport", "stages", "tensor", "schedule", "chunks", "checkpoint", "precision")
POINT = ("schedule", "stages", "tensor", "virtual", "chunks", "checkpoint")  # what lines of --points have
POSSIBLE = ("model", "tensor", "schedule", "stages", "checkpoint", "chunks")  # what decides whether ppkit can run it
BLOCK = ("model", "stages", "tensor", "checkpoint", "precision")


def workers(config):
    return config["stages"] * config["tensor"]


def lists(args):
    """What is asked for, by the names of the options; chunks that are held out, too."""
    chunks = args.chunks or (QUICK["chunks"] if args.quick else CHUNKS)
    return dict(
        schedule=args.schedules,
        stages=args.stages or ((2, 4) if args.p4 else (2,)),
        chunks=sorted({*chunks, *args.held_out}),
        checkpoint=args.checkpoints or (QUICK["checkpoints"] if args.quick else CHECKPOINTS),
    )


def possible(args, predict):
    """{what POSSIBLE names: row of ppsim} of all that it does not refuse. predict(options): rows"""
    made, asked = {}, {name: ",".join(map(str, values)) for name, values in lists(args).items()}
    for model, tensor in itertools.product(args.models, args.tensors):
        sweep = dict(asked, model=model, tensor=tensor, sequence=args.sequence_parallel and tensor > 1)
        for row in predict(options(sweep, ("tensor", *asked))):
            made[tuple({**row, "model": model}[name] for name in POSSIBLE)] = row
    return made


def is_double(config, rows):
    """Of a smaller chunk count, or of another schedule or mode; rows: of possible()."""
    if config["stages"] == 1 and config["schedule"] != "gpipe":
        return True
    if config["chunks"] == 1 and config["checkpoint"] == "except_last":
        return True
    *like, chunks = (config[name] for name in POSSIBLE)
    cut = {name[-1]: row["microbatches"] for name, row in rows.items() if name[:-1] == tuple(like)}
    return any(cut[fewer] == cut[chunks] for fewer in cut if fewer < chunks)


def configurations(args, cores, predict):
    """Dicts of KEY, and `virtual`, `sequence` (parallelism); `held_out`: its shapes are not profiled; `crowded`: more
    workers than `cores`. predict(options): ppsim's rows for a sweep; it knows what can be run."""
    asked, rows, made = lists(args), possible(args, predict), []
    for values in itertools.product(
        args.models,
        args.transports,
        asked["stages"],
        args.tensors,
        asked["schedule"],
        asked["chunks"],
        asked["checkpoint"],
        args.precisions,
    ):
        config = dict(zip(KEY, values))
        name = tuple(config[name] for name in POSSIBLE)
        if name not in rows or is_double(config, rows):
            continue
        config["virtual"] = rows[name]["virtual"]
        config["sequence"] = args.sequence_parallel and config["tensor"] > 1
        config["held_out"] = config["chunks"] in args.held_out
        config["crowded"] = args.device == "cpu" and workers(config) > cores
        made.append(config)
    return draw(made, args.sample, args.seed) if args.sample else made


def in_turns(configs, name):
    """The same, but one of each value of `name` first, then the second of each, and so on."""
    groups = {}
    for config in configs:
        groups.setdefault(tuple(config[n] for n in name), []).append(config)
    rounds = itertools.zip_longest(*(groups[value] for value in sorted(groups)))
    return [config for group in rounds for config in group if config]


def draw(configs, n, seed):
    """n of them, the same at each start, in their order: as many as can be of each number of ranks, precision and
    schedule, and a quarter of them held out, if there are any."""
    shuffled = random.Random(f"{seed} sample").sample(configs, len(configs))
    shuffled = in_turns(in_turns(shuffled, ["schedule", "stages", "precision"]), ["stages", "precision"])
    held_out = [config for config in shuffled if config["held_out"]]
    others = [config for config in shuffled if not config["held_out"]]
    few = max(min(len(held_out), (n + 3) // 4), n - len(others))
    chosen = [key(config) for config in held_out[:few] + others[: n - few]]
    return [config for config in configs if key(config) in chosen]


def name_of(config, names):
    """Its values of these names; a configuration without sequence parallelism has the name it had before there was any."""
    return [str(config[name]) for name in names] + ["sequence"] * config["sequence"]


def key(config):
    return " ".join(name_of(config, KEY))


def blocks(configs, shared=False):
    """{name: its configurations}, in the order in which they are measured; shared: one, whose profile is given."""
    made = {}
    if shared:
        return {"all": configs}
    for config in configs:
        made.setdefault("-".join(name_of(config, BLOCK)), []).append(config)
    return made


def order(name, configs, args):
    """[(configuration, beside a foreign load?), ...] of a block: all of them once, in random order, then all of them
    again, so that whoever is cut short has each. The same order at each start."""
    chance = random.Random(f"{args.seed} {name}")
    rounds = [[(config, False) for config in configs] for _ in range(args.repeats)]
    for transport in sorted({config["transport"] for config in configs}):
        group = [config for config in configs if config["transport"] == transport and not config["crowded"]]
        for config in chance.sample(group, min(args.foreign, len(group))):
            chance.choice(rounds).append((config, True))
    for runs in rounds:
        chance.shuffle(runs)
    return [run for runs in rounds for run in runs]


def together(runs, most):
    """[(configurations, beside a foreign load?), ...]: each run of `runs`, up to `most` of them in one program. Its
    configurations differ in POINT alone, and in each there is one of a round: none comes twice before all came once."""
    made, left = [], list(runs)
    while left:
        first, group, rest, seen = left[0], [], [], []
        for run in left:
            again = run in seen
            seen.append(run)
            if not again and len(group) < most and alike(run, first):
                group.append(run[0])
            else:
                rest.append(run)
                if again:  # the next round: it waits
                    rest += left[len(seen) :]
                    break
        made.append((group, first[1]))
        left = rest
    return made


def alike(run, other):
    """Can one program have both?"""
    (config, foreign), (known, known_foreign) = run, other
    names = [name for name in (*KEY, "sequence") if name not in POINT]
    processes = config["transport"] != "threads" and workers(config) != workers(known)
    return foreign == known_foreign and not processes and all(config[name] == known[name] for name in names)


def words(config, names):
    """Options, as words."""
    made = []
    for name in names:
        made += ["--" + name, str(config[name])]
    return made


def options(config, names=(*POINT, "precision")):
    made = []
    for name, value in MODELS[config["model"]]["options"].items():
        made += ["--" + name.replace("_", "-"), str(value)]
    return made + words(config, names) + ["--sequence-parallel"] * config["sequence"]


def profile_options(configs):
    """Of one ppprof for all schedules and chunks of a block that are not held out; None if there are none."""
    group = [config for config in configs if not config["held_out"]]
    if not group:
        return None
    lists = {n: ",".join(map(str, sorted({c[n] for c in group}))) for n in ("schedule", "virtual", "chunks")}
    return options({**group[0], **lists})
