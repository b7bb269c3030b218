"""Programs for macOS, looked at as far as another system can.

macho.py check FILE…           dies unless each is what Apple's loader wants: see `check`
macho.py universal OUT FILE…   one program for several processors
"""

import hashlib
import struct
import sys
from pathlib import Path

# loader.h, fat.h and cs_blobs.h of Apple's open sources.
MAGIC, EXECUTE, PIE = 0xFEEDFACF, 2, 0x200000
ARM64, X86_64 = 0x0100000C, 0x01000007
LIBRARY, SIGNATURE, BUILD_VERSION, MACOS = 0xC, 0x1D, 0x32, 1
FAT_MAGIC, FAT_ALIGN = 0xCAFEBABE, 14
SUPER_BLOB, CODE_DIRECTORY, ADHOC, SHA256 = 0xFADE0CC0, 0xFADE0C02, 0x2, 2
# 11.0, as .ci/release asks for.
OLDEST = 11 << 16
LIBRARIES = {"/usr/lib/libSystem.B.dylib"}


def check(*files):
    """A position-independent program for macOS 11, which needs the system's C library only and, as arm64 runs no other,
    has a signature (ad hoc, that is of nobody) that fits each of its pages. For x86_64 zig signs none."""
    for file in files:
        data = Path(file).read_bytes()
        try:
            look(data)
        except (AssertionError, struct.error, IndexError) as error:
            sys.exit(f"macho.py: {file}: {error}")


def look(data):
    magic, processor, _, kind, commands, _, flags, _ = struct.unpack_from("<8I", data)
    assert (magic, kind) == (MAGIC, EXECUTE) and processor in (ARM64, X86_64), "no program for macOS"
    assert flags & PIE, "not position-independent"
    at, libraries, oldest, signature = 32, set(), None, None
    for _ in range(commands):
        command, size, *values = struct.unpack_from("<4I", data, at)
        if command == LIBRARY:
            libraries.add(data[at + values[0]:at + size].rstrip(b"\0").decode())
        elif command == BUILD_VERSION and values[0] == MACOS:
            oldest = values[1]
        elif command == SIGNATURE:
            signature = values
        at += size
    assert oldest == OLDEST, f"needs macOS {oldest}, not {OLDEST}"
    assert libraries <= LIBRARIES, f"needs {libraries - LIBRARIES}"
    if signature or processor == ARM64:
        assert signature, "not signed"
        look_at_signature(data, *signature)


def look_at_signature(data, start, size):
    blob = data[start:start + size]
    magic, _, count = struct.unpack_from(">3I", blob)
    slots = dict(struct.unpack_from(">2I", blob, 12 + 8 * slot) for slot in range(count))
    assert magic == SUPER_BLOB and 0 in slots, "its signature cannot be read"
    directory = blob[slots[0]:]
    magic, _, _, flags, hashes, _, _, pages, limit = struct.unpack_from(">9I", directory)
    length, kind, _, bits = struct.unpack_from(">4B", directory, 36)
    assert (magic, kind) == (CODE_DIRECTORY, SHA256) and flags & ADHOC, "not signed ad hoc by SHA-256"
    assert limit == start, "not all of it is signed"
    for page in range(pages):
        digest = hashlib.sha256(data[page << bits:min((page + 1) << bits, limit)]).digest()
        assert digest == directory[hashes + page * length:][:length], f"page {page} is not what was signed"


def universal(out, *files):
    """fat.h: a table of the programs, and each of them from a page on."""
    contents = [Path(file).read_bytes() for file in files]
    table = struct.pack(">2I", FAT_MAGIC, len(contents))
    at, body = 0, b""
    for data in contents:
        at = 1 << FAT_ALIGN if not body else at
        processor, variant = struct.unpack_from("<2I", data, 4)
        table += struct.pack(">5I", processor, variant, at, len(data), FAT_ALIGN)
        padded = data + b"\0" * (-len(data) % (1 << FAT_ALIGN))
        body += padded
        at += len(padded)
    Path(out).write_bytes(table.ljust(1 << FAT_ALIGN, b"\0") + body)


if __name__ == "__main__":
    {"check": check, "universal": universal}[sys.argv[1]](*sys.argv[2:])
