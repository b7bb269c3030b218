//! A builder of replies: what [`FakeFabric`](super::fabric::FakeFabric) sends for one request, valid or not.
//!
//! A reply is a head, a framing, steps and an end. Valid replies come from one call (`Reply::json`, `Reply::sse`);
//! invalid ones are modified valid ones: `Reply::sse().event(..).gate().event(..).cut()`.

use serde_json::{Value, json};

/// How the body is framed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// `Content-Length` with the true length.
    Length,
    /// `Content-Length` with this number, which may be wrong.
    Claim(usize),
    /// Chunked, one chunk per step; these trailers follow the last chunk.
    Chunked(Vec<(String, String)>),
    /// Neither: the body ends with the connection.
    UntilClose,
    /// No head: only the steps are sent.
    Raw,
}

/// A step of a reply.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Bytes in one write.
    Bytes(Vec<u8>),
    /// The same, one write per byte.
    Drip(Vec<u8>),
    /// The same bytes this many times, one write each.
    Repeat(Vec<u8>, usize),
    /// Wait until the test calls `release`, or the client disconnects.
    Gate,
}

/// What follows the last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// End the body; keep the connection open.
    KeepAlive,
    /// End the body, then close the connection.
    Close,
    /// Close the connection without ending the body.
    Cut,
    /// Reset the connection without ending the body.
    Reset,
    /// Send nothing more; keep the connection open until the client disconnects.
    Hang,
}

/// Everything that is sent for one request.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) framing: Framing,
    pub(crate) steps: Vec<Step>,
    pub(crate) end: End,
}

impl Reply {
    /// A status, and a body with its type and length.
    pub(crate) fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Reply {
        let headers = vec![("Content-Type".to_owned(), content_type.to_owned())];
        let steps = vec![Step::Bytes(body.into())];
        Reply {
            status,
            headers,
            framing: Framing::Length,
            steps,
            end: End::KeepAlive,
        }
    }

    /// 200 with a JSON value, as Fabric sends it.
    pub(crate) fn json(value: Value) -> Reply {
        Reply::failure(200, value)
    }

    /// A failure with a JSON value as body.
    pub(crate) fn failure(status: u16, value: Value) -> Reply {
        Reply::new(status, "application/json; charset=utf-8", value.to_string())
    }

    /// The start of an answer to `POST /chat`: Fabric's head, chunked, no events yet.
    pub(crate) fn sse() -> Reply {
        let headers = [
            ("Cache-Control", "no-cache"),
            ("Connection", "keep-alive"),
            ("Content-Type", "text/readystream"),
            ("X-Accel-Buffering", "no"),
        ];
        let headers = headers
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec();
        Reply {
            status: 200,
            headers,
            framing: Framing::Chunked(Vec::new()),
            steps: Vec::new(),
            end: End::KeepAlive,
        }
    }

    /// A complete successful run: each text is one content event.
    pub(crate) fn run(texts: &[&str]) -> Reply {
        texts
            .iter()
            .fold(Reply::sse(), |reply, text| reply.content(text))
            .complete()
    }

    /// The same with a gate between each text and the next.
    pub(crate) fn gated(texts: &[&str]) -> Reply {
        let (last, first) = texts.split_last().expect("a text");
        let held = first.iter();
        let held = held.fold(Reply::sse(), |reply, text| reply.content(text).gate());
        held.content(last).complete()
    }

    /// A run that sends this text five million times, one event and write each.
    pub(crate) fn flood(text: &str) -> Reply {
        Reply::sse().step(Step::Repeat(line(&content(text)), 5_000_000))
    }

    /// Only these bytes, without head.
    pub(crate) fn raw(bytes: impl Into<Vec<u8>>) -> Reply {
        let steps = vec![Step::Bytes(bytes.into())];
        Reply {
            status: 0,
            headers: Vec::new(),
            framing: Framing::Raw,
            steps,
            end: End::Cut,
        }
    }

    /// No head; the connection stays open.
    pub(crate) fn silence() -> Reply {
        Reply::raw("").hang()
    }

    /// A reset instead of a head.
    pub(crate) fn resets() -> Reply {
        Reply::raw("").ending(End::Reset)
    }

    /// A close instead of a head.
    pub(crate) fn closes() -> Reply {
        Reply::raw("")
    }

    /// Adds or replaces a header.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Reply {
        self.headers
            .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the framing.
    pub(crate) fn framing(mut self, framing: Framing) -> Reply {
        self.framing = framing;
        self
    }

    /// Adds a step.
    pub(crate) fn step(mut self, step: Step) -> Reply {
        self.steps.push(step);
        self
    }

    /// Adds bytes in one write.
    pub(crate) fn bytes(self, bytes: impl Into<Vec<u8>>) -> Reply {
        self.step(Step::Bytes(bytes.into()))
    }

    /// Adds an event as Fabric writes it: `data: {…}` and a blank line, in one write.
    pub(crate) fn event(self, event: Value) -> Reply {
        self.bytes(line(&event))
    }

    /// Adds a content event.
    pub(crate) fn content(self, text: &str) -> Reply {
        self.event(content(text))
    }

    /// Adds an `error` event.
    pub(crate) fn error(self, text: &str) -> Reply {
        self.event(json!({"type": "error", "format": "plain", "content": text}))
    }

    /// Adds the `complete` event.
    pub(crate) fn complete(self) -> Reply {
        self.event(json!({"type": "complete", "format": "plain"}))
    }

    /// The steps after this wait for the test.
    pub(crate) fn gate(self) -> Reply {
        self.step(Step::Gate)
    }

    /// Splits the body so far into one write per byte.
    pub(crate) fn dripped(mut self) -> Reply {
        self.steps = vec![Step::Drip(self.body())];
        self
    }

    /// Joins the body so far into one write.
    pub(crate) fn in_one(mut self) -> Reply {
        self.steps = vec![Step::Bytes(self.body())];
        self
    }

    /// Sets the end.
    pub(crate) fn ending(mut self, end: End) -> Reply {
        self.end = end;
        self
    }

    /// Closes the connection after the steps.
    pub(crate) fn cut(self) -> Reply {
        self.ending(End::Cut)
    }

    /// Sends nothing after the steps; the connection stays open.
    pub(crate) fn hang(self) -> Reply {
        self.ending(End::Hang)
    }

    /// All bytes of the body, without gates.
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

/// An event as on the wire.
pub(crate) fn line(event: &Value) -> Vec<u8> {
    format!("data: {event}\n\n").into_bytes()
}
