//! A Fabric behind https with a certificate that is untrusted, expired, or of another host; and with a good one.
//!
//! std has no TLS, so `openssl s_server` is the peer, with certificates made for the test. Without `openssl` (1.1.1 or
//! later), the tests say so and pass.
#![cfg(all(feature = "tls", unix))]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio as Pipe};

use serde_json::json;

use crate::support::expect::contains;
use crate::support::fabric::closed_port;
use crate::support::folder::TempFolder;
use crate::support::process::Program;
use crate::support::stdio::Stdio;
use crate::support::{Caller, DEADLINE, Era, poll};

const ERA: Era = Era::MODERN;

/// Runs openssl in `folder`; on failure prints the reason and returns false.
fn openssl(folder: &Path, command: &str) -> bool {
    let mut program = Command::new("openssl");
    program.args(command.split(' ')).current_dir(folder);
    let why = match program.stdin(Pipe::null()).output() {
        Ok(done) if done.status.success() => return true,
        Ok(done) => String::from_utf8_lossy(&done.stderr).into_owned(),
        Err(e) => e.to_string(),
    };
    eprintln!("skipped: openssl {command}: {why}");
    false
}

/// Makes an authority `ca.pem` and its certificate `server.pem` for `host`, valid for this many days, which may be
/// negative.
fn certificate(folder: &Path, host: &str, days: &str) -> bool {
    let extensions = format!("subjectAltName={host}\nbasicConstraints=CA:FALSE\n");
    std::fs::write(folder.join("ext"), extensions).unwrap();
    let new = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    [
        format!(
            "req -x509 {new} -subj /CN=authority -days 2 -keyout ca.key -out ca.pem -addext keyUsage=keyCertSign"
        ),
        format!("req {new} -subj /CN=fabric -keyout server.key -out server.csr"),
        format!(
            "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -set_serial 7 -extfile ext -out server.pem -days {days}"
        ),
    ]
    .iter()
    .all(|command| openssl(folder, command))
}

/// `openssl s_server`, killed when dropped. Its stdin goes to the client.
struct TlsServer {
    child: Child,
    stdin: ChildStdin,
    lines: BufReader<std::process::ChildStdout>,
    port: u16,
    folder: TempFolder,
}

impl TlsServer {
    /// A server with a [`certificate`] in a folder of this name; without openssl prints the reason and returns `None`.
    fn start(name: &str, host: &str, days: &str) -> Option<TlsServer> {
        let folder = TempFolder::new(&format!("tls-{name}"));
        if !certificate(&folder.0, host, days) {
            return None;
        }
        let server = TlsServer::serve(folder);
        if server.is_none() {
            eprintln!("skipped: no openssl s_server");
        }
        server
    }

    fn serve(folder: TempFolder) -> Option<TlsServer> {
        let port = closed_port();
        let flags = format!("-quiet -accept 127.0.0.1:{port} -cert server.pem -key server.key");
        let mut child = Command::new("openssl")
            .arg("s_server")
            .args(flags.split(' '))
            .current_dir(&folder.0)
            .stdin(Pipe::piped())
            .stdout(Pipe::piped())
            .stderr(Pipe::null())
            .spawn()
            .ok()?;
        let (stdin, lines) = (child.stdin.take()?, BufReader::new(child.stdout.take()?));
        let up = poll(DEADLINE, || {
            std::net::TcpStream::connect(("127.0.0.1", port))
                .ok()
                .map(drop)
        });
        up?;
        Some(TlsServer {
            child,
            stdin,
            lines,
            port,
            folder,
        })
    }

    /// Its authority's certificate.
    fn authority(&self) -> String {
        self.folder.0.join("ca.pem").to_string_lossy().into_owned()
    }

    fn program(&self) -> Program {
        let url = format!("https://127.0.0.1:{}", self.port);
        Program::new([]).env("FABRIC_BASE_URL", &url)
    }

