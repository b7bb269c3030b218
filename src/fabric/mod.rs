//! What Fabric is to us: a REST API of a handful of reads and one streamed run.
//!
//! In scope: every request we make and every shape of answer (`calls` over `client`), the guard on what may be sent
//! (`names`, `template`), what an answer holds (`types`, `listing`, `events`), what can go wrong (`error`), and what callers share
//! (`shared`, and the timed list of patterns and strategies, `catalog`). Not in scope: MCP, and what a tool makes of an
//! answer. Nothing here knows who is asking; whoever waits says so through [`Wait`].

mod cached;
mod calls;
mod catalog;
mod client;
mod events;
#[cfg(test)]
mod fixture;
mod listing;
pub(crate) mod names;
mod sanitize;
pub(crate) mod template;
mod types;
mod wait;
mod youtube;

pub(crate) use cached::Cached;
pub(crate) use calls::{NO_STRATEGIES, no_room, not_found, too_many};
pub(crate) use catalog::{Catalog, Entry};
pub(crate) use client::Client;
pub(crate) use events::{Event, Usage};
pub(crate) use listing::Names;
pub(crate) use names::Name;
pub(crate) use sanitize::sanitize;
pub(crate) use types::{Chat, Models, Pattern, Strategy};
pub(crate) use wait::{NoWait, Stop, Wait};
pub(crate) use youtube::{Transcript, VideoId};

pub(crate) use crate::error::{Cause, Error, Kind};
