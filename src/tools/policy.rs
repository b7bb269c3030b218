//! Which patterns may be run.

use crate::fabric::{Error, Name, names};

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
    /// `invalid-request`, naming the field, the reason and, where there is one, the way out. Names are compared as
    /// [`names::is_same`] does: Fabric's file system may open the same folder for several.
    pub(crate) fn check(&self, field: &str, pattern: &Name) -> Result<(), Error> {
        match self.refusal(pattern.as_str()) {
            None => Ok(()),
            Some(why) => Err(refused(format!("`{field}`: {why}"))),
        }
    }

    /// Whether a pattern of this name may be run here, as far as the operator is concerned.
    pub(crate) fn allows(&self, pattern: &str) -> bool {
        self.refusal(pattern).is_none()
    }

    fn refusal(&self, pattern: &str) -> Option<String> {
        let listed = |list: &[String]| list.iter().any(|other| names::is_same(pattern, other));
        if listed(&self.denied) {
            Some(format!("the pattern {pattern} is denied on this server (--deny-pattern)."))
        } else if names::is_same(pattern, WRITES_FILES) && !listed(&self.allowed) {
            Some(format!(
                "{WRITES_FILES} writes files on the Fabric host, so it is refused unless the operator starts fabric-mcp \
                 with --allow-pattern {WRITES_FILES}."
            ))
        } else {
            None
        }
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
        assert!(verdict(&[], &["über. "], "U\u{308}BER").is_err());
        assert!(verdict(&[], &[], "create_codıng_feature").is_err());
        assert_eq!(verdict(&["Create_Coding_Feature"], &[], WRITES_FILES), Ok(()));
        let policy = Policy { allowed: vec![], denied: vec!["zz".into()] };
        assert!(policy.allows("summarize") && !policy.allows("ZZ") && !policy.allows(WRITES_FILES));
        assert!(!policy.allows("zz."), "a folder that cannot be asked for is not listed either");
    }
}
