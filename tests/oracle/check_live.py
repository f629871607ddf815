#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares ppexec with PyTorch while both run: a developer's tool, needs a Python with torch and safetensors.

  check_live.py --ppexec PATH --preset small --d-model 36 --heads 3 --rows 7 --data DIR    one configuration
  check_live.py --ppexec PATH --random 20    random small models, cut and scheduled at random
  check_live.py --ppsim PATH --csv           ppsim's CSV is read, validated and lowered by PyTorch
  check_live.py --ppsim PATH --facts DIR     vocabulary and tokens of WikiText-2, parameters of the presets

PyTorch computes in float64: in float32 it may stand on the other side of a ReLU's kink than ppexec, in float64 ppexec
is compared with the truth. Options are ppkit's. Dropout is 0 unless given; with it, masked_model.py draws the same
masks. For each configuration: loss and gradients of the first batch, losses and weights after --epochs 1
--max-batches 5 unless given. What does not agree is judged by rounding.py: FAILED, or UNSTABLE where rounding explains
all of it, which is no failure unless it is more than one in 20 of many.
"""

import argparse
import copy
import csv
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile

import torch
from torch.distributed.pipelining import schedules

import check_golden
import make_golden
import make_orders
import reference_model
import rounding
import text

TEXT = check_golden.GOLDEN / "text"
RUN_DEFAULTS = dict(dropout=0.0, epochs=1, max_batches=5, eval_batches=2, clip=0.5, lr=0.2)


LAYOUT = ("schedule", "stages", "virtual", "checkpoint", "split", "tensor", "sequence_parallel", "zero", "expert_parallel")
LAYOUT += ("overlap_tensor_sums", "overlap_expert_exchange", "shard_degree")
FLAGS = ("sequence_parallel",)
SAMPLES = (16, 64)  # of the reference, for rounding.py: the second number where the first does not explain
USUALLY_UNSTABLE = 0.05  # of random configurations at most; a bug that looks like rounding would make more


def number(value):
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            pass
    return value


def given_options(words):
    """["--d-model", "36"] -> {"d_model": 36}"""
    made, rest = {}, list(words)
    while rest:
        word = rest.pop(0)
        name = word[2:].replace("-", "_")
        if not word.startswith("--") or (name not in FLAGS and not rest):
            raise SystemExit(f"options come as --name value, or --flag: {' '.join(words)}")
        made[name] = True if name in FLAGS else number(rest.pop(0))
    return made


def random_options(dice, known):
    """known: check_golden.schedules()"""
    shared = dice.random() < 0.5  # by workers, which numbers drawn otherwise seldom allow
    heads = 4 if shared else dice.choice((1, 2, 3, 4))  # with a width of 2, LayerNorm knows only signs
    ranks, virtual = dice.choice((1, 2, 3, 4)), dice.choice((1, 2))
    rows = dice.randint(2, 9)
    schedule = dice.choice([name for name, each in known.items() if each["virtual"] in (virtual, None)])
    chunks = dice.randint(1, rows)
    made = dict(
        preset=dice.choice(("small", "lab")),
        d_model=2 * heads * dice.randint(2, 12),
        heads=heads,
        d_ff=dice.randint(1, 70),
        layers=ranks * virtual + dice.randint(0, 3),
        norm=dice.choice(("post", "pre")),
        normalization=dice.choice(("layernorm", "rmsnorm")),
        activation=dice.choice(("relu", "gelu", "gelu-tanh", "swiglu")),
        norm_epsilon=dice.choice((1e-5, 1e-5, 1e-6, 1e-2)),
        qk_norm=dice.choice(("no", "yes")),
        bias=dice.choice(("yes", "yes", "no", "layers", "qkv")),
        mask=dice.choice(("none", "causal")),
        dropout=dice.choice((0.0, 0.0, 0.2, 0.55)),
        rows=rows,
        tokens=dice.randint(1, 12),
        chunks=chunks,
        schedule=schedule,
        stages=ranks,
        virtual=virtual,
        replicas=dice.choice((1, 1, 2)),
        eval_rows=dice.randint(1, 10),
        data=str(TEXT),
        seed=dice.randint(0, 999),
    )
    made["checkpoint"] = dice.choice(check_golden.checkpoints(known[schedule], made["activation"]))
    if dice.random() < 0.75:
        made["d_ff"] = 8 * dice.randint(1, 9)
    if shared:
        made["d_ff"] = 16 * dice.randint(1, 4)
    if made["preset"] == "lab" and dice.random() < 0.5:
        made.update(data="constant", vocab=dice.randint(2, 50))
        del made["eval_rows"]
    stages = ranks * virtual
    if dice.random() < 0.4:
        cuts = sorted(dice.sample(range(1, made["layers"]), stages - 1))
        layers = [b - a for a, b in zip([0, *cuts], [*cuts, made["layers"]])]
        made["split"] = dice.choice(("parameters", ",".join(map(str, layers))))
    if dice.random() < 0.5:
        made.update(attention="flash", tokens=dice.choice((made["tokens"], 65 + made["tokens"])))
    if made["mask"] == "causal" and dice.random() < 0.5:
        made.update(window_size=dice.choice((1, 2, 3, 5, 8, 60)), window_attn_skip_freq=dice.choice((0, 0, 2, 3)))
    if dice.random() < 0.5:
        made.update(kv_heads=dice.choice([n for n in range(1, heads + 1) if heads % n == 0]))
        made.update(positions="rope", rope_theta=float(dice.choice((10, 10000, 500000))))
        if dice.random() < 0.4:
            low, kind = dice.choice((0.5, 1.0, 2.0)), dice.choice(("llama3", "yarn", "linear"))
            made.update(rope_factor=dice.choice((1.5, 8.0)), rope_scaling=kind)
            if kind != "linear":
                made.update(rope_original_tokens=dice.choice((4, 64, 8192)))
                made.update(rope_low_freq_factor=low, rope_high_freq_factor=low + dice.choice((0.5, 3.0)))
            if kind == "yarn":
                made.update(rope_truncate=dice.choice(("no", "yes")), rope_attention_factor=dice.choice((0.0, 0.5, 1.25)))
        made.update(score_factor=dice.choice((1.0, 1.0, 0.5, 1.6)))
    elif dice.random() < 0.6:
        made.update(positions="learned", max_positions=dice.choice((0, made["tokens"], made["tokens"] + 5)))
    if dice.random() < 0.3:
        made.update(head_dim=2 * dice.randint(1, 12))
    columns = made.get("head_dim") or made["d_model"] // heads
    if made.get("positions") == "rope" and dice.random() < 0.4:
        made.update(rotary_dim=2 * dice.randint(1, columns // 2))
    if dice.random() < 0.4 and made["data"] != "constant":  # whose words are then their own prediction: a loss of zero
        made.update(tie_embeddings="yes")
    if dice.random() < 0.7:
        made.update(warmup_steps=dice.randint(0, 3), max_batches=dice.randint(1, 5), epochs=dice.choice((1, 2)))
        made.update(lr_schedule=dice.choice(("constant", "cosine", "linear")), optimizer=dice.choice(("sgd", "adamw")))
    if made.get("optimizer") == "adamw":  # a larger epsilon, as gradients that are zero but for rounding count otherwise
        made.update(lr=0.004, adam_eps=1e-4)
    if made.get("lr_schedule", "constant") != "constant":
        made.update(lr_steps=made["warmup_steps"] + dice.randint(1, 8), min_lr=dice.choice((0.0, 0.001)))
    if dice.random() < 0.4:
        made.update(bias=dice.choice(("no", "qkv")), experts=dice.choice((2, 4, 8) if shared else (1, 2, 3, 4, 5, 8)))
        made.update(experts_per_token=min(made["experts"], dice.choice((1, 2, 2, 3))))
        made.update(capacity_factor=dice.choice((0.3, 1.0, 1.25, 8.0)), aux_loss=dice.choice((0.0, 0.01, 0.3)))
        if dice.random() < 0.5:
            made.update(shared_ff=dice.choice((1, 12, 24, 30)), shared_gate=dice.choice(("no", "yes")))
        made.update(gates=dice.choice(("chosen", "all")))
        if dice.random() < 0.5:
            made.update(router_score=dice.choice(("softmax", "sigmoid")), gate_scale=dice.choice((1.0, 0.5, 2.5)))
        groups = [n for n in (2, 4) if made["experts"] % n == 0 and made["experts"] // n >= 2]
        if groups and dice.random() < 0.5:
            groups = dice.choice(groups)
            least = -(-made["experts_per_token"] // (made["experts"] // groups))
            made.update(expert_groups=groups, groups_per_token=dice.randint(least, groups))
            made.update(group_score=dice.choice(("top2", "best")))
        if dice.random() < 0.5:
            made.update(expert_bias="yes", expert_bias_rate=dice.choice((0.0, 0.01, 0.1)))
        if made["layers"] > 1 and dice.random() < 0.5:
            made.update(dense_layers=dice.randint(0, min(2, made["layers"] - 1)), experts_every=dice.choice((1, 2, 3)))
            dense = made["dense_layers"] > 0 or made["experts_every"] > 1
            made.update(dense_ff=dice.choice((0, 16, 48))) if dense else None
    if dice.random() < 0.25:
        made.update(bias="no", qk_norm="no", positions="rope", rope_theta=made.get("rope_theta", 10000.0), kv_heads=0)
        made.pop("rotary_dim", None)
        made.update(head_dim=0, kv_lora_rank=dice.randint(1, 14), q_lora_rank=dice.choice((0, dice.randint(1, 14))))
        made.update(qk_nope_head_dim=dice.randint(1, 8), qk_rope_head_dim=2 * dice.randint(1, 4))
        made.update(v_head_dim=dice.randint(1, 12))
        made.pop("max_positions", None)
    made.update(tensor=dice.choice(check_golden.tensor_degrees(made)[shared:] or [1]))
    if made["tensor"] > 1 and dice.random() < 0.7:
        made.update(sequence_parallel=True)
    if made["tensor"] > 1 and dice.random() < 0.5:
        made.update(overlap_tensor_sums=dice.choice((2, 3, 4, 12)))
    if made.get("experts") and dice.random() < 0.7:
        made.update(replicas=dice.choice((2, 3, 4)), rows=dice.randint(2, 5))
        made.update(chunks=min(made["chunks"], made["rows"]))
        groups = [n for n in (2, 3, 4) if made["replicas"] % n == 0 and made["experts"] % (n * made["tensor"]) == 0]
        made.update(expert_parallel=dice.choice(groups or [1]))
        if made["expert_parallel"] > 1:
            made.update(overlap_expert_exchange=dice.choice((0, 1, 2, 3)))
    if not made.get("experts") and dice.random() < 0.5:  # whose places depend on the tokens that a worker has
        heads = math.gcd(made["heads"], made.get("kv_heads") or made["heads"]) // made["tensor"]
        kinds = ["all_gather"] if made.get("attention") == "flash" else []
        if kinds and not made.get("dropout", 0.2) and not made.get("window_size"):
            kinds.append("p2p")
        halves = kinds and dice.random() < 0.6
        possible = [n for n in (2, 3, 4) if halves or heads % n == 0]
        made.update(context_parallel=dice.choice(possible or [1]))
        made.update(cp_comm_type=dice.choice(kinds) if halves else "a2a")
        made["tokens"] += -made["tokens"] % (made["context_parallel"] * (2 if halves else 1))
        if halves and "eval_rows" in made:  # whose rows of the test part have 2 C tokens and more
            made["eval_rows"] = min(made["eval_rows"], 5)
        if made.get("max_positions"):
            made["max_positions"] = max(made["max_positions"], made["tokens"])
    if made["replicas"] * made.get("context_parallel", 1) > 1 and dice.random() < 0.5:
        cuts = known[schedule]["backward"] == "split" or made.get("batch_w", 1) > 1
        groups = [n for n in range(1, made["replicas"] + 1) if made["replicas"] % n == 0]
        possible = [n for n in groups if n % made.get("expert_parallel", 1) == 0]
        made.update(zero=1 if cuts else dice.choice((1, 2, 3)), shard_degree=dice.choice(possible))
    pieces = len(torch.empty(made["rows"]).chunk(made["chunks"]))
    if schedule.startswith("interleaved") and pieces % max(1, pieces // ranks):
        made["chunks"] = 1
    return made


def moved(model, dice):
    """A copy in float32, its weights off by up to two units in their last place."""
    made = copy.deepcopy(model)
    with torch.no_grad():
        for p in made.parameters():
            p *= 1 + 2.0**-22 * (2 * torch.rand(p.shape, generator=dice, dtype=p.dtype) - 1)
    return made.float()


def named(what, tensors):
    return {f"{what} of {name}": values for name, values in tensors.items()}


def numbers(result):
    """Each on its own, as it is allowed its own difference."""
    lists = {key: result[key] for key in ("loss", "valid_loss") if result[key]}
    lists.update({"test_loss": [result["test_loss"]]} if result["valid_loss"] else {})
    return {f"{key}[{i}]": [value] for key, values in lists.items() for i, value in enumerate(values)}


def of_model(model, o, parts):
    """What PyTorch measures: [of the first batch, of training]; trains the model."""
    loss, grads = reference_model.gradients(model, parts["train"][0])
    result = reference_model.train(model, o, parts)
    grads, weights = (
        {name: t.detach().flatten().tolist() for name, t in made}
        for made in (grads.items(), model.named_parameters())
    )
    return [{"loss[0]": [loss], **named("gradient", grads)}, {**numbers(result), **named("weights", weights)}]


def of_ppexec(runner, case, options):
    """The same of ppexec, and {what: error of a gradient that storing weights in float32 explains}."""
    result, grads, floor = check_golden.first_step(runner, case, options, 0)
    first = {"loss[0]": result["loss"], **named("gradient", grads)}
    whole = {**options, "init": case["files"]["init"]}
    _, weights = runner.run({**whole, "no_eval": True}, save=True)
    result, _ = runner.run(whole if case["valid_loss"] else {**whole, "no_eval": True})
    return [first, {**numbers(result), **named("weights", weights)}], named("gradient", floor)


def allowed(part, ours, exact, floor):
    """{what: difference that a comparison lets pass}"""
    if {what: len(values) for what, values in ours.items()} != {what: len(values) for what, values in exact.items()}:
        raise check_golden.Failure(f"{part}: other tensors than PyTorch's")
    return {
        what: check_golden.TOLERANCE * check_golden.largest(values) + floor.get(what, check_golden.TINY)
        for what, values in exact.items()
    }


def explained(measured, exact, samples):
    """(whether rounding explains all that of_ppexec() measured, the evidence)"""
    ours, floor = measured
    verdicts, evidence = [], []
    for part, own, truth, *others in zip(("first batch", "training"), ours, exact, *samples):
        verdicts.append(rounding.judge(own, truth, others, allowed(part, own, truth, floor)))
        evidence.append(f"{part}: {verdicts[-1]}")
    if all(verdict.away <= 1 for verdict in verdicts):
        return False, "run again, it agrees"
    return all(verdict.explained for verdict in verdicts), "\n    ".join(evidence)


def judge(measured, start, o, parts):
    """As explained(), with as many samples as it takes. start: the model with its first weights, in float64."""
    exact, samples, dice = of_model(copy.deepcopy(start), o, parts), [], torch.Generator().manual_seed(o["seed"])
    for count in SAMPLES:
        samples += [of_model(moved(start, dice), o, parts) for _ in range(count - len(samples))]
        good, evidence = explained(measured, exact, samples)
        if good:
            break
    return good, f"{evidence} ({len(samples)} samples)"


def spread_norms_of_heads(model, seed, folder):
    """Weights that are all 1 would hide which of them stands where."""
    dice = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("q_norm.weight", "k_norm.weight", "_a_norm.weight")):
                weight.uniform_(0.5, 1.5, generator=dice)
    make_golden.save(folder / "init.safetensors", dict(model.named_parameters()))


def compare(runner, given, keep):
    """None, or what the comparison found where rounding explains it; raises check_golden.Failure."""
    options = {**RUN_DEFAULTS, **given}
    layout = {key: options.pop(key) for key in LAYOUT if key in options}
    folder = pathlib.Path(keep) / "case"
    o, parts, model = make_golden.prepare("case", options, folder)
    spread_norms_of_heads(model, o["seed"], folder)
    start = copy.deepcopy(model.double())
    make_golden.record("case", options, folder, model, o, parts)
    case = check_golden.load_case(folder)
    try:
        check_golden.check_case(runner, case, layout, 0)
    except check_golden.Mismatch as mismatch:
        good, evidence = judge(of_ppexec(runner, case, {**case["options"], **layout}), start, o, parts)
        found = f"{mismatch}\n    {evidence}"
        if not good:
            raise check_golden.Failure(found) from None
        return found
    return None


def check_configurations(args, configurations):
    torch.set_num_threads(1)
    runner = check_golden.Runner(args)
    failures, unstable = 0, 0
    for given in configurations:
        title = " ".join(check_golden.arguments(given))
        with tempfile.TemporaryDirectory() as keep:
            try:
                found = compare(runner, given, keep)
                unstable += found is not None
                print(f"UNSTABLE {title}\n    {found}" if found else f"ok       {title}", flush=True)
                if found:  # fewer steps say more where rounding grows from step to step
                    found = compare(runner, {**given, "epochs": 1, "max_batches": 2}, keep)
                    print(f"    two steps: {found or 'agree'}", flush=True)
            except check_golden.Failure as failure:
                failures += 1
                print(f"FAILED   {title}\n    {failure}", flush=True)
    runner.close()
    print(f"{len(configurations)} configurations, {failures} failed, {unstable} unstable")
    return failures + (unstable > 1 + USUALLY_UNSTABLE * len(configurations))


def expect(what, value, expected):
    good = value == expected
    print("ok     " if good else "FAILED ", f"{what}: {value}", "" if good else f"instead of {expected}")
    return not good


def check_facts(args):
    table, ids = text.load(args.facts)
    failures = expect("vocabulary", len(table), 28782)
    failures += expect("training tokens", len(ids["train"]), 2049990)
    for preset, parameters in (
        ("tutorial", 1041444974),
        ("tutorial-12", 1444261998),
        ("small", 12025582),
        ("lab", 5068),
        ("gpt-small", 124439808),
        ("gpt-1.3b", 1315723264),
        ("gpt-6.7b", 6658404352),
        ("llama-2-7b", 6738415616),
        ("llama-3-8b", 8030261248),
        ("llama-3-70b", 70553706496),
        ("mistral-7b", 7241732096),
        ("mistral-nemo-12b", 12247782400),
        ("mixtral-8x7b", 46702792704),
        ("qwen3-8b", 8190735360),
        ("qwen3-30b-a3b", 30532122624),
        ("qwen2-57b-a14b", 57408658944),
        ("glm-4.5-air", 106852251264),
        ("deepseek-v2-lite", 15706484224),
        ("deepseek-v3", 671026419200),
        ("gpt-175b", 174604259328),
        ("llama-3-405b", 405853388800),
    ):
        done = subprocess.run(
            [args.ppsim, "--preset", preset, "--format", "json"], stdout=subprocess.PIPE, check=True, text=True
        )
        failures += expect(f"parameters of {preset}", json.loads(done.stdout)[0]["parameters"], parameters)
    return failures


def check_csv(args):
    """ppsim's CSV through PyTorch's own parser, validation, lowering and step simulation."""
    failures = 0
    for schedule, ranks, virtual, microbatches in make_orders.cases():
        words = ["--schedule", schedule, "--stages", ranks, "--virtual", virtual, "--chunks", microbatches]
        command = [args.ppsim, "--emit", "csv", "--times", "1,1,1", *map(str, words)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        rows = [[schedules._Action.from_str(cell) for cell in row] for row in csv.reader(done.stdout.splitlines())]
        actions, count = dict(enumerate(rows)), ranks * virtual
        try:
            schedules._validate_schedule(actions, ranks, count, microbatches)
            lowered = schedules._add_send_recv(actions, lambda stage, n=ranks: stage % n, count)
            schedules._simulate_comms_compute(lowered, lambda stage, n=ranks: stage % n, count)
        except (AssertionError, ValueError) as error:
            failures += 1
            print(f"FAILED  {' '.join(command)}: PyTorch refuses it: {error}")
    print(f"CSV: {failures} refused by PyTorch")
    return failures


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--ppexec")
    parser.add_argument("--ppsim")
    parser.add_argument("--facts", metavar="DIR", help="folder with WikiText-2")
    parser.add_argument("--random", type=int, default=0, metavar="N")
    parser.add_argument("--dice", type=int, default=0, help="seed of the random configurations")
    parser.add_argument("--csv", action="store_true", help="give ppsim's CSV to PyTorch")
    args, words = parser.parse_known_args()
    args.mpirun = None
    if args.csv:
        return 1 if check_csv(args) else 0
    if args.facts:
        return 1 if check_facts(args) else 0
    dice = random.Random(args.dice)
    if words:
        configurations = [given_options(words)]
    else:
        known = check_golden.schedules(args.ppexec)
        configurations = [random_options(dice, known) for _ in range(args.random)]
    return 1 if check_configurations(args, configurations) else 0


if __name__ == "__main__":
    sys.exit(main())
