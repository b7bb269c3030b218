//! The protocol as a client sees it, in exact bytes and without I/O: each line goes into `Server::receive`, and the
//! action is compared as text. Fabric is never reached: a call is only shown as one.
//!
//! - `methods`: every method in every revision.
//! - `bad_input`: every kind of line that must be refused, and what is not answered.
//! - `eras`: both eras on one pipe, the modern envelope, HTTP's headers.
//! - `batches`: the arrays of 2025-03-26.

mod bad_input;
mod batches;
mod eras;
mod methods;

use std::sync::Arc;

use super::{Action, Server};
use crate::access::{Caller, Identity};
use crate::account::Accounts;
use crate::config::{Policy, RunSettings};
use crate::fabric::{Catalog, Client, fixture};
use crate::protocol::{Id, Inbound, Level, RequestHeaders, Revision, Session};
use crate::runs::Runs;
use crate::time::SystemClock;
use crate::tools::Backend;

/// The `_meta` of every request of a stateless revision, as the inside of a JSON object; `more` are further members.
fn envelope(revision: Revision, more: &str) -> String {
    let version = revision.name();
    format!(
        r#""_meta":{{"io.modelcontextprotocol/protocolVersion":"{version}","io.modelcontextprotocol/clientCapabilities":{{}}{more}}}"#
    )
}

/// `serverInfo`, which every modern result has in its `_meta`.
fn server_info() -> String {
    format!(
        r#""io.modelcontextprotocol/serverInfo":{{"description":"{}","name":"fabric-mcp","title":"Fabric","version":"{}"}}"#,
        env!("CARGO_PKG_DESCRIPTION"),
        env!("CARGO_PKG_VERSION")
    )
}

fn json(id: &Id) -> String {
    serde_json::to_string(id).unwrap()
}

impl Server {
    /// A server whose Fabric cannot be reached, for tests of everything else.
    pub(crate) fn without_fabric() -> Server {
        let time = std::time::Duration::from_secs(1);
        let settings = fixture::settings("http://127.0.0.1:9");
        let fabric = Arc::new(Client::new(&settings).unwrap());
        let catalog = Arc::new(Catalog::new(fabric.clone(), time));
        let accounts = Accounts::alone(1 << 30);
        Server::new(Backend {
            fabric,
            catalog,
            policy: Policy::default(),
            runs: Runs::new(time, None, &accounts, Arc::new(SystemClock::new())),
            // 0, so that no call is answered early on a busy machine.
            settings: RunSettings {
                answer_within: std::time::Duration::ZERO,
                task_after: time,
                keep: time,
                ..RunSettings::default()
            },
            lists: true,
            run_note: None,
            accounts,
        })
    }
}

/// One connection to a server whose Fabric cannot be reached.
struct TestClient {
    server: Server,
    session: Session,
    caller: Arc<Caller>,
    in_use: Vec<&'static str>,
}

impl TestClient {
    /// A stdio process before any handshake.
    fn new() -> TestClient {
        TestClient::of(Session::stdio())
    }

    /// A stdio process that speaks `revision`; a modern one needs no handshake.
    fn speaking(revision: Revision) -> TestClient {
        let pipe = TestClient::new();
        if revision.is_legacy() {
            let name = revision.name();
            pipe.say(&format!(
                r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{name}","capabilities":{{}},"clientInfo":{{"name":"t","version":"1"}}}}}}"#
            ));
            assert_eq!(pipe.session.revision(), Some(revision));
        }
        pipe
    }

    fn of(session: Session) -> TestClient {
        let server = Server::without_fabric();
        TestClient {
            caller: Arc::new(Caller::open(Identity::Local, &server.backend.accounts)),
            server,
            session,
            in_use: Vec::new(),
        }
    }

    /// Sends a line and returns the action as text.
    fn say(&self, line: &str) -> String {
        self.say_bytes(line.as_bytes())
    }

    fn say_bytes(&self, line: &[u8]) -> String {
        let mut inbound = Inbound::read(line, false);
        inbound.refuse_ids(|id| self.in_use.contains(&&*json(id)));
        show(
            self.server
                .receive(&self.session, inbound, None, &self.caller),
        )
    }

    /// The same over HTTP, with its headers.
    fn post(&self, line: &str, modern: bool, headers: &RequestHeaders<'_>) -> String {
        show(self.server.receive(
            &self.session,
            Inbound::read(line.as_bytes(), modern),
            Some(headers),
            &self.caller,
        ))
    }
}

/// An action as text: `-` for nothing, an answer as sent, the kind and id of everything else.
fn show(action: Action) -> String {
    match action {
        Action::Nothing => "-".into(),
        Action::Answer(answer) => {
            let text = String::from_utf8(answer.parts().concat()).unwrap();
            assert!(!text.contains('\n'), "an answer is one line: {text}");
            serde_json::from_str::<serde::de::IgnoredAny>(&text).unwrap();
            ["request_id", "instructions", "generated_at"]
                .iter()
                .fold(text, |text, key| masked(&text, key))
        }
        Action::Call(call) => format!("call {}", json(&call.head.id)),
        Action::Subscribe(listen) => {
            format!(
                "listen {} {}",
                json(&listen.id),
                String::from_utf8(listen.acknowledgement().body).unwrap()
            )
        }
        Action::Cancel(id) => format!("cancel {}", json(&id)),
        Action::Batch(actions) => format!(
            "[{}]",
            actions
                .into_iter()
                .map(show)
                .collect::<Vec<_>>()
                .join(" | ")
        ),
    }
}

/// Replaces a value that varies, or is long, by `#`.
fn masked(text: &str, key: &str) -> String {
    let begin = format!("\"{key}\":\"");
    let mut parts = text.split(&begin);
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let (value, rest) = part.split_once('"').unwrap();
        assert!(!value.is_empty(), "{key} is empty: {text}");
        out.push_str(&begin);
        out.push('#');
        out.push('"');
        out.push_str(rest);
    }
    out
}

/// A request without params.
fn request(method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#)
}

/// A request of `revision` with these params, given as the inside of a JSON object.
fn request_in(revision: Revision, method: &str, params: &str) -> String {
    let params = match (revision.is_legacy(), params.is_empty()) {
        (true, _) => params.to_string(),
        (false, true) => envelope(revision, ""),
        (false, false) => format!("{params},{}", envelope(revision, "")),
    };
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}}}}}"#)
}

/// A result as sent in answer to id 1, with `fields` as the inside of a JSON object.
fn result_in(revision: Revision, fields: &str) -> String {
    let modern = match (revision.is_legacy(), fields.is_empty()) {
        (true, _) => fields.to_string(),
        (false, true) => format!(r#""resultType":"complete","_meta":{{{}}}"#, server_info()),
        (false, false) => format!(
            r#""resultType":"complete",{fields},"_meta":{{{}}}"#,
            server_info()
        ),
    };
    format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{{modern}}}}}"#)
}

/// An error as sent; `id` is the member with its comma, or empty.
fn error(id: &str, code: i32, message: &str) -> String {
    error_with(id, code, message, "")
}

/// The same with additional `data`, which is sorted: `first` comes between `detail` and `title`.
fn error_with(id: &str, code: i32, message: &str, first: &str) -> String {
    let message = serde_json::to_string(message).unwrap();
    format!(
        r##"{{"jsonrpc":"2.0",{id}"error":{{"code":{code},"message":{message},"data":{{"detail":{message},"request_id":"#",{first}"title":"The request was refused","type":"urn:fabric-mcp:error:invalid-request"}}}}}}"##
    )
}

const ID: &str = r#""id":1,"#;
