//! Patterns as skills in a folder, where assistants read them: `--generate skills`, one for each, `--generate skill`, one for
//! all, and `--generate plugin`, which has that one and a server of the same patterns (Agent Plugins 1.0).
//!
//! In scope: which files may be written. A skill's folder and file must not be links, and a file is only replaced if
//! its digest says that this program wrote it and nobody has changed it since. Other files of a plugin than its skill
//! have no digest, so they are never replaced. Not in scope: the text of a skill of one pattern (`server`).

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::encoding::sha256::sha256_hex;
use crate::fabric::names::alike;
use crate::fabric::{Cause, Error, Kind, Name, NameList, Observer, Unobserved, not_found};
use crate::os::files::{self, open_plain};
use crate::server::{Server, Skills};
use crate::text::{counted, filled, shown, unusable};

/// The skill of all patterns. The parts of its index: the first words of the patterns' names, and a title.
const SKILL: &str = include_str!("skill.md");
const GROUPS: &str = include_str!("groups.txt");
/// Room that some clients have for the names and descriptions of all skills, in characters.
const ROOM: usize = 8000;
/// Longest file that is read to see whose it is, in bytes: longer than any skill.
const MAX_FILE: u64 = 17 << 20;
/// The end of the front matter.
const END: &str = "\n---\n";
/// How the line before [`END`] begins. The digest is of the file without this line.
const DIGEST: &str = "\n  fabric-mcp-digest: \"sha256:";

/// Writes these patterns, or all, as `what` the flag says into `dir`: skills `NAME/SKILL.md`, the skill `fabric`, or a
/// plugin. Returns a report, and whether all files are there now or were changed by somebody. `origin` says where the
/// patterns come from.
///
/// # Errors
/// One line; nothing has been written.
pub(crate) fn write(
    server: &Server,
    what: &str,
    dir: &Path,
    names: &[String],
    origin: &str,
) -> Result<(String, bool), Error> {
    let flag = &format!("--generate {what}");
    let observer: Observer = Arc::new(Unobserved);
    let all = Skills::read(&server.backend, &observer)?;
    let known: NameList = all.patterns().values().map(String::as_str).collect();
    let taken = |name: &String| alike(name, known.iter()).unwrap_or(name).to_owned();
    let names = &*Vec::from_iter(names.iter().map(taken));
    let check = |name: &String| {
        let name = Name::parse(flag, name)?;
        server.backend.policy.check(flag, &name)?;
        let is_known = known.contains(name.as_str()).then_some(());
        is_known.ok_or_else(|| not_found(&name, &known, &|_| true))
    };
    let (mut report, mut refused) = (String::new(), Vec::new());
    for name in names {
        if let Err(error) = check(name) {
            report += &format!("refused {}: {}\n", shown(name, 128), error.detail);
            refused.push(error);
        }
    }
    let unread = all.snapshot.unread() * usize::from(names.is_empty());
    if unread > 0 {
        report += &format!("left out {} without a text\n", counted(unread, "pattern"));
    }
    let mut good = refused.is_empty() && unread == 0;
    let mut skills = all.patterns().clone();
    skills.retain(|_, pattern| names.is_empty() || names.contains(pattern));
    if skills.is_empty() {
        let none = || Error::of(Cause::NoPatterns, &[]);
        return Err(refused.into_iter().reduce(Error::and).unwrap_or_else(none));
    }
    // A final slash would hide a link.
    let dir: PathBuf = dir.components().collect();
    own_folder(&dir).map_err(|why| Error::new(Kind::Internal, format!("{flag}: {why}")))?;
    let files = files(&all, &skills, what);
    let is_each = what == "skills";
    let (mut written, mut same) = (0, 0);
    for (path, name, text) in &files {
        // Manifests and patterns have no place for a digest.
        let text = match what {
            "plugin" if !path.starts_with("skills/") => text,
            _ => &signed(text, origin),
        };
        match write_one(&dir, path, text, !is_each && path.ends_with("SKILL.md")) {
            Ok(Some(true)) => written += 1,
            Ok(Some(false)) => same += 1,
            Ok(None) => {
                report += &format!(
                    "kept {}: another text is there, perhaps somebody's work; move it away to get the new one\n",
                    path.trim_end_matches("/SKILL.md")
                );
            }
            Err(error) => {
                report += &format!("refused {name}: {error}\n");
                good = false;
            }
        }
        // Nothing belongs beside the index of somebody else, or without one.
        if !is_each && written + same == 0 {
            break;
        }
    }
    report += &format!(
        "{written} written, {same} unchanged, of {}. Read them before an assistant does: it will follow them.\n",
        counted(files.len(), if is_each { "skill" } else { "file" })
    );
    let sizes = skills.iter();
    let sizes = sizes.map(|(name, pattern)| name.len() + all.snapshot.description(pattern).len());
    let size: usize = sizes.sum();
    if is_each && size > ROOM {
        report += &format!(
            "Their names and descriptions have {size} characters, and some clients have room for \
             only {ROOM}: for these clients, --generate skill makes one skill of all.\n"
        );
    }
    Ok((report, good))
}

