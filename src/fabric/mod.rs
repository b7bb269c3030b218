//! Fabric's REST API: a few reads and one streamed run.
//!
//! In scope: requests and responses (`routes` over `client`), validation of what is sent (`names`, `template`), the
//! content of responses (`types`, `listing`, `events`, `sanitize`), and caches (`cached`, `catalog`). Not in scope:
//! MCP, and how tools present a response. Callers get callbacks during a wait through [`CallObserver`].

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
