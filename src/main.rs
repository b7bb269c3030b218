//! fabric-mcp: a Model Context Protocol server in front of Fabric's REST API.
//!
//! `.github/ARCHITECTURE.md` has the picture. The path of one `tools/call`:
//!
//! 1. [`transport`] reads a line or body of limited size; over HTTP, [`access`](mod@access) knows the caller by then.
//! 2. [`protocol`] reads it once into values that borrow from it, finds era and revision, and checks the envelope.
//! 3. [`server`] finds the method in its table and reads the params; cheap methods are answered here.
//! 4. The transport gives the call a thread: over HTTP its connection's own, on stdio another, so that cancelling works
//!    meanwhile. The caller's [`account`] allows it, and hands out all that the call then holds.
//! 5. [`tools`] does the work with [`fabric`], the only part that talks to Fabric, and relays output as it comes.
//!    [`runs`] keeps what a run made, so that it outlives the call.
//! 6. [`protocol`] writes the result as its revision has it, and the transport sends it.
//!
//! With `--connect` none of this happens: [`transport::connect`] passes the messages of stdin on to a server over HTTP.
//!
//! Reading a message never blocks on Fabric; calls do. There is no async runtime: each connection and each call has a
//! thread, and everything is bounded. This file wires the parts together and maps results to exit codes: 0 for success,
//! 1 for failure, 2 for a mistake in a flag or variable.

mod access;
mod account;
mod agent;
mod cli;
mod clients;
mod commands;
mod config;
mod demo;
mod encoding;
mod error;
mod fabric;
mod generate;
mod http;
mod logging;
mod metrics;
mod os;
mod protocol;
mod runs;
mod search;
mod server;
mod sync;
mod table;
mod text;
mod time;
mod tools;
mod transport;
mod url;

use std::env::consts::OS;
use std::io::{self, IsTerminal, StdinLock, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, exit};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use access::{Access, OAuth, Tokens};
use account::{Accounts, Bounds, Resource, SHARED_SEATS};
use cli::{Command, ExitReason, START, Task, start_flag};
use clients::{ForClient, Launch, install};
use commands::call::CallTarget;
use commands::{call, check};
use config::{
    API_KEY, AUTH_TOKEN, BASE_URL, Config, Connect, MAX_QUEUED_RUNS, RunSettings, Transport,
};
use demo::Folders;
use fabric::{Catalog, Client, HELPER, Process};
use http::HttpServer;
use log::Level;
use logging::Line;
use os::signals::{Signal, Signals};
use os::{files, heap, service, signals};
use runs::{Folder, Runs};
use server::Server;
use sync::spawn;
use time::SystemClock;
use tools::{Backend, Policy};
use transport::connect::Relay;
use transport::http::HttpTransport;
use transport::stdio::{Stdio, Writer};

/// How long the process waits at its end for the last log lines.
const LOG_FLUSH: Duration = Duration::from_millis(200);

/// Where Fabric usually listens, and how long --install waits for it there.
const USUAL: ([u8; 4], u16) = ([127, 0, 0, 1], 8080);
const QUICK: Duration = Duration::from_millis(500);

/// On stdio, work that the first answer does not need starts this much later. Measured: a fifth to a third less time
/// from spawn to the answer of `initialize`.
const FIRST_ANSWER: Duration = Duration::from_millis(10);

/// At least this many calls other than runs can work at once on stdio.
const STDIO_CALLS: usize = 32;
/// Unfinished calls on stdio, each on a thread: most of them wait until the client reads.
const STDIO_OPEN: usize = 4096;
/// Open files besides those of connections and runs: for accepting, for probes, and for the process itself.
const OTHER_FILES: usize = 64;
/// Transcripts that Fabric fetches at once: each is a process on its host.
const MAX_TRANSCRIPTS: usize = 8;

/// Why an entry has no token.
const SIGNS_IN: &str = "Callers sign in to this server (OAuth): the entry has no token, and the \
    client asks you to sign in. If the server takes tokens too, set FABRIC_MCP_AUTH_TOKEN and do \
    this again.\n";

