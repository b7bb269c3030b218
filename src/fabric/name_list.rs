//! A list of names from Fabric, sorted and without duplicates. Which names are valid is decided in `names`.

use crate::encoding::json::decode;
use std::ops::Deref;
use std::sync::OnceLock;

use super::Name;
use crate::search::Index;

/// Names in order, without duplicates.
#[derive(Debug, Default)]
pub(crate) struct NameList {
    names: Vec<String>,
    /// The body they were read from, to detect an unchanged list cheaply.
    pub(super) body: Vec<u8>,
    /// The result of a call that lists them, and the same as a JSON string, built on first use: encoding 250 names
    /// twice takes half the time of such a call.
    json: OnceLock<[String; 2]>,
    /// Likewise: to build it for 10,000 names takes some 100 ms.
    index: OnceLock<Index>,
}

impl NameList {
    /// Reads the body of Fabric's answer: an array of strings, or the `null` that Go writes for an empty one. What
    /// cannot be asked for by its name is left out.
    pub(super) fn read(body: Vec<u8>) -> Option<NameList> {
        let names: Option<Vec<String>> = decode(&body)?;
        let names = names.into_iter().flatten();
        let names = names.filter(|name| Name::parse("", name).is_ok()).collect();
        Some(NameList { body, ..names })
    }

    /// All names, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// The object whose member `patterns` they are, as JSON and as a JSON string.
    pub(crate) fn json(&self) -> &[String; 2] {
        self.json.get_or_init(|| {
            // Strings always serialise.
            let json = serde_json::to_string(&self.names).unwrap_or_default();
            let object = format!("{{\"patterns\":{json}}}");
            let string = serde_json::to_string(&object).unwrap_or_default();
            [object, string]
        })
    }

    /// A search index of the names alone.
    pub(crate) fn index(&self) -> &Index {
        let names = self.iter().map(|name| (name, ""));
        self.index.get_or_init(|| Index::build(names))
    }

    /// Whether this name is listed.
    pub(crate) fn contains(&self, name: &str) -> bool {
        let by_name = |known: &String| known.as_str().cmp(name);
        self.names.binary_search_by(by_name).is_ok()
    }
}

impl Deref for NameList {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.names
    }
}

// Lets `Arc` compare pointers first.
impl Eq for NameList {}

impl PartialEq for NameList {
    fn eq(&self, other: &NameList) -> bool {
        self.names == other.names
    }
}

/// Fabric sorts its lists, but does not promise it.
impl<S: Into<String>> FromIterator<S> for NameList {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> NameList {
        let mut names: Vec<String> = names.into_iter().map(Into::into).collect();
        names.sort_unstable();
        names.dedup();
        NameList {
            names,
            ..NameList::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Option<NameList> {
        NameList::read(json.as_bytes().to_vec())
    }

    #[test]
    fn a_list_is_sorted_and_has_each_valid_name_once() {
        let names = read(r#"["b", "a\u0041", "b", "", "q&a", "ä"]"#).unwrap();
        assert_eq!(names.iter().collect::<Vec<_>>(), ["aA", "b", "ä"]);
        assert_eq!(names, ["ä", "b", "aA"].into_iter().collect());
        let object = r#"{"patterns":["aA","b","ä"]}"#;
        assert_eq!(names.json(), &[object, &format!("{object:?}")]);
        assert!(names.contains("aA") && !names.contains("") && !names.contains("a"));
    }

    #[test]
    fn null_is_empty_and_anything_else_is_no_list() {
        assert!(read("null").unwrap().is_empty() && read("[]").unwrap().is_empty());
        for bad in ["{}", "1", r#""a""#, "[1]", "[null]", r#"["a""#] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
