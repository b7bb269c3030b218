//! A Fabric, or another HTTP server, for unit tests: real sockets, scripted answers.
//!
//! In scope: reading requests, and writing whatever bytes a test wants back. Not in scope: being an HTTP server.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::Client;
use crate::config;

/// One received request.
#[derive(Clone, Debug, Default)]
pub(crate) struct FixtureRequest {
    /// `GET /path`.
    pub(crate) line: String,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
    /// The number of its connection, from 0.
    pub(crate) connection: usize,
}

/// Fails with these words where 127.0.0.1 cannot be reached, as in a sandbox without any network.
pub(crate) fn need_loopback() {
    let words = "these tests need a loopback network, and 127.0.0.1 cannot be reached";
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect(words);
    TcpStream::connect(listener.local_addr().unwrap()).expect(words);
}

/// A listener on a free port. Its threads end with the test process.
pub(crate) struct Fixture {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<FixtureRequest>>>,
}

impl Fixture {
    /// Answers each request with `answer`, which gets the number of earlier requests and may write anything. If it
    /// returns `false`, the connection is closed.
    pub(crate) fn new(
        answer: impl Fn(usize, &FixtureRequest, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Fixture {
        need_loopback();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (log, answer) = (Arc::clone(&seen), Arc::new(answer));
        std::thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let mut stream = stream.unwrap();
                    let mut reader = BufReader::new(stream.try_clone().unwrap());
                    while let Some(request) = read_request(&mut reader, connection) {
                        let number = {
                            let mut log = log.lock().unwrap();
                            log.push(request.clone());
                            log.len() - 1
                        };
                        if !answer(number, &request, &mut stream) {
                            break;
                        }
                    }
                });
            }
        });
        Fixture { url, seen }
    }

    /// Writes these bytes for every request.
    pub(super) fn always(response: impl Into<Vec<u8>>) -> Fixture {
        let response = response.into();
        Fixture::new(move |_, _, stream| stream.write_all(&response).is_ok())
    }

    /// Writes these bytes for every request, then closes the connection.
    pub(super) fn cut_after(response: impl Into<Vec<u8>>) -> Fixture {
        let response = response.into();
        Fixture::new(move |_, _, stream| {
            stream.write_all(&response).unwrap();
            false
        })
    }

    /// Answers by path; 500 for any other.
    pub(super) fn routes<const N: usize>(routes: [(&str, String); N]) -> Fixture {
        let routes = routes.map(|(line, response)| (line.to_owned(), response));
        Fixture::new(move |_, request, stream| {
            let found = routes.iter().find(|(line, _)| *line == request.line);
            let response = found.map_or_else(
                || status("500 X", "\"open /srv/secret: no\""),
                |(_, r)| r.clone(),
            );
            stream.write_all(response.as_bytes()).is_ok()
        })
    }

    pub(super) fn requests(&self) -> Vec<FixtureRequest> {
        self.seen.lock().unwrap().clone()
    }

    /// The requests since this was asked last.
    pub(crate) fn take_requests(&self) -> Vec<FixtureRequest> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    /// How often this request was received.
    pub(super) fn count(&self, line: &str) -> usize {
        let seen = self.requests();
        seen.iter().filter(|seen| seen.line == line).count()
    }

    pub(super) fn client(&self) -> Client {
        Client::new(&settings(&self.url)).unwrap()
    }
}

/// Settings with limits that no test reaches.
pub(crate) fn settings(url: &str) -> config::Fabric {
    let long = Duration::from_secs(60);
    config::Fabric {
        url: url.to_owned(),
        api_key: None,
        connect_timeout: long,
        idle_timeout: long,
        run_timeout: long,
        request_timeout: long,
        models_timeout: long,
    }
}

/// A complete 200 response with a JSON body.
pub(super) fn json(body: &str) -> String {
    status("200 OK", body)
}

/// A complete response with a JSON body.
pub(super) fn status(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The response head of a run, as Fabric writes it.
pub(super) const STREAM: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/readystream\r\nTransfer-Encoding: chunked\r\n\r\n";
/// The last chunk.
pub(super) const END: &str = "0\r\n\r\n";

/// One event as one chunk.
pub(super) fn event(json: &str) -> String {
    chunk(&format!("data: {json}\n\n"))
}

/// One chunk of a chunked body.
pub(super) fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

/// A content event.
pub(super) fn content(text: &str) -> String {
    event(&format!(
        "{{\"type\":\"content\",\"format\":\"markdown\",\"content\":\"{text}\"}}"
    ))
}

/// The complete event.
pub(super) fn complete() -> String {
    event("{\"type\":\"complete\",\"format\":\"plain\"}")
}

fn read_request(reader: &mut impl BufRead, connection: usize) -> Option<FixtureRequest> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut seen = FixtureRequest {
        line: line.trim_end().strip_suffix(" HTTP/1.1")?.to_owned(),
        connection,
        ..FixtureRequest::default()
    };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => seen.headers.insert(name.to_lowercase(), value.to_owned()),
            None => break,
        };
    }
    let length = seen
        .headers
        .get("content-length")
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    seen.body = String::from_utf8(body).unwrap();
    Some(seen)
}
