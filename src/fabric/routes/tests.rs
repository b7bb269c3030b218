use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use super::super::Unobserved;
use super::super::fixture::{
    END, Fixture, STREAM, chunk, complete, content, event, json, settings, status,
};
use super::*;
use crate::config::{self, MAX_FABRIC_BODY};
use crate::fabric::{BuiltInFabric, CallObserver};

const POST: &str = "POST /chat";
const NAMES: &str = "GET /patterns/names";

impl Client {
    /// Checks a run, then sends it.
    fn chat(
        &self,
        request: Chat,
        observer: &Observer,
        each: &mut dyn FnMut(Event) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.run(self.check(Box::new(request), observer)?, observer, each)
    }
}

#[test]
fn the_help_has_every_route() {
    let help = include_str!("../../cli/topics/fabric.txt");
    let lines = help.lines().map(str::trim_start);
    let mut listed = BTreeSet::new();
    for (method, paths) in lines.filter_map(|line| line.split_once(' ')) {
        if ["GET", "POST"].contains(&method) {
            let paths = paths.split_whitespace();
            listed.extend(paths.map(|path| format!("{method} {path}")));
        }
    }
    let known = BTreeSet::from(Route::ALL.map(Route::line));
    assert_eq!(
        listed, known,
        "what a proxy must let through, in src/cli/topics/fabric.txt"
    );
}

fn unobserved() -> Observer {
    Arc::new(Unobserved)
}

fn name(name: &str) -> Name {
    Name::parse("pattern_name", name).unwrap()
}

/// A client with other limits.
fn limited(url: &str, change: impl FnOnce(&mut config::Fabric)) -> Client {
    let mut limits = settings(url);
    change(&mut limits);
    Client::new(&limits).unwrap()
}

/// One run with `client`: its text, whether `complete` arrived, and the result.
fn run(client: &Client) -> (String, bool, Result<(), Error>) {
    let (mut text, mut is_complete) = (String::new(), false);
    let end = client.chat(Chat::new(name("p"), "in"), &unobserved(), &mut |event| {
        match event {
            Event::Content { content, .. } => text.push_str(&content),
            Event::Complete => is_complete = true,
            _ => {}
        }
        Ok(())
    });
    (text, is_complete, end)
}

/// The kind of error of a run that `fixture` answered.
fn failed_run(fixture: &Fixture) -> Error {
    let error = run(&fixture.client()).2.unwrap_err();
    assert_eq!(fixture.count(POST), 1, "exactly one POST /chat: {error}");
    error
}

/// The list of names, as Fabric has it now.
fn listed(client: &Client) -> Result<Arc<NameList>, Error> {
    client.names(Duration::ZERO, &unobserved())
}

/// The kind of the error in place of it.
fn no_names(client: &Client) -> Kind {
    listed(client).unwrap_err().kind
}

fn stream(events: &[String]) -> String {
    format!("{STREAM}{}{END}", events.concat())
}

#[test]
fn every_request_says_who_sends_it_and_wants_no_compression() {
    let fixture = Fixture::always(json("[]"));
    listed(&fixture.client()).unwrap();
    run(&fixture.client()).2.unwrap_err();
    for seen in fixture.requests() {
        assert_eq!(seen.headers["accept-encoding"], "identity");
        let program = concat!("fabric-mcp/", env!("CARGO_PKG_VERSION"));
        assert_eq!(seen.headers["user-agent"], program);
    }
}

#[test]
fn no_headers_in_time_is_a_silent_run_and_for_anything_else_unavailable() {
    let fixture = Fixture::new(|_, _, stream| stream.read(&mut [0]).is_err());
    let short = Duration::from_millis(300);
    let client = limited(&fixture.url, |limits| limits.idle_timeout = short);
    let error = run(&client).2.unwrap_err();
    let found = (error.kind, error.cause, error.status);
    assert_eq!(found, (Kind::Timeout, Some(Cause::RunSilent), None));
    let expected = format!(
        "Fabric at {} was silent for 0.3 s during the run: the model may have failed; Fabric's \
         own log may say why. If the model is only slow, raise --idle-timeout.",
        fixture.url
    );
    assert_eq!(error.detail, expected);
    let client = limited(&fixture.url, |limits| limits.run_timeout = short);
    let error = run(&client).2.unwrap_err();
    assert_eq!(error.kind, Kind::StreamInterrupted);
    assert!(error.detail.contains("--run-timeout"), "{error}");
    let client = limited(&fixture.url, |limits| limits.request_timeout = short / 10);
    let error = listed(&client).unwrap_err();
    assert_eq!(error.kind, Kind::ApiUnavailable);
    assert!(error.detail.contains("--request-timeout"), "{error}");
    // On a busy machine the time may run out before the request is sent; but nothing is retried.
    assert!(fixture.count(POST) <= 2 && fixture.count(NAMES) <= 1);
}

