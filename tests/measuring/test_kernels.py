#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/results/kernels.md is what analysis/published_kernels.py makes of it with the kernel_times in PP_KERNEL_TIMES;
the machine files have the figures that it fits."""

import difflib
import json
import math
import os
import pathlib
import statistics
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "analysis"))
import gpu_report  # noqa: E402
import kernel_cases  # noqa: E402
import openxla_tables  # noqa: E402
import product_fit  # noqa: E402
import profile_text  # noqa: E402
import published_kernels  # noqa: E402

PROGRAM = os.environ["PP_KERNEL_TIMES"]
PRODUCTS = b"""entries {
  key: "sm_90"
  value {
    entries {
      b: 2 m: 256 n: 512 k: 1024
      flops { key: "bf16xbf16->bf16" value: 53687091200000 }
      flops { key: "f32xf32->f32" value: 26843545600000 }
      flops { key: "f16xf16->f16" value: 1 }
      flops { key: "f8e5m2xf8e4m3fn->bf16" value: 107374182400000 }
    }
  }
}
entries {
  key: "gfx942"
  value { entries { b: 1 m: 1 n: 1 k: 1 flops { key: "bf16xbf16->bf16" value: 1 } } }
}
"""
COLLECTIVES = b"""entries {
  key: "sm_100"
  value {
    entries {
      instruction {
        opcode: "reduce-scatter"
        shape { element_type: F32
          dimensions: 1000
          layout { minor_to_major: 0 } }
        collective_device_list { num_devices_per_group: 4 }
      }
      network_throughput_bytes_per_sec: 16000000
    }
    entries { instruction { opcode: "collective-permute" } }
  }
}
"""


class Tables(unittest.TestCase):
    def test_times_are_told_by_rates(self):
        found = list(openxla_tables.products(b"\xff\0" + PRODUCTS + b"\0\xff"))
        shape = (2, 256, 512, 1024)
        expected = [(("product", "h100", "bf16", *shape), 10), (("product", "h100", "tf32", *shape), 20)]
        self.assertEqual(found, [*expected, (("turned", "h100", "fp8-e5m2", *shape), 5)])

    def test_products_of_the_b200_are_not_turned(self):
        found = [cells[:3] for cells, _ in openxla_tables.products(b"\0" + PRODUCTS.replace(b"sm_90", b"sm_100") + b"\0")]
        self.assertEqual(found, [("product", "b200", kind) for kind in ("bf16", "tf32", "fp8-e5m2")])

    def test_what_is_scattered_is_the_whole_tensor(self):
        found = list(openxla_tables.collectives(b"\0" + COLLECTIVES + b"\0"))
        self.assertEqual(found, [(("collective", "b200", "reduce-scatter", 4, 16000), 1000)])

    def test_a_file_without_tables_is_refused(self):
        with mock.patch.object(sys, "argv", ["openxla_tables.py", os.devnull]), self.assertRaises(SystemExit):
            openxla_tables.main()


class Summary(unittest.TestCase):
    def test_means_and_the_ninth_of_ten(self):
        errors = [0.1, -0.1, 0.2, -0.2, 0.3, -0.3, 0.4, -0.4, 0.5, -0.9]
        self.assertEqual(published_kernels.summary(errors), ["-4", "34", "50", "90"])

    def test_flat_machines_know_of_no_tiles(self):
        for precision in published_kernels.flat("h100")["precisions"].values():
            self.assertEqual(set(precision), {"peak_gflops", "efficiency"})


class Bytes(unittest.TestCase):
    def test_narrow_products_take_as_long_as_memory(self):
        m, n, k = 16, 16384, 16384
        case = kernel_cases.Case("product", ["h100", "bf16", 1, m, n, k, 1])
        us = 2 * (m * k + k * n + m * n) / 3000e9 * 1e6
        tiled, plain = kernel_cases.machine_file("h100"), published_kernels.flat("h100")
        tiled["precisions"]["bf16"]["tiles"]["start_us"] = 0
        for machine in (tiled, plain):
            self.assertAlmostEqual(kernel_cases.Predictor(PROGRAM).microseconds(machine, [case])[0], us, places=2)


class Grown(unittest.TestCase):
    def test_is_half_of_what_the_product_takes_longer(self):
        small, large = (kernel_cases.Case("turned", ["h100", "fp8", 1, m, 4096, 4096, us]) for m, us in ((1024, 7), (4096, 19)))
        case = kernel_cases.Grown(small, large)
        predictor = kernel_cases.Predictor(PROGRAM)
        alone = predictor.microseconds("h100", [small, large])
        self.assertEqual((case.us, case.flops), (12, 2 * 3072 * 4096**2))
        self.assertAlmostEqual(predictor.microseconds("h100", [case])[0], (alone[1] - alone[0]) / 2)

    def test_takes_those_of_the_same_b(self):
        cases = kernel_cases.grown_cases()
        self.assertEqual({(case.machine, case.group) for case in cases}, {("h100", "fp8"), ("h100", "fp8-e5m2")})
        for case in cases:
            self.assertGreaterEqual(case.flops, kernel_cases.GROWN_FLOPS)
            small, large = case.lines[1].split(), case.lines[0].split()
            self.assertEqual(small[:3] + small[4:], large[:3] + large[4:])
            self.assertEqual((small[1], small[3]), ("fp8", "1024"))


class Fp8(unittest.TestCase):
    def test_factors_are_half_as_large_as_in_bf16(self):
        m, n, k = 16, 16384, 16384
        machine = kernel_cases.machine_file("h100")
        for precision, size in (("bf16", 2), ("fp8", 1)):
            machine["precisions"][precision]["tiles"]["start_us"] = 0
            case = kernel_cases.Case("product", ["h100", precision, 1, m, n, k, 1])
            us = (size * (m * k + k * n) + 2 * m * n) / 3000e9 * 1e6
            self.assertAlmostEqual(kernel_cases.Predictor(PROGRAM).microseconds(machine, [case])[0], us, places=2)


class Attention(unittest.TestCase):
    def test_times_follow_from_rates(self):
        forward = kernel_cases.Attention("h100", "forward", 2, 16, 1024, 64, "full", 100.0, "whose", "yes")
        backward = kernel_cases.Attention("h100", "backward", 2, 16, 1024, 64, "causal", 100.0, "whose", "yes")
        self.assertAlmostEqual(forward.us, 4 * 2 * 16 * 1024**2 * 64 / 100e6)
        self.assertAlmostEqual(backward.us, 1.25 * forward.us)

    def test_the_kernel_takes_as_long_as_shared_memory_and_the_softmax(self):
        case = kernel_cases.Attention("h100", "forward", 1, 132, 1024, 128, "full", 100.0, "whose", "yes")
        for_score = 0.1875 * 128 + 0.21 * 128  # bytes for each column; clocks, of 128 bytes each: docs/TIMES.md
        us = for_score * 132 * 1024**2 / 30900e9 * 1e6
        self.assertAlmostEqual(kernel_cases.Predictor(PROGRAM).microseconds("h100", [case])[0] / us, 1, places=2)

    def test_both_passes_are_added_where_both_were_measured(self):
        cells = [("forward", 1024, 100.0), ("backward", 1024, 50.0), ("forward", 2048, 100.0)]
        cases = [kernel_cases.Attention("h100", p, 2, 16, t, 64, "full", r, "whose", "yes") for p, t, r in cells]
        predictor = mock.Mock(microseconds=lambda _, some: [2 * case.us for case in some])
        self.assertEqual(published_kernels.both_passes(predictor, "h100", cases), [1.0])


class Fit(unittest.TestCase):
    def test_machine_files_have_what_fits(self):
        """Where a figure hardly matters, as split_us does where few products are cut, it is found by chance: what counts is
        that no other figures are nearer to the products."""
        predictor = kernel_cases.Predictor(PROGRAM)
        for name, precisions in (("h200", ("fp32", "tf32", "bf16", "fp8")), ("b200", ("tf32", "bf16", "fp8"))):
            for precision in precisions:
                own = product_fit.own_products(name, precision)
                cases = own or [c for c in kernel_cases.read_cases("product") if (c.machine, c.group) == (name, precision)]
                cases = [c for c in cases if own or c.times == 1]
                search = product_fit.Search(predictor, name, precision, cases, product_fit.IN_A_ROW)
                kept = search.loss([math.log(search.tiles[key]) for key in search.keys])
                found = product_fit.figures_of(predictor, name, precision)
                best = search.loss([math.log(found.get(key, search.tiles[key])) for key in search.keys])
                self.assertLess(kept - best, 5e-6, msg=f"{name} {precision} {found}")

    def test_an_h100_writes_a_tile_as_fast_as_an_h200(self):
        h100, h200 = map(kernel_cases.machine_file, ("h100", "h200"))
        for precision, entry in h100["precisions"].items():
            for key, value in product_fit.figures_of(None, "h100", precision).items():
                self.assertEqual(entry["tiles"][key], value, msg=f"{precision} {key}")
            writes = [m["precisions"][precision]["tiles"]["store"] / m["memory"]["gb_per_s"] for m in (h100, h200)]
            self.assertAlmostEqual(writes[0] / writes[1], 1, places=2)

    def test_what_no_product_in_fp8_tells_is_that_of_bf16(self):
        tiles = {p: entry["tiles"] for p, entry in kernel_cases.machine_file("h200")["precisions"].items()}
        for key in ("start_us", "load", "split_us"):
            self.assertEqual(tiles["fp8"][key], tiles["bf16"][key])

    def test_nothing_is_fitted_to_nothing(self):
        for name, precision in (("b200", "fp32"), ("a100", "bf16")):
            with self.assertRaises(SystemExit):
                product_fit.figures_of(kernel_cases.Predictor(PROGRAM), name, precision)

    def test_it_hardly_matters_where_a_fit_begins(self):
        predictor, machine = kernel_cases.Predictor(PROGRAM), kernel_cases.machine_file("h200")
        machine["precisions"]["bf16"]["tiles"].update(start_us=2, peak=0.7, load=20, store=1, split_us=1)
        with mock.patch.object(product_fit, "machine_file", return_value=machine):
            found = product_fit.figures_of(predictor, "h200", "bf16")
        cases, kept = product_fit.own_products("h200", "bf16"), kernel_cases.machine_file("h200")
        machine["precisions"]["bf16"]["tiles"].update(found)
        times = zip(predictor.microseconds(machine, cases), predictor.microseconds(kept, cases))
        for case, (us, kept_us) in zip(cases, times):
            self.assertAlmostEqual(us / kept_us, 1, delta=0.05, msg=case.line)

    def test_products_that_were_not_fitted_are_near(self):
        predictor = kernel_cases.Predictor(PROGRAM)
        single = kernel_cases.read_cases("product")

        def size(machine, cases):
            return statistics.mean(map(abs, predictor.errors(machine, cases)))

        for name, most in (("h100", 0.07), ("b200", 0.05)):
            cases = [c for c in single if (c.machine, c.group) == (name, "bf16") and c.times > 1]
            self.assertEqual(len(cases), 250)
            self.assertLess(size(name, cases), most)
        self.assertLess(size("b200", [c for c in single if c.group == "fp8-e5m2"]), 0.07)
        for precision, most in (("bf16", 0.09), ("fp8", 0.06)):
            others, machine = product_fit.other_half(predictor, "h200", precision)
            self.assertLess(size(machine, others), most)


PROFILE = """\
# ppkit profile 1
kernel\tgemm_nt 1024x2048x512 bf16\t-\t1\t20\t{nt}
kernel\tgemm_nt 1024x2048x512 bf16\tshare 1/2\t1\t20\t1
kernel\tgemm_nt 1024x2048x512 bf16\t-\t2\t20\t1
kernel\tgemm_tn 1024x2048x512 times3 writes bf16 wide\t-\t1\t20\t{tn}
kernel\tgemm_nn 64x64x64\t-\t1\t20\t{nn}
kernel\tgap\t-\t1\t20\t5
task\tF 2l\t-\t1\t20\t1\t1\t1\t1
end
"""


class Profile(unittest.TestCase):
    def test_all_profiles_of_the_source_are_read(self):
        for path in sorted((ROOT / "profiles").glob("*.tsv")):
            found = profile_text.read(path)
            lines = path.read_text(encoding="utf-8").splitlines()
            for word, kind in profile_text.KINDS.items():
                count = sum(line.startswith(word + "\t") for line in lines)
                self.assertEqual(len(profile_text.of_kind(found, kind)), count, (path, word))

    def test_lines_have_names(self):
        text = f"{profile_text.VERSION}\n\n# a remark\nrun\tcuda\ta GPU\t16\t1\t2\twhen\t0.1\tok\t900\tw\n"
        text += "link\tmpi\tlatency_ns\t1.5\ntask\tF 2l\tgpipe\t1\t20\t5\t6\t7\t8\nend\n"
        run, link, task = profile_text.rows(text, "x")
        self.assertEqual((run.description, run.processes, run.status, run.reference_ns), ("a GPU", "2", "ok", "900"))
        self.assertEqual(link, profile_text.Link("mpi", "latency_ns", "1.5"))
        self.assertEqual((task.context, task.mean_ns, task.median_ns, task.p95_ns), ("gpipe", "5", "6", "8"))

    def test_what_is_no_profile_of_this_version_is_refused(self):
        for text, said in (
            ("", "x: its first line is not"),
            ("# ppkit profile 2\nend\n", "x: its first line is not"),
            ("kernel\tgap\t-\t1\t20\t5\n", "x: its first line is not"),
            ("# ppkit profile 1\nkernel\tgap\t-\t1\t20\n", "x:2: is no line"),
            ("# ppkit profile 1\n\nkernels\tgap\t-\t1\t20\t5\n", "x:3: is no line"),
        ):
            with self.assertRaises(profile_text.NoProfile) as caught:
                profile_text.rows(text, "x")
            self.assertIn(said, str(caught.exception))

    def test_products_alone_are_held_against_the_machine_file(self):
        predictor = kernel_cases.Predictor(PROGRAM)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "h100-x.tsv"
            path.write_text(PROFILE.format(nt=1, tn=1, nn=1))
            cases = kernel_cases.measured_products([path, path])
            lines = ["product bf16 1 1024 2048 512", "product bf16 3 1024 2048 512 wide", "product fp32 1 64 64 64"]
            self.assertEqual([case.line for case in cases], lines)
            nt, tn, nn = (1000 * us for us in predictor.microseconds("h100", cases))
            path.write_text(PROFILE.format(nt=nt, tn=2 * tn, nn=nn / 2))
            found = published_kernels.measured_table(predictor, "h100", kernel_cases.measured_products([path]))
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in found[2:]]
        self.assertEqual([row[:5] for row in rows][0], ["bf16", "gemm_nt", "all", "1", "+0"])
        self.assertEqual([row[4] for row in rows], ["+0", "-50", "+100"])

    def test_gradients_of_weights_are_added_to_unless_the_name_says_that_they_are_written(self):
        lines = [f"kernel\tgemm_tn 4096x4096x128{word} bf16 wide\t-\t1\t20\t1\n" for word in ("", " writes")]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "h100-x.tsv"
            path.write_text(f"{profile_text.VERSION}\n" + "".join(lines))
            with self.assertRaises(profile_text.NoProfile):  # it was cut short
                kernel_cases.measured_products([path])
            path.write_text(f"{profile_text.VERSION}\n" + "".join(lines) + "end\n")
            cases = kernel_cases.measured_products([path])
        self.assertEqual([case.line.endswith(" wide adds") for case in cases], [True, False])
        added, written = kernel_cases.Predictor(PROGRAM).microseconds("h100", cases)
        self.assertGreater(added, 1.5 * written)

    def test_what_fits_a_profile_is_found(self):
        predictor, true = kernel_cases.Predictor(PROGRAM), kernel_cases.machine_file("h100")
        true["precisions"]["bf16"]["tiles"].update(start_us=7.0, load=30.0, store=0.4, peak=0.9)
        shapes = [(m, n, k) for m in (256, 2048) for n in (512, 3072) for k in (512, 1024, 2048, 4096)]
        cases = [kernel_cases.Measured("gemm_nt", shape, ["bf16"], 1) for shape in shapes]
        for case, us in zip(cases, predictor.microseconds(true, cases)):
            case.us = us
        _, _, line = product_fit.measured_fits(predictor, "h100", cases)
        found = json.loads(line.split(":", 1)[1])
        self.assertAlmostEqual(found["start_us"], 7.0, delta=0.7)
        true["precisions"]["bf16"]["tiles"].update(found)
        for case, us in zip(cases, predictor.microseconds(true, cases)):
            self.assertAlmostEqual(us / case.us, 1, delta=0.05, msg=case.line)
        self.assertEqual(product_fit.measured_fits(predictor, "h100", cases[:14]), [])

    def test_the_report_of_a_gpu_has_its_products(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "profiles").mkdir()
            (pathlib.Path(folder) / "profiles" / "h100-x.tsv").write_text(PROFILE.format(nt=1, tn=1, nn=1))
            args = mock.Mock(machine="h100", kernel_times=PROGRAM)
            lines, missing = gpu_report.products_section(args, pathlib.Path(folder), None)
            args.kernel_times = None
            self.assertEqual(gpu_report.products_section(args, pathlib.Path(folder), None), ([], []))
        self.assertEqual((lines[0], missing), ("## Products beside the data sheet", []))
        rows = [[cell.strip() for cell in line.split("|")] for line in lines if line.startswith("| bf16")]
        self.assertEqual([row[1:4] for row in rows], [["bf16", name, "all"] for name in ("gemm_nt", "gemm_tn")])

    def test_products_in_fp8_are_told_by_their_name(self):
        name = "gemm_fp8 1024x2048x512 times2 e5m2 writes bf16 wide"
        case = kernel_cases.Measured.of(profile_text.Kernel(name, "-", "1", "20", "5000"))
        self.assertEqual((case.name, case.precision, case.line), ("gemm_fp8", "fp8", "product fp8 2 1024 2048 512 wide"))
        predictor = kernel_cases.Predictor(PROGRAM)
        case.us = predictor.microseconds("h100", [case])[0]
        row = published_kernels.measured_table(predictor, "h100", [case])[2]
        self.assertEqual([cell.strip() for cell in row.split("|")[1:6]], ["fp8", "gemm_fp8", "all", "1", "+0"])

    def test_wide_results_take_longer_to_write(self):
        cases = [kernel_cases.Measured("gemm_tn", (4096, 4096, 256), words, 1) for words in (["bf16"], ["bf16", "wide"])]
        plain, wide = kernel_cases.Predictor(PROGRAM).microseconds("h100", cases)
        self.assertGreater(wide, 1.1 * plain)


class Page(unittest.TestCase):
    def test_is_what_the_program_says(self):
        path = ROOT / "docs" / "results" / "kernels.md"
        kept, made = path.read_text(encoding="utf-8"), published_kernels.page(PROGRAM)
        lines = difflib.unified_diff(kept.splitlines(), made.splitlines(), str(path), "today", lineterm="", n=0)
        self.assertTrue(kept == made, "run analysis/published_kernels.py and read what it changes:\n" + "\n".join(lines))


class Documents(unittest.TestCase):
    def test_say_what_the_page_says(self):
        page = (ROOT / "docs" / "results" / "kernels.md").read_text(encoding="utf-8")
        rows = [[cell.strip() for cell in line.split("|")] for line in page.splitlines() if line.startswith("|")]
        own = {row[2]: int(row[5]) for row in rows if row[1] == "bf16"}
        single = [int(row[6]) for row in rows if row[2] == "bf16" and row[3].split(",")[0] in ("one", "two or four at once")]
        trainings = (ROOT / "docs" / "results" / "published.md").read_text(encoding="utf-8")
        self.assertIn(f"in bf16 on an H200, are off by {own['of 10 GFLOP and more']} % on average", trainings)
        readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
        self.assertIn(f"within {own['all, fitted']} % on average of what an H200 takes in a row", readme)
        self.assertIn(f"within {max(single)} % of published times of single ones of an H100 and a B200", readme)


if __name__ == "__main__":
    unittest.main()