/// The path of each file, whose text it is, and the text.
fn files<'a>(
    all: &Skills,
    skills: &'a BTreeMap<String, String>,
    what: &str,
) -> Vec<(String, &'a str, String)> {
    let is_plugin = what == "plugin";
    let folder = if is_plugin { "skills/" } else { "" };
    let mut files = Vec::new();
    if is_plugin {
        let version = [("@VERSION@", env!("CARGO_PKG_VERSION"))];
        // The manifest comes first: it shows whose plugin this is.
        let own = |name, text| (String::from(name), name, filled(text, &version));
        files.push(own("plugin.json", include_str!("plugin.json")));
        files.push(own("mcp.json", include_str!("mcp.json")));
    }
    if what != "skills" {
        let path = format!("{folder}fabric/SKILL.md");
        files.push((path, "fabric", index(all, skills)));
    }
    for (name, pattern) in skills {
        let path = match what {
            "skills" => format!("{name}/SKILL.md"),
            _ => format!("{folder}fabric/references/{pattern}.md"),
        };
        files.push((path, pattern, all.document(name).unwrap_or_default()));
        if is_plugin {
            let entry = all.snapshot.pattern(pattern);
            let text = entry.and_then(|entry| entry.text.as_deref());
            let text = text.unwrap_or_default().to_owned();
            files.push((format!("patterns/{pattern}/system.md"), pattern, text));
        }
    }
    files
}

/// The skill of these patterns.
fn index(all: &Skills, skills: &BTreeMap<String, String>) -> String {
    let groups = Vec::from_iter(GROUPS.lines().filter_map(|line| line.split_once(": ")));
    let mut parts: BTreeMap<usize, String> = BTreeMap::new();
    for pattern in skills.values() {
        let first = pattern.split(['_', '-', ' ']).next();
        let is_in = |words: &str| words.split(' ').any(|word| Some(word) == first);
        let at = groups.iter().position(|(words, _)| is_in(words));
        let part = parts.entry(at.unwrap_or(groups.len() - 1)).or_default();
        let description = all.snapshot.description(pattern);
        *part += &format!("- `{pattern}`: {description}\n");
    }
    let part = |(at, lines): (usize, String)| format!("\n## {}\n\n{lines}", groups[at].1);
    let parts: String = parts.into_iter().map(part).collect();
    let count = skills.len().to_string();
    filled(SKILL, &[("@COUNT@", &count), ("@INDEX@\n", &parts)])
}

