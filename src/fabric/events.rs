//! Decodes the event stream of `POST /chat`.
//!
//! In scope: server-sent events in pieces of any size, and the meaning of one event. Not in scope: reading the bytes,
//! the result of a run, and the size of the output (`routes`). Framing follows WHATWG HTML, section "Server-sent
//! events", except that the last event needs no blank line.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Error, Kind};
use crate::encoding::json;

/// The byte order mark in UTF-8.
pub(super) const MARK: &[u8] = b"\xEF\xBB\xBF";

/// Capacity of a buffer that is kept between events, in bytes.
const MAX_IDLE_BUFFER: usize = 64 << 10;

/// One event of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A piece of the output.
    Content {
        /// `markdown`, `mermaid` or `plain`, as Fabric guessed it from this piece alone; `None` if it did not say.
        format: Option<String>,
        /// The text.
        content: String,
    },
    /// Tokens used so far.
    Usage(Usage),
    /// The run failed.
    Error {
        /// The text of the model or vendor.
        content: String,
    },
    /// The run is over.
    Complete,
    /// An unknown type, to be ignored.
    Other,
}

/// Tokens as the vendor counted them; a missing count is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Usage {
    /// Tokens of the prompt.
    pub(crate) input_tokens: u64,
    /// Tokens of the answer.
    pub(crate) output_tokens: u64,
    /// The total, as the vendor counts it.
    pub(crate) total_tokens: u64,
}

impl Usage {
    /// The most of each count: some vendors repeat theirs as they grow, others tell those of the prompt first.
    pub(crate) fn most(self, other: Usage) -> Usage {
        let input_tokens = self.input_tokens.max(other.input_tokens);
        let output_tokens = self.output_tokens.max(other.output_tokens);
        let sum = input_tokens.saturating_add(output_tokens);
        let total = self.total_tokens.max(other.total_tokens);
        // Not all vendors tell one.
        let total_tokens = if total > 0 { total.max(sum) } else { 0 };
        Usage {
            input_tokens,
            output_tokens,
            total_tokens,
        }
    }
}

/// Called with each event; if it returns an error, the run ends.
pub(super) type Each<'a> = &'a mut dyn FnMut(Event) -> Result<(), Error>;

/// Decodes bytes into events. Each byte is scanned once.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// An incomplete line.
    line: Vec<u8>,
    /// The data of an incomplete event.
    data: Vec<u8>,
    /// The last line ended with CR: a following LF belongs to it.
    after_cr: bool,
    /// Whether the stream has had lines, but none that belong to events: then it is something else. `None` before the first.
    pub(super) is_foreign: Option<bool>,
}

impl Decoder {
    /// Decodes the next bytes and passes each complete event to `each`, whose errors are returned.
    ///
    /// Data that is not a JSON object is [`Kind::ApiError`]. The caller limits what is buffered.
    pub(super) fn feed(&mut self, bytes: &[u8], each: Each<'_>) -> Result<(), Error> {
        let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
        for part in bytes.split_inclusive(is_end) {
            if std::mem::take(&mut self.after_cr) && part == b"\n" {
                continue;
            }
            self.line.extend_from_slice(part);
            if let Some(end) = self.line.pop_if(|last| is_end(last)) {
                self.after_cr = end == b'\r';
                self.end_line(each)?;
            }
        }
        Ok(())
    }

    /// Bytes buffered of an incomplete event.
    pub(super) fn held(&self) -> usize {
        self.line.len() + self.data.len()
    }

    /// At the end of the stream: passes a last event without blank line to `each`. If that is cut off, the error is
    /// [`Kind::StreamInterrupted`].
    pub(super) fn finish(&mut self, each: Each<'_>) -> Result<(), Error> {
        // A prefix of `data:` is cut off, not foreign.
        if !b"data".starts_with(&self.line) {
            self.end_line(each)?;
        }
        let done = self.dispatch(each);
        // What is left of an event that could not be read.
        let is_cut = self.data.trim_ascii_start().starts_with(b"{");
        let detail = "Fabric's answer broke off in the middle of an event. Run the pattern again if its output is needed.";
        done.map_err(|error| match error.kind {
            Kind::ApiError if is_cut => Error::new(Kind::StreamInterrupted, detail),
            _ => error,
        })
    }