/// Shown when the program is started by hand in a terminal.
const TYPED: &str = include_str!("cli/typed.txt");

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).peekable();
    if args.next_if(|first| first == HELPER).is_some() {
        return fabric::be_helper(args);
    }
    let variables = std::env::vars_os().filter(|(_, value)| !value.is_empty());
    let variables = variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    // On Windows, case does not matter in the names of variables.
    #[cfg(windows)]
    let variables = variables.map(|(name, value)| (name.to_ascii_uppercase(), value));
    let command = cli::parse(args, &variables.collect::<Vec<_>>(), &cli::read_file);
    let code = command
        .map_err(ExitReason::usage)
        .and_then(run)
        .unwrap_or_else(|exit| {
            call::say(&exit.reason);
            ExitCode::from(exit.code)
        });
    logging::flush(LOG_FLUSH);
    code
}

fn run(command: Command) -> Result<ExitCode, ExitReason> {
    if let Command::Here(Task::Call(..), config) | Command::There(Task::Call(..), _, config) =
        &command
        && config.log_level.is_some()
    {
        logging::start(config.log_level, config.log_json);
    }
    let good = match command {
        Command::Print(text) => print(&text),
        Command::ListTools(mut config) => {
            folders(&mut config)?;
            check_tools(&config.policy)?;
            print(&match config.json {
                true => server::tools_json(&config.policy),
                false => tools::catalogue(&config.policy),
            })
        }
        Command::Healthcheck(config) => config
            .and_then(|config| service::healthcheck(&config.host, config.port))
            .map(|()| true)
            .map_err(ExitReason::failed),
        Command::CheckTokens(file, default, has_ledger) => {
            Tokens::check(default, file, has_ledger).map_err(ExitReason::usage)
        }
        Command::Usage(config, period, prices) => {
            logging::start(config.log_level, config.log_json);
            let folder = config.runs.state_dir.unwrap_or_default();
            let (from, in_it) = period.unwrap_or_else(|| (time::now()[..7].to_owned(), true));
            let rows = runs::usage(&folder, (&from, in_it), prices.as_ref())
                .map_err(|why| ExitReason::failed(format!("--usage: {why}")))?;
            print(&call::usage(rows, config.json))
        }
        Command::Generate(what, words, client) => print_file(what, &words, client),
        Command::Install(asked) => {
            install::run(asked, &program()?, which_fabric).map_err(ExitReason::failed)
        }
        Command::Skills(what, dir, names, mut config) => {
            // The log says which patterns are left out.
            logging::start(config.log_level, config.log_json);
            // The server of a plugin reads its patterns.
            config.policy.patterns_only |= what == "plugin";
            let (server, config, _demo) = assemble(*config)?;
            let origin = match what {
                _ if config.demo => "fabric-mcp --demo",
                // It does not tell which machine it was made on.
                "plugin" => "fabric-mcp --generate plugin",
                _ => &config.fabric.url,
            };
            let report = generate::write_skills(&server, what, &dir, &names, origin);
            let (text, good) = report.map_err(|error| ExitReason::failed(error.detail))?;
            print(&text).map(|written| written && good)
        }
        Command::Here(Task::Call(tool, words), config) => call_here(&tool, &words, *config),
        Command::There(Task::Call(tool, words), at, config) => {
            call::run(CallTarget::There(&at), &config, &tool, &words)
        }
        Command::There(Task::Check, at, _) => transport::connect::check(&at)
            .map_err(ExitReason::failed)
            .and_then(|report| print(&report)),
        Command::There(Task::Serve, at, config) => relay(&at, &config).map(|()| true),
        Command::Here(Task::Check, config) => check_here(*config),
        Command::Here(Task::Serve, config) => {
            if config.transport == Transport::Stdio && io::stdin().is_terminal() {
                // Fails only if stderr is closed.
                let _ = io::stderr().write_all(TYPED.as_bytes());
            }
            logging::start(config.log_level, config.log_json);
            // From here on, only the log writes to stderr, since writing may block.
            if let Err(exit) = start(*config) {
                logging::critical(&exit.reason);
                return Ok(ExitCode::from(exit.code));
            }
            Ok(true)
        }
    };
    Ok(ExitCode::from(u8::from(!good?)))
}

