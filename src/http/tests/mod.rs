//! The server over real sockets: what it must do, refuse and survive.

mod connections;
mod streams;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::registry::Slot;
use super::{Exchange, Handler, HttpServer, Rejection, Responder, listen};
use crate::account::Accounts;
use crate::config::HttpLimits;
use crate::fabric::fixture::need_loopback;
use crate::sync::{lock, poll};

/// Longer than anything takes that happens at all.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often what wakes nobody is asked for.
const BRIEFLY: Duration = Duration::from_millis(1);

/// A server with `handler` on a free port.
pub(super) fn server(
    limits: HttpLimits,
    handler: impl Fn(Exchange<'_>) + Send + Sync + 'static,
) -> HttpServer {
    need_loopback();
    let listener = listen("127.0.0.1:0").unwrap();
    HttpServer::start(listener, limits, Arc::new(handler)).unwrap()
}

/// Echoes the request's body; `/unread` neither reads it nor admits the request, `/panic` and `/silent` do not answer.
pub(super) fn echo(mut exchange: Exchange<'_>) {
    match exchange.head.path() {
        "/unread" => exchange.respond(200, &[], &[b"unread"]),
        "/panic" => panic!("a handler that panics"),
        "/silent" => {}
        _ => {
            let account = Accounts::alone(1 << 30).of("");
            let body = exchange.read_body(&account);
            exchange.hold(&account);
            match body {
                Ok(body) => exchange.respond(200, &[], &[&body.bytes]),
                Err(Rejection(status, text)) => exchange.respond(status, &[], &[text.as_bytes()]),
            }
        }
    }
}

/// A response that has begun a stream.
fn stream(exchange: &mut Exchange<'_>) -> Responder {
    let mut stream = exchange.responder();
    stream.stream();
    stream
}

pub(super) fn connect(server: &HttpServer) -> TcpStream {
    let client = TcpStream::connect(server.address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.set_write_timeout(Some(PATIENCE)).unwrap();
    client
}

/// Reads until the server closes the connection.
fn rest(client: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let end = client.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(end.is_ok(), "{end:?} after {answer:?}");
    answer
}

/// Sends `bytes` and reads until the server closes the connection.
fn talk(server: &HttpServer, bytes: &[u8]) -> String {
    let mut client = connect(server);
    client.write_all(bytes).unwrap();
    rest(&mut client)
}

/// Reads one sized response: its head and its body.
pub(super) fn response(client: &mut TcpStream) -> (String, String) {
    let head = until(client, "\r\n\r\n");
    let length = head.split("Content-Length: ").nth(1);
    let length = length
        .and_then(|rest| rest.split("\r\n").next())
        .unwrap_or("0");
    let mut body = vec![0; length.parse().unwrap()];
    client.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap())
}

/// Reads up to and including `end`.
fn until(client: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        let mut byte = [0];
        let shown = String::from_utf8_lossy(&text);
        assert_eq!(client.read(&mut byte).unwrap(), 1, "{shown:?}");
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}

pub(super) fn ask(client: &mut TcpStream, body: &str) {
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.write_all((head + body).as_bytes()).unwrap();
}

fn get(client: &mut TcpStream, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
}

/// One request that must succeed, on a new connection.
pub(super) fn works(server: &HttpServer) {
    let mut client = connect(server);
    ask(&mut client, "fine");
    let (head, body) = response(&mut client);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}{body}");
    assert_eq!(body, "fine");
}

#[track_caller]
fn assert_status(answer: &str, status: u16) {
    let start = format!("HTTP/1.1 {status} ");
    assert!(answer.starts_with(&start), "not {status}: {answer:?}");
}

fn connections(server: &HttpServer) -> usize {
    lock(&server.acceptor.registry.slots).len()
}

/// The number of admitted requests in progress.
fn admitted(server: &HttpServer) -> usize {
    let slots = lock(&server.acceptor.registry.slots);
    let is_held = |slot: &&Arc<Slot>| lock(&slot.state).paid.is_some();
    slots.values().filter(is_held).count()
}