/// Creates a folder, which must not be a link, unless it exists.
fn own_folder(path: &Path) -> io::Result<()> {
    let created = fs::create_dir_all(path).and_then(|()| fs::symlink_metadata(path));
    let error = match created {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => io::Error::other("it is a link, which is not followed"),
        Err(error) => error,
    };
    let why = unusable("folder", path, &error);
    let fix = "it must be a folder that you may write to, not a link";
    Err(io::Error::other(format!("{why}; {fix}")))
}

/// Writes one file below `dir`, in one step. False if it is there already, `None` if somebody else wrote or changed the one
/// there. An index must not lead into a folder that nothing can be written to.
fn write_one(dir: &Path, path: &str, text: &str, is_index: bool) -> io::Result<Option<bool>> {
    let (mut folder, mut rest) = (dir.to_owned(), path);
    while let Some((inner, name)) = rest.split_once('/') {
        folder.push(inner);
        own_folder(&folder)?;
        rest = name;
    }
    let file = folder.join(rest);
    match open_plain(&file, OpenOptions::new().read(true)) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => {
            let why = format!("its {rest} cannot be read: {error}; move it away");
            return Err(io::Error::other(why));
        }
        Ok(file) => match files::text(file, MAX_FILE) {
            Ok(found) if found == text => return Ok(Some(false)),
            Ok(found) if is_ours(&found) => {}
            _ => return Ok(None),
        },
    }
    if is_index {
        own_folder(&folder.join("references"))?;
    }
    let new = folder.join(format!(".{rest}.{}", std::process::id()));
    // Follows no link.
    let mut begun = File::create_new(&new)?;
    let written = begun.write_all(text.as_bytes());
    let placed = written.and_then(|()| fs::rename(&new, &file));
    placed.inspect_err(|_| drop(fs::remove_file(&new)))?;
    Ok(Some(true))
}

/// A `SKILL.md` with its origin and digest.
fn signed(text: &str, origin: &str) -> String {
    let origin = serde_json::Value::from(origin);
    let origin = format!("\n  fabric-mcp-origin: {origin}{END}");
    let text = text.replacen(END, &origin, 1);
    let digest = sha256_hex(text.as_bytes());
    text.replacen(END, &format!("{DIGEST}{digest}\"{END}"), 1)
}

/// Whether this program wrote the file, and nobody has changed it since.
fn is_ours(file: &str) -> bool {
    let is_own = file.split_once(END).and_then(|(front, body)| {
        let (front, digest) = front.rsplit_once(DIGEST)?;
        let own = sha256_hex(format!("{front}{END}{body}").as_bytes());
        Some(digest.strip_suffix('"')? == own)
    });
    is_own == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SKILL: &str =
        "---\nname: \"a\"\nmetadata:\n  fabric-pattern: \"a\"\n---\n\nDo it.\n---\n";

    #[test]
    fn the_front_matter_gets_origin_and_digest_and_the_rest_stays() {
        let file = signed(SKILL, "http://x\n\"");
        let (front, body) = file.split_once(END).unwrap();
        assert_eq!(body, "\nDo it.\n---\n");
        let lines: Vec<&str> = front.lines().collect();
        assert_eq!(lines[4], r#"  fabric-mcp-origin: "http://x\n\"""#);
        let unsigned = file.replace(&format!("{}\n", lines[5]), "");
        let digest = sha256_hex(unsigned.as_bytes());
        let expected = format!("  fabric-mcp-digest: \"sha256:{digest}\"");
        assert_eq!(lines[5], expected);
    }

    #[test]
    fn every_changed_byte_makes_it_another_file() {
        let file = signed(SKILL, "http://x");
        assert!(is_ours(&file));
        for at in 0..file.len() {
            let mut changed = file.clone().into_bytes();
            changed[at] = if changed[at] == b'x' { b'y' } else { b'x' };
            assert!(!is_ours(&String::from_utf8(changed).unwrap()), "byte {at}");
            assert!(!is_ours(&file[..at]), "cut at {at}");
        }
        assert!(!is_ours(&(file + "\n")));
        assert!(!is_ours(SKILL));
    }
}
