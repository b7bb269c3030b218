//! The supported revisions of MCP, and their features.
//!
//! In scope: names, order, and the table of features by revision. Not in scope: the revision of a message (`meta`,
//! `session`). Other modules ask `revision.knows(…)` and do not compare revisions.

use crate::table::table;

table! {
    /// A revision of the Model Context Protocol, ordered from oldest to newest, with its name in messages and headers.
    #[derive(PartialOrd, Ord)]
    Revision: &'static str as pub(crate) name {
        /// 2024-11-05.
        R2024_11_05 = "2024-11-05";
        /// 2025-03-26.
        R2025_03_26 = "2025-03-26";
        /// 2025-06-18.
        R2025_06_18 = "2025-06-18";
        /// 2025-11-25, the last with an `initialize` handshake.
        R2025_11_25 = "2025-11-25";
        /// 2026-07-28, stateless: everything is in each request's `_meta`.
        R2026_07_28 = "2026-07-28";
    }
}

table! {
    /// A feature that not every revision has, with the revision that introduced it; later ones have it too.
    Feature: Revision as row {
        /// Hints such as `readOnlyHint` on a tool.
        ToolAnnotations = Revision::R2025_03_26;
        /// `message` in a progress notification.
        ProgressMessage = Revision::R2025_03_26;
        /// The server says that it completes arguments.
        Completions = Revision::R2025_03_26;
        /// `title` beside `name`.
        Title = Revision::R2025_06_18;
        /// `outputSchema` on a tool and `structuredContent` in its result.
        StructuredContent = Revision::R2025_06_18;
        /// `_meta` on the items of a list.
        ItemMeta = Revision::R2025_06_18;
        /// `description` and `websiteUrl` in serverInfo.
        ServerDescription = Revision::R2025_11_25;
        /// A wrong tool argument is a result with `isError`, not a protocol error.
        ArgumentErrorsAsResults = Revision::R2025_11_25;
        /// An error without a readable id has no `id` member; before, it was `null`.
        AbsentId = Revision::R2025_11_25;
        /// No handshake, no session: `resultType`, serverInfo in each result, cache hints, `subscriptions/listen`.
        Stateless = Revision::R2026_07_28;
    }
}

/// The header that carries a legacy session's id.
pub(crate) const SESSION_HEADER: &str = "Mcp-Session-Id";
/// The header that carries the revision, of sessions from 2025-06-18 on too.
pub(crate) const VERSION_HEADER: &str = "MCP-Protocol-Version";
/// The stateless revision's header that repeats the method.
pub(crate) const METHOD_HEADER: &str = "Mcp-Method";
/// The stateless revision's header that repeats what the request is about; its value may be encoded.
pub(crate) const NAME_HEADER: &str = "Mcp-Name";
/// What the names of all of MCP's headers begin with, in lower case.
pub(crate) const HEADER_PREFIX: &str = "mcp-";

impl Revision {
    /// The newest revision.
    pub(crate) const NEWEST: Revision = Revision::ALL[Revision::ALL.len() - 1];

    /// The newest revision with an `initialize` handshake: the answer to an unknown version.
    pub(crate) const NEWEST_LEGACY: Revision = Revision::R2025_11_25;

    /// The revision with this name, if supported.
    pub(crate) fn named(name: &str) -> Option<Revision> {
        Revision::ALL.into_iter().find(|r| r.name() == name)
    }

    /// Does this revision have an `initialize` handshake?
    pub(crate) fn is_legacy(self) -> bool {
        !self.knows(Feature::Stateless)
    }

    /// Does this revision have `feature`?
    pub(crate) fn knows(self, feature: Feature) -> bool {
        self >= feature.row()
    }
}
