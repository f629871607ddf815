# SPDX-License-Identifier: Apache-2.0
"""What the GPU did while something ran: its clocks, power, temperature and memory, as nvidia-smi samples them."""

import statistics
import subprocess
import tempfile

FIGURES = {"sm_mhz": "clocks.sm", "memory_mhz": "clocks.mem", "watts": "power.draw", "celsius": "temperature.gpu"}
# Of all samples: how busy (%), and MiB in use by all programs.
OTHERS = {"busy": "utilization.gpu", "used_mib": "memory.used"}
SAMPLE_MS = 100


def number(cell):
    """None: "[N/A]"."""
    try:
        return float(cell)
    except ValueError:
        return None


def summary(text):
    """Lines "1980, 2619, 412.5, 41, 97, 8200": medians over the samples in which the GPU was busy, for most of a run is
    the host's; the most memory; and how many samples were busy. A figure without a number is left out."""
    names = [*FIGURES, *OTHERS]
    samples = [dict(zip(names, map(number, line.split(",")))) for line in text.splitlines()]
    samples = [sample for sample in samples if len(sample) == len(names)]
    busy = [sample for sample in samples if sample["busy"]]
    columns = {name: [s[name] for s in busy if s[name] is not None] for name in FIGURES}
    found = {name: statistics.median(values) for name, values in columns.items() if values}
    used = [sample["used_mib"] for sample in samples if sample["used_mib"] is not None]
    return {**found, **({"used_mib": max(used)} if used else {}), **({"busy_samples": len(busy)} if samples else {})}


class Watch:
    """`figures` of the first GPU, once it is closed; {} where there is no nvidia-smi or `device` is no GPU."""

    def __init__(self, device):
        self.device, self.process, self.figures = device, None, {}
        self.samples = None  # a file: a pipe that nobody reads fills up

    def __enter__(self):
        # Line by line: what it keeps for later is lost when it is killed.
        command = ["stdbuf", "-oL", "nvidia-smi", "-i", "0"]
        command += ["--query-gpu=" + ",".join([*FIGURES.values(), *OTHERS.values()])]
        command += ["--format=csv,noheader,nounits", "-lms", str(SAMPLE_MS)]
        if self.device != "cpu":
            try:
                self.samples = tempfile.TemporaryFile("w+", encoding="utf-8")
                self.process = subprocess.Popen(command, stdout=self.samples, stderr=subprocess.DEVNULL)
            except OSError:
                pass
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.kill()
            self.process.wait(10)
            self.samples.seek(0)
            self.figures = summary(self.samples.read())
        if self.samples:
            self.samples.close()