/// Prints a file of `--generate`; a new token, which is shown only now, goes to stderr.
fn print_file(what: &str, words: &[String], client: Option<ForClient>) -> Result<bool, ExitReason> {
    let (text, hint, token) = generate::generate(what, words, client, &program)?;
    let mut written = write(&text);
    if matches!(what, "token" | "compose") {
        // Even if the reader has left: without the text, the new token is of no use.
        written = written.map_err(io::Error::other);
    }
    if written.is_err() && what == "compose" {
        // So that it can be made again.
        let _ = words.iter().try_for_each(std::fs::remove_file);
    }
    let good = written.map(|()| true).or_else(ExitReason::unwritable)?;
    if let Some(token) = token {
        // Alone on its line, for scripts. Fails if stderr is closed.
        let _ = writeln!(io::stderr(), "{}", token.expose());
    }
    if io::stderr().is_terminal() {
        call::say(&hint);
    }
    Ok(good)
}

/// Calls a tool in this process.
fn call_here(tool: &str, words: &[String], mut config: Config) -> Result<bool, ExitReason> {
    // `--json` prints the structured result.
    config.policy.plain_results = false;
    let runs = &mut config.runs;
    // The run ends with this process, so wait for it; it is kept only where another process can find it.
    runs.answer_within = Duration::ZERO;
    // A folder that is not there has no runs, and is not made for that.
    let reads = tool == "fabric_get_run";
    let missing = runs.state_dir.take_if(|dir| reads && !dir.exists());
    runs.memory_only = missing.map(|dir| format!("there is no folder {dir:?}"));
    if state_folder(runs)?.is_none() {
        runs.keep = Duration::ZERO;
        let folder = install::shared_folder().filter(|folder| reads && Path::new(folder).is_dir());
        if let Some(folder) = folder {
            let folder = clients::shell(&folder, OS);
            let why = format!("runs are found only in a folder: give --state-dir {folder}");
            runs.memory_only.get_or_insert(why);
        }
    }
    let (server, config, _demo) = assemble(config)?;
    let warnings = config.warnings.iter().chain(&config.runs.memory_only);
    warnings.for_each(|text| call::say(text));
    let called = call::run(CallTarget::Here(&server), &config, tool, words);
    // The end of a run that could not be written at once.
    server.backend.runs.interrupt_all();
    called
}

/// Checks Fabric and the settings. Keeps no runs, and leaves no folder for them.
fn check_here(mut config: Config) -> Result<bool, ExitReason> {
    let folder = config.runs.state_dir.clone().unwrap_or_default();
    let is_missing = |path: &&Path| path.symlink_metadata().is_err();
    let made = Vec::from_iter(folder.ancestors().take_while(is_missing));
    let opened = state_folder(&mut config.runs);
    // Fails for one that was not made, or that somebody else uses already.
    let _ = made.iter().try_for_each(std::fs::remove_dir);
    opened?;
    config.runs.state_dir = None;
    let told = config.runs.memory_only.take();
    config.warnings.extend(told.map(|told| told + "."));
    if !config.patterns_dirs.is_empty() {
        // The log says which patterns are left out.
        logging::start(config.log_level, config.log_json);
    }
    let (server, config, _demo) = assemble(config)?;
    let access = access(&config, &server.backend.accounts).map_err(ExitReason::usage)?;
    check::run(&server, &config, &access).or_else(ExitReason::unwritable)
}

fn start(mut config: Config) -> Result<(), ExitReason> {
    fit(&mut config, files::raise_limit().unwrap_or(usize::MAX));
    for warning in &config.warnings {
        log::warn!("{warning}");
    }
    let (server, config, _demo) = assemble(config)?;
    match config.transport {
        Transport::Stdio => serve_stdio(server, &config),
        Transport::Http | Transport::Sse => serve_http(server, &config),
    }
}

