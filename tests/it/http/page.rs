//! The page for browsers: who gets it, and what it says.

use serde_json::json;

use crate::support::expect::contains;
use crate::support::fabric::FakeFabric;
use crate::support::http::HttpServer;
use crate::support::process::Program;
use crate::support::reply::Reply;

const TOKEN: &str = "a-token-of-some-length";
const BROWSER: &str = "Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8";

/// Requests, with the status where there is a page.
const REQUESTS: &str = "\
200 GET / HTTP/1.1|HTML
200 GET /?a=b HTTP/1.1|HTML
200 GET /mcp HTTP/1.1|HTML|If-None-Match: *|Range: bytes=0-1
200 GET /mcp/ HTTP/1.0|Accept: x/y|Accept: TEXT/html
200 HEAD /mcp HTTP/1.1|HTML
401 GET /mcp HTTP/1.1|Accept: text/html;q=0, text/*, */*
401 GET /mcp HTTP/1.1|Accept: text/html, text/event-stream
401 GET /mcp HTTP/1.1|HTML|Accept: text/event-stream
401 GET /mcp HTTP/1.1
401 GET /mcp HTTP/1.1|HTML|Authorization: x
405 GET /mcp HTTP/1.1|HTML|Authorization: Bearer TOKEN
401 GET /mcp HTTP/1.1|HTML|Mcp-Session-Id: x
401 POST /mcp HTTP/1.1|HTML
404 GET / HTTP/1.1|Accept: */*
404 POST / HTTP/1.1|HTML
404 GET /favicon.ico HTTP/1.1|HTML";

#[test]
fn browsers_get_it_and_mcp_clients_do_not() {
    let fabric = FakeFabric::start();
    let program = || Program::with(&fabric).env("FABRIC_MCP_AUTH_TOKEN", TOKEN);
    let (server, without) = (program(), program().flags("--no-page"));
    let (server, without) = (HttpServer::start(server), HttpServer::start(without));
    let ask = |server: &HttpServer, head: &str, host: &str| {
        let head = head.replace("HTML", BROWSER).replace("TOKEN", TOKEN);
        let head = head.replace('|', "\r\n");
        let mut http = server.connect();
        let request = format!("{head}\r\n{host}\r\n\r\n");
        http.send_raw(request.as_bytes()).unwrap();
        http.head().unwrap()
    };
    for line in REQUESTS.lines() {
        let (status, head) = line.split_once(' ').unwrap();
        let answer = ask(&server, head, "Host: localhost");
        let is_page = answer.header("content-type") == Some("text/html; charset=utf-8");
        assert_eq!(answer.status.to_string(), status, "{line}");
        assert_eq!(is_page, status == "200", "{line}");
        let plain = ask(&without, head, "Host: localhost");
        assert!((400..500).contains(&plain.status), "{line}");
        assert_eq!(ask(&server, head, "Host: evil.example.com").status, 403);
    }
    let asked = fabric.requests_of("GET /patterns/names").len();
    assert!(asked < 6, "{asked}: it is asked once a second at most");
}

/// `Host`, the proxy's scheme and the browser, then the address and the place of a file that the page shows.
const ADDRESSES: &str = "\
mcp.example.com:8443|HTTPS, http|(Windows NT)|https://mcp.example.com:8443|%USERPROFILE%
mcp.example.com|http||http://mcp.example.com|~/.cursor
127.0.0.1:80|\"><b>|Intel Mac OS X|http://127.0.0.1:80|Library/Application Support";

#[test]
fn it_has_the_public_url_and_tells_no_more_than_anyone_may_know() {
    let fabric = FakeFabric::start();
    let names = Reply::json(json!(["secret_pattern"]));
    fabric.on("GET /patterns/names", names);
    let program = Program::with(&fabric).env("FABRIC_MCP_AUTH_TOKEN", TOKEN);
    let server = HttpServer::start(program.flags("--path /m&'p --allowed-host mcp.example.com"));
    for row in ADDRESSES.lines() {
        let row: Vec<_> = row.split('|').collect();
        let [host, proxy, agent, url, shown] = row[..] else {
            panic!("{row:?}")
        };
        let accept = BROWSER.split_once(": ").unwrap();
        let headers = [
            accept,
            ("Host", host),
            ("X-Forwarded-Proto", proxy),
            ("User-Agent", agent),
        ];
        let text = server.get("/", &headers).expect_status(200).text();
        let address = format!("<code>{url}/m&amp;'p</code>");
        let parts = [&*address, shown, "<b>answers</b>", "You need a token"];
        contains(&text, parts);
        for secret in [
            TOKEN,
            "secret_pattern",
            "<b>/",
            env!("CARGO_PKG_VERSION"),
            &fabric.url(),
        ] {
            assert!(!text.contains(secret), "{secret}");
        }
    }
}