#[test]
fn retry_after_is_passed_on() {
    for (status, value, expected) in [
        (429, "7", Some(7)),
        (503, "99999999", Some(24 * 3600)),
        (503, "Sat, 21 Nov 2026 22:13:36 GMT", None),
    ] {
        let answer =
            format!("HTTP/1.1 {status} X\r\nRetry-After: {value}\r\nContent-Length: 0\r\n\r\n");
        let found = failed_run(&Fixture::always(answer)).retry_after;
        assert_eq!(found, expected.map(Duration::from_secs), "{value}");
    }
}

#[test]
fn the_body_of_an_error_is_not_waited_for() {
    let fixture = Fixture::new(|_, _, stream| {
        stream
            .write_all(b"HTTP/1.1 500 Oops\r\nContent-Length: 20\r\n\r\n\"half of it")
            .is_ok()
    });
    let client = fixture.client();
    let begun = Instant::now();
    let (_, _, ended) = run(&client);
    assert_eq!(ended.unwrap_err().kind, Kind::FabricInternal);
    let error = client.configuration(&unobserved()).unwrap_err();
    assert_eq!(error.kind, Kind::FabricInternal);
    // Each limit is a minute.
    let elapsed = begun.elapsed();
    assert!(elapsed < Duration::from_secs(10), "{elapsed:?}");
}

#[test]
fn a_redirect_is_an_error_and_the_key_stays_here() {
    let elsewhere = Fixture::always(json("[]"));
    let redirect = format!(
        "HTTP/1.1 307 X\r\nLocation: {}/patterns/names\r\nContent-Length: 0\r\n\r\n",
        elsewhere.url.replace("127.0.0.1", "localhost")
    );
    let fixture = Fixture::always(redirect);
    let error = failed_run(&fixture);
    assert_eq!(error.kind, Kind::ApiError);
    assert!(error.detail.contains("redirect"), "{error}");
    assert_eq!(no_names(&fixture.client()), Kind::ApiError);
    assert_eq!(fixture.count(NAMES), 1);
    assert!(elsewhere.requests().is_empty());
}

#[test]
fn an_unreadable_or_unexpected_body_is_an_error_that_does_not_quote_it() {
    for body in "|no json|{\"a\":\"s3cret\"}|[\"s3cret\"|[1]|\"s3cret\"|\u{feff}[]".split('|') {
        let client = Fixture::always(json(body)).client();
        let error = listed(&client).unwrap_err();
        assert_eq!(error.kind, Kind::ApiError, "{body}");
        assert!(!error.detail.contains("s3cret"), "{error}");
    }
}

#[test]
fn a_stream_that_stays_open_after_an_error_event_does_not_delay_the_error() {
    let error = event("{\"type\":\"error\",\"format\":\"plain\",\"content\":\"no model\"}");
    let fixture = Fixture::new(move |_, _, stream| {
        stream
            .write_all(format!("{STREAM}{error}").as_bytes())
            .unwrap();
        stream.read(&mut [0]).is_err()
    });
    assert_eq!(failed_run(&fixture).kind, Kind::ApiError);
}

