//! A list of names, as Fabric's patterns come.
//!
//! In scope: reading it, in whatever order it comes, finding a name in it, and doing neither twice for the same bytes. Not
//! in scope: what a name may be (`names`).

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use serde::de::{DeserializeSeed, Error, SeqAccess, Visitor};
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

/// Names, sorted, each once. In one piece of memory: 250 small strings were a tenth of what a call cost that lists them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    text: String,
    places: Vec<Range<usize>>,
    /// The list as JSON, once it was asked for.
    json: OnceLock<Box<RawValue>>,
}

impl Names {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Are there none?
    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The name at a place in the order.
    pub(crate) fn get(&self, at: usize) -> Option<&str> {
        Some(&self.text[self.places.get(at)?.clone()])
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.places.iter().map(|place| &self.text[place.clone()])
    }

    /// Is this one of them?
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.places.binary_search_by(|place| self.text[place.clone()].cmp(name)).is_ok()
    }

    fn push(&mut self, name: &str) {
        let start = self.text.len();
        self.text.push_str(name);
        self.places.push(start..self.text.len());
    }

    /// Fabric sorts its lists, but does not promise it.
    fn sorted(mut self) -> Names {
        let name = |place: &Range<usize>| &self.text[place.clone()];
        if !self.places.is_sorted_by(|a, b| name(a) < name(b)) {
            self.places.sort_unstable_by(|a, b| name(a).cmp(name(b)));
            self.places.dedup_by(|a, b| name(a) == name(b));
        }
        self
    }
}

impl PartialEq for Names {
    fn eq(&self, other: &Names) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'a> FromIterator<&'a str> for Names {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Names {
        let mut list = Names::default();
        names.into_iter().for_each(|name| list.push(name));
        list.sorted()
    }
}

impl Serialize for Names {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// Without what is kept.
        struct Each<'a>(&'a Names);
        impl Serialize for Each<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq(self.0.iter())
            }
        }
        // Strings always become JSON.
        self.json.get_or_init(|| to_raw_value(&Each(self)).unwrap_or_default()).serialize(serializer)
    }
}

/// From an array of strings, or the `null` that Go writes for an empty one.
impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Names, D::Error> {
        deserializer.deserialize_any(List).map(Names::sorted)
    }
}

struct List;

impl<'de> Visitor<'de> for List {
    type Value = Names;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of names")
    }

    fn visit_unit<E: Error>(self) -> Result<Names, E> {
        Ok(Names::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<Names, A::Error> {
        let mut list = Names::default();
        while names.next_element_seed(Next(&mut list))?.is_some() {}
        Ok(list)
    }
}

/// Takes in one name.
struct Next<'a>(&'a mut Names);

impl<'de> DeserializeSeed<'de> for Next<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Next<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<(), E> {
        self.0.push(name);
        Ok(())
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
