#!/usr/bin/env python3
"""Time kernel configurations on a GPU and say which is the fastest for each shape.

usage: sweep.py MXFA SUITE NAME=VALUE,VALUE... [NAME=...] [--repeats N] [--rest-ms MS] [--json FILE]

MXFA is the program; SUITE a folder of shape files or one file; the names are fields of configs/kernels.
Every combination of the values is timed by `mxfa bench` as overrides of every shape, beside the shipped
choice; combinations that do not compile or are refused are left out and named.  A difference below the
spread of the repeats is none.  Winners go by hand into configs/kernels, with the shape class they won.
"""
import argparse
import itertools
import json
import pathlib
import subprocess
import tempfile


def bench(program, files, options):
    """{shape: (fraction of the yardstick, spread)} of the rows that pass their check; names of the others."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        run = subprocess.run(
            [program, "bench", *map(str, files), "--device", "gpu", "--quiet", "--json", out.name,
             "--repeats", str(options.repeats), "--rest-ms", str(options.rest_ms)],
            capture_output=True, text=True)
        try:
            rows = json.loads(pathlib.Path(out.name).read_text())["rows"]
        except json.JSONDecodeError:  # a configuration that does not compile ends the run
            errors = [line for line in run.stderr.splitlines() if "error" in line]
            return {}, errors[:1] or [run.stderr.strip()]
    good = {}
    for row in rows:
        if row["verdict"] == "pass":
            f = row["fraction"]
            good[row["shape"]] = (f["median"], (f["q3"] - f["q1"]) / f["median"])
    return good, [r["shape"] for r in rows if r["verdict"] != "pass"]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("suite", type=pathlib.Path)
    parser.add_argument("fields", nargs="+", metavar="NAME=VALUE,VALUE...")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--rest-ms", type=float, default=15)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    files = sorted(options.suite.glob("*.json")) if options.suite.is_dir() else [options.suite]
    names, values = [], []
    for field in options.fields:
        name, _, listed = field.partition("=")
        names.append(name)
        values.append([int(v) for v in listed.split(",")])
    results = {}  # shape: {configuration: (fraction, spread)}
    for configuration in [None, *itertools.product(*values)]:
        overrides = None if configuration is None else dict(zip(names, configuration))
        label = "shipped" if overrides is None else " ".join(f"{n}={v}" for n, v in overrides.items())
        with tempfile.TemporaryDirectory() as folder:
            shapes = []
            for file in files:
                shape = json.loads(file.read_text())
                if overrides:
                    shape["kernel"] = {**shape.get("kernel", {}), **overrides}
                shapes.append(pathlib.Path(folder) / file.name)
                shapes[-1].write_text(json.dumps(shape))
            good, bad = bench(options.program, shapes, options)
        for shape, figures in good.items():
            results.setdefault(shape, {})[label] = figures
        print(f"{label}: {len(good)} timed" + (f", left out: {', '.join(bad)}" if bad else ""), flush=True)
    for shape, found in results.items():
        print(shape)
        for label, (fraction, spread) in sorted(found.items(), key=lambda item: -item[1][0]):
            print(f"  {fraction:.3f} of the yardstick, spread {100 * spread:.1f} %  {label}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