#[test]
fn a_trickle_is_not_silence_but_ends_at_the_run_limit() {
    let fixture = Fixture::new(|_, _, stream| {
        stream.write_all(STREAM.as_bytes()).unwrap();
        while stream.write_all(chunk(": ping\n").as_bytes()).is_ok() {
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    });
    let client = limited(&fixture.url, |limits| {
        limits.idle_timeout = Duration::from_secs(2);
        limits.run_timeout = Duration::from_secs(3);
    });
    let error = run(&client).2.unwrap_err();
    assert_eq!(error.kind, Kind::StreamInterrupted);
    assert!(error.detail.contains("--run-timeout"), "{error}");
    // A caller can also leave during silence.
    let observer = Leaves::after(1);
    let started = Instant::now();
    let end = fixture.client();
    let end = end.chat(Chat::new(name("p"), ""), &observer, &mut |_| Ok(()));
    assert_eq!(end, Err(Error::cancelled()));
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn limits_on_sizes_hold() {
    let almost = content(&"x".repeat(MAX_RUN_OUTPUT - 5));
    for (end, kind) in [("67890", None), ("678901", Some(Kind::ResponseTooLarge))] {
        let answer = stream(&[almost.clone(), content(end), complete()]);
        let ended = run(&Fixture::always(answer).client()).2;
        assert_eq!(ended.err().map(|error| error.kind), kind);
    }

    // An event without an end, in one line and in many.
    for (end, length, is_large) in [
        ("", 2 * MAX_RUN_OUTPUT + 1, true),
        ("", MAX_RUN_OUTPUT + 1, false),
        ("\ndata: ", 2 * MAX_RUN_OUTPUT + 1, true),
    ] {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        let line = format!("{}{end}", "x".repeat(9_999));
        let endless = format!("{head}data: {}", line.repeat(length.div_ceil(9_999)));
        let error = run(&Fixture::cut_after(endless).client()).2.unwrap_err();
        assert_eq!(error.kind == Kind::ResponseTooLarge, is_large, "{error}");
    }

    // With and without a Content-Length.
    for (blanks, is_large) in [(MAX_FABRIC_BODY - 11, false), (MAX_FABRIC_BODY - 10, true)] {
        let body = format!("{}[\"1234567\"]", " ".repeat(blanks));
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked";
        for response in [json(&body), format!("{head}\r\n\r\n{}{END}", chunk(&body))] {
            let ended = listed(&Fixture::always(response).client());
            let is_so = ended.is_err_and(|error| error.kind == Kind::ResponseTooLarge);
            assert_eq!(is_so, is_large);
        }
    }
    // Refused by its Content-Length, before any of the body arrives.
    let client =
        Fixture::always("HTTP/1.1 200 OK\r\nContent-Length: 200000000000\r\n\r\n").client();
    assert_eq!(no_names(&client), Kind::ResponseTooLarge);
    let values = json(&format!("[{}1]", "1,".repeat(1 << 20)));
    let client = Fixture::always(values).client();
    assert_eq!(no_names(&client), Kind::ResponseTooLarge);
    let headers = format!("HTTP/1.1 200 OK\r\nX-Long: {}\r\n\r\n", "x".repeat(100_000));
    let error = failed_run(&Fixture::cut_after(headers));
    assert_eq!(error.kind, Kind::ResponseTooLarge);
}

#[test]
fn a_pattern_that_is_not_listed_is_not_found() {
    let listed = || json("[\"summarize\",\"summarize_paper\",\"zz\"]");
    let fixture = Fixture::routes([(NAMES, listed())]);
    let client = fixture.client();
    // If there is no typing error: what a search for it finds.
    let found = " A search for this finds \"summarize\" and \"summarize_paper\". If none of them does \
        the task, describe the task as query of fabric_list_patterns.";
    let all = " fabric_list_patterns has them all.";
    let meant = format!(" Did you mean \"summarize\"?{all}");
    for (named, says) in [
        ("sumarize", &*meant),
        ("shorten_paper", found),
        ("qqq", all),
    ] {
        let error = client.pattern(&name(named), &unobserved()).unwrap_err();
        assert_eq!(error.kind, Kind::PatternNotFound);
        let expected = format!("Fabric has no pattern named \"{named}\".{says}");
        assert_eq!(error.detail, expected);
    }
    let none = not_found(&name("qqq"), &NameList::default(), &|_| true);
    let part = "`fabric --updatepatterns`";
    assert!(none.parts().1.contains(part), "{none}");
    let error = client.apply(&Chat::new(name("nope"), ""), &unobserved());
    let error = error.unwrap_err();
    assert_eq!(error.kind, Kind::PatternNotFound);
    assert_eq!(fixture.count("POST /patterns/nope/apply"), 1);
    // If the pattern is listed, the failure has another cause.
    let error = client.pattern(&name("zz"), &unobserved()).unwrap_err();
    assert_eq!(error.kind, Kind::FabricInternal);

    use Kind::*;
    let explain = |kind| {
        let error = Error::new(kind, "x");
        let explained = client.or_not_found(&name("nope"), error, &unobserved());
        explained.kind
    };
    let vague = [FabricInternal, ApiError, StreamInterrupted];
    assert_eq!(vague.map(explain), [PatternNotFound; 3]);
    let asked = fixture.count(NAMES);
    let clear = [ApiUnavailable, ApiUnauthorized, Cancelled, ResponseTooLarge];
    assert_eq!(clear.map(explain), clear);
    assert_eq!(fixture.count(NAMES), asked);
}

#[test]
fn without_the_list_the_original_error_stands() {
    let client = Fixture::routes([]).client();
    let found = client.pattern(&name("nope"), &unobserved());
    let found = found.unwrap_err().kind;
    assert_eq!(found, Kind::FabricInternal);
    let original = Error::new(Kind::ApiError, "as it was");
    let found = client.or_not_found(&name("nope"), original.clone(), &unobserved());
    assert_eq!(found, original);
}

/// Continues that many times, then stops.
struct Leaves(AtomicIsize);

impl Leaves {
    fn after(asked: isize) -> Observer {
        Arc::new(Leaves(AtomicIsize::new(asked)))
    }
}

impl CallObserver for Leaves {
    fn still_waiting(&self) -> Result<(), Error> {
        match self.0.fetch_sub(1, Ordering::Relaxed) {
            1.. => Ok(()),
            _ => Err(Error::cancelled()),
        }
    }
}

#[test]
fn a_caller_may_leave_before_a_run_or_between_two_tries() {
    let fixture = Fixture::always(status("503 X", ""));
    let (client, gone) = (fixture.client(), Leaves::after(0));
    let end = client.chat(Chat::new(name("p"), ""), &gone, &mut |_| Ok(()));
    assert_eq!(end, Err(Error::cancelled()));
    assert_eq!(client.names(Duration::ZERO, &gone), Err(Error::cancelled()));
    let asked = fixture.requests().into_iter().map(|seen| seen.line);
    assert_eq!(Vec::from_iter(asked), [NAMES], "nothing is run");
}

#[test]
fn an_error_of_the_caller_ends_the_run_and_closes_the_connection() {
    let (closed, is_closed) = mpsc::channel();
    let fixture = Fixture::new(move |_, _, stream| {
        stream
            .write_all(format!("{STREAM}{}", content("a")).as_bytes())
            .unwrap();
        closed
            .send(matches!(stream.read(&mut [0]), Ok(0) | Err(_)))
            .unwrap();
        false
    });
    let ours = Error::new(Kind::Internal, "ours");
    let (client, mut each) = (fixture.client(), |_| Err(ours.clone()));
    let end = client.chat(Chat::new(name("p"), ""), &unobserved(), &mut each);
    assert_eq!(end, Err(ours));
    assert!(is_closed.recv().unwrap());
}

#[test]
fn reads_are_tried_three_times_but_only_where_that_can_help() {
    for (first, tries, end) in [
        (status("503 X", "{}"), 3, Ok(())),
        (status("502 X", ""), 3, Ok(())),
        (status("504 X", ""), 3, Ok(())),
        (String::new(), 3, Ok(())),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n[]".into(),
            3,
            Ok(()),
        ),
        (status("500 X", "\"x\""), 1, Err(Kind::FabricInternal)),
        (status("400 X", ""), 1, Err(Kind::ApiError)),
        (status("429 X", ""), 1, Err(Kind::ApiError)),
        (status("401 X", ""), 1, Err(Kind::ApiUnauthorized)),
    ] {
        let answers = [first.clone(), json("[]")];
        let fixture = Fixture::new(move |number, _, stream| {
            let answer = &answers[usize::from(number > 1)];
            stream.write_all(answer.as_bytes()).unwrap();
            answer.contains("Content-Type")
        });
        let result = listed(&fixture.client());
        let result = result.map(|_| ()).map_err(|error| error.kind);
        assert_eq!((result, fixture.requests().len()), (end, tries), "{first}");
    }
    let fixture = Fixture::always(status("503 X", ""));
    let found = fixture.client().strategies(&unobserved()).unwrap_err().kind;
    assert_eq!(found, Kind::ApiUnavailable);
    assert_eq!(fixture.requests().len(), 3);
}

#[test]
fn reads_share_a_connection_and_runs_have_their_own() {
    let fixture = Fixture::routes([
        (NAMES, json("[]")),
        (POST, stream(&[content("a"), complete()])),
        ("GET /strategies", status("400 X", "{}")),
    ]);
    let client = fixture.client();
    for _ in 0..2 {
        listed(&client).unwrap();
        client.strategies(&unobserved()).unwrap_err();
        assert_eq!(run(&client).2, Ok(()));
    }
    let connections = fixture.requests();
    let connections: Vec<_> = connections.iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, [0, 0, 1, 0, 0, 2]);
}

