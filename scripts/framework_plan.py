# SPDX-License-Identifier: Apache-2.0
"""A plan of ppsim, for framework-options: what the fields of its JSON must be, and what follows from them."""

from weight_files import MOST_LAYERS, Refused

# Fields that are read here: texts, of some what they may be before a colon; flags; numbers, and the least.
TEXTS = {
    "schedule": None,
    "options": None,
    "precision": ("fp32", "tf32", "bf16", "fp8"),
    "checkpoint": ("never", "always", "except_last", "layers", "activation"),
    "cp_comm_type": ("a2a", "all_gather", "p2p"),
    "host_order": ("pipeline", "replicas"),
}
FLAGS = ("sequence_parallel", "overlap_grad_reduce", "grad_reduce_in_bf16", "overlap_param_gather")
FROM_0 = ("zero", "shard_degree", "experts", "overlap_tensor_sums", "overlap_expert_exchange")
FROM_1 = ("stages", "virtual", "microbatches", "rows", "tokens", "replicas", "tensor")
FROM_1 += ("expert_parallel", "context_parallel")
NUMBERS = {**dict.fromkeys(FROM_0, 0), **dict.fromkeys(FROM_1, 1)}


def number_of(text):
    """N of name:N, else 0."""
    number = text.partition(":")[2]
    return int(number) if number.isdecimal() and number.isascii() and len(number) < 10 else 0


def is_count(value, least):
    return type(value) is int and least <= value < 1 << 31


def is_text(value, choices):
    return isinstance(value, str) and (choices is None or value.partition(":")[0] in choices)


def contradictions(row):
    """Names of fields that cannot be, beside the others."""
    layers, degree = row["stage_layers"], row["shard_degree"]
    mode, colon, _ = row["checkpoint"].partition(":")
    wrong = {
        "stage_layers": len(layers) != row["stages"] * row["virtual"] or sum(layers) > MOST_LAYERS,
        "shard_degree": degree and row["replicas"] % degree,
        "checkpoint": colon and (mode != "layers" or not number_of(row["checkpoint"])),
    }
    return [name for name, is_wrong in wrong.items() if is_wrong]


def check(row, what):
    """Refuses what is no row of ppsim, or has no model."""
    if not isinstance(row, dict) or not all(name in row for name in ("schedule", "rows", "options")):
        raise Refused(f"{what} is nothing that ppsim --format json of this version prints")
    if row["rows"] is None:
        raise Refused(f"{what} is a plan of --times, without a model: no framework has options for that")
    sound = {name: is_text(row.get(name), choices) for name, choices in TEXTS.items()}
    sound.update({name: isinstance(row.get(name), bool) for name in FLAGS})
    sound.update({name: is_count(row.get(name), least) for name, least in NUMBERS.items()})
    layers = row.get("stage_layers")
    sound["stage_layers"] = isinstance(layers, list) and all(is_count(value, 0) for value in layers)
    bad = [name for name, is_sound in sound.items() if not is_sound]
    bad = bad or contradictions(row)
    if bad:
        raise Refused(f"{what} is damaged: its {bad[0]} is missing or makes no sense")


class Plan:
    """A row, and what follows from it. A framework is a class with three tables, of conditions and texts, in which
    {p.x} is an attribute of the plan. REFUSED: what cannot be run. OPTIONS: in their order. NOTES: what is
    otherwise than planned. Those that stand here are of all frameworks."""

    REFUSED = [
        (
            lambda p: p.rows % p.microbatches,
            "{p.rows} rows in {p.microbatches} microbatches are not as many in each: plan with a --micro-batch-size "
            "that divides the rows",
        ),
        (lambda p: not p.is_piped and p.virtual > 1, "{p.name} has one stage on one rank: plan with --virtual 1"),
        (
            lambda p: p.checkpoint == "except_last",
            "{p.name} recomputes in all microbatches, or in none: plan with --checkpoint always",
        ),
    ]
    NOTES = [
        (
            lambda p: not p.is_piped and p.kind != "1f1b" and p.microbatches > 1,
            "{p.name} takes forwards and backwards in turn where there is one stage, as 1f1b does, not as {p.kind}",
        ),
        (
            lambda p: p.is_piped and p.kind == "interleaved" and p.virtual == 1,
            "{p.name} runs 1f1b where ranks have one stage: it holds fewer microbatches than interleaved, and hides no "
            "hops",
        ),
        (
            lambda p: p.has_experts and p.tensor > 1 and p.expert_parallel > 1,
            "{p.name} sends tokens to experts over tensor ranks and replicas at once, the plan over replicas alone",
        ),
        (
            lambda p: p.has_experts and p.context_parallel > 1 and p.expert_parallel > 1,
            "{p.name} shares experts among workers that share rows first, then among replicas",
        ),
        (
            lambda p: p.makes_head,
            "{p.name} does not make decoder and loss again, so it may take less time than planned: --checkpoint "
            "layers:{p.most_layers} does not either",
        ),
        (
            lambda p: p.precision == "tf32",
            "{p.name} has no option for TF32: it is PyTorch's torch.backends.cuda.matmul.allow_tf32",
        ),
        (
            lambda p: p.host_order == "pipeline" and p.is_piped and p.replicas > 1,
            "{p.name} numbers workers with the replicas of a rank before other ranks: with several hosts, "
            "ppsim --host-order replicas predicts that",
        ),
    ]

    def __init__(self, row, csv):
        vars(self).update({name: row[name] for name in (*TEXTS, *FLAGS, *NUMBERS, "stage_layers")})
        self.csv = csv  # a file with the schedule, or None
        self.kind, self.number = self.schedule.partition(":")[0], number_of(self.schedule)
        self.most_layers = max(self.stage_layers)
        self.makes_head = self.checkpoint == "layers"  # again, with all layers
        self.recomputed = number_of(self.checkpoint)  # N of layers:N, where that is not all of them
        if self.recomputed >= self.most_layers:
            self.checkpoint, self.recomputed = "layers", 0
        self.micro_rows, self.batch_rows = self.rows // self.microbatches, self.rows * self.replicas
        self.sharing = self.replicas * self.context_parallel  # workers that sum gradients
        self.has_experts = self.experts > 0
        self.expert_workers = self.tensor * self.expert_parallel if self.has_experts else 1
        self.is_piped = self.stages > 1
        self.is_bf16 = self.precision in ("bf16", "fp8")
        # Microbatches in turn of interleaved without a number, as in schedules/interleaved.c.
        self.usual_turn = self.microbatches // max(1, self.microbatches // self.stages)

    def lines(self, table):
        of_all, own = getattr(Plan, table, []), getattr(self, table)
        return [text.format(p=self) for when, text in own + of_all if when(self)]

    def words(self):
        for text in self.lines("REFUSED"):
            raise Refused(text)
        return self.lines("OPTIONS")

    def notes(self):
        return self.lines("NOTES")
