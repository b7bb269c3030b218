//! The Model Context Protocol itself, without I/O: bytes in, bytes out. No Fabric, threads, clock or sockets.
//!
//! ```text
//!   bytes ──Inbound::read──▶ era ──Meta──▶ revision, checks ──(server)──▶ ResultWriter ──▶ bytes
//! ```
//! In scope: eras and revisions, `_meta`, sessions, writing answers, errors and pages. Not in scope:
//! which methods there are and what they do (`server`), I/O (`transport`).

mod answer;
pub(crate) mod inbound;
pub(crate) mod jsonrpc;
pub(crate) mod meta;
mod node;
pub(crate) mod pages;
mod revision;
mod session;
mod writer;

pub(crate) use answer::{Answer, Refusal, ResultWriter, error_object, server_info};
pub(crate) use inbound::Inbound;
pub(crate) use jsonrpc::Id;
pub(crate) use meta::{Meta, RequestContext, RequestHeaders, TASKS, mirrors, without_handshake};
pub(crate) use node::{Node, Params, VALUE};
pub(crate) use revision::{Feature, HEADER_PREFIX, Revision, SESSION_HEADER, VERSION_HEADER};
pub(crate) use session::{Level, Session};
pub(crate) use writer::Json;