#[test]
fn a_stale_pooled_connection_is_replaced_unnoticed() {
    let fixture = Fixture::new(|number, request, stream| {
        let answer = match &*request.line {
            POST => stream_of_one(),
            _ => json("[]"),
        };
        stream.write_all(answer.as_bytes()).unwrap();
        number != 0
    });
    let client = fixture.client();
    listed(&client).unwrap();
    assert_eq!(run(&client).2, Ok(()));
    listed(&client).unwrap();
    assert_eq!((fixture.count(POST), fixture.count(NAMES)), (1, 2));
}

fn stream_of_one() -> String {
    stream(&[content("a"), complete()])
}

#[test]
fn a_request_that_cannot_be_sent_in_time_is_no_silent_run() {
    // Nobody accepts: the connection is established in the listen queue, but the request is never read.
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let client = limited(&url, |limits| {
        limits.request_timeout = Duration::from_millis(300);
    });
    let large = Chat::new(name("p"), "x".repeat(32 << 20));
    let end = client.chat(large, &unobserved(), &mut |_| Ok(()));
    assert_eq!(end.unwrap_err().kind, Kind::ApiUnavailable);
}

/// Has no transcript in one language, which it says when it is told to.
struct NoTranscript(mpsc::SyncSender<()>, Mutex<mpsc::Receiver<()>>);

