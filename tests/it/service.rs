//! As a service: notifications to systemd, and the log as other programs read it.

use serde_json::Value;

#[cfg(target_os = "linux")]
use crate::support::DEADLINE;
use crate::support::fabric::FakeFabric;
#[cfg(target_os = "linux")]
use crate::support::folder::TempFolder;
use crate::support::http::{Http, HttpServer};
use crate::support::process::Program;

#[cfg(target_os = "linux")]
#[test]
fn systemd_is_notified_of_the_state() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    let fabric = FakeFabric::start();
    let folder = TempFolder::new("systemd");
    let file = folder.path("notify");
    // Names in the abstract space are the machine's, as paths are.
    let name = folder.text();
    for (address, variable) in [
        (
            SocketAddr::from_abstract_name(name).unwrap(),
            format!("@{name}"),
        ),
        (
            SocketAddr::from_pathname(&file).unwrap(),
            file.to_str().unwrap().to_owned(),
        ),
    ] {
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        let told = |wanted: &str| {
            loop {
                let mut text = [0; 64];
                let length = socket.recv(&mut text).unwrap();
                let said = std::str::from_utf8(&text[..length]).unwrap().to_owned();
                // Watchdog notifications may come in between.
                if said == wanted || said != "WATCHDOG=1" {
                    assert_eq!(said, wanted);
                    return;
                }
            }
        };
        let program = Program::with(&fabric)
            .env("NOTIFY_SOCKET", &variable)
            .env("WATCHDOG_USEC", "200000");
        let mut server = HttpServer::start(program);
        told("READY=1");
        told("WATCHDOG=1");
        told("WATCHDOG=1");
        server.process.signal("HUP");
        told("RELOADING=1");
        told("READY=1");
        server.process.signal("TERM");
        told("STOPPING=1");
        assert_eq!(server.process.wait_exit(DEADLINE).code(), Some(0));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_socket_that_nobody_reads_keeps_nothing_from_starting_or_ending() {
    use std::os::unix::net::UnixDatagram;

    let fabric = FakeFabric::start();
    let folder = TempFolder::new("notify");
    let socket = folder.path("notify");
    let _unread = UnixDatagram::bind(&socket).unwrap();
    let sender = UnixDatagram::unbound().unwrap();
    sender.set_nonblocking(true).unwrap();
    while sender.send_to(b"x", &socket).is_ok() {}
    let program = Program::with(&fabric).env("NOTIFY_SOCKET", socket.to_str().unwrap());
    let mut server = HttpServer::start(program);
    server.process.signal("TERM");
    assert_eq!(server.process.wait_exit(DEADLINE).code(), Some(0));
}

#[test]
fn each_line_of_a_json_log_is_one_object() {
    let fabric = FakeFabric::start();
    let program = Program::with(&fabric).flags("--log-format json --log-level debug");
    let server = HttpServer::start(program);
    let mut http: Http = server.connect();
    let list = super::http::Modern::new(
        serde_json::json!(1),
        "tools/call",
        super::http::list_patterns(),
    );
    assert_eq!(list.send(&mut http, "/mcp").status, 200);
    server.process.wait_stderr("fabric_list_patterns");
    let log = server.process.stderr();
    let lines = log.lines().map(serde_json::from_str::<Value>);
    let lines = Vec::from_iter(lines.map(Result::unwrap));
    for line in &lines {
        let mut keys = ["time", "level", "target"].iter();
        assert!(keys.all(|key| line[key].is_string()), "{line}");
    }
    let is_call = |line: &&Value| line["tool"] == "fabric_list_patterns";
    let call = lines.iter().find(is_call).unwrap();
    let found = (&call["level"], &call["ok"], &call["caller"]);
    assert_eq!(found, (&"info".into(), &true.into(), &"127.0.0.1".into()));
    let is_so = call["duration_ms"].is_u64()
        && call["request_id"].is_string()
        && call.get("message").is_none();
    assert!(is_so, "{call}");
    let is_start = |line: &Value| line["auth"] == "none" && line["message"].is_string();
    assert!(lines.iter().any(is_start), "{log}");
}