fn print(text: &str) -> Result<bool, ExitReason> {
    write(text).map(|()| true).or_else(ExitReason::unwritable)
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// The path of this program.
fn program() -> Result<String, ExitReason> {
    let path = std::env::current_exe().ok();
    path.and_then(|path| path.into_os_string().into_string().ok())
        .ok_or_else(|| {
            ExitReason::failed("the path of this program is unknown or not UTF-8; move it")
        })
}

/// Lets an entry start the Fabric of this machine, if that is wanted, or if no setting says which one to use, the entry
/// was not for one at `before`, and none answers at Fabric's usual address. An entry for a URL has no token if the server
/// asks for none, or has callers sign in. Returns what was chosen and why.
fn which_fabric(launch: &mut Launch, offers: bool, before: Option<&str>) -> Option<String> {
    let (args, env) = match launch {
        Launch::Program { args, env } => (args, env),
        Launch::Url { url, token, .. } => {
            let set = std::env::var_os(AUTH_TOKEN).filter(|token| !token.is_empty());
            let why = set.map_or_else(|| without_token(url), |_| None);
            *token = why.is_none();
            return why;
        }
    };
    let given = args.iter().find_map(|arg| arg.strip_prefix(START));
    let given = given.map(|given| PathBuf::from(given.trim_start_matches('=')));
    if let (None, true, Some(before)) = (&given, offers, before) {
        let urls = env.iter_mut().filter(|(name, _)| name == BASE_URL);
        urls.for_each(|(_, url)| *url = Some(before.to_owned()));
        return Some("FABRIC_BASE_URL is not set: the entry keeps its address.\n".to_owned());
    }
    let why = match given {
        Some(_) => "--start-fabric was given",
        None if !offers => return None,
        None if TcpStream::connect_timeout(&USUAL.into(), QUICK).is_ok() => {
            let what =
                "FABRIC_BASE_URL is not set: the entry uses what listens at 127.0.0.1:8080.\n";
            return Some(what.to_owned());
        }
        None => "FABRIC_BASE_URL is not set, and nothing listens at 127.0.0.1:8080",
    };
    // The client may have another PATH.
    let is_given = given.is_some();
    Some(match fabric::find(&given.unwrap_or_default(), &|_| ()) {
        Ok((program, version)) => {
            args.retain(|arg| !arg.starts_with(START));
            args.push(start_flag(&program));
            env.retain(|(name, _)| name != BASE_URL && name != API_KEY);
            let program = program.display();
            format!("The entry starts {program}, {version}, when it is needed: {why}.\n")
        }
        // The check says it.
        Err(_) if is_given => return None,
        Err(none) => format!("{} Then run --install again.\n", none.detail),
    })
}

/// What to say if the server at this URL has callers sign in, or lets anybody in; `None` if it asks for a token or is silent.
fn without_token(url: &str) -> Option<String> {
    if agent::asks_for_oauth(url)? {
        return Some(SIGNS_IN.to_owned());
    }
    let (url, token) = (url.to_owned(), None);
    let opened = transport::connect::check(&Connect { url, token });
    opened.ok().map(|said| format!("Check: {said}"))
}

/// Refuses names of `--tool` that no tool here has.
fn check_tools(policy: &Policy) -> Result<(), ExitReason> {
    let all = Policy {
        patterns_only: policy.patterns_only,
        ..Policy::default()
    };
    let mut names = policy.tools.iter();
    names.try_for_each(|name| call::check_name("--tool", name, &all))
}

/// The folders of `--patterns-dir`, whose patterns nothing runs.
fn folders(config: &mut Config) -> Result<Option<Folders>, ExitReason> {
    if config.patterns_dirs.is_empty() {
        return Ok(None);
    }
    let folders = Folders::open(&config.patterns_dirs).map_err(ExitReason::usage)?;
    config.policy.patterns_only = true;
    config.policy.no_strategies = !folders.has_strategies();
    config.runs.keep = Duration::ZERO;
    config.fabric.url = folders.shown();
    Ok(Some(folders))
}

/// Builds everything but the transport. With `--demo`, the built-in Fabric runs while its server is kept.
fn assemble(mut config: Config) -> Result<(Arc<Server>, Config, Option<HttpServer>), ExitReason> {
    heap::tune();
    let folders = folders(&mut config)?;
    check_tools(&config.policy)?;
    let demo = config.demo.then(demo::start).transpose();
    let demo = demo.map_err(|error| {
        ExitReason::failed(format!("the demo's Fabric cannot be started: {error}"))
    })?;
    if let Some(demo) = &demo {
        config.fabric.url = format!("http://{}", demo.address);
    }
    let folder = state_folder(&mut config.runs)?;
    let accounts = Accounts::new(bounds(&config));
    let client = match (config.start_fabric.clone(), folders) {
        (Some(program), _) => {
            config.fabric.url = "a free port of this machine (--start-fabric)".to_owned();
            Client::starting(config.fabric.clone(), Process::new(program))
        }
        (None, None) => Client::new(&config.fabric),
        (None, Some(folders)) => Client::within(Arc::new(folders)),
    };
    let client = Arc::new(client.map_err(ExitReason::usage)?);
    let catalog = Arc::new(Catalog::new(client.clone(), config.catalog_ttl));
    let clock = Arc::new(SystemClock::new());
    // Callers that cannot be distinguished must not list each other's runs.
    let lists = config.transport == Transport::Stdio || !config.http.is_open();
    let backend = Backend {
        fabric: client,
        catalog,
        policy: config.policy.clone(),
        runs: Runs::new(config.runs.keep, folder, &accounts, clock),
        settings: config.runs.clone(),
        lists,
        run_note: config.demo.then_some(demo::NOTE),
        accounts,
    };
    Ok((Arc::new(Server::new(backend)), config, demo))
}

/// The folder that keeps runs, if there is one. One that `--install` has chosen may be out of a client's reach.
fn state_folder(settings: &mut RunSettings) -> Result<Option<Arc<Folder>>, ExitReason> {
    let state_dir = settings.state_dir.as_deref();
    let folder = state_dir.map(Folder::open);
    folder.transpose().or_else(|why| match settings.is_history {
        true => {
            settings.state_dir = None;
            let why = format!("runs are kept in memory only: {why}");
            log::warn!("{why}");
            settings.memory_only = Some(why);
            Ok(None)
        }
        false => Err(ExitReason::failed(why)),
    })
}

/// Lowers the limits on connections and runs to what this many open files allow.
fn fit(config: &mut Config, files: usize) {
    let (runs, connections) = (&mut config.max_runs, &mut config.http.max_connections);
    let (all_runs, all_connections) = (*runs, *connections);
    // A run has its connection to Fabric; in the state folder its text and its record.
    let each_run = 1 + 2 * usize::from(config.runs.state_dir.is_some());
    // A connection has its socket, and what the call on it opens: a connection to Fabric, or a folder's file.
    let others = match config.transport {
        Transport::Stdio => STDIO_CALLS,
        Transport::Http | Transport::Sse => 2 * all_connections,
    };
    let needed = each_run * all_runs + others;
    let left = files - OTHER_FILES.min(files / 2);
    if needed > left {
        for number in [runs, connections] {
            *number = (*number * left / needed).max(1);
        }
        config.warnings.push(format!(
            "this process may open {files} files, and needs {}: --max-runs is {} instead of \
             {all_runs}, --max-connections {} instead of {all_connections}; raise the limit \
             (ulimit -n, LimitNOFILE)",
            needed + OTHER_FILES,
            config.max_runs,
            config.http.max_connections
        ));
    }
}

/// How much callers may hold.
fn bounds(config: &Config) -> Bounds {
    let is_stdio = config.transport == Transport::Stdio;
    let http = &config.http;
    let calls = match is_stdio {
        true => config.max_runs.max(STDIO_CALLS),
        false => config.max_runs.max(http.max_connections),
    };
    let is_open_here = http.is_open()
        && http.trusted_proxies.is_empty()
        && url::Host::parse(&config.host).is_ok_and(|host| host.is_loopback());
    let has_one_token = http.token.is_some() && http.tokens_file.is_none() && http.oauth.is_none();
    let has_others = http.is_open() || http.oauth.is_some() || http.allow_unauthenticated;
    let seats = if has_others { SHARED_SEATS } else { 0 };
    let shared_seats = (!is_stdio && !is_open_here && !has_one_token).then_some(seats);
    let (kept, stored) = runs::bounds(config.runs.state_dir.is_some());
    let total = |what| match what {
        Resource::Memory => config.max_memory,
        Resource::Runs => config.max_runs,
        // With a single caller over HTTP, all calls have threads, so a queue would only hide how many there are.
        Resource::Queue if !is_stdio && shared_seats.is_none() => 0,
        Resource::Queue if is_stdio => MAX_QUEUED_RUNS,
        Resource::Queue | Resource::Calls | Resource::Waits => calls,
        // The one client of stdio may send many before it reads.
        Resource::CallThreads if is_stdio => STDIO_OPEN,
        Resource::CallThreads => config.max_runs + 2 * calls,
        Resource::Streams => http.max_connections,
        Resource::Transcripts => MAX_TRANSCRIPTS,
        Resource::Kept => kept,
        Resource::Stored => stored,
    };
    let (runs_per_caller, per_minute) = match is_stdio {
        true => (0, 0),
        false => (http.max_runs_per_caller, http.max_calls_per_minute),
    };
    Bounds {
        totals: Resource::ALL.map(total),
        runs_per_caller,
        per_minute,
        shared_seats,
    }
}

/// Ends the process, as when a client on stdio has disconnected.
fn leave() {
    logging::flush(LOG_FLUSH);
    exit(0)
}

/// Reads stdin to its end. Another thread does `other`, which waits for a signal; then the process ends.
fn serve_stdin(
    serve: impl FnOnce(StdinLock<'_>) -> io::Result<()>,
    other: impl FnOnce(Signals) + Send + 'static,
) -> Result<(), ExitReason> {
    let signals = signals::install(false);
    spawn("signals", "signals are not handled", move || {
        other(signals);
        leave();
    });
    let served = serve(io::stdin().lock());
    served.map_err(|error| ExitReason::failed(format!("stdin cannot be read: {error}")))
}

fn serve_stdio(server: Arc<Server>, config: &Config) -> Result<(), ExitReason> {
    let stdio = Arc::new(Stdio::new(server.clone(), io::stdout(), leave));
    let (other, limit) = (stdio.clone(), config.http.drain_timeout);
    let work = move |mut signals: Signals| {
        // Clients start this program and send requests at once: each additional thread delays the first answer.
        thread::sleep(FIRST_ANSWER);
        log::info!("Fabric MCP Server started on stdio transport.");
        check::log_connection(&server);
        let signal = signals.wait().name();
        log::info!("{signal}: letting runs finish");
        other.stop(limit);
    };
    serve_stdin(|input| stdio.serve(input), work)
}

/// Passes messages on to another server.
fn relay(at: &Connect, config: &Config) -> Result<(), ExitReason> {
    heap::tune();
    let client = |relay: &Weak<Relay>| {
        let relay = relay.clone();
        let broken = move || {
            relay.upgrade().inspect(|relay| relay.leave());
            leave();
        };
        Arc::new(Writer::new(io::stdout(), broken))
    };
    let relay = Relay::new(at, client).map_err(ExitReason::usage)?;
    logging::start(config.log_level, config.log_json);
    let other = relay.clone();
    let work = move |mut signals: Signals| {
        let signal = signals.wait().name();
        log::info!("{signal}: ending");
        other.leave();
    };
    serve_stdin(|input| relay.serve(input), work)
}

/// Access control over HTTP, from `config`.
fn access(config: &Config, accounts: &Accounts) -> Result<Access, String> {
    let http = config.http.clone();
    let has_ledger = config.runs.state_dir.is_some();
    let tokens = Tokens::open(http.token, http.tokens_file, has_ledger, accounts)?;
    let oauth = http.oauth.map(OAuth::new).transpose()?;
    Ok(Access::new(tokens, oauth, http.allow_unauthenticated))
}

fn serve_http(server: Arc<Server>, config: &Config) -> Result<(), ExitReason> {
    let access = access(config, &server.backend.accounts).map_err(ExitReason::usage)?;
    let access = Arc::new(access);
    // Before listening, so that every signal ends the process gracefully. SIGHUP means reload, unless it comes from a
    // closed terminal and there is no file to reload.
    let reloads = config.http.tokens_file.is_some() || !io::stderr().is_terminal();
    let mut signals = signals::install(reloads);
    let listening =
        HttpTransport::start(server.clone(), access.clone(), config).map_err(ExitReason::failed)?;
    check::log_connection(&server);
    let has_tokens = config.http.token.is_some() || config.http.tokens_file.is_some();
    let auth = match (has_tokens, config.http.oauth.is_some()) {
        (true, true) => "token,oauth",
        (true, false) => "token",
        (false, true) => "oauth",
        (false, false) => "none",
    };
    let mut line = Line::sentence(format!(
        "Fabric MCP Server started on {} transport at http://{}{}",
        format!("{:?}", config.transport).to_lowercase(),
        listening.http.address,
        config.path
    ));
    line.field("auth", auth);
    line.log(Level::Info, module_path!());
    service::ready(listening.http.address);
    let mut signal = signals.wait();
    while signal == Signal::Hangup {
        service::tell("RELOADING=1");
        access.tokens.reload();
        service::tell("READY=1");
        signal = signals.wait();
    }
    log::info!("{}: letting runs finish", signal.name());
    service::tell("STOPPING=1");
    listening.stop(config.http.drain_timeout);
    Ok(())
}
