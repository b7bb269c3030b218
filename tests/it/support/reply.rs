//! The language of replies: what [`FakeFabric`](super::fabric::FakeFabric) sends for one request, well behaved or not.
//!
//! A reply is a head, a framing, steps and an end. Good replies come from one call (`Reply::json`, `Reply::sse`); bad
//! ones are good ones with something changed: `Reply::sse().event(..).gate().event(..).cut()`.

use serde_json::{Value, json};

/// How the body's end is told to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// `Content-Length` with the true length.
    Length,
    /// `Content-Length` with this number, true or not.
    Claim(usize),
    /// Chunked, each step one chunk; these lines follow the last chunk.
    Chunked(Vec<(String, String)>),
    /// Neither: the body ends with the connection.
    UntilClose,
    /// No head at all: the steps are everything that is sent.
    Raw,
}

/// One thing done while a reply is sent.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Bytes in one write.
    Bytes(Vec<u8>),
    /// The same, one write for each byte.
    Drip(Vec<u8>),
    /// The same bytes this many times, each time one write.
    Repeat(Vec<u8>, usize),
    /// Wait until the test calls `release`, or the client leaves.
    Gate,
}

/// What happens after the last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The body is ended properly; the connection stays open.
    KeepAlive,
    /// The body is ended properly, then the connection is closed.
    Close,
    /// The connection is closed without ending the body.
    Cut,
    /// The connection is reset without ending the body.
    Reset,
    /// Nothing more is sent; the connection stays open until the client leaves.
    Hang,
}

/// All that is sent for one request.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) framing: Framing,
    pub(crate) steps: Vec<Step>,
    pub(crate) end: End,
}

impl Reply {
    /// A status and a body of a type, with its length.
    pub(crate) fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Reply {
        let headers = vec![("Content-Type".to_owned(), content_type.to_owned())];
        let steps = vec![Step::Bytes(body.into())];
        Reply { status, headers, framing: Framing::Length, steps, end: End::KeepAlive }
    }

    /// 200 and a JSON value, as Fabric sends it.
    pub(crate) fn json(value: Value) -> Reply {
        Reply::new(200, "application/json; charset=utf-8", value.to_string())
    }

    /// A failure with a JSON value as its body.
    pub(crate) fn failure(status: u16, value: Value) -> Reply {
        Reply::new(status, "application/json; charset=utf-8", value.to_string())
    }

    /// The start of a `POST /chat` answer: Fabric's head, chunked, no event yet.
    pub(crate) fn sse() -> Reply {
        let headers = [
            ("Cache-Control", "no-cache"),
            ("Connection", "keep-alive"),
            ("Content-Type", "text/readystream"),
            ("X-Accel-Buffering", "no"),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Reply { status: 200, headers, framing: Framing::Chunked(Vec::new()), steps: Vec::new(), end: End::KeepAlive }
    }

    /// A whole run that ends well: each text is one content event.
    pub(crate) fn run(texts: &[&str]) -> Reply {
        texts.iter().fold(Reply::sse(), |reply, text| reply.content(text)).complete()
    }

    /// Only these bytes, no head.
    pub(crate) fn raw(bytes: impl Into<Vec<u8>>) -> Reply {
        let steps = vec![Step::Bytes(bytes.into())];
        Reply { status: 0, headers: Vec::new(), framing: Framing::Raw, steps, end: End::Cut }
    }

    /// Not even a head; the connection stays open.
    pub(crate) fn silence() -> Reply {
        Reply { end: End::Hang, steps: Vec::new(), ..Reply::raw("") }
    }

    /// A reset instead of a head.
    pub(crate) fn resets() -> Reply {
        Reply { end: End::Reset, steps: Vec::new(), ..Reply::raw("") }
    }

    /// A close instead of a head.
    pub(crate) fn closes() -> Reply {
        Reply { end: End::Cut, steps: Vec::new(), ..Reply::raw("") }
    }

    /// One more header, or the same one with another value.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Reply {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Another framing.
    pub(crate) fn framing(mut self, framing: Framing) -> Reply {
        self.framing = framing;
        self
    }

    /// One more step.
    pub(crate) fn step(mut self, step: Step) -> Reply {
        self.steps.push(step);
        self
    }

    /// These bytes in one write.
    pub(crate) fn bytes(self, bytes: impl Into<Vec<u8>>) -> Reply {
        self.step(Step::Bytes(bytes.into()))
    }

    /// One event as Fabric writes it: `data: {…}` and a blank line, in one write.
    pub(crate) fn event(self, event: Value) -> Reply {
        self.bytes(line(&event))
    }

    /// One content event.
    pub(crate) fn content(self, text: &str) -> Reply {
        self.event(content(text))
    }

    /// One `error` event.
    pub(crate) fn error(self, text: &str) -> Reply {
        self.event(json!({"type": "error", "format": "plain", "content": text}))
    }

    /// The `complete` event.
    pub(crate) fn complete(self) -> Reply {
        self.event(json!({"type": "complete", "format": "plain"}))
    }

    /// What follows waits for the test.
    pub(crate) fn gate(self) -> Reply {
        self.step(Step::Gate)
    }

    /// All the bytes of the body so far, each in a write of its own.
    pub(crate) fn dripped(mut self) -> Reply {
        self.steps = vec![Step::Drip(self.body())];
        self
    }

    /// All the bytes of the body so far in one write.
    pub(crate) fn in_one(mut self) -> Reply {
        self.steps = vec![Step::Bytes(self.body())];
        self
    }

    /// Another end.
    pub(crate) fn ending(mut self, end: End) -> Reply {
        self.end = end;
        self
    }

    /// The connection closes where the steps end.
    pub(crate) fn cut(self) -> Reply {
        self.ending(End::Cut)
    }

    /// The connection is reset where the steps end.
    pub(crate) fn reset(self) -> Reply {
        self.ending(End::Reset)
    }

    /// Nothing follows the steps, and the connection stays open.
    pub(crate) fn hang(self) -> Reply {
        self.ending(End::Hang)
    }

    /// Every byte of the body, gates left out.
    pub(crate) fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for step in &self.steps {
            match step {
                Step::Bytes(bytes) | Step::Drip(bytes) => body.extend_from_slice(bytes),
                Step::Repeat(bytes, times) => body.extend_from_slice(&bytes.repeat(*times)),
                Step::Gate => {}
            }
        }
        body
    }
}

/// A content event's JSON.
pub(crate) fn content(text: &str) -> Value {
    json!({"type": "content", "format": "markdown", "content": text})
}

/// One event as it stands on the wire.
pub(crate) fn line(event: &Value) -> Vec<u8> {
    format!("data: {event}\n\n").into_bytes()
}
