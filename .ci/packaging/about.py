"""What is in the programs: the crates and their licences, from Cargo's own resolution.

about.py crates              the list that the manual page shows (src/generate/crates.txt)
about.py licences TARGET…    the texts of all licences of what is linked into the programs for these targets
about.py sbom TARGET…        a CycloneDX bill of materials of the programs for these targets
"""

import html
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
import tomllib
import uuid
from pathlib import Path

RELEASED = ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl", "x86_64-unknown-linux-gnu",
            "aarch64-unknown-linux-gnu", "x86_64-pc-windows-gnu", "aarch64-apple-darwin", "x86_64-apple-darwin"]
LICENCE = re.compile(r"(licen[cs]e|copying|notice|unlicense)", re.IGNORECASE)
RULE = "=" * 100


def resolved(target):
    """(packages by id, ids of the linked ones, the edges between them): what runs only at build time is left out."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    data = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    packages = {package["id"]: package for package in data["packages"]}
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    edges, todo = {}, [data["resolve"]["root"]]
    while todo:
        package = todo.pop()
        if package in edges:
            continue
        edges[package] = sorted(
            dep["pkg"] for dep in nodes[package]["deps"]
            if any(kind["kind"] is None for kind in dep["dep_kinds"]) and not is_macro(packages[dep["pkg"]])
        )
        todo += edges[package]
    return packages, data["resolve"]["root"], edges


def is_macro(package):
    return any("proc-macro" in target["kind"] for target in package["targets"])


def linked(targets):
    """The crates in the programs for these targets, ours left out, sorted."""
    found = {}
    for target in targets:
        packages, root, edges = resolved(target)
        found.update({(packages[id]["name"], packages[id]["version"]): packages[id] for id in edges if id != root})
    return [package for _, package in sorted(found.items())]


def crates():
    for package in linked(RELEASED):
        print(package["name"], package["version"], package["license"])


def licences(*targets):
    texts = {}  # text: who has it
    for package in linked(targets):
        folder = Path(package["manifest_path"]).parent
        own = sorted(path for path in folder.iterdir() if path.is_file() and LICENCE.match(path.name))
        if not own:
            sys.exit(f"about.py: {package['name']} {package['version']} brings no text of its licence")
        for path in own:
            owner = f"{package['name']} {package['version']} ({package['license']})"
            texts.setdefault(tidy(path.read_text()), []).append(owner)
    for path, owner in sorted({found for target in targets for found in runtime(target)}):
        text = path.read_text()
        if path.suffix == ".html":
            text = html.unescape(re.sub(r"<[^>]+>", "", re.sub(r"(?s)<(head|style)>.*?</\1>", "", text)))
        texts.setdefault(tidy(text), []).append(owner)
    print("fabric-mcp itself is under the MIT licence. It contains the following, each under the licence shown below.\n")
    for owner in sorted({owner for owners in texts.values() for owner in owners}):
        print("  " + owner)
    for text, owners in texts.items():
        print(f"\n{RULE}\n" + "\n".join(sorted(set(owners))) + f"\n{RULE}\n\n{text}")


def runtime(target):
    """Texts of what the toolchains link besides: Rust's standard library, and what zig brings of the C libraries."""
    sysroot = Path(subprocess.run(["rustc", "--print", "sysroot"], check=True, capture_output=True, text=True).stdout.strip())
    rust = sysroot / "share/doc/rust"
    zig = Path(importlib.util.find_spec("ziglang").origin).parent
    yield rust / "COPYRIGHT-library.html", "Rust's standard library (MIT OR Apache-2.0)"
    yield zig / "LICENSE", "Zig's compiler_rt (MIT)"
    if "-darwin" not in target:
        yield zig / "lib/libunwind/LICENSE.TXT", "LLVM's libunwind (Apache-2.0 WITH LLVM-exception)"
    if "-linux-musl" in target:
        yield zig / "lib/libc/musl/COPYRIGHT", "musl (MIT)"
    if "-linux-gnu" in target:
        yield zig / "lib/libc/glibc/LICENSES", "the GNU C library's code for the start (LGPL-2.1-or-later)"
    if "-windows-gnu" in target:
        yield zig / "lib/libc/mingw/COPYING", "mingw-w64 (ZPL-2.1 and others)"


def tidy(text):
    return "\n".join(line.rstrip() for line in text.replace("\f", "").strip().splitlines()).strip("\n")


def sbom(*targets):
    lock = {(p["name"], p["version"]): p.get("checksum") for p in tomllib.loads(Path("Cargo.lock").read_text())["package"]}
    components, uses = {}, {}
    for target in targets:
        packages, root, edges = resolved(target)
        ref = {id: f"pkg:cargo/{packages[id]['name']}@{packages[id]['version']}" for id in edges}
        for id, deps in edges.items():
            uses.setdefault(ref[id], set()).update(ref[dep] for dep in deps)
            package = packages[id]
            component = {
                "type": "application" if id == root else "library", "bom-ref": ref[id], "name": package["name"],
                "version": package["version"], "purl": ref[id],
                "licenses": [{"expression": package["license"].replace("/", " OR ")}],
            }
            if package["repository"]:
                component["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
            if lock[package["name"], package["version"]]:
                component["hashes"] = [{"alg": "SHA-256", "content": lock[package["name"], package["version"]]}]
            components[ref[id]] = component
            main = ref[root]
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    # What the toolchains link besides, without versions of its own: the buildinfo names the toolchains.
    parts = sorted({owner for target in targets for _, owner in runtime(target)})
    for name, licence in (part.rstrip(")").split(" (") for part in parts):
        components[name] = {
            "type": "library", "bom-ref": name, "name": name, "licenses": [{"license": {"name": licence}}],
        }
        uses[main].add(name)
        uses[name] = set()
    bom = {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)),
            "component": components.pop(main),
            "properties": [{"name": "target", "value": target} for target in targets],
        },
        "components": [components[ref] for ref in sorted(components)],
        "dependencies": [{"ref": ref, "dependsOn": sorted(uses[ref])} for ref in sorted(uses)],
    }
    # A number that follows from the contents, as two runs must agree.
    bom["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(bom, sort_keys=True)).urn
    print(json.dumps(bom, indent=1, sort_keys=True))


if __name__ == "__main__":
    {"crates": crates, "licences": licences, "sbom": sbom}[sys.argv[1]](*sys.argv[2:])
