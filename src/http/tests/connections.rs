//! Many connections: the cap, errors of accept and of threads, the end.

use super::*;

/// A handler that says when it has begun and waits to be told to go on.
fn gated() -> (impl Fn(Exchange<'_>) + Send + Sync, Receiver<()>, SyncSender<()>) {
    let (begun, has_begun) = sync_channel(64);
    let (go, may_go) = sync_channel::<()>(64);
    let may_go = Mutex::new(may_go);
    let handler = move |mut exchange: Exchange<'_>| {
        let body = exchange.read_body();
        let _ = begun.send(());
        let _ = may_go.lock().unwrap().recv_timeout(PATIENCE);
        match body {
            Ok(body) => exchange.respond(200, &[], &body),
            Err(e) => exchange.respond(e.status(), &[], b""),
        }
    };
    (handler, has_begun, go)
}

#[test]
fn at_the_cap_the_longest_idle_connection_makes_room() {
    let server = server(HttpLimits { max_connections: 3, ..HttpLimits::default() }, echo);
    let mut clients: Vec<_> = (0..3).map(|_| connect(&server)).collect();
    for client in &mut clients {
        ask(client, "hello");
        response(client);
    }
    // The first becomes the most recently used, if the clock has moved on.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(3) {
        thread::yield_now();
    }
    ask(&mut clients[0], "again");
    response(&mut clients[0]);
    // A fourth fits, although it says nothing yet; then a fifth.
    let mut fourth = connect(&server);
    assert!(ended(&mut clients[1]));
    works(&server);
    assert!(ended(&mut clients[2]));
    for client in [&mut fourth, &mut clients[0]] {
        ask(client, "still here");
        assert_eq!(response(client).1, "still here");
    }
}

#[test]
fn at_the_cap_with_all_busy_the_newcomer_is_told() {
    let (handler, has_begun, go) = gated();
    let server = server(HttpLimits { max_connections: 2, ..HttpLimits::default() }, handler);
    let mut busy: Vec<_> = (0..2).map(|_| connect(&server)).collect();
    for client in &mut busy {
        ask(client, "busy");
        has_begun.recv_timeout(PATIENCE).unwrap();
    }
    for _ in 0..50 {
        let mut client = connect(&server);
        ask(&mut client, &"x".repeat(4000));
        assert_status(&rest(&mut client), 503);
    }
    for client in &mut busy {
        go.send(()).unwrap();
        assert_eq!(response(client).1, "busy");
    }
    go.send(()).unwrap();
    works(&server);
}

#[test]
fn a_flood_of_silent_connections_does_not_keep_others_out() {
    let server = server(HttpLimits { max_connections: 8, ..HttpLimits::default() }, echo);
    let _silent: Vec<_> = (0..300).map(|_| connect(&server)).collect();
    works(&server);
    assert!(server.connections() <= 8 + crate::config::HTTP_MAX_CLOSING, "{}", server.connections());
}

#[test]
fn errors_of_accept_are_waited_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let shared = Arc::new(Shared::new(HttpLimits::default()));
    let errors = AtomicUsize::new(0);
    let acceptor = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let accept = || match errors.fetch_add(1, Ordering::Relaxed) {
                0 => Err(io::Error::from_raw_os_error(24)), // EMFILE
                1 => Err(ErrorKind::ConnectionAborted.into()),
                2 => Err(ErrorKind::Interrupted.into()),
                3 => Err(ErrorKind::OutOfMemory.into()),
                _ => listener.accept(),
            };
            let handler: Arc<dyn Handler> = Arc::new(By(echo));
            accept_loop(&shared, accept, |lease| start(lease, &handler, 1 << 20));
        })
    };
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    ask(&mut client, "in the end");
    assert_eq!(response(&mut client).1, "in the end");
    shared.stop();
    drop(TcpStream::connect(address));
    acceptor.join().unwrap();
}

#[test]
fn a_thread_that_cannot_be_had_costs_one_connection() {
    // More address space than there is.
    let server = server(HttpLimits { stack_size: 1 << 47, ..HttpLimits::default() }, echo);
    for _ in 0..3 {
        assert!(ended(&mut connect(&server)));
    }
    assert_eq!(server.drain(Instant::now() + PATIENCE), 0);
}

#[test]
fn draining_lets_requests_end_and_closes_idle_connections() {
    let (handler, has_begun, go) = gated();
    let server = server(HttpLimits::default(), handler);
    let (mut idle, mut busy) = (connect(&server), connect(&server));
    go.send(()).unwrap();
    ask(&mut idle, "idle");
    response(&mut idle);
    has_begun.recv_timeout(PATIENCE).unwrap();
    ask(&mut busy, "busy");
    has_begun.recv_timeout(PATIENCE).unwrap();
    assert_eq!(server.drain(Instant::now()), 2);
    assert!(ended(&mut idle));
    assert!(TcpStream::connect(server.local_addr()).is_err(), "the port is free");
    go.send(()).unwrap();
    let (head, body) = response(&mut busy);
    assert!(head.contains("\r\nConnection: close\r\n") && body == "busy", "{head}");
    assert!(ended(&mut busy));
    assert_eq!(server.drain(Instant::now() + PATIENCE), 0);
}

#[test]
fn a_dropped_server_leaves_nothing_behind() {
    let server = server(HttpLimits::default(), echo);
    works(&server);
    let mut client = connect(&server);
    ask(&mut client, "hello");
    response(&mut client);
    let address = server.local_addr();
    assert!(server.serve(Arc::new(By(echo))).is_err(), "serves once");
    drop(server);
    assert!(ended(&mut client));
    assert!(TcpStream::connect(address).is_err());
    // Its own `accept` is woken on an address that is not meant for connecting, too.
    let everywhere = Server::bind("0.0.0.0:0", HttpLimits::default()).unwrap();
    everywhere.serve(Arc::new(By(echo))).unwrap();
    let port = everywhere.local_addr().port();
    drop(everywhere);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    // Never started, it gives its port back all the same.
    let unused = Server::bind(address, HttpLimits::default()).unwrap();
    drop(unused);
    assert!(TcpStream::connect(address).is_err());
}
