//! Many connections: the limit, errors of accept and of threads, shutdown.

use super::*;
use crate::account::{Account, Accounts, Bounds, RESOURCES};

/// The account of a caller who may hold this many connections.
fn places(many: usize) -> Account {
    let totals = [many; RESOURCES];
    let bounds = Bounds {
        totals,
        ..Bounds::default()
    };
    Accounts::new(bounds).of("")
}

/// A handler that reports its start and waits for a permit to continue, on so many connections at once.
fn gated(n: usize) -> (Box<Handler>, Receiver<()>, SyncSender<()>) {
    let (begun, has_begun) = sync_channel(64);
    let (go, may_go) = sync_channel::<()>(64);
    let (may_go, account) = (Mutex::new(may_go), places(n));
    let handler = move |mut exchange: Exchange<'_>| {
        let body = exchange.read_body(&Accounts::alone(1 << 30).of(""));
        if body.is_ok() && !exchange.hold(&account) {
            return exchange.respond(503, &[], &[b""]);
        }
        let _ = begun.send(());
        let _ = may_go.lock().unwrap().recv_timeout(PATIENCE);
        match body {
            Ok(body) => exchange.respond(200, &[], &[&body.bytes]),
            Err(Rejection(status, _)) => exchange.respond(status, &[], &[b""]),
        }
    };
    (Box::new(handler), has_begun, go)
}

