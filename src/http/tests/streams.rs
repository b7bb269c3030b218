//! Event streams: their bytes, their end, and clients that disconnect or never read.

use super::*;

fn events(mut stream: EventStream) {
    stream.event(b"{\"a\":1}").unwrap();
    stream.named_event("endpoint", b"/x").unwrap();
    stream.comment().unwrap();
    stream.event(b"two\nlines").unwrap();
    stream.finish().unwrap();
}

const SSE: [(&str, &str); 1] = [("Content-Type", "text/event-stream")];

#[test]
fn streams_are_exactly_these_bytes() {
    let server = server(HttpLimits::default(), |exchange| {
        events(exchange.defer().stream(&SSE))
    });
    let request = |version: &str| format!("GET / HTTP/{version}\r\nHost: a\r\n\r\n");
    let mut client = connect(&server);
    for _ in 0..2 {
        client.write_all(request("1.1").as_bytes()).unwrap();
        let head = until(&mut client, "\r\n\r\n");
        assert!(
            head.starts_with("HTTP/1.1 200 OK\r\n")
                && head.ends_with("\r\nTransfer-Encoding: chunked\r\n\r\n")
        );
        assert!(
            head.contains("\r\nContent-Type: text/event-stream\r\n"),
            "{head}"
        );
        assert_eq!(
            until(&mut client, "\r\n0\r\n\r\n"),
            "f\r\ndata: {\"a\":1}\n\n\r\n1a\r\nevent: endpoint\ndata: /x\n\n\r\n3\r\n:\n\n\r\n\
             17\r\ndata: two\ndata: lines\n\n\r\n0\r\n\r\n"
        );
    }
    let answer = talk(&server, request("1.0").as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.0 200 OK\r\n")
            && !head.contains("chunked")
            && !head.contains("Connection")
    );
    assert_eq!(
        body,
        "data: {\"a\":1}\n\nevent: endpoint\ndata: /x\n\n:\n\ndata: two\ndata: lines\n\n"
    );
}

#[test]
fn a_stream_that_is_dropped_has_no_end() {
    let server = server(HttpLimits::default(), |exchange| {
        exchange.defer().stream(&SSE).event(b"one").unwrap();
    });
    let answer = talk(&server, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(
        answer.ends_with("\r\n\r\nb\r\ndata: one\n\n\r\n"),
        "{answer}"
    );
}

#[test]
fn a_stream_can_outlive_its_handler_and_its_thread() {
    let (hand_over, handed) = sync_channel(1);
    let server = server(HttpLimits::default(), move |exchange| {
        hand_over.send(exchange.defer().stream(&SSE)).unwrap()
    });
    let mut client = connect(&server);
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut stream: EventStream = handed.recv_timeout(PATIENCE).unwrap();
    until(&mut client, "\r\n\r\n");
    stream.event(b"late").unwrap();
    assert_eq!(until(&mut client, "\n\n\r\n"), "c\r\ndata: late\n\n\r\n");
    assert_eq!(server.connections(), 1);
    assert!(!stream.gone());
    // An open stream counts as a request in progress: draining waits for its owner.
    assert_eq!(server.drain(Instant::now()), 1);
    stream.finish().unwrap();
    // Whether or not the thread has ended already, the connection closes here.
    assert_eq!(rest(&mut client), "0\r\n\r\n");
    assert_eq!(server.drain(Instant::now() + PATIENCE), 0);
}

#[test]
fn streams_ended_by_another_thread_leave_the_connection_usable_or_closed() {
    let server = server(HttpLimits::default(), |exchange| {
        let stream = exchange.defer().stream(&SSE);
        thread::spawn(move || stream.finish().unwrap());
    });
    // Thread and stream race for the end; the client sees a complete stream in either case.
    for _ in 0..200 {
        let mut client = connect(&server);
        for _ in 0..2 {
            if client
                .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                .is_err()
            {
                break;
            }
            let mut first = [0];
            if !matches!(client.read(&mut first), Ok(1)) {
                break;
            }
            assert!(until(&mut client, "0\r\n\r\n").ends_with("\r\n\r\n0\r\n\r\n"));
        }
    }
}

#[test]
fn a_client_that_left_is_noticed_while_nothing_is_sent() {
    let (left, has_left) = sync_channel(1);
    let server = server(HttpLimits::default(), move |exchange| {
        let pipelined = exchange.head().path() == "/pipelined";
        let mut stream = exchange.defer().stream(&SSE);
        stream.event(b"here").unwrap();
        let begin = Instant::now();
        while !stream.gone()
            && begin.elapsed()
                < if pipelined {
                    Duration::from_millis(50)
                } else {
                    PATIENCE
                }
        {
            thread::yield_now();
        }
        left.send(stream.gone()).unwrap();
    });
    let mut client = connect(&server);
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    until(&mut client, "here\n\n\r\n");
    drop(client);
    assert!(has_left.recv_timeout(PATIENCE).unwrap());
    // If the next request is already buffered, the client counts as connected.
    let mut client = connect(&server);
    let request = "GET /pipelined HTTP/1.1\r\nHost: a\r\n\r\n";
    client.write_all(request.repeat(2).as_bytes()).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    until(&mut client, "here\n\n\r\n");
    assert!(!has_left.recv_timeout(PATIENCE).unwrap());
}

#[test]
fn a_client_that_never_reads_blocks_its_stream_for_the_write_timeout() {
    let (done, is_done) = sync_channel(1);
    let limits = HttpLimits {
        write_timeout: Duration::from_millis(100),
        ..HttpLimits::default()
    };
    let server = server(limits, move |exchange| {
        if *exchange.head().method() == crate::http::Method::Post {
            return echo(exchange);
        }
        let mut stream = exchange.defer().stream(&SSE);
        let error = loop {
            if let Err(e) = stream.event(&[b'x'; 1 << 16]) {
                break e.kind();
            }
        };
        assert!(stream.gone() && stream.event(b"").is_err() && stream.comment().is_err());
        done.send((error, stream.finish().is_err())).unwrap();
    });
    let mut client = connect(&server);
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    assert_eq!(
        is_done.recv_timeout(PATIENCE).unwrap(),
        (ErrorKind::TimedOut, true)
    );
    works(&server);
}
