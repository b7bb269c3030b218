//! Patterns as skills in a folder, where assistants read them: `--generate skills`.
//!
//! In scope: which files may be written. A skill's folder and file must not be links, and a file is only replaced if its
//! digest says that this program wrote it and nobody changed it since. Not in scope: the text of a skill (`server`).

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use crate::fabric::{Name, Names, not_found};
use crate::search::kebab;
use crate::server::{Server, SkillDocument};
use crate::sha256::sha256_hex;

/// Longest file that is read to see whose it is, in bytes: longer than any skill.
const MAX_FILE: u64 = 17 << 20;
/// The end of the front matter.
const END: &str = "\n---\n";
/// The beginning of the last line before it. The digest is that of the file without this line.
const DIGEST: &str = "\n  fabric-mcp-digest: \"sha256:";

/// Writes the skills of these patterns, or of all, as `dir/NAME/SKILL.md`. Returns a report, and whether all of them are
/// there now or were changed by somebody. `origin` says where the patterns come from.
///
/// # Errors
/// One line; nothing has been written.
pub(crate) fn write(
    server: &Server,
    dir: &Path,
    names: &[String],
    origin: &str,
) -> Result<(String, bool), String> {
    let mut skills = server.skill_documents().map_err(|error| error.detail)?;
    let known: Names = skills.iter().map(|skill| skill.pattern.as_str()).collect();
    for name in names {
        let name = Name::parse("--generate skills", name).map_err(|error| error.detail)?;
        let policy = &server.backend.policy;
        policy
            .check("--generate skills", &name)
            .map_err(|error| error.detail)?;
        if !known.contains(name.as_str()) {
            return Err(not_found(&name, &known).detail);
        }
    }
    skills.retain(|skill| names.is_empty() || names.contains(&skill.pattern));
    match fs::symlink_metadata(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => fs::create_dir_all(dir),
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(io::Error::other(
            "it is a link or not a folder; give the folder itself",
        )),
        Err(error) => Err(error),
    }
    .map_err(|error| format!("--generate skills: {dir:?}: {error}"))?;
    let (mut report, mut good) = (String::new(), true);
    let (mut written, mut same) = (0, 0);
    for skill in &skills {
        let is_other = |other: &&SkillDocument| {
            other.pattern != skill.pattern && kebab(&other.pattern) == kebab(&skill.pattern)
        };
        let outcome = match skills.iter().find(is_other) {
            Some(other) => Err(Obstacle::Refused(format!(
                "{} has the same name in kebab case; give only one of them",
                other.pattern
            ))),
            None => write_one(&dir.join(&skill.name), &signed(&skill.text, origin)),
        };
        match outcome {
            Ok(true) => written += 1,
            Ok(false) => same += 1,
            Err(Obstacle::Changed) => {
                report += &format!(
                    "kept {}: it is not as this program wrote it; move it away to get the new one\n",
                    skill.name
                );
            }
            Err(Obstacle::Refused(why)) => {
                report += &format!("refused {}: {why}\n", skill.pattern);
                good = false;
            }
        }
    }
    report += &format!(
        "{written} written, {same} unchanged, of {} skills. Read them before an assistant does: it will follow them.\n",
        skills.len()
    );
    Ok((report, good))
}

/// Why a skill was not written.
enum Obstacle {
    /// Another file is in its place, or somebody changed it.
    Changed,
    /// It cannot or must not be written.
    Refused(String),
}

impl From<io::Error> for Obstacle {
    fn from(error: io::Error) -> Obstacle {
        Obstacle::Refused(error.to_string())
    }
}

/// Writes one file, in one step. False if it was there already.
fn write_one(folder: &Path, text: &str) -> Result<bool, Obstacle> {
    let refused = |why: &str| Err(Obstacle::Refused(format!("{folder:?} {why}")));
    match fs::create_dir(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
        _ if !fs::symlink_metadata(folder)?.is_dir() => {
            return refused("is a link or not a folder; remove it");
        }
        _ => {}
    }
    let file = folder.join("SKILL.md");
    match fs::symlink_metadata(&file) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
        Ok(found) if !found.is_file() => {
            return refused("has a SKILL.md that is a link or not a file; remove it");
        }
        Ok(_) => {
            let mut found = Vec::new();
            File::open(&file)?.take(MAX_FILE).read_to_end(&mut found)?;
            if found == text.as_bytes() {
                return Ok(false);
            }
            if !String::from_utf8(found).is_ok_and(|found| is_ours(&found)) {
                return Err(Obstacle::Changed);
            }
        }
    }
    let new = folder.join(format!(".SKILL.md.{}", std::process::id()));
    let mut options = OpenOptions::new();
    // Follows no link.
    let written = options.write(true).create_new(true).open(&new);
    let written = written.and_then(|mut new| new.write_all(text.as_bytes()));
    written
        .and_then(|()| fs::rename(&new, &file))
        .inspect_err(|_| drop(fs::remove_file(&new)))?;
    Ok(true)
}

/// A `SKILL.md` with its origin and digest.
fn signed(text: &str, origin: &str) -> String {
    let origin = serde_json::Value::from(origin);
    let origin = format!("\n  fabric-mcp-origin: {origin}{END}");
    let text = text.replacen(END, &origin, 1);
    let digest = sha256_hex(text.as_bytes());
    text.replacen(END, &format!("{DIGEST}{digest}\"{END}"), 1)
}

/// Whether this program wrote the file, and it is as it was.
fn is_ours(file: &str) -> bool {
    let parts = file.split_once(END).and_then(|(front, body)| {
        let (front, digest) = front.rsplit_once(DIGEST)?;
        Some((front, digest.strip_suffix('"')?, body))
    });
    parts.is_some_and(|(front, digest, body)| {
        sha256_hex(format!("{front}{END}{body}").as_bytes()) == digest
    })
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
        assert_eq!(
            lines[5],
            format!("  fabric-mcp-digest: \"sha256:{digest}\"")
        );
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