impl BuiltInFabric for NoTranscript {
    fn answer(&self, _: &str, _: &str, body: &[u8]) -> Result<Value, Error> {
        if decode::<Value>(body).unwrap()["language"] == "de" {
            return Ok(json!({"transcript": "said"}));
        }
        self.0.send(()).unwrap();
        self.1.lock().unwrap().recv().unwrap();
        Err(Error::new(Kind::ApiError, "none"))
    }
}

/// Tells that it waits.
struct Waits(mpsc::SyncSender<()>);

impl CallObserver for Waits {
    fn still_waiting(&self) -> Result<(), Error> {
        let _told = self.0.try_send(());
        Ok(())
    }
}

#[test]
fn a_failure_of_another_language_is_not_ones_own() {
    let (entered, begun) = mpsc::sync_channel(1);
    let (tell, told) = mpsc::sync_channel(1);
    let (waits, waiting) = mpsc::sync_channel(1);
    let fabric = Arc::new(NoTranscript(entered, Mutex::new(told)));
    let client = Client::within(fabric).unwrap();
    let video = VideoId::parse("url", "https://youtu.be/abc-DEF_123").unwrap();
    let ask = |language, observer: &Observer| {
        let download = client.download(&video);
        let found = client.transcript((&video, &download), Some(language), false, observer);
        let (_, found) = &*found?;
        found.clone().map(|found| found.transcript)
    };
    let (one, other): (Observer, Observer) = (Arc::new(Unobserved), Arc::new(Waits(waits)));
    let _wanted = client.download(&video);
    std::thread::scope(|scope| {
        let failed = scope.spawn(|| ask("xx", &one));
        begun.recv().unwrap();
        let found = scope.spawn(|| ask("de", &other));
        waiting.recv().unwrap();
        tell.send(()).unwrap();
        assert_eq!(failed.join().unwrap().unwrap_err().detail, "none");
        assert_eq!(found.join().unwrap().as_deref(), Ok("said"));
    });
    // Not asked for again: that would panic.
    drop(tell);
    assert_eq!(ask("xx", &one).unwrap_err().detail, "none");
}
