//! Which patterns may be run.

use crate::fabric::{Error, Name};

use super::refused;

/// Writes files in Fabric's working directory when it is run.
const WRITES_FILES: &str = "create_coding_feature";

/// What the operator allows and denies: `--allow-pattern` and `--deny-pattern`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policy {
    /// Patterns that are refused by default and may be run all the same.
    pub(crate) allowed: Vec<String>,
    /// Patterns that may not be run. Denying wins over allowing.
    pub(crate) denied: Vec<String>,
}

impl Policy {
    /// Refuses a pattern that may not be run here.
    ///
    /// # Errors
    /// `invalid-request`, naming the field, the reason and, where there is one, the way out. Names are compared without
    /// regard to case: Fabric's file system may not tell cases apart.
    pub(super) fn check(&self, field: &str, pattern: &Name) -> Result<(), Error> {
        let name = pattern.as_str();
        let listed = |list: &[String]| list.iter().any(|other| other.to_lowercase() == name.to_lowercase());
        if listed(&self.denied) {
            return Err(refused(format!("`{field}`: the pattern {name} is denied on this server (--deny-pattern).")));
        }
        if name.eq_ignore_ascii_case(WRITES_FILES) && !listed(&self.allowed) {
            return Err(refused(format!(
                "`{field}`: {WRITES_FILES} writes files on the Fabric host, so it is refused unless the operator starts \
                 fabric-mcp with --allow-pattern {WRITES_FILES}."
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_writing_pattern_needs_leave_and_denying_wins() {
        let name = |n| Name::parse("pattern_name", n).unwrap();
        let verdict = |allowed: &[&str], denied: &[&str], pattern| {
            let own = |list: &[&str]| list.iter().map(|s| s.to_string()).collect();
            Policy { allowed: own(allowed), denied: own(denied) }
                .check("pattern_name", &name(pattern))
                .map_err(|e| e.detail)
        };
        assert_eq!(verdict(&[], &[], "summarize"), Ok(()));
        assert!(verdict(&[], &[], WRITES_FILES).unwrap_err().contains("--allow-pattern create_coding_feature"));
        assert!(verdict(&[], &[], "Create_Coding_Feature").is_err());
        assert_eq!(verdict(&[WRITES_FILES], &[], WRITES_FILES), Ok(()));
        assert!(verdict(&[WRITES_FILES], &[WRITES_FILES], WRITES_FILES).unwrap_err().contains("--deny-pattern"));
        assert!(verdict(&[], &["Summarize"], "summarize").is_err());
    }
}
