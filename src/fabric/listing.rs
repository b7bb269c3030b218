//! A list of names, as Fabric's patterns come.
//!
//! In scope: reading it, in whatever order it comes, finding a name in it, and doing neither twice for the same bytes. Not
//! in scope: what a name may be (`names`).

use std::sync::{Arc, Mutex, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::sync::lock;

/// Longest body, in bytes, that [`Listing`] keeps: some 40,000 names.
const KEPT: usize = 1 << 20;

/// The list as Fabric last sent it. It is asked for often and seldom changes: as long as the same bytes come, they are not
/// read anew.
#[derive(Default)]
pub(super) struct Listing(Mutex<Option<(Vec<u8>, Arc<Names>)>>);

impl Listing {
    /// The names that `body` lists, by `read` if it is not the one before.
    pub(super) fn names(&self, body: Vec<u8>, read: impl FnOnce(&[u8]) -> Option<Names>) -> Option<Arc<Names>> {
        let mut last = lock(&self.0);
        if let Some((bytes, names)) = &*last
            && *bytes == body
        {
            return Some(Arc::clone(names));
        }
        let names = Arc::new(read(&body)?);
        *last = (body.len() <= KEPT).then(|| (body, Arc::clone(&names)));
        Some(names)
    }
}

/// Names, sorted, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    names: Vec<String>,
    /// The list as JSON, once it was asked for: writing 250 names would be a third of what a call costs that lists them.
    json: OnceLock<Box<RawValue>>,
}

impl Names {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// Are there none?
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The name at a place in the order.
    pub(crate) fn get(&self, at: usize) -> Option<&str> {
        self.names.get(at).map(String::as_str)
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Is this one of them?
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.names.binary_search_by(|known| known.as_str().cmp(name)).is_ok()
    }
}

impl PartialEq for Names {
    fn eq(&self, other: &Names) -> bool {
        self.names == other.names
    }
}

/// Fabric sorts its lists, but does not promise it.
impl From<Vec<String>> for Names {
    fn from(mut names: Vec<String>) -> Names {
        names.sort_unstable();
        names.dedup();
        Names { names, json: OnceLock::new() }
    }
}

impl<'a> FromIterator<&'a str> for Names {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Names {
        Names::from(names.into_iter().map(str::to_owned).collect::<Vec<_>>())
    }
}

impl Serialize for Names {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Strings always become JSON.
        self.json.get_or_init(|| to_raw_value(&self.names).unwrap_or_default()).serialize(serializer)
    }
}

/// From an array of strings, or the `null` that Go writes for an empty one.
impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Names, D::Error> {
        Option::<Vec<String>>::deserialize(deserializer).map(|names| Names::from(names.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Option<Names> {
        serde_json::from_str(json).ok()
    }

    #[test]
    fn a_list_is_sorted_and_has_each_name_once() {
        let names = read(r#"["b", "a\u0041", "b", "", "ä"]"#).unwrap();
        assert_eq!(names.iter().collect::<Vec<_>>(), ["", "aA", "b", "ä"]);
        assert_eq!((names.len(), names.get(1), names.get(4)), (4, Some("aA"), None));
        assert_eq!(names, ["ä", "b", "aA", ""].into_iter().collect());
        assert_eq!(serde_json::to_string(&names).unwrap(), r#"["","aA","b","ä"]"#);
        assert!(names.contains("aA") && names.contains("") && !names.contains("a"));
    }

    #[test]
    fn null_is_empty_and_anything_else_is_no_list() {
        assert!(read("null").unwrap().is_empty() && read("[]").unwrap().is_empty());
        for bad in ["{}", "1", r#""a""#, "[1]", "[null]", r#"["a""#] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_same_bytes_are_not_read_anew() {
        let read = |body: &[u8]| serde_json::from_slice(body).ok();
        let unread = |_: &[u8]| unreachable!("it was read before");
        let listing = Listing::default();
        let first = listing.names(br#"["a"]"#.to_vec(), read).unwrap();
        assert!(Arc::ptr_eq(&first, &listing.names(br#"["a"]"#.to_vec(), unread).unwrap()));
        assert_eq!(listing.names(b"[".to_vec(), read), None);
        assert!(Arc::ptr_eq(&first, &listing.names(br#"["a"]"#.to_vec(), unread).unwrap()));
        assert!(listing.names(br#"["a","b"]"#.to_vec(), read).unwrap().contains("b"));
        let long = format!("[\"a\"{}]", " ".repeat(KEPT));
        let once = listing.names(long.clone().into_bytes(), read).unwrap();
        assert!(!Arc::ptr_eq(&once, &listing.names(long.into_bytes(), read).unwrap()));
    }
}
