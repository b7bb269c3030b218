//! An authorization server for tests, which can misbehave.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::OAuthSettings;
use crate::config::Secret;
use crate::fabric::fixture::{Fixture, FixtureRequest};
use crate::sync::lock;
use crate::url::WebUrl;

impl OAuthSettings {
    /// A client of the issuer at this URL.
    pub(in crate::access) fn of(
        issuer: &str,
        client_id: &str,
        client_secret: &str,
    ) -> OAuthSettings {
        OAuthSettings {
            issuer: WebUrl::parse(issuer).unwrap(),
            resource: WebUrl::parse("http://localhost:8000/mcp").unwrap(),
            client_id: Secret::new(client_id),
            client_secret: Secret::new(client_secret),
        }
    }
}

#[derive(Clone)]
pub(super) enum FakeReply {
    /// Status and body; the connection is kept.
    Answer(u16, String),
    /// These bytes, and the connection is closed.
    Raw(Vec<u8>),
    /// These bytes and then nothing, with the connection open.
    Hang(Vec<u8>),
}

impl FakeReply {
    pub(super) fn json(value: &Value) -> FakeReply {
        FakeReply::Answer(200, value.to_string())
    }
}

type Script = Box<dyn Fn(&FixtureRequest) -> FakeReply + Send>;

pub(super) struct Fake {
    pub(super) url: String,
    fixture: Fixture,
    script: Arc<Mutex<Script>>,
}

impl Fake {
    /// With an issuer of path `/as`: metadata as in RFC 8414, and `introspect` for what it says of each token.
    pub(super) fn new(introspect: impl Fn(&FixtureRequest) -> FakeReply + Send + 'static) -> Fake {
        let fake = Fake::bare();
        fake.script(fake.with_metadata(introspect));
        fake
    }

    /// One that knows nothing.
    pub(super) fn bare() -> Fake {
        let script: Script = Box::new(|_| FakeReply::Answer(404, "{}".into()));
        let script = Arc::new(Mutex::new(script));
        let current = Arc::clone(&script);
        let fixture = Fixture::new(move |_, seen, stream| {
            let reply = lock(&current)(seen);
            match reply {
                FakeReply::Answer(status, body) => {
                    let answer = format!(
                        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nLocation: /introspect\r\n\
                         Content-Length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    stream.write_all(answer.as_bytes()).is_ok()
                }
                FakeReply::Raw(bytes) => stream.write_all(&bytes).is_err(),
                FakeReply::Hang(bytes) => {
                    let _ = stream.write_all(&bytes);
                    stream.read(&mut [0]).is_err()
                }
            }
        });
        Fake {
            url: fixture.url.clone(),
            fixture,
            script,
        }
    }

    /// From now on it answers like this.
    pub(super) fn script(&self, script: impl Fn(&FixtureRequest) -> FakeReply + Send + 'static) {
        *lock(&self.script) = Box::new(script);
    }

    pub(super) fn with_metadata(
        &self,
        introspect: impl Fn(&FixtureRequest) -> FakeReply + Send + 'static,
    ) -> impl Fn(&FixtureRequest) -> FakeReply + Send + 'static {
        let metadata = self.metadata();
        move |seen| match seen.line.as_str() {
            "GET /.well-known/oauth-authorization-server/as" => FakeReply::json(&metadata),
            "POST /introspect" => introspect(seen),
            _ => FakeReply::Answer(404, "{}".into()),
        }
    }

    pub(super) fn metadata(&self) -> Value {
        json!({
            "issuer": format!("{}/as", self.url), "introspection_endpoint": format!("{}/introspect", self.url),
            "introspection_endpoint_auth_methods_supported": ["client_secret_basic"],
        })
    }

    /// What came since this was asked last.
    pub(super) fn seen(&self) -> Vec<FixtureRequest> {
        self.fixture.take_requests()
    }

    /// Methods and paths of the same.
    pub(super) fn lines(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.line).collect()
    }
}
