//! fabric-mcp: a Model Context Protocol server in front of Fabric's REST API.
//!
//! This file wires the parts together and turns results into exit codes: 0 for what worked, 1 for what did not, 2 for a
//! mistake in a flag or variable. What the parts do is told in their own files; arrows point one way,
//! `main → transport → mcp → tools → fabric`.

#[allow(dead_code, unused_imports, reason = "the HTTP transports are about to use it")]
mod access;
mod check;
mod cli;
mod config;
mod demo;
mod fabric;
mod generate;
mod http;
mod jsonrpc;
mod logging;
mod mcp;
mod metrics;
mod random;
mod signals;
mod sync;
mod text;
mod time;
mod tools;
mod transport;

use std::io::{self, IsTerminal, Write};
use std::process::{ExitCode, exit};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cli::{Command, Generate};
use config::{Config, LOG_FLUSH, Transport};
use demo::Demo;
use fabric::{Catalog, Client};
use mcp::Server;
use tools::Policy;
use transport::listening::Listening;
use transport::stdio::Stdio;

/// On stdio, what is not needed for the first answer begins this much later. Measured: a fifth to a third less from spawn
/// to the answer of `initialize`.
const FIRST_ANSWER: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    let code = match cli::parse(std::env::args_os().skip(1), &|name| std::env::var_os(name), &cli::read_secret) {
        Ok(command) => run(command).unwrap_or_else(|failure| failure.report()),
        Err(usage) => Failure { code: 2, reason: usage.to_string() }.report(),
    };
    logging::flush(LOG_FLUSH);
    code
}

/// Why the program ends with another code than 0.
struct Failure {
    code: u8,
    reason: String,
}

impl Failure {
    fn report(self) -> ExitCode {
        // Nobody may be reading: there is nothing left to do about that.
        let _ = writeln!(io::stderr(), "fabric-mcp: {}", self.reason);
        ExitCode::from(self.code)
    }
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Help => print(&cli::help()),
        Command::Version => print(&format!("{}\n", cli::version())),
        Command::ListTools => print(&tools::catalogue()),
        Command::Generate(what) => generate(what),
        Command::Check { json, config } => {
            let (server, config, _demo) = assemble(*config)?;
            match check::run(&server, &config, json, &mut io::stdout()) {
                Ok(good) => Ok(ExitCode::from(u8::from(!good))),
                Err(error) => unwritable(&error),
            }
        }
        Command::Serve(config) => {
            logging::start(config.log_level);
            logging::install_panic_hook();
            // From here on the log alone writes to stderr: it may be blocked there.
            start(*config).or_else(|failure| {
                logging::critical(&failure.reason);
                Ok(ExitCode::from(failure.code))
            })
        }
    }
}

fn start(config: Config) -> Result<ExitCode, Failure> {
    for warning in &config.warnings {
        log::warn!("{warning}");
    }
    let (server, config, _demo) = assemble(config)?;
    match config.transport {
        Transport::Stdio => serve_stdio(server, &config),
        Transport::Http | Transport::Sse => serve_http(server, &config),
    }
}

fn print(text: &str) -> Result<ExitCode, Failure> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => unwritable(&error),
    }
}

/// Prints the file to stdout, and where it goes to a person at stderr.
fn generate(what: Generate) -> Result<ExitCode, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure { code: 1, reason: format!("the path of this program cannot be found: {error}") })?;
    let code = print(&generate::generate(what, &program))?;
    if io::stderr().is_terminal() {
        let _ = writeln!(io::stderr(), "fabric-mcp: {}", generate::hint(what));
    }
    Ok(code)
}

fn unwritable(error: &io::Error) -> Result<ExitCode, Failure> {
    match error.kind() {
        // `| head` has seen enough.
        io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        _ => Err(Failure { code: 1, reason: format!("stdout cannot be written: {error}") }),
    }
}

/// Builds everything but the transport. With `--demo`, Fabric is our own, for as long as the [`Demo`] is kept.
fn assemble(mut config: Config) -> Result<(Arc<Server>, Config, Option<Demo>), Failure> {
    let mut demo = None;
    if config.demo {
        let started = demo::start()
            .map_err(|error| Failure { code: 1, reason: format!("the demo's Fabric cannot be started: {error}") })?;
        config.fabric.url = started.url().to_string();
        demo = Some(started);
    }
    let client = Arc::new(Client::new(&config.fabric).map_err(|reason| Failure { code: 2, reason })?);
    let catalog = Arc::new(Catalog::new(client.clone(), config.catalog_ttl));
    let policy = Policy { allowed: config.allowed_patterns.clone(), denied: config.denied_patterns.clone() };
    Ok((Arc::new(Server::new(client, catalog, policy)), config, demo))
}

/// Says in the log whether Fabric answers. In the background: the first client must not wait for it.
fn greet(server: &Arc<Server>) {
    let client = server.fabric().clone();
    if let Err(error) = sync::spawn(thread::Builder::new().name("greet".into()), move || check::greet(&client)) {
        log::warn!("the connection to Fabric could not be tested: {error}");
    }
}

fn serve_stdio(server: Arc<Server>, config: &Config) -> Result<ExitCode, Failure> {
    // A client that closed our stdout has left: there is nobody to tell and nothing to finish.
    let left = || {
        logging::flush(LOG_FLUSH);
        exit(0)
    };
    let stdio = Arc::new(Stdio::new(server.clone(), config.max_runs, io::stdout(), left));
    let signals = signals::install();
    let (behind, limit) = (stdio.clone(), config.http.drain_timeout);
    // Clients start this program and ask at once, some of them twice: each thread more would delay the first answer.
    let begun = sync::spawn(thread::Builder::new().name("behind".into()), move || {
        thread::sleep(FIRST_ANSWER);
        log::info!("Fabric MCP Server started on stdio transport.");
        greet(&server);
        if let Some(mut signals) = signals {
            let signal = signals.wait();
            log::info!("{}: finishing what runs", signal.name());
            behind.stop(limit);
            logging::flush(LOG_FLUSH);
            exit(0);
        }
    });
    if let Err(error) = begun {
        log::warn!("the connection to Fabric is not tested, and signals are not heeded: {error}");
    }
    match stdio.serve(io::stdin().lock()) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Failure { code: 1, reason: format!("stdin cannot be read: {error}") }),
    }
}

fn serve_http(server: Arc<Server>, config: &Config) -> Result<ExitCode, Failure> {
    // Before anything listens: from then on a signal means a graceful end.
    let signals = signals::install();
    let listening = Listening::start(server.clone(), config).map_err(|reason| Failure { code: 1, reason })?;
    greet(&server);
    log::info!(
        "Fabric MCP Server started on {} transport at http://{}{}",
        config.transport.name(),
        listening.address(),
        config.path
    );
    match signals {
        Some(mut signals) => {
            let signal = signals.wait();
            log::info!("{}: finishing what runs", signal.name());
        }
        // Only the system ends us here.
        None => loop {
            thread::park();
        },
    }
    listening.stop(config.http.drain_timeout);
    Ok(ExitCode::SUCCESS)
}
