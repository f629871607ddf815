# SPDX-License-Identifier: Apache-2.0
"""What the GPU did while something ran: its clocks, power and temperature, as nvidia-smi samples them."""

import statistics
import subprocess
import tempfile

FIGURES = {"sm_mhz": "clocks.sm", "memory_mhz": "clocks.mem", "watts": "power.draw", "celsius": "temperature.gpu"}
SAMPLE_MS = 100


def medians(text):
    """{figure: the median of its samples}: lines "1980, 2619, 412.5, 41"; what is no number is left out."""
    columns = {name: [] for name in FIGURES}
    for line in text.splitlines():
        cells = line.split(",")
        for name, cell in zip(FIGURES, cells if len(cells) == len(FIGURES) else ()):
            try:
                columns[name].append(float(cell))
            except ValueError:  # "[N/A]"
                pass
    return {name: statistics.median(values) for name, values in columns.items() if values}


class Watch:
    """`figures` of the first GPU, once it is closed; {} where there is no nvidia-smi or `device` is no GPU."""

    def __init__(self, device):
        self.device, self.process, self.figures = device, None, {}
        self.samples = None  # a file: a pipe that nobody reads fills up

    def __enter__(self):
        command = ["nvidia-smi", "-i", "0", "--query-gpu=" + ",".join(FIGURES.values())]
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
            self.figures = medians(self.samples.read())
        if self.samples:
            self.samples.close()
