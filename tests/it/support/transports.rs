//! One interface to any transport and era, for tests that are the same on all of them.

use std::sync::Arc;

use super::http::HttpServer;
use super::process::Program;
use super::stdio::Stdio;
use super::web::{Sse, Streamable};
use super::{Caller, ERAS, Era};

/// A transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Stdio,
    Streamable,
    Sse,
}

/// Every transport with every era that it supports.
pub(crate) fn all() -> Vec<(Wire, Era)> {
    let streamable = ERAS.into_iter().filter(|era| *era != Era::R2024_11_05);
    let mut all: Vec<_> = ERAS.into_iter().map(|era| (Wire::Stdio, era)).collect();
    all.extend(streamable.map(|era| (Wire::Streamable, era)));
    all.extend([
        (Wire::Sse, Era::R2024_11_05),
        (Wire::Sse, Era::R2025_11_25),
        (Wire::Sse, Era::MODERN),
    ]);
    all
}

/// Each transport once, in its newest revision.
pub(crate) const EACH: [(Wire, Era); 3] = [
    (Wire::Stdio, Era::MODERN),
    (Wire::Streamable, Era::R2025_11_25),
    (Wire::Sse, Era::R2024_11_05),
];

/// Starts the program on a transport.
pub(crate) fn serve(wire: Wire, program: Program) -> Arc<HttpServer> {
    let name = if wire == Wire::Sse { "sse" } else { "http" };
    Arc::new(HttpServer::listening(
        program.arg("--transport").arg(name).flags("--port 0"),
    ))
}

/// Another client of a server over HTTP; `token` is its bearer token.
pub(crate) fn client(
    server: &Arc<HttpServer>,
    wire: Wire,
    era: Era,
    token: Option<&str>,
) -> Box<dyn Caller> {
    match wire {
        Wire::Sse => Box::new(Sse::to(server, era, token)),
        _ => Box::new(Streamable::to(server, era, token)),
    }
}

/// Starts the program and opens a client; `token` is its bearer token over HTTP.
pub(crate) fn open(wire: Wire, era: Era, program: Program, token: Option<&str>) -> Box<dyn Caller> {
    match wire {
        Wire::Stdio => Box::new(Stdio::speaking(era, program)),
        _ => client(&serve(wire, program), wire, era, token),
    }
}
