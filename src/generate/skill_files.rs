//! Patterns as skills in a folder, where assistants read them: `--generate skills`.
//!
//! In scope: which files may be written. A skill's folder and file must not be links, and a file is only replaced if its
//! digest says that this program wrote it and nobody changed it since. Not in scope: the text of a skill (`server`).

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::encoding::sha256::sha256_hex;
use crate::fabric::{Cause, Error, Kind, Name, Names, not_found};
use crate::os::files::{self, open_plain};
use crate::search::kebab;
use crate::server::Server;
use crate::text::{counted, unusable};

/// What was asked for, in errors.
const FLAG: &str = "--generate skills";
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
) -> Result<(String, bool), Error> {
    let all = server.skills()?;
    let known: Names = all.patterns.values().map(String::as_str).collect();
    for name in names {
        let name = Name::parse(FLAG, name)?;
        server.backend.policy.check(FLAG, &name)?;
        if !known.contains(name.as_str()) {
            return Err(not_found(&name, &known));
        }
    }
    let mut skills = all.patterns.clone();
    skills.retain(|_, pattern| names.is_empty() || names.contains(pattern));
    if known.is_empty() {
        return Err(Error::of(Kind::PatternNotFound, Cause::NoPatterns, &[]));
    }
    // A final slash would hide a link.
    let dir: PathBuf = dir.components().collect();
    own_folder(&dir).map_err(|why| Error::new(Kind::Internal, format!("{FLAG}: {why}")))?;
    let mut claims: BTreeMap<String, usize> = BTreeMap::new();
    for pattern in skills.values() {
        *claims.entry(kebab(pattern)).or_default() += 1;
    }
    let (mut report, mut good) = (String::new(), true);
    let (mut written, mut same) = (0, 0);
    for (name, pattern) in &skills {
        let text = all.document(name).unwrap_or_default();
        let outcome = match claims[&kebab(pattern)] {
            1 => write_one(&dir.join(name), &signed(&text, origin)),
            _ => Err(io::Error::other(
                "another has the same name in kebab case; give only one of them",
            )),
        };
        match outcome {
            Ok(Some(true)) => written += 1,
            Ok(Some(false)) => same += 1,
            Ok(None) => {
                report += &format!(
                    "kept {name}: it was changed, or not written by this program; move it away to get the new one\n"
                );
            }
            Err(error) => {
                report += &format!("refused {pattern}: {error}\n");
                good = false;
            }
        }
    }
    report += &format!(
        "{written} written, {same} unchanged, of {}. Read them before an assistant does: it will follow them.\n",
        counted(skills.len(), "skill")
    );
    Ok((report, good))
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
    let fix = "it must be a folder, no link, that you may write to";
    Err(io::Error::other(format!("{why}; {fix}")))
}

/// Writes one file, in one step. False if it is there already, `None` if somebody else wrote or changed the one there.
fn write_one(folder: &Path, text: &str) -> io::Result<Option<bool>> {
    own_folder(folder)?;
    let file = folder.join("SKILL.md");
    match open_plain(&file, OpenOptions::new().read(true)) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => {
            let why = format!("its SKILL.md cannot be read: {error}; move it away");
            return Err(io::Error::other(why));
        }
        Ok(file) => match files::text(file, MAX_FILE) {
            Ok(Some(found)) if found == text => return Ok(Some(false)),
            Ok(Some(found)) if is_ours(&found) => {}
            _ => return Ok(None),
        },
    }
    let new = folder.join(format!(".SKILL.md.{}", std::process::id()));
    // Follows no link.
    let mut begun = File::create_new(&new)?;
    let written = begun.write_all(text.as_bytes());
    written
        .and_then(|()| fs::rename(&new, &file))
        .inspect_err(|_| drop(fs::remove_file(&new)))?;
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