/// A server with this limit on connections.
fn limited(
    max_connections: usize,
    handler: impl Fn(Exchange<'_>) + Send + Sync + 'static,
) -> HttpServer {
    let limits = HttpLimits {
        max_connections,
        ..HttpLimits::default()
    };
    server(limits, handler)
}

/// A server that echoes on this listener.
fn echoing(listener: TcpListener) -> HttpServer {
    HttpServer::start(listener, HttpLimits::default(), Arc::new(echo)).unwrap()
}

/// Waits until every connection can be evicted: a client may get its answer before the thread is done with the request.
fn all_at_rest(server: &HttpServer) {
    assert!(poll(PATIENCE, BRIEFLY, || admitted(server) == 0));
}

#[test]
fn at_the_cap_the_longest_idle_connection_is_evicted() {
    // And a place in reserve.
    let server = limited(3, echo);
    let mut clients: Vec<_> = (0..4).map(|_| connect(&server)).collect();
    for client in &mut clients {
        ask(client, "hello");
        response(client);
        all_at_rest(&server);
    }
    // Makes the first connection the most recently used.
    ask(&mut clients[0], "again");
    response(&mut clients[0]);
    all_at_rest(&server);
    // A fifth connection is accepted although it is silent, then a sixth.
    let mut fifth = connect(&server);
    assert!(ended(&mut clients[1]));
    works(&server);
    assert!(ended(&mut clients[2]));
    for client in [&mut fifth, &mut clients[0]] {
        ask(client, "still here");
        assert_eq!(response(client).1, "still here");
    }
}

#[test]
fn a_caller_who_has_many_connections_loses_one_before_who_has_few() {
    let accounts = Accounts::new(Bounds {
        totals: [4; RESOURCES],
        shared_seats: Some(0),
        ..Bounds::default()
    });
    let server = limited(8, move |exchange| {
        let account = accounts.of(exchange.head.path());
        exchange.own(&account);
        let held = exchange.hold(&account);
        exchange.respond(if held { 200 } else { 503 }, &[], &[b""]);
    });
    let mut modest = connect(&server);
    let ask = |client: &mut TcpStream, path| {
        get(client, path);
        let (head, _) = response(client);
        all_at_rest(&server);
        head
    };
    ask(&mut modest, "/modest");
    let greedy = || {
        let mut client = connect(&server);
        ask(&mut client, "/greedy");
        client
    };
    let _greedy: Vec<_> = std::iter::repeat_with(greedy).take(30).collect();
    let _new: Vec<_> = (0..4).map(|_| connect(&server)).collect();
    assert_status(&ask(&mut modest, "/modest"), 200);
}

#[test]
fn beyond_those_held_there_is_always_room_for_a_short_answer() {
    let (handler, has_begun, go) = gated(2);
    let server = limited(2, move |exchange| match exchange.head.path() {
        "/unread" => echo(exchange),
        _ => handler(exchange),
    });
    let mut busy: Vec<_> = (0..2).map(|_| connect(&server)).collect();
    for client in &mut busy {
        ask(client, "busy");
        has_begun.recv_timeout(PATIENCE).unwrap();
    }
    // Other connections keep arriving, but only evict each other.
    let begin = || {
        let mut client = connect(&server);
        client.write_all(b"G").unwrap();
        client
    };
    let _slow: Vec<_> = (0..100).map(|_| begin()).collect();
    for _ in 0..50 {
        let mut client = connect(&server);
        get(&mut client, "/unread");
        assert_eq!(response(&mut client).1, "unread");
        ask(&mut client, "one too many");
        assert_status(&response(&mut client).0, 503);
    }
    // One place in reserve, and one whose thread may not have ended yet.
    assert!(connections(&server) <= 4, "{}", connections(&server));
    // A permit for each, and one for the next request: any of them may take the first.
    (0..=busy.len()).for_each(|_| go.send(()).unwrap());
    for client in &mut busy {
        assert_eq!(response(client).1, "busy");
    }
    works(&server);
}

#[test]
fn held_connections_can_be_evicted_again_however_they_end() {
    let account = places(2);
    let server = limited(2, move |mut exchange| {
        let held = exchange.hold(&account);
        match exchange.head.path() {
            "/panic" => panic!("while the connection is held"),
            "/aborted" => drop(stream(&mut exchange)),
            "/finished" => assert!(stream(&mut exchange).end()),
            "/put-off" => exchange.responder().respond(200, &[], &[b"ok"]),
            "/forgotten" => drop(exchange.responder()),
            _ => exchange.respond(if held { 200 } else { 503 }, &[], &[b""]),
        }
    });
    let paths = "/panic /aborted /finished /put-off /forgotten / ".repeat(3);
    for path in paths.split_whitespace() {
        let mut client = connect(&server);
        let close = "Connection: close\r\n";
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n{close}\r\n");
        client.write_all(request.as_bytes()).unwrap();
        let _ = client.read_to_end(&mut Vec::new());
    }
    // A thread that has not ended has a place, for which one of the next two might have to go.
    assert!(poll(PATIENCE, BRIEFLY, || connections(&server) == 0));
    let (mut one, mut two) = (connect(&server), connect(&server));
    for client in [&mut one, &mut two] {
        get(client, "/");
        assert_status(&response(client).0, 200);
    }
}

#[test]
fn nobody_goes_because_others_wait_for_an_issuer() {
    let (waits, is_waiting) = sync_channel(16);
    let (_answers, issuer) = sync_channel::<()>(0);
    let issuer = Mutex::new(issuer);
    let server = limited(2, move |exchange| {
        if exchange.head.path() == "/token" {
            exchange.look_up(|_| {
                waits.send(()).unwrap();
                _ = lock(&issuer).recv();
            });
        }
        exchange.respond(200, &[], &[b"ok"]);
    });
    let mut idle = connect(&server);
    let wait = |_| {
        let mut client = connect(&server);
        get(&mut client, "/token");
        is_waiting.recv_timeout(PATIENCE).unwrap();
        client
    };
    let _waiting: Vec<_> = (0..9).map(wait).collect();
    get(&mut idle, "/");
    assert_status(&response(&mut idle).0, 200);
}

#[test]
fn errors_of_accept_are_waited_out() {
    need_loopback();
    let listener = listen("127.0.0.1:0").unwrap();
    // Each `accept` that finds nobody is an error now.
    listener.set_nonblocking(true).unwrap();
    let same = listener.try_clone().unwrap();
    let server = echoing(listener);
    let is_logged = || lock(&server.acceptor.registry.logged).is_some();
    assert!(poll(PATIENCE, BRIEFLY, is_logged));
    same.set_nonblocking(false).unwrap();
    works(&server);
}

#[test]
fn a_thread_whose_connection_is_over_serves_another() {
    let (serves, who) = sync_channel(1);
    let server = server(HttpLimits::default(), move |exchange| {
        serves.send(thread::current().id()).unwrap();
        echo(exchange);
    });
    let (begun, mut seen) = (Instant::now(), Vec::new());
    loop {
        works(&server);
        let thread = who.recv_timeout(PATIENCE).unwrap();
        if seen.contains(&thread) {
            break;
        }
        seen.push(thread);
        assert!(begun.elapsed() < PATIENCE, "{seen:?}");
    }
}

#[test]
fn a_thread_that_cannot_be_had_costs_one_connection() {
    // More address space than exists.
    let limits = HttpLimits {
        stack_size: 1 << 47,
        ..HttpLimits::default()
    };
    let server = server(limits, echo);
    for _ in 0..3 {
        assert!(ended(&mut connect(&server)));
    }
    assert_eq!(server.drain(Instant::now() + PATIENCE), 0);
}

#[test]
fn whoever_has_connected_before_the_end_is_served() {
    need_loopback();
    let listener = listen("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let clients = (0..50).map(|_| TcpStream::connect(address).unwrap());
    let mut clients: Vec<TcpStream> = clients.collect();
    for client in &mut clients {
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        ask(client, "late");
    }
    let server = echoing(listener);
    server.close();
    assert!(TcpStream::connect(address).is_err(), "the port is free");
    for client in &mut clients {
        assert_eq!(response(client).1, "late");
    }
}

#[test]
fn draining_lets_requests_end_and_closes_idle_connections() {
    let (handler, has_begun, go) = gated(64);
    let server = server(HttpLimits::default(), handler);
    let (mut idle, mut busy) = (connect(&server), connect(&server));
    go.send(()).unwrap();
    ask(&mut idle, "idle");
    response(&mut idle);
    has_begun.recv_timeout(PATIENCE).unwrap();
    ask(&mut busy, "busy");
    has_begun.recv_timeout(PATIENCE).unwrap();
    // The answered one closes now, or once its thread has looked up from the answer that was just read here.
    server.drain(Instant::now());
    assert!(ended(&mut idle));
    let only_busy = || server.drain(Instant::now()) == 1;
    assert!(poll(PATIENCE, BRIEFLY, only_busy));
    let connected = TcpStream::connect(server.address);
    assert!(connected.is_err(), "the port is free");
    go.send(()).unwrap();
    let (head, body) = response(&mut busy);
    assert!(head.contains("\r\nConnection: close\r\n"), "{head}");
    assert_eq!(body, "busy");
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
    let address = server.address;
    drop(server);
    assert!(ended(&mut client));
    assert!(TcpStream::connect(address).is_err());
    // `accept` on an unspecified address is also woken.
    let listener = listen("0.0.0.0:0").unwrap();
    let everywhere = echoing(listener);
    let port = everywhere.address.port();
    drop(everywhere);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[cfg(target_os = "linux")]
#[test]
fn those_who_connect_at_once_wait_in_the_kernel_and_not_for_its_next_try() {
    // Nobody accepts: connections within the backlog succeed at once; one beyond it takes a second or more.
    let listener = listen("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let most: usize = most.trim().parse().unwrap();
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(500));
    let connected: Vec<_> = (0..most.min(300)).map(|_| connect().unwrap()).collect();
    let server = echoing(listener);
    drop(connected);
    works(&server);
}
