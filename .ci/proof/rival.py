#!/usr/bin/env python3
"""This program beside a rival, in alternating rounds on one machine: medians as a table, and a picture of them.

    .ci/proof/rival.py OURS RIVAL [--rounds 5] [--picture .github/benchmarks.svg]

OURS is a release of fabric-mcp, or up to three with commas between them, such as the dynamic and the static one; they
are called after their files. RIVAL is any bridge to Fabric that speaks MCP over stdio when it is started without
arguments, and Streamable HTTP on /mcp when it is started with a port; it reads FABRIC_BASE_URL as we do, and has the
tools fabric_list_patterns and fabric_run_pattern. The measuring is done by `cargo bench`, which is built first. Needs
cargo and a quiet machine; it takes some four minutes a round.
"""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Starts the rival over HTTP as the bench starts us, and says where it listens once it does.
WRAPPER = """#!/usr/bin/env python3
import os, socket, sys, time
program = {program!r}
if "--transport" not in sys.argv:
    os.execv(program, [program])
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
if os.fork():
    os.execv(program, [program, str(port)])
while socket.socket().connect_ex(("127.0.0.1", port)):
    time.sleep(0.01)
print(f"listening on 127.0.0.1:{{port}}", file=sys.stderr)
"""
# By their names: those over stdio, and those that need a server over HTTP too ("relay" and "http" stand for all sections
# that have it in their names).
STDIO, HTTP = ["start", "stdio", "patterns"], ["relay", "http", "streams"]
P50, P99, RATE, MEMORY = range(4)
# What is shown: title, row of the bench, its column, unit, and what a unit of the bench is in it.
SHOWN = [
    ("Start to answered initialize", "start to answered initialize", P50, "ms", 1e-3),
    ("tools/list over stdio, 64 at once", "stdio tools/list, 64 at once", RATE, "/s", 1),
    ("fabric_list_patterns over stdio, one at a time", "stdio fabric_list_patterns, one at a time", P50, "µs", 1),
    ("fabric_list_patterns over stdio, 32 at once", "stdio fabric_list_patterns, 32 at once", RATE, "/s", 1),
    ("tools/list over HTTP, 1 connection", "http tools/list, 1 connections", RATE, "/s", 1),
    ("tools/list over HTTP, 64 connections", "http tools/list, 64 connections", RATE, "/s", 1),
    ("A flood of 100,000 chunks over stdio", "relay: flood of 100,000 chunks", P50, "s", 1e-6),
    ("Delay of a chunk, p99 of 100 streams", "http relay: 100 streams", P99, "ms", 1e-3),
    ("Delay of a chunk, p99 of 500 streams", "http relay: 500 streams", P99, "ms", 1e-3),
    ("Memory with tools/list over 256 connections", "http tools/list, 256 connections", MEMORY, "MB", 1),
    ("Memory with 500 streams", "http relay: 500 streams", MEMORY, "MB", 1),
]


def measured(bench, program, server):
    """The rows of the bench for one program: name of the row -> its four figures."""
    rows = {}
    # Each section by itself, as what a program cannot do ends only that one.
    for section in STDIO + HTTP:
        binary = server if section in HTTP else program
        ran = subprocess.run([bench, section], env={**os.environ, "FABRIC_MCP_BINARY": str(binary)},
                             capture_output=True, text=True, timeout=600)
        for line in ran.stdout.splitlines()[1:]:
            cells = [line[46 + sum(WIDTHS[:at]):][:width].strip() for at, width in enumerate(WIDTHS)]
            rows.setdefault(line[:46].strip(), [float(cell) if cell else None for cell in cells])
        if ran.returncode:
            print(f"{program} {section}: {ran.stderr.strip().splitlines()[1:2]}", file=sys.stderr)
    return rows


WIDTHS = (11, 11, 10, 8)


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def picture(names, table):
    """Bars for each row, scaled to its largest: as SVG, readable on a light and on a dark page."""
    colours = ["#0a7d55", "#57a98c", "#b0552b", "#7a5bb5"]
    bar, gap, width = 14, 30, 760
    height = 50 + len(table) * (len(names) * bar + gap)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
           'role="img" aria-label="Throughput, delay and memory beside a rival" '
           'font-family="system-ui,sans-serif" font-size="12">',
           '<style>text{fill:#222}@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>']
    for at, (name, colour) in enumerate(zip(names, colours)):
        out.append(f'<rect x="{10 + 180 * at}" y="12" width="12" height="12" fill="{colour}"/>'
                   f'<text x="{28 + 180 * at}" y="22">{name}</text>')
    y = 44
    for title, unit, values in table:
        more = "more" if unit == "/s" else "less"
        out.append(f'<text x="10" y="{y + 10}" font-weight="600">{title} ({more} is better)</text>')
        y += 16
        most = max(value for value in values if value is not None)
        for value, colour in zip(values, colours):
            shown = "cannot be measured" if value is None else f"{number(value)} {unit}".replace(" /s", "/s")
            length = 0 if value is None else max(1, round(560 * value / most))
            out.append(f'<rect x="10" y="{y}" width="{length}" height="{bar - 2}" fill="{colour}"/>'
                       f'<text x="{length + 16}" y="{y + bar - 3}">{shown}</text>')
            y += bar
        y += gap - 16
    return "\n".join([*out, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ours")
    parser.add_argument("rival")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--picture")
    options = parser.parse_args()
    built = subprocess.run(["cargo", "bench", "--locked", "--no-run"], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    if built.returncode:
        sys.exit(built.stderr)
    bench = re.findall(r"Executable.*bench.*\((.*)\)", built.stderr)[-1]
    bench = bench if os.path.isabs(bench) else ROOT / bench
    ours = [pathlib.Path(program).resolve() for program in options.ours.split(",")]
    rival = pathlib.Path(options.rival).resolve()
    names = [program.name for program in [*ours, rival]]
    with tempfile.TemporaryDirectory() as folder:
        wrapper = pathlib.Path(folder, "rival")
        wrapper.write_text(WRAPPER.format(program=str(rival)))
        wrapper.chmod(0o755)
        rounds = []
        for _ in range(options.rounds):
            pairs = [(program, program) for program in ours] + [(rival, wrapper)]
            rounds.append([measured(bench, *pair) for pair in pairs])
    table = []
    for title, row, column, unit, factor in SHOWN:
        values = []
        for at in range(len(names)):
            found = [ran[at][row][column] for ran in rounds if row in ran[at]]
            values.append(statistics.median(found) * factor if found else None)
        table.append((title, unit, values))
    print("| | " + " | ".join(names) + " |\n|---" + "|---" * len(names) + "|")
    for title, unit, values in table:
        shown = ["–" if value is None else f"{number(value)} {unit}".replace(" /s", "/s") for value in values]
        print(f"| {title} | {' | '.join(shown)} |")
    if options.picture:
        pathlib.Path(options.picture).write_text(picture(names, table), encoding="utf-8")


if __name__ == "__main__":
    main()
