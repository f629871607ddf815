#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/block-times says of a tiny model, against bytes counted by hand, and that ppsim takes it. Needs PyTorch.

  check_block_times.py --ppsim build/release/bin/ppsim
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts" / "block-times"
MODEL = """
import torch
from torch import nn

def blocks():
    yield nn.Sequential(nn.Linear(8, 16), nn.ReLU())
    yield lambda: nn.Linear(16, 16), 3
    yield nn.Linear(16, 4, bias=False).requires_grad_(False)

def example():
    return torch.zeros(5, 8)

def loss(output):
    return output.square().sum()
"""
OPTIMIZER = """
def optimizer(parameters):
    return torch.optim.SGD(parameters, momentum=0.9)
"""
DICT = """
class Dict(nn.Module):
    def forward(self, x):
        return {"x": x}
"""
AGAIN = """
from torch import nn

rounds = 0

def blocks():
    global rounds
    rounds += 1
"""
FLOAT, ADAM = 4, 16  # bytes of a number; of a parameter, its gradient and AdamW's state
MIB = 1 << 20


def measure(folder, model, *words):
    path = pathlib.Path(folder) / "model.py"
    path.write_text(model, encoding="utf-8")
    command = [sys.executable, str(SCRIPT), str(path), "--threads", "1", "--seconds", "0.01", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def table(text):
    head, *lines = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    return [dict(zip(head, line)) for line in lines]


def bytes_of(row, column):
    return round(float(row[column]) * MIB)


def expect(found, wanted, what):
    if found != wanted:
        raise SystemExit(f"{what}: {found}, not {wanted}")


def check_bytes(rows):
    expect([row["block"] for row in rows], ["0 Sequential", "1 Linear", "2 Linear", "3 Linear", "4 Linear"], "blocks")
    middle = (16 * 16 + 16) * ADAM
    expect([bytes_of(row, "state_mib") for row in rows], [(8 * 16 + 16) * ADAM, *[middle] * 3, 16 * 4 * FLOAT], "state")
    # Inputs of linears; what ReLU makes is the next block's input. The last block: its output, for the loss.
    expect([bytes_of(row, "kept_mib") for row in rows], [5 * 8 * 4, *[5 * 16 * 4] * 3, 5 * 16 * 4 + 5 * 4 * 4], "kept")
    expect([bytes_of(row, "output_mib") for row in rows], [*[5 * 16 * 4] * 4, 4], "output")
    for row in rows:
        forward, half, other, whole = (float(row[f"{word}_ms"]) for word in ("forward", "input", "weight", "backward"))
        if not (forward > 0 and whole > 0 and half >= 0 and abs(half + other - whole) < 1e-3 * whole):
            raise SystemExit(f"times: {row}")


def check_inputs(rows, wanted):
    """Whose backward makes a gradient of its input."""
    expect([float(row["input_ms"]) > 0 for row in rows], wanted, "gradients of inputs")


def check_refused(folder):
    """One line says what is wrong; nothing is printed that could be taken for the table of a smaller model."""
    rest = MODEL.replace("blocks()", "other()")
    for broken, words, message in (
        (MODEL.replace("def example", "def sample"), (), "no function example()"),
        (MODEL.replace("yield nn.Linear(16, 4", "yield 'head' #"), (), "which is no module"),
        (MODEL.replace("yield nn.Linear(16, 4", "yield nn.Linear(17, 4"), (), "block 4 (Linear): RuntimeError: "),
        (MODEL.replace("output.square().sum()", "output.no_such"), (), "'no_such' (model.py, line 14)"),
        (MODEL.replace("lambda: nn.Linear(16, 16), 3", "Dict()") + DICT, (), "block 1 (Dict): it returns dict"),
        (MODEL.replace("bias=False).requires_grad_(False)", "bias=False), 2"), (), "so it stands alone"),
        (MODEL.replace("yield ", "return []; yield ", 1), (), "blocks() has none"),
        (AGAIN + "    return [nn.Linear(8, 8)] * rounds" + rest, (), "has other blocks when"),
        (AGAIN + "    return [nn.Linear(8, 8) if rounds < 2 else nn.ReLU()]" + rest, (),
         "block 0 (ReLU): in the round before it was a Linear"),
        (AGAIN + "    return [nn.Linear(8, 7 + rounds)]" + rest, (),
         "block 0 (Linear): in the round before it had other sizes"),
        (MODEL, ("--device", "nowhere"), "--device nowhere: "),
    ):
        done = measure(folder, broken, *words)
        expect((done.returncode, done.stdout, message in done.stderr), (1, "", True), f"{message}: {done.stderr}")
        expect(len(done.stderr.splitlines()), 1, f"lines of: {done.stderr}")


def check_disturbed(folder):
    """Where other programs always have the core for half of the time, both the table and standard error say so."""
    path = pathlib.Path(folder) / "model.py"
    path.write_text(MODEL, encoding="utf-8")
    program = (
        "import importlib.machinery, importlib.util, sys\n"
        f"loader = importlib.machinery.SourceFileLoader('block_times', {str(SCRIPT)!r})\n"
        "script = importlib.util.module_from_spec(importlib.util.spec_from_loader('block_times', loader))\n"
        "loader.exec_module(script)\n"
        "script.Stamp.taken = lambda self: (0.5, 1.0)\n"
        f"sys.argv[1:] = [{str(path)!r}, '--threads', '1', '--seconds', '0.01']\n"
        "sys.exit(script.main())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    words = "# other programs had the core for up to 50 % of the time (block 4 Linear)"
    said = [line for line in done.stdout.splitlines() if line.startswith(words)]
    expect((done.returncode, len(said), said[0][2:] in done.stderr if said else None), (0, 1, True), done.stderr)
    expect(len(table(done.stdout)), 5, "blocks of a table that was disturbed")


def check_rounds(folder):
    """Each round goes over all blocks, in order, before the next one does."""
    said = """
class Said(nn.Linear):
    def __init__(self, name):
        super().__init__(8, 8)
        self.name = name

    def forward(self, x):
        import sys
        print(self.name, file=sys.stderr)
        return super().forward(x)

def example():
    return torch.zeros(5, 8)

def blocks():
    return [Said("A"), Said("B")]
"""
    done = measure(folder, "import torch\nfrom torch import nn\n" + said, "--rounds", "4")
    calls = done.stderr.split()
    turns = [name for i, name in enumerate(calls) if i == 0 or calls[i - 1] != name]
    expect(turns[: 2 * 4], ["A", "B"] * 4, "turns of two blocks")
    for word in ("0", "-1", "many"):
        expect(measure(folder, MODEL, "--rounds", word).returncode, 2, f"--rounds {word}")


def check_optimizer(rows):
    expect("step_ms" in rows[0] and float(rows[0]["step_ms"]) > 0, True, "the step of an optimizer")
    parameters = 8 * 16 + 16
    expect(bytes_of(rows[0], "state_mib"), 3 * parameters * FLOAT, "parameters, gradients and momentum")
    expect(bytes_of(rows[-1], "state_mib"), 16 * 4 * FLOAT, "what is not trained")


def check_prediction(ppsim, path, rows):
    found = subprocess.run([ppsim, "--times", path, "--stages", "1,2,5", "--chunks", "1", "--format", "json"],
                           check=True, capture_output=True, text=True)
    all_ms = sum(float(row["forward_ms"]) + float(row["backward_ms"]) for row in rows)
    for row in json.loads(found.stdout):
        if not abs(row["ms_per_batch"] - all_ms) <= 1e-3 * all_ms:
            raise SystemExit(f"one microbatch on {row['stages']} ranks: {row['ms_per_batch']} ms, not {all_ms}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ppsim", required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        done = measure(folder, MODEL)
        if done.returncode:
            raise SystemExit(done.stderr)
        rows = table(done.stdout)
        check_bytes(rows)
        check_inputs(rows, [False, True, True, True, True])
        path = pathlib.Path(folder) / "blocks.tsv"
        path.write_text(done.stdout, encoding="utf-8")
        check_prediction(args.ppsim, str(path), rows)
        check_optimizer(table(measure(folder, MODEL + OPTIMIZER).stdout))
        asks = MODEL.replace("torch.zeros(5, 8)", "torch.zeros(5, 8, requires_grad=True)")
        check_inputs(table(measure(folder, asks).stdout), [True] * 5)
        equal = MODEL.replace("yield nn.Sequential(nn.Linear(8, 16), nn.ReLU())", "yield nn.Linear(8, 8), 3").replace(
            "lambda: nn.Linear(16, 16), 3", "nn.Linear(8, 16)")
        check_inputs(table(measure(folder, equal).stdout), [False, True, True, True, True])
        check_refused(folder)
        check_rounds(folder)
        check_disturbed(folder)
    print("block-times says what was counted")


if __name__ == "__main__":
    main()
