//! The architecture as a test: dependencies between modules point one way, foreign crates are named in one place, and
//! `unsafe` is confined to a few files.
//!
//! Reads `src/**/*.rs` as text, without comments and tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Every module, from the top: a module may use only those in the lines below its own.
const LAYERS: &[&str] = &[
    "main",
    "commands generate",
    "demo",
    "transport",
    "server",
    "tools",
    "protocol",
    "fabric",
    "cli",
    "metrics",
    "runs http search",
    "access",
    "account clients logging",
    "os",
    "agent",
    "encoding time sync text",
    "config",
    "url error",
    "table",
];

/// Forbidden uses of lower modules. The protocol does no I/O; methods and tools know no transport; `src/http` is a
/// server, not Fabric's client; Fabric, the built-in one too, knows no MCP.
const FORBIDDEN: &[(&str, &str)] = &[
    ("protocol", "fabric"),
    ("protocol", "http"),
    ("protocol", "logging"),
    ("server", "http"),
    ("tools", "http"),
    ("fabric", "http"),
    ("fabric", "protocol"),
    ("demo", "transport"),
];

/// What only these files or folders may name: crates, exceptions from the lint `unsafe_code`, and the time of day.
/// Limits are measured with `Instant`, as the wall clock may jump.
const OWNED: &[(&str, &str)] = &[
    ("tiny_http::", "src/http"),
    (
        "ureq::",
        "src/agent src/transport/connect src/fabric/client src/access/oauth",
    ),
    ("simple_logger::", "src/logging"),
    ("lexopt::", "src/cli"),
    ("(unsafe_code", "src/os src/http/server"),
    ("SystemTime", "src/time"),
];

/// A source file without its tests and comment lines.
struct Source {
    /// Relative to the package's root.
    path: String,
    code: String,
}

/// Every file of `src` except those only for tests. A text scan: it relies on unit tests at the end of their file, and
/// on strings that name no modules or crates.
fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    collect(&root.join("src"), &mut files);
    let mut tests_only = Vec::new();
    let mut sources = Vec::new();
    for file in files {
        let path = file.strip_prefix(root);
        let path = path.unwrap().to_string_lossy().replace('\\', "/");
        let text = fs::read_to_string(&file).unwrap();
        let folder = path.trim_end_matches("mod.rs");
        let folder = folder.trim_end_matches("main.rs").trim_end_matches(".rs");
        let declarations = text.replace("\npub(crate) mod ", "\nmod ");
        for declared in declarations.split("#[cfg(test)]\nmod ").skip(1) {
            let name = declared.split([';', ' ']).next().unwrap();
            tests_only.push(format!("{}/{name}", folder.trim_end_matches('/')));
        }
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let is_code = |line: &&str| !line.trim_start().starts_with("//");
        let code = Vec::from_iter(code.lines().filter(is_code)).join("\n");
        sources.push(Source { path, code });
    }
    sources.retain(|Source { path, .. }| {
        let rests = tests_only.iter().map(|module| path.strip_prefix(module));
        !rests.flatten().any(|rest| rest.starts_with(['.', '/']))
    });
    sources
}

/// Adds every source file of `folder`.
pub(crate) fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The top-level module of a file.
fn module(path: &str) -> &str {
    let name = path.split('/').nth(1).unwrap_or(path);
    name.trim_end_matches(".rs")
}

/// The top-level modules that code names after `crate::`, including `use crate::{a, b::c}`.
fn named(code: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        let list = rest
            .strip_prefix('{')
            .and_then(|list| list.split("};").next())
            .unwrap_or(rest);
        let items = if rest.starts_with('{') {
            list.split(',').collect()
        } else {
            vec![list]
        };
        found.extend(items.iter().filter_map(|item| {
            item.trim()
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
        }));
    }
    found
}

#[test]
fn arrows_point_one_way() {
    let layer = |module: &str| {
        let is_in = |line: &&str| line.split(' ').any(|name| name == module);
        LAYERS.iter().position(is_in)
    };
    for Source { path, code } in sources() {
        let from = module(&path);
        let Some(own) = layer(from) else {
            panic!(
                "{path}: module `{from}` has no place among LAYERS of {}",
                file!()
            );
        };
        for to in named(&code) {
            let is_below = layer(to).is_none_or(|other| other > own || to == from);
            let is_so = is_below && !FORBIDDEN.contains(&(from, to));
            assert!(is_so, "{path}: `{from}` must not use `{to}`");
        }
    }
}

#[test]
fn what_has_an_owner_is_named_nowhere_else() {
    for Source { path, code } in sources() {
        for (text, owners) in OWNED {
            let is_owner = owners.split(' ').any(|owner| {
                path.strip_suffix(".rs") == Some(owner) || path.starts_with(&format!("{owner}/"))
            });
            let is_so = is_owner || !code.contains(text);
            assert!(is_so, "{path} names {text}, which belongs to {owners}");
        }
    }
}

#[test]
fn the_scan_sees_code_and_nothing_else() {
    let code = "use crate::{b, c::D,\n f};\nfn y() { crate::j::k(); }\n pub(crate) fn x() {}\nuse crate::o;";
    let found = named(code).into_iter().collect::<Vec<_>>();
    assert_eq!(found, ["b", "c", "f", "j", "o"]);
    let sources = sources();
    let has = |path: &str| sources.iter().any(|source| source.path == path);
    assert!(has("src/main.rs") && has("src/tools/mod.rs") && !has("src/fabric/fixture.rs"));
    let is_main = |source: &&Source| source.path == "src/main.rs";
    let main = sources.iter().find(is_main).unwrap();
    assert!(main.code.contains("mod cli;") && !main.code.contains("//!"));
}
