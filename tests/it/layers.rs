//! The architecture as a test: dependencies between modules point one way, foreign crates are named in one place, and
//! `unsafe` is confined to a few files.
//!
//! Reads `src/**/*.rs` as text, without comments and tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Every module and its height: a module may use only lower ones.
const HEIGHTS: [(&str, u8); 31] = [
    ("main", 100),
    ("check", 90),
    ("call", 90),
    ("generate", 90),
    ("demo", 60),
    ("transport", 50),
    ("server", 40),
    ("protocol", 22),
    ("tools", 30),
    ("fabric", 20),
    ("clients", 5),
    ("cli", 15),
    ("metrics", 10),
    ("runs", 8),
    ("access", 9),
    ("http", 8),
    ("logging", 8),
    ("search", 8),
    ("service", 8),
    ("signals", 8),
    ("agent", 5),
    ("account", 5),
    ("heap", 3),
    ("time", 4),
    ("random", 4),
    ("sha256", 4),
    ("sync", 4),
    ("text", 4),
    ("config", 2),
    ("url", 1),
    ("error", 1),
];

/// Additional forbidden uses of lower modules.
const FORBIDDEN: [(&str, &str, &str); 8] = [
    (
        "protocol",
        "fabric",
        "the protocol knows MCP only; errors are in `error`",
    ),
    (
        "protocol",
        "http",
        "the protocol does no I/O and knows no HTTP",
    ),
    ("protocol", "logging", "the protocol does no I/O"),
    ("server", "http", "methods know no transport"),
    ("tools", "http", "tools know no transport"),
    (
        "fabric",
        "http",
        "src/http is a server; Fabric's client is ureq",
    ),
    ("fabric", "protocol", "fabric knows no MCP"),
    ("demo", "transport", "the built-in Fabric knows no MCP"),
];

/// Crates that only these files or folders may name.
const OWNED: [(&str, &[&str]); 4] = [
    ("tiny_http", &["src/http"]),
    (
        "ureq",
        &["src/agent", "src/fabric/client", "src/access/oauth"],
    ),
    ("simple_logger", &["src/logging"]),
    ("lexopt", &["src/cli"]),
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
        let path = file
            .strip_prefix(root)
            .unwrap()
            .to_string_lossy()
            .replace('\\', "/");
        let text = fs::read_to_string(&file).unwrap();
        let folder = path
            .trim_end_matches("mod.rs")
            .trim_end_matches("main.rs")
            .trim_end_matches(".rs");
        for declared in text.split("#[cfg(test)]\nmod ").skip(1) {
            let name = declared.split([';', ' ']).next().unwrap();
            tests_only.push(format!("{}/{name}", folder.trim_end_matches('/')));
        }
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let code = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect::<Vec<_>>()
            .join("\n");
        sources.push(Source { path, code });
    }
    let is_test = |path: &str, module: &String| {
        path.strip_prefix(module)
            .is_some_and(|rest| rest.starts_with(['.', '/']))
    };
    sources.retain(|source| {
        !tests_only
            .iter()
            .any(|module| is_test(&source.path, module))
    });
    sources
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
    {
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The top-level module of a file.
fn module(path: &str) -> &str {
    let inner = path.trim_start_matches("src/");
    inner
        .split('/')
        .next()
        .unwrap_or(inner)
        .trim_end_matches(".rs")
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
    let heights: BTreeMap<&str, u8> = HEIGHTS.into();
    let mut wrong = Vec::new();
    for source in sources() {
        let from = module(&source.path);
        let Some(height) = heights.get(from) else {
            wrong.push(format!(
                "{}: module `{from}` has no place in the table of heights",
                source.path
            ));
            continue;
        };
        for to in named(&source.code) {
            let Some(below) = heights.get(to) else {
                continue;
            };
            if to != from && below >= height {
                wrong.push(format!("{}: `{from}` must not use `{to}`", source.path));
            }
            if let Some((_, _, why)) = FORBIDDEN.iter().find(|(a, b, _)| *a == from && *b == to) {
                wrong.push(format!(
                    "{}: `{from}` must not use `{to}`: {why}",
                    source.path
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "arrows that point back:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn foreign_crates_have_one_owner() {
    let mut wrong = Vec::new();
    for source in sources() {
        for (name, owners) in OWNED {
            let is_in = |owner: &&str| {
                source.path == format!("{owner}.rs")
                    || source.path.starts_with(&format!("{owner}/"))
            };
            if !owners.iter().any(is_in) && source.code.contains(&format!("{name}::")) {
                wrong.push(format!(
                    "{} names {name}, which belongs to {}",
                    source.path,
                    owners.join(" and ")
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn unsafe_is_where_std_lacks_a_function() {
    // The lint `unsafe_code` denies it everywhere else.
    let homes = ["src/signals.rs", "src/http/server.rs", "src/heap.rs"];
    for source in sources() {
        let found = source.code.contains("(unsafe_code");
        assert!(
            !found || homes.contains(&source.path.as_str()),
            "`unsafe` in {}",
            source.path
        );
    }
}

#[test]
fn the_time_of_day_is_only_shown() {
    // Limits and ages are measured with `Instant`, which is independent of the wall clock. Only runs that outlive the
    // process, expiring tokens and files need the wall clock.
    let shown = ["src/time.rs", "src/http/response.rs"];
    for source in sources() {
        let found = source.code.contains("SystemTime");
        assert!(
            !found || shown.contains(&source.path.as_str()),
            "the time of day in {}",
            source.path
        );
    }
}

#[test]
fn the_scan_sees_code_and_nothing_else() {
    let code = "use crate::{b, c::D,\n f};\nfn y() { crate::j::k(); }\n pub(crate) fn x() {}\nuse crate::o;";
    assert_eq!(
        named(code).into_iter().collect::<Vec<_>>(),
        ["b", "c", "f", "j", "o"]
    );
    let sources = sources();
    let has = |path: &str| sources.iter().any(|source| source.path == path);
    assert!(has("src/main.rs") && has("src/tools/mod.rs") && !has("src/fabric/fixture.rs"));
    let main = sources
        .iter()
        .find(|source| source.path == "src/main.rs")
        .unwrap();
    assert!(main.code.contains("mod check;") && !main.code.contains("//!"));
}
