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

/// A failure of this kind without any output.
fn fails(name: &'static str, reply: Reply, kind: &'static str) -> Fault {
    fault(name, reply, Fails(kind, ""))
}

impl Fault {
    fn saying(self, says: &'static str) -> Fault {
        Fault { says, ..self }
    }
}

pub(crate) const UNAVAILABLE: &str = "fabric-api-unavailable";
pub(crate) const UNAUTHORIZED: &str = "fabric-api-unauthorized";
pub(crate) const INTERNAL: &str = "fabric-internal-error";
pub(crate) const API_ERROR: &str = "fabric-api-error";
pub(crate) const SILENT: &str = "fabric-timeout";
pub(crate) const INTERRUPTED: &str = "fabric-stream-interrupted";

/// Faults before the first byte of a body.
pub(crate) fn answers() -> Vec<Fault> {
    let leaky = |status| Reply::failure(status, json!({"error": format!("open {HOST_PATH}/x")}));
    let zipped = Reply::new(
        200,
        "text/readystream",
        *b"\x1f\x8b\x08\0\0\0\0\0\0\x03\x4b\x04\0",
    );
    let page = "<!DOCTYPE html><html><body>Log in to the proxy</body></html>";
    vec![
        fails("reset before the headers", Reply::resets(), UNAVAILABLE),
        fails("close before the headers", Reply::closes(), UNAVAILABLE),
        fails("silence before the headers", Reply::silence(), SILENT)
            .saying("the model may have failed"),
        fails("400", leaky(400), API_ERROR),
        fails("401", leaky(401), UNAUTHORIZED),
        fails("429", leaky(429).header("Retry-After", "7"), API_ERROR),
        fails("500 with a path", leaky(500), INTERNAL),
        fails("503", leaky(503).header("Retry-After", "0"), UNAVAILABLE),
        fails("204", Reply::new(204, "text/plain", ""), API_ERROR),
        fails("HTML", Reply::new(200, "text/html", page), API_ERROR),
        fails("gzip", zipped.header("Content-Encoding", "gzip"), API_ERROR),
    ]
}

/// A 200 whose body is not a stream of events.
pub(crate) fn bodies() -> Vec<Fault> {
    let event = |kind: &str, content: &str| json!({"type": kind, "content": content});
    let whole = event("content", "all of it").to_string();
    let json = |body: &str| Reply::new(200, "application/json", body);
    let text = |body: &str| Reply::new(200, "text/plain; charset=utf-8", body);
    let stream = |body: &str| Reply::sse().bytes(body);
    let typeless = Reply::raw("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n");
    let events = format!("data: {whole}\n\ndata: {{\"type\":\"complete\"}}\n\n");
    let good = |name, reply| fault(name, reply, Text("all of it".into()));
    let not_a_run =
        |name, reply| fails(name, reply, API_ERROR).saying("something that Fabric would not send");
    let without_output = |name, reply| fails(name, reply, API_ERROR).saying("without any output");
    let until_close = stream("ok").framing(Framing::UntilClose);
    let one_error = Reply::json(event("error", "no model"));
    let one_error = fails("one error", one_error, API_ERROR);
    vec![
        good("one event, BOM", json(&format!("\u{feff}{whole}\n"))),
        good("events of another type", text(&events)),
        good("after a greeting", stream(&format!("hello\n\n{events}"))),
        one_error.saying("no model"),
        without_output("one complete", Reply::json(event("complete", ""))),
        without_output("one of nothing", Reply::json(event("content", ""))),
        not_a_run("an unknown event", Reply::json(event("new", "x"))),
        not_a_run("an array", Reply::json(json!([event("content", "x")]))),
        not_a_run("null", Reply::json(json!(null))),
        not_a_run("an error", Reply::json(json!({"error": HOST_PATH}))),
        not_a_run("JSON that is cut", json(&whole[..20])),
        not_a_run("several lines", json(&format!("{whole}\n{whole}\n"))),
        not_a_run("no JSON at all", json("")),
        not_a_run("text", text("The service is being updated.\n")),
        not_a_run("text as a stream", stream("Hello\n\nAll is well.\n")),
        not_a_run("text until close", until_close),
        not_a_run("text of no type", typeless.ending(End::KeepAlive)),
        not_a_run("a page as text", text("<!DOCTYPE html>\n<html>Log in")),
        not_a_run("bytes", Reply::new(200, "image/png", *b"\0\x9f\xff")),
        fails("text as data", stream("data: hello"), API_ERROR),
        fails("a first word", stream("dat"), INTERRUPTED),
        fails("only comments", stream(": hello\n\n: x\n\n"), INTERRUPTED),
    ]
}