    /// Processes and clears the line. Comments, `event`, `id`, `retry` and unknown fields are ignored; but a stream of
    /// unknown fields only is not an event stream.
    fn end_line(&mut self, each: Each<'_>) -> Result<(), Error> {
        let mut line = std::mem::take(&mut self.line);
        let text = line.strip_prefix(MARK).unwrap_or(&line);
        match text.strip_prefix(b"data") {
            _ if text.is_empty() => self.dispatch(each)?,
            Some([b':', b' ', data @ ..] | [b':', data @ ..]) if self.data.is_empty() => {
                // The first and usually only data line, which may be large, is swapped in.
                line.drain(..line.len() - data.len());
                std::mem::swap(&mut self.data, &mut line);
            }
            Some([b':', b' ', data @ ..] | [b':', data @ ..]) => {
                self.data.push(b'\n');
                self.data.extend_from_slice(data);
            }
            rest => {
                let name = text.split(|byte| *byte == b':').next().unwrap_or_default();
                if !matches!(name, b"" | b"event" | b"id" | b"retry") && rest != Some(b"") {
                    self.is_foreign.get_or_insert(true);
                }
            }
        }
        clear(&mut line);
        self.line = line;
        Ok(())
    }

    /// A blank line: ends the event.
    fn dispatch(&mut self, each: Each<'_>) -> Result<(), Error> {
        if self.data.is_empty() {
            return Ok(());
        }
        let event = parse(&self.data)?;
        self.is_foreign = Some(false);
        clear(&mut self.data);
        each(event)
    }
}

/// Clears a buffer and frees its capacity beyond [`MAX_IDLE_BUFFER`].
fn clear(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(MAX_IDLE_BUFFER);
}

