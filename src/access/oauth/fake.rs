//! An authorization server for tests, which can misbehave.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use super::OAuthSettings;
use crate::config::Secret;
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
            ca_file: None,
        }
    }
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct IssuerRequest {
    /// Method and path.
    pub(super) line: String,
    pub(super) headers: Vec<String>,
    pub(super) body: String,
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

type Script = Box<dyn Fn(&IssuerRequest) -> FakeReply + Send>;

pub(super) struct Fake {
    pub(super) url: String,
    shared: Arc<Shared>,
}

struct Shared {
    script: Mutex<Script>,
    seen: Mutex<Vec<IssuerRequest>>,
    hanging: Mutex<Vec<TcpStream>>,
}

impl Fake {
    /// With an issuer of path `/as`: metadata as in RFC 8414, and `introspect` for what it says of each token.
    pub(super) fn new(introspect: impl Fn(&IssuerRequest) -> FakeReply + Send + 'static) -> Fake {
        let fake = Fake::bare();
        fake.script(fake.with_metadata(introspect));
        fake
    }

    /// One that knows nothing.
    pub(super) fn bare() -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let script: Script = Box::new(|_| FakeReply::Answer(404, "{}".into()));
        let shared = Arc::new(Shared {
            script: Mutex::new(script),
            seen: Mutex::default(),
            hanging: Mutex::default(),
        });
        let serving = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = serving.clone();
                thread::spawn(move || serve(stream.unwrap(), &shared));
            }
        });
        Fake { url, shared }
    }

    /// From now on it answers like this.
    pub(super) fn script(&self, script: impl Fn(&IssuerRequest) -> FakeReply + Send + 'static) {
        *lock(&self.shared.script) = Box::new(script);
    }

    pub(super) fn with_metadata(
        &self,
        introspect: impl Fn(&IssuerRequest) -> FakeReply + Send + 'static,
    ) -> impl Fn(&IssuerRequest) -> FakeReply + Send + 'static {
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
    pub(super) fn seen(&self) -> Vec<IssuerRequest> {
        std::mem::take(&mut *lock(&self.shared.seen))
    }

    /// Methods and paths of the same.
    pub(super) fn lines(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.line).collect()
    }
}

fn serve(stream: TcpStream, shared: &Shared) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    while let Some(seen) = request(&mut reader) {
        lock(&shared.seen).push(seen.clone());
        let reply = lock(&shared.script)(&seen);
        match reply {
            FakeReply::Answer(status, body) => {
                let answer = format!(
                    "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nLocation: /introspect\r\n\
                     Content-Length: {}\r\n\r\n{body}",
                    body.len()
                );
                if stream.write_all(answer.as_bytes()).is_err() {
                    return;
                }
            }
            FakeReply::Raw(bytes) => {
                let _ = stream.write_all(&bytes);
                return;
            }
            FakeReply::Hang(bytes) => {
                let _ = stream.write_all(&bytes);
                return lock(&shared.hanging).push(stream);
            }
        }
    }
}

fn request(reader: &mut BufReader<TcpStream>) -> Option<IssuerRequest> {
    let mut line = || {
        let mut line = String::new();
        (reader.read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_owned())
    };
    let first = line()?.trim_end_matches(" HTTP/1.1").to_owned();
    let mut headers = Vec::new();
    loop {
        match line()? {
            end if end.is_empty() => break,
            header => headers.push(header),
        }
    }
    let length = headers.iter().find_map(|h| {
        h.to_ascii_lowercase()
            .strip_prefix("content-length: ")?
            .parse()
            .ok()
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(IssuerRequest {
        line: first,
        headers,
        body: String::from_utf8(body).ok()?,
    })
}