/// Whether the stream ends, by close or reset.
fn ended(client: &mut TcpStream) -> bool {
    match client.read(&mut [0; 64]) {
        Ok(count) => count == 0,
        Err(e) => e.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn a_header_value_beyond_ascii_is_opaque() {
    let server = server(HttpLimits::default(), |exchange| {
        let city = exchange.head.header("cf-ipcity").unwrap_or_default();
        exchange.respond(200, &[], &[city.as_bytes()]);
    });
    for (city, seen) in [
        ("São Paulo".as_bytes(), "S\x7f\x7fo Paulo"),
        (b"\xff \x80", "\x7f \x7f"),
    ] {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nCF-IPCity: ";
        let answer = talk(&server, &[head, city, b" \r\n\r\n"].concat());
        assert_status(&answer, 200);
        assert!(answer.ends_with(&format!("\r\n\r\n{seen}")), "{answer:?}");
    }
}

#[test]
fn ambiguous_requests_are_refused() {
    let server = server(HttpLimits::default(), echo);
    let post = |headers: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n").into_bytes();
    let line = |line: &str| format!("{line}\r\nHost: a\r\n\r\n").into_bytes();
    let many = |count: usize| post(&"X-Many: 1\r\n".repeat(count - 1));
    let (length, chunked) = ("Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n");
    let long = "a".repeat(16 << 10);
    let malformed: [Vec<u8>; 41] = [
        post("Content-Length: -5\r\n"),
        post("Content-Length: +5\r\n"),
        post("Content-Length: 0x5\r\n"),
        post("Content-Length: \r\n"),
        post("Content-Length: 5, 5\r\n"),
        post("Content-Length: 5\r\nContent-Length: 5\r\n"),
        post("Content-Length: 5\r\nContent-Length: 6\r\n"),
        post(&format!("{length}{chunked}")),
        post(&format!("{chunked}{length}")),
        post("Transfer-Encoding : chunked\r\n"),
        post("Transfer-Encoding:\x0bchunked\r\n"),
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".into(),
        post("X-Folded: a\r\n b\r\n"),
        post(": nameless\r\n"),
        post("no colon\r\n"),
        post("X-Bare-Cr: a\rb\r\n"),
        post("X-Nul: a\0b\r\n"),
        post("X-Del: a\x7fb\r\n"),
        post("X-Ümlaut: a\r\n"),
        b"GET / HTTP/1.1\nHost: a\n\n".into(),
        b"GET / HTTP/1.1\r\nHost: a\n\r\n".into(),
        b"GET / HTTP/1.1\r\n\r\n".into(),
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n".into(),
        b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n".into(),
        b"GET /\r\n".into(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n".into(),
        b"\r\n\r\n\r\n".into(),
        line("GET / HTTP/1.1 "),
        line("GET  / HTTP/1.1"),
        line("GET / http/1.1"),
        line("GET / HTTP/11"),
        line("get / HTTP/1.1"),
        line("Get / HTTP/1.1"),
        line("G@T / HTTP/1.1"),
        line("GET /ä HTTP/1.1"),
        line("GET /#part HTTP/1.1"),
        line("GET * HTTP/1.1"),
        line("GET a/b HTTP/1.1"),
        line("GET http:///b HTTP/1.1"),
        line("GET http://a?b HTTP/1.1"),
        line("CONNECT a:80 HTTP/1.1"),
    ];
    let malformed = malformed.map(|bytes| (400, bytes));
    let others = [
        (414, line(&format!("GET /{long} HTTP/1.1"))),
        (417, post("Expect: the unexpected\r\n")),
        (431, many(101)),
        (431, many(100_000)),
        (431, post(&format!("X-Long: {long}\r\n"))),
        (501, post("Transfer-Encoding: gzip, chunked\r\n")),
        (501, post("Transfer-Encoding: identity\r\n")),
        (501, post(&chunked.repeat(2))),
        (505, line("GET / HTTP/2.0")),
        (505, line("GET / HTTP/1.2")),
        (505, line("GET / HTTP/0.9")),
        (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into()),
    ];
    for (status, bytes) in malformed.into_iter().chain(others) {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
        let answer = talk(&server, &bytes);
        let is_it = answer.starts_with(&format!("HTTP/1.1 {status} "));
        let closes = answer.contains("\r\nConnection: close\r\n");
        assert!(is_it && closes, "{shown:?}: not {status}: {answer:?}");
    }
    works(&server);
}

#[test]
fn unusual_but_unambiguous_requests_are_served() {
    let server = server(HttpLimits::default(), |exchange| {
        let head = exchange.head;
        let many = head.headers_named("x-many").count();
        let seen = format!(
            "{} {} {:?} {:?} {many}",
            head.method,
            head.path(),
            head.query_value("b"),
            head.host()
        );
        exchange.respond(200, &[], &[seen.as_bytes()]);
    });
    let many = format!(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{}\r\n",
        "X-Many: 1\r\n".repeat(98)
    );
    let long = format!("GET /?b={} HTTP/1.0\r\n\r\n", "a".repeat((16 << 10) - 22));
    let long_seen = format!("GET / Some({:?}) None 0", "a".repeat((16 << 10) - 22));
    let spaced = "\r\nGET /a?b=c?d HTTP/1.0\r\nhOsT:\t a:1 \t\r\n\r\n";
    let whole = "GET http://b:2/c?b=d HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n";
    let expects = "M-SEARCH /%20? HTTP/1.0\r\nExpect: 100-continue\r\n\r\n";
    let cases = [
        ("GET / HTTP/1.0\r\n\r\n", "GET / None None 0"),
        (spaced, "GET /a Some(\"c?d\") Some(\"a:1\") 0"),
        (whole, "GET /c Some(\"d\") Some(\"b:2\") 0"),
        ("OPTIONS * HTTP/1.0\r\n\r\n", "OPTIONS * None None 0"),
        (expects, "M-SEARCH /%20 None None 0"),
        (&many, "GET / None Some(\"a\") 98"),
        (&long, &long_seen),
    ];
    for (request, seen) in cases {
        let answer = talk(&server, request.as_bytes());
        assert_eq!(answer.split_once("\r\n\r\n").unwrap().1, seen, "{request}");
    }
}

#[test]
fn http_1_0_closes_unless_asked_to_keep_the_connection() {
    let server = server(HttpLimits::default(), echo);
    let answer = talk(&server, b"GET / HTTP/1.0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
    assert!(!answer.contains("Connection"), "{answer}");
    let mut client = connect(&server);
    for _ in 0..2 {
        let request = b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n";
        client.write_all(request).unwrap();
        let head = response(&mut client).0;
        assert!(head.contains("\r\nConnection: keep-alive\r\n"));
    }
}

#[test]
fn head_gets_the_size_without_the_body() {
    let server = server(HttpLimits::default(), |exchange| {
        exchange.respond(200, &[], &[b"four"]);
    });
    let answer = talk(
        &server,
        b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n\
          HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(answer.matches("\r\n\r\n").count(), 2, "{answer}");
    assert_eq!(answer.matches("Content-Length: 4\r\n").count(), 2);
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = server(HttpLimits::default(), echo);
    let mut client = connect(&server);
    let mut all = Vec::new();
    for i in 0..300 {
        let body = format!("{i}").repeat(i % 7);
        let length = body.len();
        let request =
            format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}");
        all.extend(request.bytes());
    }
    client.write_all(&all).unwrap();
    for i in 0..300 {
        assert_eq!(response(&mut client).1, format!("{i}").repeat(i % 7));
    }
}

#[test]
fn bodies_arrive_whole_however_they_are_cut() {
    let server = server(HttpLimits::default(), echo);
    let big = "x".repeat(3 << 20);
    let mut client = connect(&server);
    ask(&mut client, &big);
    assert!(response(&mut client).1 == big);
    let chunked = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n\r\n\
        4;ext=\"x\"\r\nWiki\r\n00005 ;y\r\npedia\r\n0\r\nTrailer: a\r\n\r\n";
    // On one connection, so that each case also checks that the next request begins in the right place.
    for cut in 0..chunked.len() {
        client.write_all(&chunked[..cut]).unwrap();
        client.write_all(&chunked[cut..]).unwrap();
        assert_eq!(response(&mut client).1, "Wikipedia");
    }
}

#[test]
fn bad_chunks_are_refused() {
    let server = server(HttpLimits::default(), echo);
    let long = format!("5;{}\r\n", "x".repeat(2000));
    let trailers = format!("0\r\n{}\r\n", "T: x\r\n".repeat(4000));
    for (chunks, status) in [
        ("\r\n", 400),
        ("x\r\n", 400),
        ("-5\r\nhello\r\n", 400),
        ("+5\r\nhello\r\n", 400),
        ("0x5\r\nhello\r\n", 400),
        ("5 5\r\nhello\r\n", 400),
        ("5\nhello\n", 400),
        ("5;\rx\r\nhello\r\n", 400),
        ("5\r\nhello!\r\n", 400),
        ("ffffffffffffffffffff\r\n", 413),
        ("800001\r\n", 413),
        (&*long, 400),
        (&*trailers, 413),
    ] {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let request = head.to_owned() + chunks;
        assert_status(&talk(&server, request.as_bytes()), status);
    }
    works(&server);
}

#[test]
fn a_promised_body_costs_nothing_before_it_arrives() {
    let server = server(HttpLimits::default(), echo);
    for length in ["200000000000", "8388609", "99999999999999999999999999"] {
        for path in ["/", "/unread"] {
            let request =
                format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\nstart");
            let mut client = connect(&server);
            client.write_all(request.as_bytes()).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            assert_status(&rest(&mut client), if path == "/" { 413 } else { 200 });
        }
    }
    // Within the limit, but never sent completely.
    let mut client = connect(&server);
    let request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8388608\r\n\r\nstart";
    client.write_all(request).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_status(&rest(&mut client), 408);
    works(&server);
}

/// Sends `piece` repeatedly while another thread reads; returns the answer and the number of bytes sent.
fn flood(server: &HttpServer, head: &[u8], piece: &[u8], most: usize) -> (String, usize) {
    let mut client = connect(server);
    let mut reader = client.try_clone().unwrap();
    let answer = thread::spawn(move || {
        let mut answer = Vec::new();
        let _ = reader.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    });
    client.write_all(head).unwrap();
    let mut sent = 0;
    while sent < most && client.write_all(piece).is_ok() {
        sent += piece.len();
    }
    (answer.join().unwrap(), sent)
}

#[test]
fn endless_input_is_cut_off_and_the_answer_is_seen() {
    let server = server(HttpLimits::default(), echo);
    let endless = "a".repeat(1 << 16);
    let chunk = format!("10000\r\n{endless}\r\n");
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (head, piece, status) in [
        ("GET / HTTP/1.1\r\nHost: a\r\nX: ", endless, 431),
        (chunked, chunk, 413),
    ] {
        let (answer, sent) = flood(&server, head.as_bytes(), piece.as_bytes(), 300 << 20);
        assert_status(&answer, status);
        assert!(sent < 100 << 20, "{sent}");
    }
    works(&server);
}

#[test]
fn an_answer_before_the_body_is_seen_by_a_client_that_sends_on() {
    let server = server(HttpLimits::default(), echo);
    let mut request =
        b"POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 4194304\r\n\r\n".to_vec();
    request.resize(request.len() + (4 << 20), b'x');
    let answer = talk(&server, &request);
    assert_status(&answer, 200);
    assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
    assert!(answer.ends_with("unread"), "{answer}");
}

#[test]
fn a_small_unread_body_is_skipped() {
    let server = server(HttpLimits::default(), echo);
    let mut client = connect(&server);
    for _ in 0..3 {
        let request = b"POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
        client.write_all(request).unwrap();
        assert_eq!(response(&mut client).1, "unread");
    }
}

#[test]
fn a_client_that_expects_100_gets_it_when_the_body_is_read() {
    let server = server(HttpLimits::default(), echo);
    let head = |path: &str, length: usize| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    let mut client = connect(&server);
    client.write_all(head("/", 5).as_bytes()).unwrap();
    let interim = until(&mut client, "\r\n\r\n");
    assert_eq!(interim, "HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"hello").unwrap();
    assert_eq!(response(&mut client).1, "hello");
    client.write_all(head("/", 9 << 20).as_bytes()).unwrap();
    assert_status(&response(&mut client).0, 413);
    client = connect(&server);
    client.write_all(head("/unread", 5).as_bytes()).unwrap();
    let (answer, body) = response(&mut client);
    assert_status(&answer, 200);
    assert!(answer.contains("\r\nConnection: close\r\n") && body == "unread");
}

/// Sends `start`, then a byte of `drip` whenever there is no answer for 5 ms; returns the answer.
fn drip(server: &HttpServer, start: &[u8], drip: u8) -> String {
    let mut client = connect(server);
    client.write_all(start).unwrap();
    let moment = Some(Duration::from_millis(5));
    client.set_read_timeout(moment).unwrap();
    let (mut answer, begin) = (Vec::new(), Instant::now());
    loop {
        assert!(begin.elapsed() < PATIENCE, "still dripping");
        let mut some = [0; 1024];
        match client.read(&mut some) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&some[..count]),
            Err(e) if e.kind() == ErrorKind::WouldBlock && answer.is_empty() => {
                client.write_all(&[drip]).unwrap()
            }
            // Answered: a well-behaved client closes.
            Err(_) => break,
        }
    }
    String::from_utf8(answer).unwrap()
}

#[test]
fn slow_heads_and_slow_bodies_are_dropped_at_a_deadline_of_the_whole() {
    let short = Duration::from_millis(300);
    let limits = HttpLimits {
        head_timeout: short,
        body_timeout: short,
        ..HttpLimits::default()
    };
    let server = server(limits, echo);
    let post = "POST / HTTP/1.1\r\nHost: a\r\n";
    for start in [
        "GET / HTTP/1.1\r\nX: ".to_owned(),
        format!("{post}Content-Length: 99999\r\n\r\n"),
        format!("{post}Transfer-Encoding: chunked\r\n\r\n1;"),
    ] {
        assert_status(&drip(&server, start.as_bytes(), b'x'), 408);
    }
    works(&server);
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let limits = HttpLimits {
        idle_timeout: Duration::from_secs(1),
        ..HttpLimits::default()
    };
    let server = server(limits, echo);
    assert_eq!(rest(&mut connect(&server)), "");
    let mut client = connect(&server);
    ask(&mut client, "once");
    response(&mut client);
    assert_eq!(rest(&mut client), "");
}

#[test]
fn a_client_that_leaves_at_any_byte_costs_nothing() {
    let server = server(HttpLimits::default(), echo);
    for request in [
        &b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello"[..],
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ] {
        for cut in 0..=request.len() {
            let mut client = connect(&server);
            client.write_all(&request[..cut]).unwrap();
        }
    }
    works(&server);
    assert_eq!(server.drain(Instant::now() + PATIENCE), 0);
}

#[test]
fn a_handler_that_panics_or_stays_silent_costs_one_connection() {
    let server = server(HttpLimits::default(), |mut exchange| {
        match exchange.head.path() {
            "/late" => {
                exchange.respond(200, &[], &[b"late"]);
                panic!("after the answer");
            }
            "/stream" => {
                let mut stream = stream(&mut exchange);
                stream.event(&[b"one"]).unwrap();
                panic!("in a stream");
            }
            _ => echo(exchange),
        }
    });
    for path in ["/panic", "/silent"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = talk(&server, request.as_bytes());
        assert_status(&answer, 500);
        assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
    }
    let answer = talk(&server, b"GET /late HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(answer.ends_with("\r\n\r\nlate"), "{answer}");
    let answer = talk(&server, b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(answer.ends_with("\r\nb\r\ndata: one\n\n\r\n"), "{answer}");
    works(&server);
}
