//! The architecture as a test: dependencies between modules point one way, foreign crates are named in one place, and
//! `unsafe` is confined to a few files.
//!
//! Reads `src/**/*.rs` as text, without comments and tests.

use std::collections::{BTreeSet, HashMap};
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

/// Tables whose rows may be forgotten where they are used: the file, and what stands before and after the name in a row.
const ROWS: &[(&str, &str, &str)] = &[
    ("src/error/mod.rs", "        ", " = ("),
    ("src/metrics/mod.rs", "    ", ": "),
    ("src/config/mod.rs", "    pub(crate) ", ": "),
    ("src/protocol/revision.rs", "        ", " = Revision"),
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

/// What is between two words of code.
fn no_word(c: char) -> bool {
    !c.is_alphanumeric() && c != '_'
}

/// The top-level modules that code names after `crate::`, including `use crate::{a, b::c}`.
fn named(code: &str) -> BTreeSet<&str> {
    let lists = code.split("crate::").skip(1);
    let lists = lists.map(|rest| match rest.strip_prefix('{') {
        Some(list) => list.split("};").next().unwrap(),
        None => rest.split(',').next().unwrap(),
    });
    let items = lists.flat_map(|list| list.split(','));
    let first = items.filter_map(|item| item.trim().split(no_word).next());
    first.collect()
}

#[test]
fn arrows_point_one_way() {
    let layer = |module: &str| {
        let is_in = |line: &&str| line.split(' ').any(|name| name == module);
        LAYERS.iter().position(is_in)
    };
    for Source { path, code } in sources() {
        let from = module(&path);
        let own = layer(from);
        let own = own.unwrap_or_else(|| panic!("{from} has no place in LAYERS of {}", file!()));
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
fn what_a_row_declares_is_used() {
    let sources = sources();
    let mut uses = HashMap::new();
    // The flags write every setting: they do not count.
    for Source { code, .. } in sources.iter().filter(|one| module(&one.path) != "cli") {
        let words = code.split(no_word);
        words.for_each(|word| *uses.entry(word).or_insert(0) += 1);
    }
    for (file, before, after) in ROWS {
        let found = sources.iter().find(|one| one.path == *file).unwrap();
        let rows = found.code.lines();
        let rows = rows.filter_map(|line| line.strip_prefix(before)?.split_once(after));
        let mut names = rows.map(|(name, _)| name);
        let unused = names.find(|name| uses.get(name) == Some(&1));
        assert_eq!(unused, None, "{file}: nothing raises, counts or reads it");
    }
}

#[test]
fn the_documents_name_what_there_is() {
    let architecture = include_str!("../../.github/ARCHITECTURE.md");
    let mut lines = architecture.lines();
    let leaves = lines.find(|line| line.starts_with("The leaves")).unwrap();
    for Source { path, .. } in sources() {
        let name = module(&path);
        let is_row = name == "main" || architecture.contains(&format!("`src/{name}/`"));
        let is_so = is_row || leaves.contains(name);
        assert!(is_so, "src/{name} is not in .github/ARCHITECTURE.md");
    }
    let texts = [architecture, include_str!("../../.github/CONTRIBUTING.md")].concat();
    let of_folder = |word: &&str| word.starts_with("src/") || word.starts_with("tests/");
    let mut paths = texts.split('`').filter(of_folder);
    let gone = paths.find(|path| !Path::new(path).exists());
    assert_eq!(gone, None, "ARCHITECTURE.md or CONTRIBUTING.md");
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
