//! A fuzz test with a fixed seed: valid requests, broken in every way that the generator knows.
//!
//! Invariants for any input: the connection is closed in the end, all output is well-formed responses, an independent
//! and much simpler parser agrees on the number of requests, and the server keeps serving.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use super::HttpServer;
use super::tests::{connect, echo, server, works};
use crate::config::HttpLimits;

#[path = "../../tests/it/support/rng.rs"]
#[allow(
    dead_code,
    reason = "shared with the integration tests, which use more of it"
)]
pub(crate) mod rng;
use rng::Rng;

/// Connections in a normal test run; `FABRIC_MCP_FUZZ` overrides it.
const CONNECTIONS: u64 = 3_000;

// Words, with | between them.
const METHODS: &[u8] = b"GET|POST|POST|HEAD|OPTIONS|get|P\xc3\x96ST";
const TARGETS: &[u8] = b"/|/a?b|/unread|/silent|*|http://a/b|//|a|/%zz/../../\\";
const VERSIONS: &[u8] = b"HTTP/1.1|HTTP/1.1|HTTP/1.1|HTTP/1.0|HTTP/2.0|HTTP/1.1x|http/1.1|";
const HEADERS: &[u8] = b"Host: a|Host:|Connection: close|Connection: keep-alive, close|\
    Content-Length: 5|Content-Length: 0|Content-Length: -1|Content-Length: 99999999999999999999|\
    Content-Length: 200000000000|Content-Length: 5, 5|Transfer-Encoding: chunked|\
    Transfer-Encoding: chunked, gzip|transfer-encoding:\tCHUNKED\t|Transfer-Encoding : chunked|\
    Expect: 100-continue| folded|X: \xe4|X:|:|Upgrade: h2c";
const ENDS: [&[u8]; 8] = [
    b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r",
];
const BODIES: [&[u8]; 10] = [
    b"",
    b"hello",
    b"hello",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"5;x=y\r\nhello\r\n1\r\n!\r\n0\r\nT: t\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"5\nhello\n0\n\n",
    b"-1\r\n\r\n",
    b"0\r\n",
    b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
];

/// The head of a valid request with five bytes of body.
const SOUND: &[u8] = b"POST /sound HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";

fn pick<'w>(random: &mut Rng, words: &'w [u8]) -> &'w [u8] {
    let words: Vec<&[u8]> = words.split(|byte| *byte == b'|').collect();
    random.pick::<&[u8]>(&words)
}

