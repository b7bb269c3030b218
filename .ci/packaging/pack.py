"""Writes archives whose bytes depend on nothing but names, modes and contents of the files in a folder.

pack.py tar OUT.tar.{gz,xz} FOLDER [PREFIX]   zip OUT FOLDER   deb OUT CONTROL ROOT   oci OUT VERSION ARCH=FOLDER…   sums FOLDER
Entries are sorted, belong to root, and have the time SOURCE_DATE_EPOCH.
"""

import gzip
import hashlib
import io
import json
import lzma
import os
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import manifests

EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
OCI = "application/vnd.oci.image."


def files(folder):
    """Everything under a folder as (name, path), parents first."""
    return [(path.relative_to(folder).as_posix(), path) for path in sorted(Path(folder).rglob("*"))]


def mode(path):
    return 0o755 if path.is_dir() else path.stat().st_mode & 0o777


def tar(entries, prefix=""):
    """A tar of (name, path or bytes), with `prefix` before each name."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, content in entries:
            info = tarfile.TarInfo(prefix + name)
            info.mtime = EPOCH
            if isinstance(content, bytes):
                data = content
            else:
                info.mode = mode(content)
                data = b"" if content.is_dir() else content.read_bytes()
                info.type = tarfile.DIRTYPE if content.is_dir() else tarfile.REGTYPE
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def squeeze(data, name=".gz"):
    if name.endswith(".xz"):
        return lzma.compress(data, preset=6)
    return gzip.compress(data, 9, mtime=0)


def write_tar(out, folder, prefix=""):
    Path(out).write_bytes(squeeze(tar(files(folder), prefix and prefix + "/"), out))


def write_zip(out, folder):
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, path in files(folder):
            if path.is_dir():
                continue
            info = zipfile.ZipInfo(name, time.gmtime(EPOCH)[:6])
            info.create_system = 3  # Unix: the mode below counts
            info.external_attr = (0o100000 | mode(path)) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, path.read_bytes())


def write_deb(out, control, root):
    """deb(5): an ar archive of the format's version, the control files and the data."""
    entries = files(root)
    sums = "".join(
        f"{hashlib.md5(path.read_bytes()).hexdigest()}  {name}\n" for name, path in entries
        if path.is_file() and not name.startswith("etc/")
    )
    about = sorted(files(control) + [("md5sums", sums.encode())], key=lambda entry: entry[0])
    members = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.xz", squeeze(tar([(".", Path(control))] + about, ""), ".xz")),
        ("data.tar.xz", squeeze(tar([(".", Path(root))] + [("./" + name, path) for name, path in entries]), ".xz")),
    ]
    with open(out, "wb") as archive:
        archive.write(b"!<arch>\n")
        for name, data in members:
            archive.write(f"{name:<16}{EPOCH:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode())
            archive.write(data + b"\n" * (len(data) % 2))


def write_oci(out, version, *images):
    """An OCI image layout as a tar: an index of one image an architecture, each of one layer."""
    blobs = {}

    def blob(data, kind, **more):
        if not isinstance(data, bytes):
            data = json.dumps(data, sort_keys=True).encode()
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": OCI + kind, "digest": "sha256:" + digest, "size": len(data), **more}

    labels = {"org.opencontainers.image.title": "fabric-mcp", "org.opencontainers.image.version": version,
              "org.opencontainers.image.licenses": "MIT"}
    if manifests.URL:
        labels["org.opencontainers.image.url"] = manifests.URL
        labels["io.modelcontextprotocol.server.name"] = manifests.server_name()
    described = []
    for image in images:
        architecture, folder = image.split("=", 1)
        layer = tar(files(folder))
        created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH))
        config = blob({
            "architecture": architecture, "os": "linux", "created": created,
            "config": {
                # Nobody's number in most distributions is 65534; this one belongs to no user anywhere.
                "User": "65532:65532",
                "Entrypoint": ["/fabric-mcp"],
                "Env": ["FABRIC_MCP_TRANSPORT=http", "FABRIC_MCP_HOST=0.0.0.0"],
                "ExposedPorts": {"8000/tcp": {}},
                # Docker's own, which OCI and podman have not: every 30 s, for at most 5 s.
                "Healthcheck": {"Test": ["CMD", "/fabric-mcp", "--healthcheck"], "Interval": 30 * 10**9, "Timeout": 5 * 10**9},
                "StopSignal": "SIGTERM",
                "WorkingDir": "/",
                "Labels": labels,
            },
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
            "history": [{"created": created, "created_by": ".ci/release"}],
        }, "config.v1+json")
        described.append(blob({
            "schemaVersion": 2, "mediaType": OCI + "manifest.v1+json", "config": config,
            "layers": [blob(squeeze(layer), "layer.v1.tar+gzip")], "annotations": labels,
        }, "manifest.v1+json", platform={"architecture": architecture, "os": "linux"}))
    index = {"schemaVersion": 2, "mediaType": OCI + "index.v1+json"}
    # What podman and Docker call it when they load it.
    name = f"fabric-mcp:{version}"
    both = blob({**index, "manifests": described, "annotations": labels}, "index.v1+json", annotations={
        "org.opencontainers.image.ref.name": name, "io.containerd.image.name": f"docker.io/library/{name}"})
    entries = [(f"blobs/sha256/{digest}", data) for digest, data in sorted(blobs.items())]
    entries.append(("index.json", json.dumps({**index, "manifests": [both]}, sort_keys=True).encode()))
    entries.append(("oci-layout", b'{"imageLayoutVersion": "1.0.0"}'))
    Path(out).write_bytes(tar(entries))


def write_sums(folder):
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n" for name, path in files(folder)
        if path.is_file() and name != "SHA256SUMS"
    ]
    (Path(folder) / "SHA256SUMS").write_text("".join(lines))


if __name__ == "__main__":
    {"tar": write_tar, "zip": write_zip, "deb": write_deb, "oci": write_oci, "sums": write_sums}[sys.argv[1]](*sys.argv[2:])
