//! The architecture, as a test: arrows between modules point one way, foreign crates are named in one place, files stay
//! small, and `unsafe` has one home.
//!
//! Reads `src/**/*.rs` as text. Comments, strings and test code do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Longest file, in lines.
const LONGEST: usize = 600;

/// Every module and its height: an arrow must point to a lower one. `main` stands above all.
const HEIGHTS: [(&str, u8); 20] = [
    ("main", 100),
    ("check", 90),
    ("generate", 90),
    ("demo", 60),
    ("transport", 50),
    ("mcp", 40),
    ("tools", 30),
    ("fabric", 20),
    ("cli", 15),
    ("metrics", 10),
    ("access", 8),
    ("http", 8),
    ("logging", 8),
    ("signals", 8),
    ("jsonrpc", 8),
    ("time", 4),
    ("random", 4),
    ("sync", 4),
    ("text", 4),
    ("config", 2),
];

/// Arrows that point down and are wrong all the same.
const FORBIDDEN: [(&str, &str, &str); 5] = [
    ("mcp", "http", "the protocol does no I/O and knows no HTTP"),
    ("tools", "http", "tools know no transport"),
    ("fabric", "http", "src/http is a server; Fabric's client is ureq"),
    ("fabric", "jsonrpc", "fabric knows no MCP"),
    ("demo", "transport", "the built-in Fabric knows no MCP"),
];

/// Crates that few places own: the name and the files or folders that may say it, one for each kind of server.
const OWNED: [(&str, &[&str]); 4] = [
    ("tiny_http", &["src/http"]),
    ("ureq", &["src/fabric/client", "src/access/outbound"]),
    ("simple_logger", &["src/logging"]),
    ("lexopt", &["src/cli"]),
];

/// A source file: its path from the package's root, and its code without comments, strings and tests.
struct Source {
    path: String,
    lines: usize,
    code: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    collect(&root.join("src"), &mut files);
    let all: Vec<(String, String)> = files
        .iter()
        .map(|file| {
            let path = file.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
            (path, fs::read_to_string(file).unwrap())
        })
        .collect();
    let skipped: BTreeSet<String> = all.iter().flat_map(|(path, text)| test_modules(path, text)).collect();
    all.into_iter()
        .filter(|(path, _)| {
            !skipped.iter().any(|skip| path == &format!("{skip}.rs") || path.starts_with(&format!("{skip}/")))
        })
        .map(|(path, text)| Source { lines: text.lines().count(), code: without_tests(&strip(&text)), path })
        .collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The paths, without `.rs`, of modules this file declares for tests only: `#[cfg(test)] mod x;`.
fn test_modules(path: &str, text: &str) -> Vec<String> {
    let folder = match path.rsplit_once('/') {
        Some((folder, "main.rs" | "mod.rs")) => folder.to_owned(),
        _ => path.trim_end_matches(".rs").to_owned(),
    };
    let code = strip(text);
    let mut found = Vec::new();
    for (at, attribute) in code.match_indices("#[cfg(test)]") {
        let after = code[at + attribute.len()..].trim_start();
        let after = after.strip_prefix("pub(crate) ").unwrap_or(after);
        if let Some((name, _)) = after.strip_prefix("mod ").and_then(|rest| rest.split_once(';'))
            && !name.contains('{')
        {
            found.push(format!("{folder}/{}", name.trim()));
        }
    }
    found
}

/// The code without comments, and with empty strings and characters.
fn strip(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if rest.starts_with("//") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        } else if rest.starts_with("/*") {
            rest = rest.find("*/").map_or("", |end| &rest[end + 2..]);
        } else if let Some(hashes) = raw_string(rest, &code) {
            let end = format!("\"{}", "#".repeat(hashes));
            let body = &rest[hashes + 2..];
            code.push_str("\"\"");
            rest = body.find(&end).map_or("", |at| &body[at + end.len()..]);
        } else if c == '"' {
            code.push_str("\"\"");
            rest = &rest[string_length(rest)..];
        } else if c == '\'' && is_character(rest) {
            code.push_str("' '");
            rest = &rest[1..];
            if rest.starts_with('\\') {
                rest = &rest[2..];
            } else {
                rest = &rest[rest.chars().next().map_or(0, char::len_utf8)..];
            }
            rest = rest.find('\'').map_or("", |end| &rest[end + 1..]);
        } else {
            code.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    code
}

/// How many `#` a raw string here begins with; `None` if none begins here.
fn raw_string(rest: &str, before: &str) -> Option<usize> {
    if before.ends_with(|c: char| c.is_alphanumeric() && c != 'b' || c == '_') {
        return None;
    }
    let after = rest.strip_prefix('r')?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].starts_with('"').then_some(hashes)
}

fn string_length(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// A character, and not a lifetime: `'x'` or `'\…'`.
fn is_character(rest: &str) -> bool {
    let mut chars = rest.chars().skip(1);
    match chars.next() {
        Some('\\') => true,
        Some(_) => chars.next() == Some('\''),
        None => false,
    }
}

/// The code without items behind `#[cfg(test)]`.
fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        kept.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.find(['{', ';']).unwrap_or(rest.len());
        if !rest[end..].starts_with('{') {
            rest = rest.get(end + 1..).unwrap_or("");
            continue;
        }
        let mut depth = 0;
        let mut after = rest.len();
        for (at, c) in rest.char_indices().skip_while(|(at, _)| *at < end) {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => continue,
            }
            if depth == 0 {
                after = at + 1;
                break;
            }
        }
        rest = &rest[after..];
    }
    kept + rest
}