/// One to four valid or broken requests, then bytes flipped, removed or doubled.
fn requests(random: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..=random.within(0..4) {
        if random.one_in(3) {
            // A valid one, so that later requests are reached.
            bytes.extend_from_slice(SOUND);
            bytes.extend_from_slice(b"hello");
            continue;
        }
        if random.one_in(20) {
            bytes.extend_from_slice(
                b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
            );
            continue;
        }
        let line = [METHODS, TARGETS, VERSIONS].map(|words| pick(random, words));
        bytes.extend(line.join(&b' '));
        bytes.extend(*random.pick(&ENDS));
        if !random.one_in(8) {
            bytes.extend_from_slice(b"Host: a\r\n");
        }
        for _ in 0..random.within(0..4) {
            bytes.extend(pick(random, HEADERS));
            bytes.extend(*random.pick(&ENDS));
        }
        if random.one_in(50) {
            bytes.extend_from_slice(
                &b"X-Filler: xxxxxxxxxxxxxxxx\r\n".repeat(random.within(0..800)),
            );
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend(*random.pick(&BODIES));
    }
    while bytes.len() > 1 && random.one_in(3) {
        random.mutate(&mut bytes);
    }
    bytes
}

/// How many fully valid requests `bytes` begins with: the minimum number of 200 responses.
fn plainly_sound(bytes: &[u8]) -> usize {
    let (mut count, mut rest) = (0, bytes);
    while let Some(after) = rest.strip_prefix(SOUND)
        && after.len() >= 5
    {
        count += 1;
        rest = &after[5..];
    }
    count
}

/// Splits the output into responses and returns their statuses. Responses to HEAD have a length but no body: the next
/// response or the end follows at once.
fn statuses(mut answer: &[u8]) -> Result<Vec<u16>, String> {
    let mut statuses = Vec::new();
    while !answer.is_empty() {
        let text = String::from_utf8_lossy(answer).into_owned();
        let bad = |what: &str| format!("{what}: {text:?}");
        let end = answer
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .ok_or_else(|| bad("no end of the head"))?;
        let head = std::str::from_utf8(&answer[..end]).map_err(|_| bad("not text"))?;
        let status = head
            .strip_prefix("HTTP/1.1 ")
            .or(head.strip_prefix("HTTP/1.0 "))
            .and_then(|rest| rest.get(..3));
        let status: u16 = status
            .and_then(|status| status.parse().ok())
            .ok_or_else(|| bad("no status"))?;
        statuses.push(status);
        answer = &answer[end + 4..];
        if status == 100 {
            continue;
        }
        let length = head.split("\r\nContent-Length: ").nth(1);
        let length = length.and_then(|rest| rest.split("\r\n").next());
        let length: usize = length
            .and_then(|length| length.parse().ok())
            .ok_or_else(|| bad("no length"))?;
        let next_status = |rest: &[u8]| {
            rest.starts_with(b"HTTP/1.") && matches!(rest.get(8..10), Some([b' ', b'1'..=b'5']))
        };
        let missing = answer.is_empty() || next_status(answer);
        answer = if missing {
            answer
        } else {
            answer.get(length..).ok_or_else(|| bad("cut short"))?
        };
        if head.contains("\r\nConnection: close") && !answer.is_empty() {
            return Err(bad("more after the end"));
        }
    }
    Ok(statuses)
}

/// Sends `bytes`, whole or in pieces, shuts down the sending side, and reads to the end.
fn exchange(server: &HttpServer, bytes: &[u8], random: &mut Rng) -> Vec<u8> {
    let mut client: TcpStream = connect(server);
    let cut = if random.one_in(4) {
        random.within(0..bytes.len())
    } else {
        0
    };
    // The server may have closed already; its response is still readable.
    let _ = client.write_all(&bytes[..cut]);
    let _ = client.write_all(&bytes[cut..]);
    let _ = client.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    answer
}

/// One connection; returns the received statuses.
fn attack(server: &HttpServer, seed: u64) -> Vec<u16> {
    let mut random = Rng::new(seed);
    let bytes = requests(&mut random);
    let answer = exchange(server, &bytes, &mut random);
    let shown = || {
        format!(
            "seed {seed}: {:?} gave {:?}",
            bytes.escape_ascii().to_string(),
            answer.escape_ascii().to_string()
        )
    };
    let statuses = statuses(&answer).unwrap_or_else(|e| panic!("{e}\n{}", shown()));
    let known = [100, 200, 400, 408, 413, 414, 417, 431, 500, 501, 505];
    let is_known = statuses.iter().all(|status| known.contains(status));
    assert!(is_known, "{}", shown());
    let sound = plainly_sound(&bytes);
    let served = statuses.iter().take_while(|status| **status == 200).count();
    assert!(served >= sound, "{}", shown());
    // Only the last response of a connection may be a rejection, and there are no more responses than requests.
    let is_refusal = |status: &u16| ![100, 200].contains(status);
    let refused = statuses.iter().position(is_refusal);
    let is_last = refused.is_none_or(|at| at + 1 == statuses.len());
    assert!(is_last, "{}", shown());
    let asked = bytes.windows(2).filter(|two| two == b"\r\n").count()
        + bytes.iter().filter(|b| **b == b'\n').count();
    let answers = statuses.iter().filter(|status| **status != 100).count();
    assert!(answers <= asked + 1, "{}", shown());
    statuses
}

#[test]
fn no_hostile_request_harms_the_server() {
    let server = server(HttpLimits::default(), echo);
    let connections = std::env::var("FABRIC_MCP_FUZZ")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(CONNECTIONS);
    println!("{connections} connections, seeds from 0");
    let seen = Mutex::new(BTreeSet::new());
    thread::scope(|scope| {
        for worker in 0..4 {
            let (server, seen) = (&server, &seen);
            scope.spawn(move || {
                for seed in (worker..connections).step_by(4) {
                    let statuses = attack(server, seed);
                    seen.lock().unwrap().extend(statuses);
                }
            });
        }
    });
    works(&server);
    assert_eq!(server.drain(Instant::now() + Duration::from_secs(20)), 0);
    // The test is only useful if the generator reaches all of these.
    let seen = seen.into_inner().unwrap();
    for status in [100, 200, 400, 413, 431, 500, 501, 505] {
        let is_so = connections < CONNECTIONS || seen.contains(&status);
        assert!(is_so, "{status} is not among {seen:?}");
    }
}