    /// The program, which trusts its authority.
    fn trusting(&self) -> Program {
        self.program().env("SSL_CERT_FILE", &self.authority())
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A run must fail as unavailable, with this text.
#[track_caller]
fn refused(program: Program, says: &str) {
    let mut client = Stdio::speaking(ERA, program);
    for tool in ["fabric_run_pattern", "fabric_list_patterns"] {
        let is_run = tool == "fabric_run_pattern";
        let run = json!({"pattern_name": "ai", "input_text": "x"});
        let arguments = if is_run { run } else { json!({}) };
        let said = client.failure(tool, arguments, "fabric-api-unavailable");
        contains(said.to_lowercase(), [says]);
        assert!(!said.contains("OtherError"), "no help to anybody: {said}");
    }
}

#[test]
fn a_certificate_is_refused_of_a_stranger_when_it_has_expired_and_of_another_host() {
    // Negative days: some versions of openssl refuse them.
    for (name, host, days, says) in [
        ("stranger", "IP:127.0.0.1", "2", "ssl_cert_file"),
        ("expired", "IP:127.0.0.1", "-1", "expired"),
        ("other-host", "DNS:other.example", "2", "name"),
    ] {
        let Some(server) = TlsServer::start(name, host, days) else {
            continue;
        };
        match name {
            "stranger" => refused(server.program(), says),
            _ => refused(server.trusting(), says),
        }
    }
}

#[test]
fn a_client_is_told_to_use_a_name_of_the_certificate() {
    let Some(server) = TlsServer::start("other-name", "DNS:other.example", "2") else {
        return;
    };
    let url = format!("https://127.0.0.1:{}/mcp", server.port);
    Program::new(["--connect", &url, "--check"])
        .env("SSL_CERT_FILE", &server.authority())
        .run(DEADLINE)
        .expect_code(1)
        .expect_stderr("put a host name of the certificate into the URL.");
}

#[test]
fn a_private_authority_is_read_at_the_start_but_only_for_https() {
    let folder = TempFolder::new("tls-private");
    folder.write("empty", "no certificate");
    let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
    folder.write("broken", broken);
    let oauth = "--transport http --oauth-resource http://localhost/mcp --oauth-issuer";
    for (flags, name) in [("--fabric-url", ""), (oauth, "--oauth-issuer: ")] {
        for (url, file, says) in [
            ("http://localhost:1", "missing", ""),
            ("https://h", "missing", "no such file: "),
            ("https://h", "empty", "there is no certificate in "),
            ("https://h", "broken", ""),
        ] {
            let mut program = Program::new(["--check"]).flags(&format!("{flags} {url}"));
            program = program.env("SSL_CERT_FILE", &folder.path(file).to_string_lossy());
            for name in ["ID", "SECRET"].iter().filter(|_| flags == oauth) {
                program = program.env(&format!("FABRIC_MCP_OAUTH_CLIENT_{name}"), "x");
            }
            let (code, says) = match url {
                "https://h" => (2, format!("fabric-mcp: {name}SSL_CERT_FILE: {says}")),
                _ => (1, String::new()),
            };
            program.run(DEADLINE).expect_code(code).expect_stderr(&says);
        }
    }
}

#[test]
fn an_authority_as_a_server_is_refused() {
    let folder = TempFolder::new("tls-authority");
    if !certificate(&folder.0, "IP:127.0.0.1", "2") {
        return;
    }
    for (from, to) in [("ca.pem", "server.pem"), ("ca.key", "server.key")] {
        std::fs::copy(folder.0.join(from), folder.0.join(to)).unwrap();
    }
    let Some(server) = TlsServer::serve(folder) else {
        return;
    };
    let says = "(ca:true), which a server must not use as its own. make";
    refused(server.trusting(), says);
}

#[test]
fn a_good_certificate_of_a_private_authority_is_taken() {
    let Some(mut server) = TlsServer::start("good", "IP:127.0.0.1", "2") else {
        return;
    };
    let client = Stdio::speaking(ERA, server.trusting());
    // The start-up check requests the names.
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        assert_ne!(server.lines.read_line(&mut line).expect("a request"), 0);
    }
    let answer =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 6\r\n\r\n[\"ai\"]";
    let words = "it takes an answer";
    server.stdin.write_all(answer.as_bytes()).expect(words);
    let words = "Successfully connected to Fabric API at https://";
    client.process.wait_stderr(words);
}
