#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu over programs that only pretend to: which steps it runs, resumes and leaves out."""

import contextlib
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "analysis"))
import bench_gpu  # noqa: E402

PROGRAM = """#!/bin/sh
case "$*" in *--version*) exit 0 ;; *"--precision $FAIL "*) exit 1 ;; esac
echo "$(basename "$0") $*" >>"$CALLS"
echo "$CUDA_MODULE_LOADING" >"$CALLS.loading"
sleep "${SLEEP:-0}"
while [ $# -gt 0 ]; do if [ "$1" = --db ]; then : >"$2"; fi; shift; done
printf '# ppkit profile 1\\nrun\\tof this one\\nend\\n'
"""


class Script(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results, self.calls = pathlib.Path(folder.name) / "results", pathlib.Path(folder.name) / "calls"
        (self.results / "build" / "bin").mkdir(parents=True)
        for name in ("ppsim", "ppexec", "ppprof", "ppreport"):
            program = self.results / "build" / "bin" / name
            program.write_text(PROGRAM)
            program.chmod(0o755)

    def environment(self, **more):
        known = {**os.environ, "PP_GPU_RESULTS": str(self.results), "PP_GPU_EMULATED": "1", "CALLS": str(self.calls)}
        known.update(PP_GPU_QUICK="1", FAIL="none", OUT="", PP_GPU_BUNDLE=str(self.results.parent / "bundle"))
        return {**known, **more}

    def start(self, *parts, status=0, **environment):
        """Returns the calls of ppprof, and what was said."""
        self.calls.write_text("")
        command = ["bash", str(ROOT / "scripts" / "gpu"), *parts]
        environment = self.environment(**environment)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return [c for c in self.calls.read_text().splitlines() if c.startswith("ppprof")], done.stdout + done.stderr

    def test_steps_by_a_pattern_then_the_others_and_none_twice(self):
        calls, _ = self.start("profile", PP_GPU_ONLY="profile.tutorial-bf16-@(1|2)")
        self.assertEqual([c.split("--precision ")[1].split()[0] for c in calls], ["bf16", "bf16"])
        self.assertTrue((self.results / "profiles" / "emulated-tutorial.tsv").exists())
        self.assertIn("profile.tutorial-fp32-2 comes first", self.start("fidelity")[1])
        calls, _ = self.start("profile")
        self.assertEqual({c.split("--precision ")[1].split()[0] for c in calls}, {"bf16", "fp32"})
        self.assertEqual(self.start("profile")[0], [])
        _, said = self.start("fidelity", "again", status=1)  # the programs do not really predict
        self.assertRegex(said, r"(?s)== fidelity.runs: .*--repeats 1 .*== again.runs: .*--repeats 3 ")

    def test_what_fails_is_told_and_tried_again(self):
        calls, said = self.start("profile", status=1, FAIL="bf16")
        self.assertEqual(len(calls), 2)
        self.assertIn("failed (1)", said)
        self.assertEqual(len(self.start("profile")[0]), 3)
        self.assertTrue((self.results / "log" / "profile.tutorial-bf16-1.log.before").exists())

    def test_time_that_is_up_is_told_by_the_exit_status(self):
        self.assertEqual(self.start("profile", status=3, PP_GPU_MINUTES="0.25")[0], [])

    def test_a_build_that_does_not_run_here_is_made_again(self):
        done = self.results / "done"
        fakes = self.fake("cmake", "#!/bin/sh\n")
        self.start("build", **fakes)
        self.assertTrue((self.results / "build" / "sources").exists())
        self.start("build", PP_GPU_ONLY="none")
        self.assertTrue((done / "build.compile").exists())
        (self.results / "build" / "sources").write_text("of others\n")
        self.start("build", PP_GPU_ONLY="none")
        self.assertFalse((done / "build.compile").exists())
        self.start("build", **fakes)
        (self.results / "build" / "bin" / "ppexec").write_text("#!/none\n")
        self.start("build", PP_GPU_ONLY="none")
        self.assertFalse((done / "build.compile").exists())
        self.assertIn("there is no build yet", self.start("profile")[1])

    def test_without_sqlite_and_a_bundle_nothing_is_built(self):
        for name in ("pkg-config", "cc", "cmake"):
            fakes = self.fake(name, "#!/bin/sh\nexit 1\n")
        fakes["CC"] = "cc"
        _, said = self.start("build", status=2, **fakes)
        self.assertIn("scripts/gpu-bundle makes it", said)
        self.assertNotIn("== build.", said)
        (self.results.parent / "bundle").mkdir()
        shutil.copy(ROOT / "README.md", self.results.parent / "bundle" / "bundle.tar.gz")
        self.assertIn("cannot be unpacked", self.start("build", status=1, **fakes)[1])

    def test_a_profile_whose_database_did_not_come_back_is_added_to(self):
        self.start("profile", PP_GPU_ONLY="profile.tutorial-bf16-1")
        text = self.results / "profiles" / "emulated-tutorial.tsv"
        text.write_text("# ppkit profile 1\nrun\tof another host\nend\n")
        (self.results / "profile-tutorial.db").unlink()
        self.start("profile", PP_GPU_ONLY="profile.tutorial-bf16-1")
        self.assertIn("of another host", text.read_text())
        for _ in range(2):  # with a database, too
            self.start("profile")
            self.assertEqual(text.read_text(), "# ppkit profile 1\nrun\tof another host\nrun\tof this one\nend\n")

    def fake(self, name, text):
        """A file in a folder that comes first in PATH and PYTHONPATH."""
        path = self.results.parent / "fakes" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        before = {name: os.environ.get(name, "") for name in ("PATH", "PYTHONPATH")}
        return {name: f"{self.results.parent / 'fakes'}:{value}" for name, value in before.items()}

    def test_pytorch_is_named_once_per_host_and_not_imported(self):
        self.fake("torch-9.8.dist-info/METADATA", "Name: torch\nVersion: 9.8\n")
        fakes = self.fake("torch.py", "raise SystemExit('imported')\n")
        self.start("profile", PP_GPU_ONLY="none", **fakes)
        host = self.results / "host.txt"
        self.assertIn("\nPyTorch: 9.8\n", host.read_text())
        place = host.read_text().splitlines()[-1]
        host.write_text(f"known\n{place}\n")
        self.start("profile", PP_GPU_ONLY="none", **fakes)
        self.assertIn("known\n", host.read_text())
        host.write_text("host: another\nPyTorch: none\n")
        self.start("profile", PP_GPU_ONLY="none", **fakes)
        self.assertIn("\nPyTorch: 9.8\n", host.read_text())

    def test_a_library_is_found_in_a_list_that_is_longer_than_a_pipe(self):
        fakes = self.fake("ldconfig", "#!/bin/sh\necho libnccl.so.2\nseq 100000\n")
        command = "set -o pipefail; results=. bundle=. emulated=0; . scripts/gpu-host.sh; has_library libnccl.so.2"
        subprocess.run(["bash", "-c", command], cwd=ROOT, env={**os.environ, **fakes}, check=True)

    def test_a_gpu_is_kept_open(self):
        node = self.results / "nvidia0"
        command = "results=. bundle=. emulated=0; . scripts/gpu-host.sh; keep_open $1; set -e; keep_open $1/none"
        command += "; for fd in /proc/$$/fd/*; do readlink $fd || true; done"
        node.write_text("")
        done = subprocess.run(["bash", "-c", command, "-", node], cwd=ROOT, capture_output=True, text=True, check=False)
        self.assertIn(f"{node}\n", done.stdout)

    def test_headers_of_pythons_cublas_serve_all_that_compiles(self):
        folder = self.results.parent / "fakes"
        self.fake("nvidia/__init__.py", "")
        for name in ("cublasLt.h", "cuda_runtime.h"):
            self.fake(f"nvidia/cublas/include/{name}", "")
        self.fake("bin/nvcc", "#!/bin/sh\n")  # of a toolkit without them
        for name in ("nvidia-smi", "ctest"):
            self.fake(name, "#!/bin/sh\n")
        fakes = self.fake("cmake", '#!/bin/sh\necho "cmake $CPATH" >>"$CALLS"; echo "loader $LD_LIBRARY_PATH" >>"$CALLS"\n')
        fakes["PATH"] = f"{folder}/bin:{fakes['PATH']}"
        for name in ("CMakeCache.txt", "lib/ppkit/ppkit-cuda.so"):
            (self.results / "build" / name).parent.mkdir(parents=True, exist_ok=True)
            (self.results / "build" / name).write_text("")
        self.start("tests", PP_GPU_EMULATED="0", CPATH="", PPKIT_CUDA_BACKEND="", **fakes)
        self.assertIn(f"cmake {self.results}/bundle/cublas\n", self.calls.read_text())
        self.assertRegex(self.calls.read_text(), f"loader (.*:)?{folder}/nvidia/cublas/lib\n")
        # Those alone: what lies beside them may be incomplete.
        self.assertEqual([path.name for path in (self.results / "bundle" / "cublas").iterdir()], ["cublasLt.h"])

    def test_the_gpu_has_its_name_from_whoever_knows_it(self):
        silent = self.fake("nvidia-smi", "#!/bin/sh\nexit 9\n")
        proc = self.results.parent / "proc"
        command = 'results=$1 bundle=. emulated=0 bin=$2; . scripts/gpu-host.sh; claim_results; machine_name; cat "$1/machine"'

        def names(**more):
            words = ["bash", "-c", command, "-", self.results, self.results.parent / "fakes"]
            environment = {**os.environ, **silent, "PP_GPU_PROC": str(proc), **more}
            done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
            (self.results / "machine").unlink(missing_ok=True)
            return done.stdout.split()

        self.assertEqual(names(), ["gpu"])  # nobody says anything, and nothing is claimed
        self.fake("ppexec", "#!/bin/sh\necho schedule\necho 'ppexec: no GPU' >&2\n")
        self.assertEqual(names(), ["gpu", "gpu"])
        self.assertEqual(names(PP_GPU_MACHINE="h100"), ["h100", "h100"])
        self.fake("ppexec", "#!/bin/sh\necho schedule\necho 'device      NVIDIA L40S, 142 SMs, driver 13.0' >&2\n")
        self.assertEqual(names(PP_GPU_MACHINE="h100"), ["l40s", "l40s"])
        (proc / "gpus" / "0000:01:00.0").mkdir(parents=True)
        information = proc / "gpus" / "0000:01:00.0" / "information"
        information.write_text("Model: \t\t NVIDIA A100-SXM4-80GB\nIRQ:   \t\t 77\n")
        self.assertEqual(names(), ["a100", "a100"])
        silent.update(self.fake("nvidia-smi", "#!/bin/sh\necho 'NVIDIA H100 80GB HBM3'\n"))
        self.assertEqual(names(), ["h100", "h100"])

    def test_results_of_another_gpu_are_not_added_to(self):
        gpu = self.fake("nvidia-smi", '#!/bin/sh\n[ -n "$GPU" ] && echo "NVIDIA $GPU"\n')
        gpu.update(PP_GPU_EMULATED="0", PP_GPU_ONLY="none", PPKIT_CUDA_BACKEND="/dev/null")
        self.start("profile", GPU="H100 80GB HBM3", **gpu)
        self.assertIn("has results of H100, and this is H200", self.start("profile", status=1, GPU="H200", **gpu)[1])
        self.start("profile", GPU="H100 PCIe", **gpu)
        self.start("report", GPU="", **gpu)  # where there is none
        self.assertTrue((self.results / "h100.md").exists())

    def test_page_and_archives_come_back(self):
        out = self.results.parent / "out"
        out.mkdir()
        self.assertNotIn("could not be made", self.start("report", OUT=str(out))[1])
        self.assertEqual({path.name for path in out.iterdir()}, {"emulated.md", "results.tar.gz", "build.tar.gz"})
        self.assertIn("Emulated", (out / "emulated.md").read_text())

    def test_the_end_of_the_output_has_the_most_important_figures(self):
        row = dict(model="tutorial", precision="bf16", chunks=1, microbatches=1, floor_ms=10.0, paper_ms=9.4)
        row.update(ppexec_ms=[12.25], torch_ms=[13.5], batch_w_ms=[], batch_w_floor_ms=None)
        row.update(ppexec_gpu=[], torch_gpu=[], ceilings=None)
        (self.results / "speed.jsonl").write_text(json.dumps(row) + "\n")
        (self.results / "fidelity").mkdir()
        table = "# Predicted and measured\n\nAll 8 together: mean error 2.50 %\n\n| other | table |\n"
        (self.results / "fidelity" / "table.md").write_text(table)
        said = self.start("report")[1]
        self.assertIn("All 8 together: mean error 2.50 %\n", said)
        self.assertRegex(said, r"\| tutorial \| bf16 .* 12\.25 .* 13\.50 ")
        self.assertNotIn("other", said)

    def test_ncu_is_asked_for_what_the_report_reads(self):
        row = dict(model="tutorial", precision="bf16", chunks=8, microbatches=7, floor_ms=10.0, torch_ms=[13.5])
        (self.results / "speed.jsonl").write_text(json.dumps({**row, "ppexec_ms": [14.0]}) + "\n")
        self.start("ncu", **self.fake("ncu", '#!/bin/sh\necho "ncu $*" >>"$CALLS"\n'))
        asked = self.calls.read_text().split("--metrics ")[1].split()[0]
        self.assertEqual(tuple(asked.split(",")), bench_gpu.NCU)
        self.assertIn("sm__throughput.avg.pct_of_peak_sustained_elapsed", asked)

    def test_a_fresh_host_goes_on_from_the_archives_beside_the_bundle(self):
        self.start("profile")
        bundle, first = self.results.parent / "bundle", self.results
        bundle.mkdir()
        for name in ("results", "build"):
            shutil.copy(first / f"{name}.tar.gz", bundle)
        self.results = self.results.parent / "fresh"
        self.assertEqual(self.start("profile")[0], [])
        self.assertTrue((self.results / "build" / "bin" / "ppexec").exists())
        (self.results / "done" / "profile.tutorial-bf16-1").unlink()  # what is there is newer
        self.assertEqual(len(self.start("profile")[0]), 1)
        (first / "machine").write_text("h200\n")
        subprocess.run(["tar", "-czf", bundle / "results.tar.gz", "-C", first, "machine", "done"], check=True)
        self.results = self.results.parent / "other"
        self.assertEqual(len(self.start("profile")[0]), 5)  # by the programs, which are of no kind of GPU

    def test_programs_that_an_archive_has_are_not_built(self):
        folder = self.results / "build" / "tests" / "cuda" / "bin"
        folder.mkdir(parents=True)
        for name in ("test_share_queues", "test_parity"):
            (folder / name).write_text(PROGRAM)
            (folder / name).chmod(0o755)
        fakes = self.fake("cmake", '#!/bin/sh\necho "cmake $*" >>"$CALLS"\n')
        self.start("build", **fakes)
        self.assertRegex(self.calls.read_text(), r"(?s)cmake -S .*-DCMAKE_CUDA_ARCHITECTURES=90.*--build.*--build")
        bundle = self.results.parent / "bundle"
        bundle.mkdir()
        shutil.copy(self.results / "build.tar.gz", bundle)
        self.results = self.results.parent / "fresh"
        self.assertIn("build: left out, the programs are there", self.start("build", **fakes)[1])
        self.assertNotIn("cmake -S", self.calls.read_text())
        self.assertFalse((self.results / "build.tar.gz").exists())  # it would only travel back
        backend = self.results.parent / "backend.so"
        backend.write_text("")
        for name, says in (("nvidia-smi", "8.0"), ("ldd", "libcublasLt.so.13 => not found")):  # another GPU; no such library
            self.results = self.results.parent / name
            more = {**fakes, **self.fake(name, f"#!/bin/sh\necho '{says}'\n")}
            more.update(PP_GPU_EMULATED="0", PPKIT_CUDA_BACKEND=str(backend))
            self.assertIn("== build.compile: ", self.start("build", **more)[1], name)
            (self.results.parent / "fakes" / name).unlink()

    def test_programs_are_built_without_a_gpu_and_nothing_else_is_done(self):
        fakes = self.fake("nvidia-smi", "#!/bin/sh\nexit 9\n")
        fakes = {**fakes, **self.fake("cmake", "#!/bin/sh\n"), "PP_GPU_EMULATED": "0", "PPKIT_CUDA_BACKEND": "/dev/null"}
        self.assertIn("== build.compile: ", self.start("build", **fakes)[1])
        self.assertIn("shows no NVIDIA GPU", self.start("build", "parity", status=1, **fakes)[1])

    def test_what_goes_to_a_host_is_unpacked_and_named_to_compilers(self):
        bundle, root, results = (self.results.parent / name for name in ("bundle", "packed", "#1 & others"))
        triplet = subprocess.run(["gcc", "-print-multiarch"], capture_output=True, text=True, check=True).stdout.strip()
        (root / "usr" / "include" / triplet).mkdir(parents=True)
        (root / "usr" / "lib" / triplet).mkdir(parents=True)
        (root / "usr" / "lib" / triplet / "some.pc").write_text("prefix=/usr\nLibs: -L/usr/lib -lsome\n")
        (root / "usr" / "bin").mkdir()
        program = root / "usr" / "bin" / "mpicc.openmpi"
        program.write_text('#!/bin/sh\necho "$@"\necho no network >&2\n')
        program.chmod(0o755)
        bundle.mkdir()
        subprocess.run(["tar", "-czf", bundle / "bundle.tar.gz", "-C", root, "."], check=True)
        command = 'results=$1 bundle=$2 emulated=0; . scripts/gpu-host.sh; use_bundle; use_bundle; echo "$CPATH"'
        command += '; "$1/bundle/usr/bin/mpicc" -showme'
        done = subprocess.run(
            ["bash", "-c", command, "-", results, bundle], cwd=ROOT, capture_output=True, text=True, check=True
        )
        usr = f"{results}/bundle/usr"
        self.assertIn(f"{usr}/include/{triplet}", done.stdout.splitlines()[0].split(":"))
        self.assertEqual((done.stdout.splitlines()[1:], done.stderr), (["-showme"], ""))
        text = pathlib.Path(usr, "lib", triplet, "some.pc").read_text()
        self.assertEqual(text, f"prefix={usr}\nLibs: -L{usr}/lib -lsome\n")

    def test_the_tutorial_learns_from_the_text_that_came_along(self):
        bundle, text = self.results.parent / "bundle", self.results / "bundle" / "text"
        bundle.mkdir()
        (bundle / "train.txt").write_text("a b c")
        subprocess.run(["tar", "-czf", bundle / "text.tar.gz", "-C", bundle, "train.txt"], check=True)
        self.start("learn", status=1, PP_GPU_QUICK="0")  # the program does not really learn
        self.assertIn(f" --data {text} ", self.calls.read_text())
        self.assertEqual((text / "train.txt").read_text(), "a b c")

    def test_what_was_found_comes_back_from_a_call_that_is_stopped(self):
        out = self.results.parent / "out"
        out.mkdir()
        environment = self.environment(OUT=str(out), SLEEP="60")
        command = ["bash", str(ROOT / "scripts" / "gpu"), "profile"]
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
            for line in process.stderr:  # two calls have not been made yet
                if b"bf16-1: " in line:
                    break
            time.sleep(0.2)
            process.terminate()
            self.assertEqual(process.wait(20), 143)
        self.assertEqual([path.name for path in out.iterdir()], ["results.tar.gz"])
        self.assertEqual(list((self.results / "done").iterdir()), [])
        self.assertEqual(len(self.start("profile")[0]), 5)

    def test_what_was_found_comes_back_while_a_step_takes_long(self):
        out = self.results.parent / "out"
        out.mkdir()
        environment = self.environment(OUT=str(out), SLEEP="60", PP_GPU_BRING_SECONDS="2")
        command = ["bash", str(ROOT / "scripts" / "gpu"), "profile"]
        (self.results / "runs.db").write_text("of a step before")
        with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
            end = time.monotonic() + 40
            for archive in range(2):  # in the second one is all that there was before it
                while not (out / "results.tar.gz").exists() and time.monotonic() < end:
                    time.sleep(0.1)
                if archive == 0:
                    (self.results / "profile-tutorial.db").write_text("half of one")
                    written = sqlite3.connect(self.results / "written.db", isolation_level=None)
                    written.execute("PRAGMA journal_mode = WAL")
                    written.execute("CREATE TABLE row AS SELECT 7")  # stays in the -wal
                    (out / "results.tar.gz").unlink()
            process.kill()
        names = subprocess.run(["tar", "-tzf", out / "results.tar.gz"], capture_output=True, text=True, check=True).stdout
        self.assertIn("log/profile.tutorial-bf16-1.log\n", names)
        self.assertEqual(sorted(name for name in names.split() if ".db" in name), ["runs.db", "written.db"])
        written.close()
        (self.results / "written.db").unlink()
        subprocess.run(["tar", "-xzf", out / "results.tar.gz", "-C", self.results, "written.db"], check=True)
        with contextlib.closing(sqlite3.connect(self.results / "written.db")) as copy:
            self.assertEqual(copy.execute("SELECT * FROM row").fetchall(), [(7,)])

    def test_a_crash_while_an_archive_is_made_ends_the_step(self):
        """Whoever waits for it alone would wait for ever: bash tells of it while tar runs."""
        program = self.results / "build" / "bin" / "ppprof"
        program.write_text("#!/bin/sh\nsleep 2\nkill -SEGV $$\n")
        fakes = self.fake("tar", "#!/bin/sh\nsleep 2\nexec /bin/tar \"$@\"\n")
        only = "profile.tutorial-bf16-1"
        _, said = self.start("profile", status=1, PP_GPU_ONLY=only, PP_GPU_BRING_SECONDS="1", **fakes)
        self.assertIn("failed (139)", said)
        self.assertIn(f"{only}\tfailed (139)\t", (self.results / "steps.tsv").read_text())

    def test_an_archive_that_cannot_be_made_does_not_replace_the_last_one(self):
        self.start("profile", PP_GPU_ONLY="profile.tutorial-bf16-1")
        before = (self.results / "results.tar.gz").read_bytes()
        fakes = self.fake("tar", '#!/bin/sh\n[ "$1" = -czf ] && echo cut >"$2"\nexit 2\n')
        self.assertIn("no archive could be made", self.start("profile", PP_GPU_ONLY="profile.tutorial-bf16-2", **fakes)[1])
        self.assertEqual((self.results / "results.tar.gz").read_bytes(), before)
        before = (self.results / "build.tar.gz").read_bytes()
        self.fake("cmake", "#!/bin/sh\n")
        self.assertIn("no archive of the programs could be made", self.start("build", **fakes)[1])
        self.assertEqual((self.results / "build.tar.gz").read_bytes(), before)
        self.assertEqual(list(self.results.glob("*.new")), [])

    def test_steps_are_stored_without_the_folder_of_the_source(self):
        """Which may have any name, also one that is a pattern to the shell."""
        source = self.results.parent / "a[1] source"
        source.mkdir()
        for name in ("cmake", "core", "kernels", "schedules", "sim", "exec", "profiles", "analysis", "tests", "scripts"):
            (source / name).symlink_to(ROOT / name)
        (source / "CMakeLists.txt").symlink_to(ROOT / "CMakeLists.txt")
        command = 'results=$1 deadline=9; . scripts/gpu-steps.sh; remember a.step ok 100000 "$PWD/bin/ppexec" --db "$PWD/a.db"'
        subprocess.run(["bash", "-c", command, "-", self.results], cwd=source, check=True, stderr=subprocess.DEVNULL)
        self.assertIn("a.step\tok\t0.1\tbin/ppexec --db a.db\n", (self.results / "steps.tsv").read_text())

    def test_tiny_models_do_not_pass_for_others(self):
        self.start("profile", PP_GPU_ONLY="profile.tutorial-bf16-1")
        self.assertIn("another PP_GPU_QUICK", self.start("profile", status=1, PP_GPU_QUICK="0")[1])

    def test_a_pattern_that_names_no_step_is_told(self):
        self.assertIn("name like profile.bf16", self.start("profile", PP_GPU_ONLY="profile.bf16")[1])

    def test_what_failed_late_is_not_tried_by_each_call(self):
        only = {"PP_GPU_ONLY": "profile.tutorial-bf16-1"}
        self.start("profile", status=1, FAIL="bf16", **only)
        self.assertFalse((self.results / "failed" / "profile.tutorial-bf16-1").exists())  # it failed at once
        command = "results=$1 deadline=9; . scripts/gpu-steps.sh; remember profile.tutorial-bf16-1 'time limit' 60000000 x"
        subprocess.run(["bash", "-c", command, "-", self.results], cwd=ROOT, check=True, stderr=subprocess.DEVNULL)
        calls, said = self.start("profile", status=1)
        self.assertEqual(len(calls), 4)
        self.assertIn("profile.tutorial-bf16-1: left out, it took a minute", said)
        self.assertEqual(len(self.start("profile", **only)[0]), 1)
        self.assertEqual(self.start("profile")[0], [])
        # Where what it runs has changed, it is.
        (self.results / "done" / "profile.tutorial-bf16-1").unlink()
        (self.results / "failed" / "profile.tutorial-bf16-1").write_text("of other sources\n")
        self.assertEqual(len(self.start("profile")[0]), 1)

    def test_what_would_hang_as_well_is_left_out(self):
        steps = self.results / "steps.tsv"
        steps.write_text("parity.workers\tok\t1\tx\nparity.workers\ttime limit\t60.0\tx\n")
        calls, said = self.start("learn", "profile", "fidelity", status=1)
        self.assertEqual([c.split("--stages ")[1][0] for c in calls], ["1", "1"])
        for step in ("learn", "profile.tutorial-bf16-2", "profile.tutorial-fp32-2", "fidelity"):
            self.assertIn(f"== {step}: left out", said)
        _, said = self.start("presets", "nccl", status=1)  # these programs predict nothing for the page
        steps_run = [line.split(": /")[0] for line in said.splitlines() if line.startswith("== ") and ": /" in line]
        self.assertEqual(steps_run, [f"== presets.{p}-{n}-1" for n in ("bf16", "fp32") for p in ("tutorial", "tutorial-12")])
        self.assertIn("== presets: left out, but for one worker", said)
        steps.write_text("parity.workers\tok\t1\tx\nprofile.tutorial-bf16-2\ttime limit\t120.0\tx\n")
        calls, said = self.start("profile")  # what has hung itself is tried again, where something was changed
        self.assertEqual([c.split("--precision ")[1].split()[0] for c in calls], ["bf16", "bf16", "fp32"])

    def test_shares_of_the_gpu_are_the_first_that_is_tried(self):
        folder = self.results / "build" / "tests" / "cuda" / "bin"
        folder.mkdir(parents=True)
        for name in ("test_share_queues", "test_parity"):
            (folder / name).write_text('#!/bin/sh\necho "$(basename "$0")" >>"$CALLS"\n')
            (folder / name).chmod(0o755)
        fakes = self.fake("cmake", '#!/bin/sh\necho "cmake $*" >>"$CALLS"\n')
        self.start("build", "parity", **fakes)
        wanted = "--target test_parity test_share_queues\ntest_share_queues\n(ppexec .*--stages 2.*\n){3}(test_parity\n){2}$"
        self.assertRegex(self.calls.read_text(), wanted)

    def test_kernels_are_loaded_at_the_start_where_that_is_quick_and_works(self):
        for eager, lazy, wanted in (
            (("ok", 3.2), ("ok", 2.5), ""),
            (("ok", 3.6), ("ok", 2.5), "LAZY"),
            (("ok", 10.5), ("ok", 9.8), ""),  # numbers, not words
            (("failed (1)", 0.5), ("ok", 2.5), "LAZY"),
            (("time limit", 60.0), ("ok", 2.5), "LAZY"),
            (("failed (1)", 0.5), ("failed (1)", 0.5), ""),
            (("ok", 3.2), None, ""),
            (None, None, ""),
        ):
            steps = [(way, *of) for way, of in (("EAGER", eager), ("LAZY", lazy)) if of]
            text = "".join(f"parity.start-{way}\t{state}\t{seconds}\tppexec\n" for way, state, seconds in steps)
            (self.results / "steps.tsv").write_text(text)
            status = int(any(state != "ok" for _, state, _ in steps))
            self.start("profile", status=status, PP_GPU_ONLY="profile.tutorial-bf16-1", CUDA_MODULE_LOADING="")
            self.assertEqual(pathlib.Path(f"{self.calls}.loading").read_text().strip(), wanted, steps)
            (self.results / "done" / "profile.tutorial-bf16-1").unlink()

    def test_no_such_part(self):
        self.assertIn("there is no part fidel", self.start("fidel", status=2)[1])


if __name__ == "__main__":
    sys.exit(unittest.main())