/// Faults in a stream.
pub(crate) fn streams() -> Vec<Fault> {
    let got = "part one ä two";
    let part = || Reply::sse().content("part one ").content("ä two");
    let whole = || Reply::run(&["part one ", "ä two"]);
    let claiming = |reply: Reply, more: usize| {
        let length = part().body().len() + more;
        reply.framing(Framing::Claim(length))
    };
    let usage = json!({"type": "usage", "usage": {"input_tokens": 1, "output_tokens": 2}});
    let other = json!({"type": "thinking", "content": "hm"});
    let not_chunked = "HTTP/1.1 200 OK\r\nContent-Type: text/readystream\r\n\
                       Transfer-Encoding: chunked\r\n\r\nzz\r\n";
    let trailers = Framing::Chunked(vec![("X-Late".into(), "yes".into())]);
    let tiny = Reply::sse().step(Step::Repeat(line(&content("a ")), 20_000));
    let only_usage = Reply::sse().event(usage.clone()).complete();
    let alone = Reply::sse().event(json!({"type": "error"}));
    let to_the_end = whole().framing(Framing::UntilClose);
    let more = whole().bytes("data: {oops\n\n");
    let cut = |name, reply| fault(name, reply, Fails(INTERRUPTED, got));
    let wrong = |name, reply| fault(name, reply, Fails(API_ERROR, got));
    let fine = |name, reply| fault(name, reply, Text(got.to_owned()));
    vec![
        fails("nothing at all", Reply::sse(), INTERRUPTED),
        fails("nothing, then silence", Reply::sse().hang(), SILENT),
        fails("bad chunk size", Reply::raw(not_chunked), INTERRUPTED),
        cut("no complete", part()),
        cut("cut in mid-stream", part().cut()),
        cut("cut in mid-event", part().bytes("data: {\"ty").cut()),
        cut("silence in mid-stream", part().hang()).saying("was silent for 3 s"),
        cut("too short", claiming(part(), 9).cut()),
        cut("too long", claiming(whole(), 0).ending(End::Close)),
        fails("only usage", only_usage, API_ERROR),
        fails("complete alone", Reply::sse().complete(), API_ERROR),
        wrong("malformed JSON", part().bytes("data: {oops\n\n").complete()),
        wrong("a number", part().bytes("data: 5\n\n").complete()),
        wrong("error", part().error("rate limited").complete()).saying("rate limited"),
        wrong("two errors", part().error("rate limited").error("again")),
        wrong("error and cut", part().error("rate limited").cut()),
        wrong("error with a path", part().error(HOST_PATH).complete()),
        fails("error alone", alone, API_ERROR),
        fine("drip", whole().dripped()),
        fine("drip to the end", to_the_end.dripped()),
        fine("trailers", whole().framing(trailers)),
        fine("other events", part().event(other).event(usage).complete()),
        fine("empty content", part().content("").complete()),
        fine("content after complete", whole().content("x").in_one()),
        fine("cut after complete", whole().cut()),
        fine("silence after complete", whole().hang()),
        fine("more in the packet", more.in_one()),
        fault("tiny events", tiny.complete(), Text("a ".repeat(20_000))),
    ]
}
