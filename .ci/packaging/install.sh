#!/bin/sh
# Installs fabric-mcp @VERSION@ for Linux or macOS, on x86_64 or aarch64:
#   curl -fsSL @URL@/install.sh | sh
#
#   INSTALL_DIR  the folder of the program; $HOME/.local/bin if it is not set
#   INSTALL_URL  where the files of the release are, if not at @URL@
#
# The archive is checked against SHA256SUMS before the program is written beside the old one, which it then replaces.
set -eu

die() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}

fetch() {
    if command -v curl >/dev/null; then
        curl -fsSL --retry 2 -o "$2" "$url/$1"
    else
        wget -qO "$2" "$url/$1"
    fi || die "$url/$1 cannot be fetched; check that this machine can reach it and ${TMPDIR:-/tmp} has space, and try again"
}

sha256() {
    if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d ' ' -f 1
}

# All of it is a function, so that half a script does nothing.
main() {
    url=${INSTALL_URL:-@URL@}
    folder=${INSTALL_DIR:-$HOME/.local/bin}
    case $(uname -s) in
    Linux) system=linux ;;
    Darwin) system=darwin ;;
    *) die "there is no program for $(uname -s); build it from the sources" ;;
    esac
    case $(uname -m) in
    x86_64 | amd64) processor=x86_64 ;;
    aarch64 | arm64) processor=aarch64 ;;
    *) die "there is no program for $(uname -m); build it from the sources" ;;
    esac
    name=fabric-mcp-@VERSION@-$processor-$system
    work=$(mktemp -d) || die "no temporary folder can be made; set TMPDIR to a folder with 20 MB of space"
    new=$folder/.fabric-mcp.$$
    trap 'rm -rf "$work" "$new"' EXIT
    trap 'exit 1' HUP INT TERM
    fetch SHA256SUMS "$work/sums"
    fetch "$name.tar.gz" "$work/archive"
    wanted=$(sed -n "s/^\([0-9a-f]\{64\}\)  $name\.tar\.gz\$/\1/p" "$work/sums")
    found=$(sha256 "$work/archive")
    [ -n "$wanted" ] && [ "$found" = "$wanted" ] ||
        die "$name.tar.gz is not what SHA256SUMS says ($found, not ${wanted:-there}): nothing was installed; try again"
    tar -xzf "$work/archive" -C "$work" || die "the archive cannot be unpacked in $work; make space there, or set TMPDIR"
    mkdir -p "$folder" || die "$folder cannot be made; set INSTALL_DIR to a folder of yours"
    { cp "$work/$name/fabric-mcp" "$new" && chmod 755 "$new" && mv "$new" "$folder/fabric-mcp"; } ||
        die "$folder/fabric-mcp cannot be written and is as it was; make space, or set INSTALL_DIR to a folder of yours"
    printf 'fabric-mcp @VERSION@ is in %s\n' "$folder"
    case :$PATH: in
    *:$folder:*) ;;
    *) printf 'add it to your PATH: export PATH="%s:$PATH"\n' "$folder" ;;
    esac
    printf 'next: fabric-mcp --demo --check\n'
}

main
