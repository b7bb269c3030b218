//! The table of faults: what Fabric does, and the expected URN or text of the run.

use serde_json::json;

use crate::support::fixtures::HOST_PATH;
use crate::support::reply::{End, Framing, Reply, Step, content, line};

/// The expected outcome of a run.
pub(crate) enum Outcome {
    /// Success with exactly this text.
    Text(String),
    /// Failure of this kind, with this partial output.
    Fails(&'static str, &'static str),
}
pub(crate) use Outcome::{Fails, Text};

/// One fault of Fabric during a run, and its outcome.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    pub(crate) reply: Reply,
    pub(crate) outcome: Outcome,
    /// Text that the error message must contain.
    pub(crate) says: &'static str,
    /// Whether the caller requests streaming.
    pub(crate) stream: bool,
}

fn fault(name: &'static str, reply: Reply, outcome: Outcome) -> Fault {
    Fault {
        name,
        reply,
        outcome,
        says: "",
        stream: true,
    }
}

pub(crate) const UNAVAILABLE: &str = "fabric-api-unavailable";
pub(crate) const UNAUTHORIZED: &str = "fabric-api-unauthorized";
pub(crate) const INTERNAL: &str = "fabric-internal-error";
pub(crate) const API_ERROR: &str = "fabric-api-error";
pub(crate) const SILENT: &str = "fabric-timeout";
pub(crate) const INTERRUPTED: &str = "fabric-stream-interrupted";
pub(crate) const TOO_LARGE: &str = "response-too-large";

/// Faults before the first byte of a body.
pub(crate) fn answers() -> Vec<Fault> {
    let leaky = |status| {
        Reply::failure(
            status,
            json!({"error": format!("open {HOST_PATH}/x/system.md")}),
        )
    };
    let html = "<!DOCTYPE html><html><body>Log in to the proxy</body></html>";
    vec![
        fault(
            "reset before the headers",
            Reply::resets(),
            Fails(UNAVAILABLE, ""),
        ),
        fault(
            "close before the headers",
            Reply::closes(),
            Fails(UNAVAILABLE, ""),
        ),
        Fault {
            says: "the model may have failed",
            ..fault(
                "silence before the headers",
                Reply::silence(),
                Fails(SILENT, ""),
            )
        },
        fault("400", leaky(400), Fails(API_ERROR, "")),
        fault(
            "401",
            Reply::failure(401, json!({"error": "Wrong API Key"})),
            Fails(UNAUTHORIZED, ""),
        ),
        fault("403", leaky(403), Fails(UNAUTHORIZED, "")),
        fault(
            "404",
            Reply::new(404, "text/plain", "404 page not found"),
            Fails(API_ERROR, ""),
        ),
        fault(
            "429",
            leaky(429).header("Retry-After", "7"),
            Fails(API_ERROR, ""),
        ),
        fault(
            "500 with a path",
            Reply::failure(500, json!(format!("open {HOST_PATH}"))),
            Fails(INTERNAL, ""),
        ),
        fault("501", leaky(501), Fails(INTERNAL, "")),
        fault("502", leaky(502), Fails(UNAVAILABLE, "")),
        fault(
            "503",
            leaky(503).header("Retry-After", "0"),
            Fails(UNAVAILABLE, ""),
        ),
        fault("504", leaky(504), Fails(UNAVAILABLE, "")),
        fault(
            "204",
            Reply::new(204, "text/plain", ""),
            Fails(API_ERROR, ""),
        ),
        fault(
            "HTML with 200",
            Reply::new(200, "text/html", html),
            Fails(API_ERROR, ""),
        ),
        fault(
            "gzip nobody asked for",
            Reply::new(
                200,
                "text/readystream",
                *b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x4b\x04\0",
            )
            .header("Content-Encoding", "gzip"),
            Fails(API_ERROR, ""),
        ),
    ]
}

