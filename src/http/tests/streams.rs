//! Event streams: their bytes, their end, and clients that disconnect or never read.

use super::*;

fn events(mut stream: Responder) {
    stream.event(&[b"{\"a\":1}"]).unwrap();
    stream.send(&[b"event: endpoint\ndata: /x\n\n"]).unwrap();
    stream.send(&[b":\n\n"]).unwrap();
    stream.event(&[b"two ", b"parts"]).unwrap();
    assert!(stream.end() && stream.is_gone());
}

#[test]
fn streams_are_exactly_these_bytes() {
    let server = server(HttpLimits::default(), |mut exchange| {
        events(stream(&mut exchange))
    });
    let request = |version: &str| format!("GET / HTTP/{version}\r\nHost: a\r\n\r\n");
    let mut client = connect(&server);
    for _ in 0..2 {
        client.write_all(request("1.1").as_bytes()).unwrap();
        let head = until(&mut client, "\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("\r\nContent-Type: text/event-stream\r\n"));
        assert!(head.ends_with("\r\nTransfer-Encoding: chunked\r\n\r\n"));
        let expected = "f\r\ndata: {\"a\":1}\n\n\r\n1a\r\nevent: endpoint\ndata: /x\n\n\r\n3\r\n:\n\n\r\n\
             11\r\ndata: two parts\n\n\r\n0\r\n\r\n";
        assert_eq!(until(&mut client, "\r\n0\r\n\r\n"), expected);
    }
    let answer = talk(&server, request("1.0").as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200 OK\r\n"), "{head}");
    assert!(!head.contains("chunked") && !head.contains("Connection"));
    let events = "data: {\"a\":1}\n\nevent: endpoint\ndata: /x\n\n:\n\ndata: two parts\n\n";
    assert_eq!(body, events);
}

#[test]
fn a_stream_that_is_kept_beyond_its_handler_is_cut() {
    let (hand_over, handed) = sync_channel(1);
    let server = server(HttpLimits::default(), move |mut exchange| {
        hand_over.send(stream(&mut exchange)).unwrap()
    });
    let mut client = connect(&server);
    get(&mut client, "/");
    let mut stream: Responder = handed.recv_timeout(PATIENCE).unwrap();
    until(&mut client, "\r\n\r\n");
    assert_eq!(rest(&mut client), "");
    assert!(stream.is_gone() && stream.event(&[b"late"]).is_err());
    assert_eq!(server.drain(Instant::now() + PATIENCE), 0);
}

#[test]
fn a_response_can_be_given_by_another_thread_while_the_handler_waits() {
    let server = server(HttpLimits::default(), |mut exchange| {
        let sized = exchange.head.path() == "/sized";
        let mut response = exchange.responder();
        let answering = thread::spawn(move || {
            if sized {
                response.respond(200, &[], &[b"one ", b"two"]);
            } else {
                response.stream();
                events(response);
            }
        });
        answering.join().unwrap();
    });
    let mut client = connect(&server);
    for _ in 0..2 {
        get(&mut client, "/");
        until(&mut client, "\r\n0\r\n\r\n");
        get(&mut client, "/sized");
        assert_eq!(response(&mut client).1, "one two");
    }
}

#[test]
fn a_closing_response_gives_back_the_place_while_the_handler_goes_on() {
    let (answered, is_answered) = sync_channel(1);
    let (go, may_go) = sync_channel(1);
    let may_go = Mutex::new(may_go);
    let server = server(HttpLimits::default(), move |mut exchange| {
        assert!(exchange.hold(&Accounts::alone(1).of("")));
        let sized = exchange.head.path() == "/sized";
        let mut response = exchange.responder();
        response.close = true;
        if sized {
            response.respond(200, &[], &[b"sized"]);
        } else {
            response.stream();
            events(response);
        }
        answered.send(()).unwrap();
        may_go.lock().unwrap().recv_timeout(PATIENCE).unwrap();
    });
    for (path, end) in [("/sized", "\r\n\r\nsized"), ("/", "\r\n0\r\n\r\n")] {
        let mut client = connect(&server);
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        client.write_all(request.as_bytes()).unwrap();
        is_answered.recv_timeout(PATIENCE).unwrap();
        assert_eq!((connections(&server), admitted(&server)), (0, 0));
        // What the client sends late does not destroy the answer.
        client.write_all(request.as_bytes()).unwrap();
        let answer = rest(&mut client);
        assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
        assert!(answer.ends_with(end), "{answer}");
        if path == "/" {
            // Those that woke the threads on `accept` are over in a moment.
            assert_eq!(server.drain(Instant::now() + PATIENCE), 0);
        }
        go.send(()).unwrap();
    }
}

#[test]
fn a_client_that_left_is_noticed_while_nothing_is_sent() {
    let (left, has_left) = sync_channel(1);
    let server = server(HttpLimits::default(), move |mut exchange| {
        let pipelined = exchange.head.path() == "/pipelined";
        let mut stream = stream(&mut exchange);
        stream.event(&[b"here"]).unwrap();
        let limit = [PATIENCE, Duration::from_millis(50)][usize::from(pipelined)];
        let is_gone = poll(limit, BRIEFLY, || stream.is_gone());
        left.send(is_gone).unwrap();
    });
    // What follows the last request of a connection does not hide its end.
    for (close, late) in [("", ""), ("Connection: close\r\n", "\r\n")] {
        let mut client = connect(&server);
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{close}\r\n{late}");
        client.write_all(request.as_bytes()).unwrap();
        until(&mut client, "here\n\n\r\n");
        client.write_all(late.repeat(2048).as_bytes()).unwrap();
        drop(client);
        assert!(has_left.recv_timeout(PATIENCE).unwrap());
    }
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
    let server = server(limits, move |mut exchange| {
        if exchange.head.method == crate::http::Method::Post {
            return echo(exchange);
        }
        let mut stream = stream(&mut exchange);
        let error = loop {
            if let Err(e) = stream.event(&[&[b'x'; 1 << 16]]) {
                break e.kind();
            }
        };
        done.send((error, stream.is_gone() && stream.event(&[]).is_err()))
            .unwrap();
    });
    let mut client = connect(&server);
    get(&mut client, "/");
    let done = is_done.recv_timeout(PATIENCE).unwrap();
    // By the system, as the socket's timeout.
    let is_late = matches!(done.0, ErrorKind::TimedOut | ErrorKind::WouldBlock);
    assert!(is_late && done.1, "{done:?}");
    works(&server);
}
