//! Pagination of lists with opaque cursors; a list of up to 1,000 entries is one page, because many clients read no
//! further.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use serde_json::Value;

use super::answer::{Refusal, ResultWriter};
use super::jsonrpc;
use super::node::{Node, Params};

/// Entries on one page.
const PAGE_SIZE: usize = 1000;

/// The number of a page; the first is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor(usize);

/// Parses `params.cursor`; the first page if there is none.
///
/// # Errors
/// -32602 for anything but a cursor of this server.
pub(crate) fn cursor(params: Option<&Node<'_>>) -> Result<Cursor, Refusal> {
    let params = Params::new(params, "\"cursor\" must be a string.");
    let Some(text) = params.optional_text("cursor")? else {
        return Ok(Cursor(0));
    };
    let page = text.strip_prefix("page-").and_then(|n| n.parse().ok());
    let page = page.filter(|n| write(*n) == text && (1..=usize::MAX / PAGE_SIZE).contains(n));
    page.map(Cursor).ok_or_else(bad)
}

impl Cursor {
    /// The entries of this page out of `total`, and the cursor of the next one.
    ///
    /// # Errors
    /// -32602 if the page is beyond the end: the list has shrunk, or the cursor is made up.
    pub(crate) fn page(self, total: usize) -> Result<(Range<usize>, Option<String>), Refusal> {
        let begin = self.0 * PAGE_SIZE;
        if begin > 0 && begin >= total {
            return Err(bad());
        }
        let end = (begin + PAGE_SIZE).min(total);
        Ok((begin..end, (end < total).then(|| write(self.0 + 1))))
    }

    /// Writes this page of all entries as the field `name`, and `nextCursor` if there is another page.
    ///
    /// # Errors
    /// See [`Cursor::page`].
    pub(crate) fn write(
        self,
        result: &mut ResultWriter,
        name: &str,
        entries: impl ExactSizeIterator<Item: Serialize>,
    ) -> Result<(), Refusal> {
        let (range, next) = self.page(entries.len())?;
        let out = result.key(name);
        out.extend(b"[");
        // One after the other: all entries at once take several times the memory of what is written, which alone is charged.
        for entry in entries.skip(range.start).take(range.len()) {
            jsonrpc::write_item(out, &entry);
            if out.is_cut {
                break;
            }
        }
        out.extend(b"]");
        if let Some(next) = next {
            result.field("nextCursor", &next);
        }
        Ok(())
    }

    /// The same for a list that all its readers share: its pages are written once, and answers have no copy of them.
    ///
    /// # Errors
    /// See [`Cursor::page`].
    pub(crate) fn share(
        self,
        result: &mut ResultWriter,
        name: &str,
        list: &OnceLock<Vec<Arc<[u8]>>>,
        entries: impl Iterator<Item = Value>,
    ) -> Result<(), Refusal> {
        // As a `Value`, each takes several times the memory.
        let entries = || Vec::from_iter(entries.map(|entry| entry.to_string()));
        let page = |entries: &[String]| format!("[{}]", entries.join(",")).into_bytes().into();
        let pages = list.get_or_init(|| entries().chunks(PAGE_SIZE).map(page).collect());
        let (_, next) = self.page(pages.len() * PAGE_SIZE)?;
        let page = pages.get(self.0).cloned();
        result.share(name, page.unwrap_or_else(|| (*b"[]").into()));
        if let Some(next) = next {
            result.field("nextCursor", &next);
        }
        Ok(())
    }
}

fn write(page: usize) -> String {
    format!("page-{page}")
}

fn bad() -> Refusal {
    Refusal::params(
        "\"cursor\" was not given by this server: leave it out to begin at the first page.",
    )
}

#[cfg(test)]
mod tests {
    use super::super::revision::Revision;
    use super::*;
    use serde::Serializer;
    use std::cell::Cell;

    #[test]
    fn a_list_is_one_page_up_to_the_limit() {
        assert_eq!(Cursor(0).page(0).unwrap(), (0..0, None));
        assert_eq!(Cursor(0).page(PAGE_SIZE).unwrap(), (0..PAGE_SIZE, None));
        let found = Cursor(0).page(PAGE_SIZE + 1).unwrap();
        assert_eq!(found, (0..PAGE_SIZE, Some("page-1".into())));
        let found = Cursor(1).page(PAGE_SIZE + 1).unwrap();
        assert_eq!(found, (PAGE_SIZE..PAGE_SIZE + 1, None));
        assert!(Cursor(1).page(PAGE_SIZE).is_err());
    }

    #[test]
    fn an_entry_is_made_once_the_one_before_is_written() {
        struct Counted<'c>(&'c Cell<usize>);
        impl Serialize for Counted<'_> {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                self.0.set(self.0.get() + 1);
                to.serialize_u64(self.0.get() as u64)
            }
        }
        let mut result = ResultWriter::new(None, Revision::NEWEST_LEGACY);
        let written = Cell::new(0);
        let entries = (0..3).map(|at| {
            assert_eq!(written.get(), at);
            Counted(&written)
        });
        Cursor(0).write(&mut result, "all", entries).unwrap();
        assert_eq!(result.end_body(), br#"{"all":[1,2,3]}"#);
    }
}
