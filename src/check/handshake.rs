//! The first messages of a client in both eras, sent to our own server.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::protocol::{Revision, Session};
use crate::server::{Audience, Server};

use super::diagnosis::Problem;

/// The result for one era.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Era {
    /// Its newest revision.
    pub(super) revision: &'static str,
    /// The first request.
    pub(super) opening: &'static str,
    /// The number of tools listed, or why it failed.
    pub(super) tools: Result<usize, String>,
}

impl Era {
    /// The problem, if there is one.
    pub(super) fn problem(&self) -> Option<Problem> {
        let why = self.tools.as_ref().err()?;
        let what = format!("A client of MCP {} would fail: {why}", self.revision);
        Some(Problem::error(
            "mcp-handshake",
            what,
            "This is a bug of fabric-mcp: please report it.",
        ))
    }
}

/// Acts as a client of the newest legacy revision, then of the newest stateless one.
pub(super) fn all(server: &Server) -> Vec<Era> {
    vec![legacy(server), modern(server)]
}

fn legacy(server: &Server) -> Era {
    let session = Arc::new(Session::stdio());
    let revision = Revision::NEWEST_LEGACY.name();
    let client = json!({"name": "fabric-mcp --check", "version": env!("CARGO_PKG_VERSION")});
    let params = json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": client});
    let tools = ask(server, &session, "initialize", params).and_then(|agreed| {
        match agreed["protocolVersion"].as_str() {
            Some(agreed) if agreed == revision => count_tools(server, &session, json!({})),
            other => Err(format!("initialize agreed on {other:?}.")),
        }
    });
    Era {
        revision,
        opening: "initialize",
        tools,
    }
}

fn modern(server: &Server) -> Era {
    let session = Arc::new(Session::stdio());
    let revision = Revision::ALL
        .iter()
        .rfind(|revision| !revision.is_legacy())
        .map_or("", |revision| revision.name());
    let params = json!({"_meta": {
        "io.modelcontextprotocol/protocolVersion": revision,
        "io.modelcontextprotocol/clientCapabilities": {},
    }});
    let tools = ask(server, &session, "server/discover", params.clone()).and_then(|discovered| {
        let supported = discovered["supportedVersions"]
            .as_array()
            .is_some_and(|all| all.contains(&json!(revision)));
        if supported {
            count_tools(server, &session, params)
        } else {
            Err("server/discover does not offer it.".into())
        }
    });
    Era {
        revision,
        opening: "server/discover",
        tools,
    }
}

fn count_tools(server: &Server, session: &Arc<Session>, params: Value) -> Result<usize, String> {
    match ask(server, session, "tools/list", params)?["tools"].as_array() {
        Some(tools) if !tools.is_empty() => Ok(tools.len()),
        _ => Err("tools/list has no tools.".into()),
    }
}

fn ask(
    server: &Server,
    session: &Arc<Session>,
    method: &str,
    params: Value,
) -> Result<Value, String> {
    let request = json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params});
    let request = request.to_string();
    match Ok::<_, String>(server.ask(session, &request, Arc::new(Nobody))) {
        Ok(mut answer) if answer["result"].is_object() => Ok(answer["result"].take()),
        Ok(answer) => Err(format!(
            "{method} was refused: {:?}",
            answer["error"]["message"].as_str().unwrap_or_default()
        )),
        Err(error) => Err(error),
    }
}

struct Nobody;

impl Audience for Nobody {
    fn hear(&self, _: &Value) {}
}
