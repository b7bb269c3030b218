//! Fabric's REST API: a few reads and one streamed run.
//!
//! In scope: requests and responses (`routes` over `client`), validation of what is sent (`names`, `template`), the
//! content of responses (`types`, `name_list`, `events`, `sanitize`), and caches (`cached`, `catalog`). Not in scope:
//! MCP, and how tools present a response. Callers get callbacks during a wait through [`CallObserver`].
//!
//! The ways to a pattern, and what each costs:
//!
//! - [`search::shipped`](crate::search::shipped): what this program knows about the patterns of Fabric's own. No request.
//! - [`Client::names`]: the names that Fabric has, from one request for all callers, as old as the caller allows;
//!   [`Client::cached_names`] sends none and may be of any age.
//! - [`Catalog::snapshot`]: all patterns with their texts, up to `ttl` old: a request for each, shared by all callers;
//!   [`Catalog::latest`] sends none.
//! - [`Client::pattern`]: the current text of one, a request each time. If Fabric has none, it finds similar names.

mod cached;
mod catalog;
mod client;
mod events;
#[cfg(test)]
pub(crate) mod fixture;
mod name_list;
pub(crate) mod names;
mod observer;
mod process;
mod routes;
mod sanitize;
pub(crate) mod template;
mod types;
mod youtube;

pub(crate) use cached::Cached;
pub(crate) use catalog::{Catalog, Entry, Snapshot};
pub(crate) use client::{BuiltInFabric, Client, Interruptible, cause_of, watch};
pub(crate) use events::{Event, Usage};
pub(crate) use name_list::NameList;
pub(crate) use names::Name;
pub(crate) use observer::{CallObserver, Observer, Poll, Unobserved, Until};
pub(crate) use process::{HELPER, Process, be_helper, find};
pub(crate) use routes::{Route, lacks_nothing, no_room, not_found, not_runnable, too_many};
pub(crate) use sanitize::sanitize;
pub(crate) use types::{Chat, Models, Pattern, Strategy, is_runnable};
pub(crate) use youtube::{Transcript, VideoId};

pub(crate) use crate::error::{Cause, Error, Kind, Place};
