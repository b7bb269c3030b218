//! The systemd unit: the http transport for many clients, as a user of its own with network access only.

use std::path::Path;

use crate::text::{filled, marked_lines};

/// The text of the unit and of the template, whose instance is the port. A line that begins with `@UNIT@` or
/// `@TEMPLATE@` belongs to only one of them, and a line with `@HIDDEN@` to a unit that hides the program it starts.
const TEXT: &str = include_str!("fabric-mcp.service");
/// The folders that `ProtectHome=yes` hides: systemd.exec(5).
const HIDDEN: [&str; 3] = ["/home/", "/root/", "/run/user/"];

/// The unit that starts `program`, or the template of units, whose instance is the port.
///
/// # Errors
/// The path has characters that mean something else in a unit.
pub(super) fn unit(program: &Path, is_template: bool) -> Result<String, String> {
    // ExecStart= takes this path as it is: white space, quotes, backslashes, $ and % mean something there.
    let is_usual = |c: char| c.is_alphanumeric() || "/-_.+@~:".contains(c);
    let path = program.to_str().filter(|path| path.chars().all(is_usual));
    let why = "move it to where the path has only usual characters, such as /usr/local/bin";
    let path = path.ok_or_else(|| format!("systemd cannot start {program:?}; {why}"))?;
    let is_hidden = HIDDEN.iter().any(|folder| program.starts_with(folder));
    let marks = [
        ("@UNIT@", !is_template),
        ("@TEMPLATE@", is_template),
        ("@HIDDEN@", is_hidden),
    ];
    Ok(filled(&marked_lines(TEXT, &marks), &[("@PROGRAM@", path)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_hardened_and_takes_secrets_from_files() {
        let unit = unit(Path::new("/usr/bin/fabric-mcp"), false).unwrap();
        let start = "ExecStart=/usr/bin/fabric-mcp --transport http --tokens-file \
            /etc/fabric-mcp/tokens --state-dir %S/fabric-mcp";
        // A dynamic user's folder is one that its own user cannot reach: no --usage with sudo -u.
        assert!(!unit.contains("DynamicUser="));
        for line in [start, "User=fabric-mcp"] {
            assert!(unit.lines().any(|l| l == line), "{line}\n{unit}");
        }
        let part = "\nEnvironment=";
        assert!(!unit.contains(part), "EnvironmentFile= would win over it");
        let is_warned = |folder: &str| {
            let unit = super::unit(&Path::new(folder).join("fabric-mcp"), false);
            unit.unwrap().contains("hides this program")
        };
        assert!(HIDDEN.iter().all(|folder| is_warned(folder)) && !is_warned("/usr/bin"));
    }

    #[test]
    fn the_template_differs_in_what_each_instance_has_alone() {
        let [unit, template] = [false, true].map(|is| unit(Path::new("/usr/bin/x"), is).unwrap());
        let other: Vec<&str> = template
            .lines()
            .filter(|line| !unit.lines().any(|l| l == *line))
            .collect();
        assert_eq!(other.len(), 5, "{other:?}");
        let expected = "ExecStart=/usr/bin/x --transport http --port %i --tokens-file \
            /etc/fabric-mcp/tokens --state-dir %S/fabric-mcp";
        assert_eq!(other[2], expected);
        assert_eq!(other[4], "EnvironmentFile=-/etc/fabric-mcp/%i.env");
    }

    #[test]
    fn paths_mean_themselves_or_are_refused() {
        for path in ["/usr/bin/fabric-mcp", "/opt/@PORT@/é"] {
            let line = format!("\nExecStart={path} --transport http --tokens-file ");
            let unit = unit(Path::new(path), false).unwrap();
            assert!(unit.contains(&line), "{unit}");
        }
        let all = "/opt/a\nExecStartPre=/bin/sh/fabric|/opt/\u{7f}|/opt/a\"b|/opt/a'b|/opt/a\\b|\
                   /opt/a$b/fabric|/opt/50%/fabric|/opt/a b/c";
        for path in all.split('|') {
            for is_template in [false, true] {
                let expected = format!(
                    "systemd cannot start {path:?}; move it to where the path has only \
                     usual characters, such as /usr/local/bin"
                );
                assert_eq!(unit(Path::new(path), is_template).unwrap_err(), expected);
            }
        }
    }
}