/// Where `word` stands alone, not as a part of a longer name.
fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| !code[..*at].ends_with(name) && !code[at + word.len()..].starts_with(name))
}

/// The top module a file belongs to.
fn module(path: &str) -> &str {
    let inner = path.trim_start_matches("src/");
    inner.split('/').next().unwrap_or(inner).trim_end_matches(".rs")
}

/// The top modules that code names behind `crate::`, also in `use crate::{a, b::c}`.
fn named(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for at in words(code, "crate") {
        let Some(rest) = code[at + "crate".len()..].strip_prefix("::") else { continue };
        let Some(list) = rest.strip_prefix('{') else {
            found.insert(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
            continue;
        };
        let mut depth = 0;
        let mut item = String::new();
        for c in list.chars() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => item.push(','),
                _ if depth == 0 => item.push(c),
                _ => {}
            }
        }
        found.extend(item.split(',').map(|part| part.trim().split("::").next().unwrap_or("").to_owned()));
    }
    found.retain(|name| !name.is_empty());
    found
}

#[test]
fn arrows_point_one_way() {
    let heights: BTreeMap<&str, u8> = HEIGHTS.into();
    let mut wrong = Vec::new();
    for source in sources() {
        let from = module(&source.path);
        let Some(height) = heights.get(from) else {
            wrong.push(format!("{}: module `{from}` has no place in the table of heights", source.path));
            continue;
        };
        for to in named(&source.code) {
            let Some(below) = heights.get(to.as_str()) else { continue };
            if to != from && below >= height {
                wrong.push(format!("{}: `{from}` must not use `{to}`", source.path));
            }
            if let Some((_, _, why)) = FORBIDDEN.iter().find(|(a, b, _)| *a == from && *b == to) {
                wrong.push(format!("{}: `{from}` must not use `{to}`: {why}", source.path));
            }
        }
    }
    assert!(wrong.is_empty(), "arrows that point back:\n{}", wrong.join("\n"));
}

#[test]
fn foreign_crates_have_one_owner() {
    let mut wrong = Vec::new();
    for source in sources() {
        for (name, owners) in OWNED {
            let is_in =
                |owner: &&str| source.path == format!("{owner}.rs") || source.path.starts_with(&format!("{owner}/"));
            if !owners.iter().any(is_in) && words(&source.code, name).next().is_some() {
                wrong.push(format!("{} names {name}, which belongs to {}", source.path, owners.join(" and ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn unsafe_has_one_home() {
    for source in sources() {
        let found = words(&source.code, "unsafe").next().is_some();
        assert!(!found || source.path == "src/signals.rs", "`unsafe` in {}", source.path);
    }
}

#[test]
fn the_time_of_day_is_shown_and_never_reckoned_with() {
    // So that a clock that is set does nothing: every limit, pause and age is of `Instant`, which only goes forwards.
    // But for what others have dated: tokens with an end, and files (`access::clock`).
    let shown = ["src/time.rs", "src/http/response.rs", "src/access/clock.rs"];
    for source in sources() {
        let found = words(&source.code, "SystemTime").next().is_some();
        assert!(!found || shown.contains(&source.path.as_str()), "the time of day in {}", source.path);
    }
}

#[test]
fn files_stay_small() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    collect(&root.join("src"), &mut files);
    collect(&root.join("tests"), &mut files);
    let long: Vec<String> = files
        .iter()
        .map(|file| (file, fs::read_to_string(file).unwrap().lines().count()))
        .filter(|(_, lines)| *lines > LONGEST)
        .map(|(file, lines)| format!("{} has {lines} lines", file.strip_prefix(root).unwrap().display()))
        .collect();
    assert!(long.is_empty(), "longer than {LONGEST} lines, is each still one thing?\n{}", long.join("\n"));
    assert!(sources().iter().any(|source| source.path == "src/main.rs" && source.lines > 0), "nothing was read");
}

#[test]
fn the_scanner_sees_code_and_nothing_else() {
    let text = r###"
        //! crate::a
        use crate::{b, c::{D, e}, f};
        /* crate::g */
        fn x<'a>(_: &'a str) -> char { let _ = "crate::h \" //"; let _ = r#"crate::i"#; '"' }
        fn y() { crate::j::k(); thecrate::l(); }
        #[cfg(test)]
        mod tests { fn z() { crate::m::n(); } }
        use crate::o::P;
        #[cfg(test)]
        mod outside;
    "###;
    let code = without_tests(&strip(text));
    assert_eq!(named(&code).into_iter().collect::<Vec<_>>(), ["b", "c", "f", "j", "o"]);
    assert_eq!(test_modules("src/fabric/mod.rs", text), ["src/fabric/outside"]);
    assert_eq!(words("unsafe_code unsafe xunsafe", "unsafe").collect::<Vec<_>>(), [12]);
    assert_eq!(module("src/fabric/client/x.rs"), "fabric");
}
