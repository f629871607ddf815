# SPDX-License-Identifier: Apache-2.0
"""What the GPU did while something ran: its clocks, power, temperature and memory, as nvidia-smi samples them."""

import datetime
import statistics
import subprocess
import tempfile

WHEN = "timestamp"  # local time, as in 2026/11/27 04:00:54.123
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


def moment(cell):
    """Seconds since 1970, of a local time; None: it is none."""
    try:
        return datetime.datetime.strptime(cell.strip(), "%Y/%m/%d %H:%M:%S.%f").timestamp()
    except ValueError:
        return None


def samples_of(text):
    """Lines "2026/11/27 04:00:54.123, 1980, 2619, 412.5, 41, 97, 8200" as dicts, that of the time in seconds."""
    names, made = [*FIGURES, *OTHERS], []
    for line in text.splitlines():
        when, *cells = line.split(",")
        if len(cells) == len(names):  # one who is killed leaves half a line
            made.append({WHEN: moment(when), **dict(zip(names, map(number, cells)))})
    return made


def summary(samples):
    """Medians over the samples in which the GPU was busy, for most of a run is the host's; the most memory; and how many
    samples were busy. A figure without a number is left out."""
    busy = [sample for sample in samples if sample["busy"]]
    columns = {name: [s[name] for s in busy if s[name] is not None] for name in FIGURES}
    found = {name: statistics.median(values) for name, values in columns.items() if values}
    used = [sample["used_mib"] for sample in samples if sample["used_mib"] is not None]
    return {**found, **({"used_mib": max(used)} if used else {}), **({"busy_samples": len(busy)} if samples else {})}


class Watch:
    """`figures` of the first GPU, once it is closed; {} where there is no nvidia-smi or `device` is no GPU."""

    def __init__(self, device):
        self.device, self.process, self.figures, self.samples = device, None, {}, []
        self.file = None  # a pipe that nobody reads fills up

    def figures_between(self, begin, end):
        """Those of a part of the time: from one time of a database, "2026-11-27T04:00:54.123Z", to another."""
        begin, end = (datetime.datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp() for time in (begin, end))
        return summary([s for s in self.samples if s[WHEN] is not None and begin <= s[WHEN] <= end])

    def __enter__(self):
        # Line by line: what it keeps for later is lost when it is killed.
        command = ["stdbuf", "-oL", "nvidia-smi", "-i", "0"]
        command += ["--query-gpu=" + ",".join([WHEN, *FIGURES.values(), *OTHERS.values()])]
        command += ["--format=csv,noheader,nounits", "-lms", str(SAMPLE_MS)]
        if self.device != "cpu":
            try:
                self.file = tempfile.TemporaryFile("w+", encoding="utf-8")
                self.process = subprocess.Popen(command, stdout=self.file, stderr=subprocess.DEVNULL)
            except OSError:
                pass
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.kill()
            self.process.wait(10)
            self.file.seek(0)
            self.samples = samples_of(self.file.read())
            self.figures = summary(self.samples)
        if self.file:
            self.file.close()