/// Parses one event. Anything but a JSON object whose known fields have the right type is [`Kind::ApiError`].
pub(super) fn parse(data: &[u8]) -> Result<Event, Error> {
    #[derive(Deserialize)]
    struct Wire<'a> {
        #[serde(borrow, default, rename = "type")]
        kind: Option<Cow<'a, str>>,
        format: Option<String>,
        content: Option<String>,
        usage: Option<Value>,
    }
    // serde also accepts an array, as the fields in order.
    let is_object = data.trim_ascii_start().starts_with(b"{");
    let wire = json::decode::<Wire<'_>>(data);
    let Some(wire) = wire.filter(|_| is_object) else {
        let detail = "Fabric sent an event that is not valid JSON. If there is a proxy in \
            between, check that it passes the stream on unchanged.";
        return Err(Error::new(Kind::ApiError, detail).after_status(200));
    };
    let content = wire.content.unwrap_or_default();
    // Statistics must not fail a run: unreadable counts are unknown.
    let usage = wire.usage.and_then(|usage| Usage::deserialize(usage).ok());
    Ok(match wire.kind.as_deref() {
        Some("content") => Event::Content {
            format: wire.format.filter(|f| !f.is_empty()),
            content,
        },
        Some("error") => Event::Error { content },
        Some("complete") => Event::Complete,
        Some("usage") => usage.map_or(Event::Other, Event::Usage),
        _ => Event::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(text: &str) -> Event {
        Event::Content {
            format: Some("markdown".into()),
            content: text.into(),
        }
    }

    /// Decodes `parts`, one read each.
    fn decode_parts(decoder: &mut Decoder, parts: &[&[u8]]) -> Result<Vec<Event>, Error> {
        let mut events = Vec::new();
        let mut each = |event| {
            events.push(event);
            Ok(())
        };
        for part in parts {
            decoder.feed(part, &mut each)?;
        }
        decoder.finish(&mut each)?;
        Ok(events)
    }

    fn decode(bytes: &[u8]) -> Result<Vec<Event>, Error> {
        decode_parts(&mut Decoder::default(), &[bytes])
    }

    #[test]
    fn each_event_means_what_its_fields_say_and_what_is_missing_is_empty() {
        // Counts that cannot be read are unknown, which is no failure.
        let cases = r#"
{"type":"content","format":"markdown","content":"The "} => Content { format: Some("markdown"), content: "The " }
{"type":"content","content":"end"} => Content { format: None, content: "end" }
{"type":"content","format":"","content":null} => Content { format: None, content: "" }
{"type":"usage","usage":{"input_tokens":1,"output_tokens":4,"total_tokens":5}} => Usage(Usage { input_tokens: 1, output_tokens: 4, total_tokens: 5 })
{"type":"usage","usage":{"output_tokens":7,"more":1}} => Usage(Usage { input_tokens: 0, output_tokens: 7, total_tokens: 0 })
{"type":"usage","usage":{"input_tokens":-1}} => Other
{"type":"usage","usage":null} => Other
{"type":"usage","usage":5} => Other
{"type":"usage","usage":{"input_tokens":"x"}} => Other
{"type":"complete","format":"plain"} => Complete
{"type":"error"} => Error { content: "" }
{} => Other
"#;
        for case in cases.trim().lines() {
            let (data, shown) = case.split_once(" => ").unwrap();
            let events = decode(format!("data: {data}\n\n").as_bytes()).unwrap();
            assert_eq!(format!("{events:?}"), format!("[{shown}]"));
        }
        assert_eq!(decode(b"").unwrap(), []);
    }

    /// Everything a stream may contain, and what it means.
    const ODD: &str = "\u{feff}: comment\r\nevent: message\r\nid: 1\r\nretry: 5\r\n\
                       data:{\"type\":\"content\",\"format\":\"markdown\",\"content\":\"漢\u{1f600}\"}\r\n\r\n\
                       data: {\"type\":\"content\",\ndata: \"format\":\"markdown\",\ndata:\"content\":\"b\"}\n\n\
                       :\n\n\n\ndata\n\ndata: \n\ndatax: 1\n\n\
                       data: {\"type\":\"content\",\"format\":\"markdown\",\"content\":\"c\"}\r\r\
                       data: {\"type\":\"later\",\"x\":[1]}\n\ndata: {\"type\":\"complete\",\"content\":\"\"}\n\n";

    #[test]
    fn odd_streams_mean_the_same_however_they_are_cut() {
        let wire = ODD.as_bytes();
        let expected = vec![
            content("漢😀"),
            content("b"),
            content("c"),
            Event::Other,
            Event::Complete,
        ];
        assert_eq!(decode(wire).unwrap(), expected);
        for cut in 0..=wire.len() {
            let (a, b) = wire.split_at(cut);
            let found = decode_parts(&mut Decoder::default(), &[a, b]).unwrap();
            assert_eq!(found, expected, "cut at {cut}");
        }
        for size in 1..8 {
            let parts: Vec<&[u8]> = wire.chunks(size).collect();
            let found = decode_parts(&mut Decoder::default(), &parts).unwrap();
            assert_eq!(found, expected, "reads of {size}");
        }
        // Damaged, too.
        for at in 0..wire.len() {
            for byte in *b"\n\r:{\"x\xff" {
                let mut damaged = wire.to_vec();
                damaged[at] = byte;
                let parts: Vec<&[u8]> = damaged.chunks(3).collect();
                assert_eq!(
                    decode_parts(&mut Decoder::default(), &parts).map_err(|error| error.kind),
                    decode(&damaged).map_err(|error| error.kind),
                    "{byte:?} at {at}"
                );
            }
        }
    }

    #[test]
    fn an_event_is_passed_on_as_soon_as_its_blank_line_is_read() {
        let mut decoder = Decoder::default();
        let mut seen = 0;
        let mut feed = |bytes: &[u8]| {
            decoder
                .feed(bytes, &mut |_| {
                    seen += 1;
                    Ok(())
                })
                .unwrap();
            seen
        };
        assert_eq!(feed(b"data: {\"type\":\"content\",\"content\":\"a\"}\n"), 0);
        assert_eq!(feed(b"\n"), 1);
        let found = feed(b"data: {\"type\":\"content\",\"content\":\"b\"}\r\n\r");
        assert_eq!(found, 2);
        assert_eq!(feed(b"\ndata: {\"type\":\"complete\"}\n\n"), 3);
    }

    #[test]
    fn invalid_json_ends_the_run() {
        let all = "[DONE]|hello|[\"content\"]|1|{\"type\":\"content\",\"content\":5}|{\"type\":";
        for data in all.split('|') {
            let error = decode(format!("data: {data}\n\n").as_bytes()).unwrap_err();
            assert_eq!(error.kind, Kind::ApiError, "{data}");
        }
        // Invalid UTF-8 in a string.
        let error = decode(b"data: {\"type\":\"content\",\"content\":\"a\xff\"}\n\n").unwrap_err();
        assert_eq!(error.kind, Kind::ApiError);
    }

    #[test]
    fn the_end_completes_a_whole_event_and_betrays_a_cut_one() {
        let found = decode(b"data: {\"type\":\"complete\"}").unwrap();
        assert_eq!(found, [Event::Complete]);
        let found = decode(b"data: {\"type\":\"complete\"}\n").unwrap();
        assert_eq!(found, [Event::Complete]);
        for cut in ["data: {\"type\":\"comp", "data: {\"type\":\"content\",\n"] {
            let found = decode(cut.as_bytes()).unwrap_err().kind;
            assert_eq!(found, Kind::StreamInterrupted, "{cut}");
        }
        assert_eq!(decode(b"data: hello").unwrap_err().kind, Kind::ApiError);
    }

    #[test]
    fn a_stream_of_something_else_is_known() {
        let is_foreign = |wire: &str| {
            let mut decoder = Decoder::default();
            let _ = decode_parts(&mut decoder, &[wire.as_bytes()]);
            decoder.is_foreign == Some(true)
        };
        let texts = "hello|hello\n|{\"type\":\"content\"}\n|a: b\n\ndata:\n\n|database\n|\
                     \u{feff}x\n";
        for wire in texts.split('|') {
            assert!(is_foreign(wire), "{wire:?}");
        }
        let all = "|\u{feff}|: hello\n|id: 1\nevent: x\nretry: 5\n\n|da|data|data: {}\n\nhello\n";
        for wire in all.split('|') {
            assert!(!is_foreign(wire), "{wire:?}");
        }
    }

    #[test]
    fn the_error_of_the_callback_stops_everything() {
        let wire = b"data: {\"type\":\"complete\"}\n\ndata: {\"type\":\"complete\"}\n\n";
        let mut calls = 0;
        let result = Decoder::default().feed(wire, &mut |_| {
            calls += 1;
            Err(Error::cancelled())
        });
        assert_eq!((result, calls), (Err(Error::cancelled()), 1));
    }

    #[test]
    fn large_events_and_floods_take_linear_work() {
        // Quadratic work would take minutes, even in a release build.
        let text = "x".repeat(4 << 20);
        let wire = format!(
            "data: {{\"type\":\"content\",\"format\":\"markdown\",\"content\":\"{text}\"}}\n\n"
        );
        let parts: Vec<&[u8]> = wire.as_bytes().chunks(1000).collect();
        let found = decode_parts(&mut Decoder::default(), &parts).unwrap();
        assert_eq!(found, [content(&text)]);

        let flood = "data: {\"type\":\"content\",\"content\":\"x\"}\n\n".repeat(100_000);
        assert_eq!(decode(flood.as_bytes()).unwrap().len(), 100_000);
    }
}