/// A 200 whose body is not a stream of events.
pub(crate) fn bodies() -> Vec<Fault> {
    let event =
        |kind: &str, content: &str| json!({"type": kind, "format": "plain", "content": content});
    let whole = event("content", "all of it").to_string();
    let lines = format!("{whole}\n{}\n", event("complete", ""));
    let json = |body: String| Reply::new(200, "application/json", body);
    let text = |body: &str| Reply::new(200, "text/plain; charset=utf-8", body);
    let stream = |body: &str| Reply::sse().bytes(body);
    let typeless = |body: &str| {
        Reply::raw(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
        .ending(End::KeepAlive)
    };
    let not_a_run = |name, reply| Fault {
        says: "something that is not Fabric's",
        ..fault(name, reply, Fails(API_ERROR, ""))
    };
    vec![
        fault(
            "one content event as JSON",
            json(whole.clone()),
            Text("all of it".into()),
        ),
        fault(
            "the same behind a BOM",
            json(format!("\u{feff}{whole}\n")),
            Text("all of it".into()),
        ),
        Fault {
            says: "model not found",
            ..fault(
                "one error event as JSON",
                Reply::json(event("error", "model not found")),
                Fails(API_ERROR, ""),
            )
        },
        Fault {
            says: "without any output",
            ..fault(
                "one complete event as JSON",
                Reply::json(event("complete", "")),
                Fails(API_ERROR, ""),
            )
        },
        Fault {
            says: "without any output",
            ..fault(
                "an empty content event as JSON",
                Reply::json(event("content", "")),
                Fails(API_ERROR, ""),
            )
        },
        not_a_run(
            "a usage event as JSON",
            Reply::json(json!({"type": "usage", "usage": {}})),
        ),
        not_a_run("an unknown event as JSON", Reply::json(event("new", "x"))),
        not_a_run(
            "a content event that holds no text",
            Reply::json(json!({"type": "content", "content": 5})),
        ),
        not_a_run("a JSON array", Reply::json(json!([1, 2]))),
        not_a_run(
            "a JSON array of events",
            Reply::json(json!([event("content", "x"), event("complete", "")])),
        ),
        not_a_run("a JSON null", Reply::json(json!(null))),
        not_a_run("a JSON string", Reply::json(json!("ok"))),
        not_a_run(
            "an object with an error",
            Reply::json(json!({"error": format!("open {HOST_PATH}")})),
        ),
        not_a_run("an empty object", Reply::json(json!({}))),
        not_a_run(
            "JSON that is cut",
            json("{\"type\":\"content\",\"content\":\"a".into()),
        ),
        not_a_run("several lines of JSON", json(lines.clone())),
        not_a_run(
            "several lines of JSON, said so",
            Reply::new(200, "application/x-ndjson", lines.clone()),
        ),
        not_a_run("several lines of JSON as a stream", stream(&lines)),
        not_a_run(
            "a whole event as another kind of JSON",
            Reply::new(200, "application/problem+json", whole.clone()),
        ),
        not_a_run("no JSON at all", json(String::new())),
        not_a_run(
            "text",
            text("The service is being updated.\nNote: come back later.\n"),
        ),
        not_a_run("text without a line end", text("ok")),
        not_a_run("text that begins with a BOM", text("\u{feff}ok\n")),
        not_a_run("text as a stream", stream("Hello, world\n\nAll is well.\n")),
        not_a_run(
            "text as a stream until close",
            stream("ok").framing(Framing::UntilClose),
        ),
        not_a_run("text as a stream, then silence", stream("ok\n").hang()),
        not_a_run("text as a stream, then a cut", stream("ok\n").cut()),
        not_a_run("text of no type", typeless("ok\n")),
        not_a_run("nothing of no type", typeless("")),
        not_a_run("nothing as text", text("")),
        not_a_run(
            "a web page as text",
            text("<!DOCTYPE html>\n<html><body>Log in</body></html>"),
        ),
        not_a_run(
            "a web page as XHTML",
            Reply::new(200, "application/xhtml+xml", "<html/>"),
        ),
        not_a_run(
            "bytes",
            Reply::new(
                200,
                "application/octet-stream",
                vec![0, 159, 146, 150, 10, 255],
            ),
        ),
        fault(
            "a line of data that is text",
            stream("data: hello"),
            Fails(API_ERROR, ""),
        ),
        fault(
            "a stream that ends in its first word",
            stream("dat"),
            Fails(INTERRUPTED, ""),
        ),
        fault(
            "nothing but comments",
            stream(": hello\n\n: still here\n\n"),
            Fails(INTERRUPTED, ""),
        ),
        fault(
            "events of another type",
            text(&format!(
                "data: {whole}\n\ndata: {{\"type\":\"complete\"}}\n\n"
            )),
            Text("all of it".into()),
        ),
        fault(
            "events after a greeting",
            stream(&format!(
                "hello\n\ndata: {whole}\n\ndata: {{\"type\":\"complete\"}}\n\n"
            )),
            Text("all of it".into()),
        ),
    ]
}

/// Faults in a stream.
pub(crate) fn streams() -> Vec<Fault> {
    let part = || Reply::sse().content("part one ").content("ä two");
    let whole = || Reply::run(&["part one ", "ä two"]);
    let got = "part one ä two";
    let text = || Text(got.to_owned());
    let usage = json!({"type": "usage", "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}});
    let length = |reply: &Reply| reply.body().len();
    vec![
        fault("nothing at all", Reply::sse(), Fails(INTERRUPTED, "")),
        fault(
            "nothing but a length of 0",
            Reply::sse().framing(Framing::Length),
            Fails(INTERRUPTED, ""),
        ),
        fault(
            "nothing, then silence",
            Reply::sse().hang(),
            Fails(SILENT, ""),
        ),
        fault(
            "usage, then silence",
            Reply::sse().event(usage.clone()).hang(),
            Fails(SILENT, ""),
        ),
        fault(
            "nothing, then a cut",
            Reply::sse().cut(),
            Fails(INTERRUPTED, ""),
        ),
        fault("no complete", part(), Fails(INTERRUPTED, got)),
        fault(
            "no complete, until close",
            part().framing(Framing::UntilClose),
            Fails(INTERRUPTED, got),
        ),
        fault("cut in mid-stream", part().cut(), Fails(INTERRUPTED, got)),
        fault(
            "cut in mid-event",
            part().bytes("data: {\"type\":\"con").cut(),
            Fails(INTERRUPTED, got),
        ),
        Fault {
            says: "was silent for 3 s",
            ..fault(
                "silence in mid-stream",
                part().hang(),
                Fails(INTERRUPTED, got),
            )
        },
        fault(
            "silence in mid-event",
            part().bytes("data: {\"ty").hang(),
            Fails(INTERRUPTED, got),
        ),
        fault(
            "usage and no content",
            Reply::sse().event(usage.clone()).complete(),
            Fails(API_ERROR, ""),
        ),
        fault(
            "complete without content",
            Reply::sse().complete(),
            Fails(API_ERROR, ""),
        ),
        fault(
            "malformed JSON",
            part().bytes("data: {oops\n\n").complete(),
            Fails(API_ERROR, got),
        ),
        fault(
            "an event that is a number",
            part().bytes("data: 5\n\n").complete(),
            Fails(API_ERROR, got),
        ),
        Fault {
            says: "model not found",
            ..fault(
                "error first",
                Reply::sse().error("Error: model not found").complete(),
                Fails(API_ERROR, ""),
            )
        },
        Fault {
            says: "rate limited",
            ..fault(
                "error in the middle",
                part().error("rate limited").complete(),
                Fails(API_ERROR, got),
            )
        },
        fault(
            "error without complete",
            part().error("rate limited").cut(),
            Fails(API_ERROR, got),
        ),
        fault(
            "error with a path",
            part().error(&format!("open {HOST_PATH}/x")).complete(),
            Fails(API_ERROR, got),
        ),
        fault(
            "error without text",
            Reply::sse().event(json!({"type": "error"})).complete(),
            Fails(API_ERROR, ""),
        ),
        fault(
            "length too long, cut",
            part().framing(Framing::Claim(length(&part()) + 9)).cut(),
            Fails(INTERRUPTED, got),
        ),
        fault(
            "length cuts `complete` off",
            whole()
                .framing(Framing::Claim(length(&part())))
                .ending(End::Close),
            Fails(INTERRUPTED, got),
        ),
        fault(
            "bad chunk size",
            Reply::raw(
                "HTTP/1.1 200 OK\r\nContent-Type: text/readystream\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            ),
            Fails(INTERRUPTED, ""),
        ),
        fault("drip", whole().dripped(), text()),
        fault(
            "drip until close",
            whole().framing(Framing::UntilClose).dripped(),
            text(),
        ),
        fault(
            "trailers",
            whole().framing(Framing::Chunked(vec![("X-Late".into(), "yes".into())])),
            text(),
        ),
        fault(
            "unknown events",
            part()
                .event(json!({"type": "thinking", "content": "hm"}))
                .complete(),
            text(),
        ),
        fault(
            "usage in the middle",
            Reply::sse()
                .content("part one ")
                .event(usage)
                .content("ä two")
                .complete(),
            text(),
        ),
        fault(
            "empty content",
            part()
                .content("")
                .event(json!({"type": "content"}))
                .complete(),
            text(),
        ),
        fault(
            "no format",
            Reply::sse()
                .event(json!({"type": "content", "content": got}))
                .event(json!({"type": "complete"})),
            text(),
        ),
        fault("closed after complete", whole().ending(End::Close), text()),
        fault("cut after complete", whole().cut(), text()),
        fault("silence after complete", whole().hang(), text()),
        fault("content after complete", whole().content("late"), text()),
        fault(
            "no JSON after complete, in the same packet",
            whole().bytes("data: {oops\n\n").in_one(),
            text(),
        ),
        fault(
            "20,000 tiny events",
            Reply::sse()
                .step(Step::Repeat(line(&content("a ")), 20_000))
                .complete(),
            Text("a ".repeat(20_000)),
        ),
    ]
}

/// Faults of size; they are slow, so they do not run in every era.
pub(crate) fn sizes() -> Vec<Fault> {
    let mib = "m".repeat(1 << 20);
    let whole = |name, reply, outcome| Fault {
        stream: false,
        ..fault(name, reply, outcome)
    };
    vec![
        whole(
            "one event of 8 MiB",
            Reply::run(&[&mib.repeat(8)]),
            Text(mib.repeat(8)),
        ),
        whole(
            "64 MiB",
            Reply::sse()
                .step(Step::Repeat(line(&content(&mib)), 64))
                .complete(),
            Fails(TOO_LARGE, "*"),
        ),
        whole(
            "one line over 32 MiB",
            Reply::run(&[&mib.repeat(33)]),
            Fails(TOO_LARGE, "*"),
        ),
        whole(
            "an endless line",
            Reply::sse()
                .bytes("data: ")
                .step(Step::Repeat(vec![b'x'; 1 << 20], 200)),
            Fails(TOO_LARGE, "*"),
        ),
    ]
}
