//! `--call`: one tool call from the shell, through the same code as a client's call.
//!
//! In scope: arguments, piped input, and what goes to stdout and stderr. Not in scope: what tools do. Ctrl-C and a
//! closed stdout cancel the call.

use std::borrow::Cow;
use std::env::consts::OS;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;
use std::process::exit;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::access::{Caller, Identity};
use crate::cli::{ExitReason, from_home};
use crate::clients::shell;
use crate::config::{Config, Connect, MAX_FABRIC_BODY, MAX_MESSAGE};
use crate::demo::NOTE;
use crate::encoding::json::decode;
use crate::os::signals;
use crate::protocol::{Answer, Inbound, Level, Revision, Session, jsonrpc, meta};
use crate::runs;
use crate::server::{Action, Server, here};
use crate::sync::{lock, spawn};
use crate::text::{for_terminal, hint, shown, unusable};
use crate::tools::{self, Peer, Policy};
use crate::transport::connect::Relay;

/// The tool whose arguments may be nothing but a query.
const SEARCH: &str = "fabric_list_patterns";
/// The tool that takes piped input.
const RUN: &str = "fabric_run_pattern";
/// The tool's argument for the input.
const INPUT: &str = "input_text";
/// The tool's argument that makes it answer early.
const WAIT: &str = "wait_seconds";
/// What means stdin for other programs. Here it is read without being asked.
const STDIN: [&str; 3] = ["-", "input_text=-", "input_text=@-"];
/// How long to wait for text on stdin that should not be there: a pipe may be inherited, and stay silent for ever.
const STRAY_TEXT: Duration = Duration::from_millis(500);
/// How often to look whether a call elsewhere is answered, or must stop.
const LOOK: Duration = Duration::from_millis(20);
/// The pause before another look at a run elsewhere, in case the server refuses to wait for its end.
const PAUSE: Duration = Duration::from_secs(1);

/// Where a tool is called.
pub(crate) enum CallTarget<'t> {
    /// In this process.
    Here(&'t Arc<Server>),
    /// At the server of `--connect`.
    There(&'t Connect),
}

/// Calls `tool` and prints its result. True: it worked, or the reader of its output has left.
///
/// # Errors
/// Why it was not called, or failed. The exit code after a signal is 128 + its number.
pub(crate) fn run(
    target: CallTarget<'_>,
    config: &Config,
    tool: &str,
    words: &[String],
) -> Result<bool, ExitReason> {
    check_name("--call", tool, &config.policy)?;
    let mut arguments = parsed(tool, words)?;
    if tool == RUN && is_given(&arguments, WAIT) {
        // The run would end with this process.
        return Err(ExitReason::usage(format!(
            "--call waits until the run ends; leave {WAIT} out"
        )));
    }
    if tool == RUN && !config.policy.patterns_only {
        // With `max_chars`, the result is shown only at the end, after it was cut.
        let cut = arguments.contains_key("max_chars");
        arguments.entry("stream").or_insert(Value::from(!cut));
    }
    let is_dry = arguments.get("dry_run").is_some_and(|dry| *dry != false);
    if tool == "fabric_get_pattern_details" || is_dry {
        // People read all of it.
        let limit = arguments.entry("max_chars");
        limit.or_insert(MAX_FABRIC_BODY.into());
    }
    // Without a pattern the call is refused anyway, so no input is read, and none is missed.
    if tool == RUN && !config.policy.patterns_only && !is_given(&arguments, "pattern_name") {
        arguments.insert("input_is_text".to_owned(), true.into());
    }
    let screen = Arc::new(Screen {
        // From a run elsewhere, text may come all the same.
        text_wanted: !config.json && arguments.get("stream") != Some(&Value::from(false)),
        idle_timeout: config.fabric.idle_timeout,
        ..Screen::default()
    });
    // From here on, the first Ctrl-C cancels the call, or ends the process if the call has not begun, and the second one
    // ends the process.
    let mut signals = signals::install(false);
    let other = screen.clone();
    spawn("signals", "the first Ctrl-C does nothing", move || {
        let code = 128 + signals.wait().row().0;
        other.stopped.store(code, Ordering::SeqCst);
        if !other.has_begun.load(Ordering::SeqCst) {
            say("Cancelled.");
            exit(code.into());
        }
    });
    if tool == RUN && is_given(&arguments, "pattern_name") {
        let mut inputs = [INPUT, "input_from"].into_iter();
        if let Some(given) = inputs.find(|name| is_given(&arguments, name)) {
            refuse_stray_text(given)?;
        } else {
            let stdin = io::stdin();
            if stdin.is_terminal() {
                say(&format!(
                    "no {INPUT} is given: type or paste the text, then press Ctrl-D on a line of its own (Windows: Ctrl-Z and Enter)"
                ));
            }
            let text = input("what is piped in", stdin.lock())?;
            if !text.is_empty() {
                arguments.insert(INPUT.to_owned(), Value::from(text));
            }
        }
    }
    screen.has_begun.store(true, Ordering::SeqCst);
    let about = json!({"progressToken": 1, tools::SHELL: true});
    let params = json!({"name": tool, "arguments": arguments, "_meta": about});
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    match target {
        CallTarget::Here(server) => call_here(server, &request, &screen),
        CallTarget::There(settings) => call_there(settings, request, &screen)?,
    }
    let answer = std::mem::take(&mut lock(&screen.state).answer);
    let failure = screen.finish(&answer, config);
    if let Some(error) = lock(&screen.state).lost.take() {
        return ExitReason::unwritable(error);
    }
    let Some(reason) = failure else {
        return Ok(true);
    };
    let stopped = screen.stopped.load(Ordering::Acquire);
    // The URN is for programs, which have the exit code too.
    let urn = reason.rfind(" urn:fabric-mcp:");
    let said = match urn.filter(|_| io::stderr().is_terminal()) {
        Some(_) if stopped > 1 => "Cancelled.",
        Some(at) => &reason[..at],
        None => &reason,
    };
    let (code, reason) = (stopped.max(1), for_terminal(said).into_owned());
    Err(ExitReason { code, reason })
}

/// Refuses a name, given with `flag`, that no tool has that `policy` offers.
pub(crate) fn check_name(flag: &str, tool: &str, policy: &Policy) -> Result<(), ExitReason> {
    let names: Vec<&str> = policy.tools().map(|tool| tool.name).collect();
    if names.contains(&tool) {
        return Ok(());
    }
    let all = match flag {
        "--call" => "fabric_run_pattern pattern_name=NAME runs a pattern; the tools are",
        _ => "the tools are",
    };
    let hint = hint(tool, &names, all);
    let tool = shown(tool, 64);
    Err(ExitReason::usage(format!(
        "{flag}: there is no tool \"{tool}\"; {hint}"
    )))
}

fn is_given(arguments: &Map<String, Value>, name: &str) -> bool {
    !arguments.get(name).is_none_or(Value::is_null)
}

/// The arguments in these words: JSON objects, and KEY=VALUE, where KEY may be NAME.MEMBER, and VALUE @FILE. Other words
/// are a query, for a tool that needs nothing else.
fn parsed(tool: &str, words: &[String]) -> Result<Map<String, Value>, ExitReason> {
    let (mut arguments, mut query) = (Map::new(), Vec::new());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let is_key = |text: &str| !text.is_empty() && text.chars().all(is_plain);
    let twice =
        |key: &str| ExitReason::usage(format!("--call: {key} is given twice; leave one out"));
    for word in words {
        let pair = word.split_once('=').filter(|(key, _)| is_key(key));
        match (serde_json::from_str(word), pair) {
            _ if tool == RUN && STDIN.contains(&word.as_str()) => {}
            (Ok(Value::Object(members)), _) => arguments.extend(members),
            (_, Some((key, value))) => {
                let value = match value.strip_prefix('@') {
                    None if key == INPUT && Path::new(value).is_file() => {
                        return Err(no_argument(tool, value, &arguments));
                    }
                    None => value.to_owned(),
                    Some(rest) if rest.starts_with('@') => rest.to_owned(),
                    Some(file) => read(key, file)?,
                };
                let (name, member) = key.split_once('.').unwrap_or((key, ""));
                let mut place = arguments.entry(name).or_insert(Value::Null);
                if !member.is_empty() && (place.is_null() || place.is_object()) {
                    place = &mut place[member];
                }
                if !place.is_null() {
                    return Err(twice(key));
                }
                *place = match serde_json::from_str(&value) {
                    Ok(Value::Object(members)) if key == "variables" => members.into(),
                    _ => value.into(),
                };
            }
            (Err(error), _) if word.starts_with(['{', '[', '\'']) => {
                return Err(no_object(word, &format!("is not JSON: {error}")));
            }
            _ if tool == SEARCH && !word.starts_with(['[', '=']) => query.push(word.as_str()),
            (Err(_), _) => return Err(no_argument(tool, word, &arguments)),
            (Ok(_), _) => return Err(no_object(word, "is not a JSON object")),
        }
    }
    let query = query.join(" ");
    if !query.is_empty() && arguments.insert("query".to_owned(), query.into()).is_some() {
        return Err(twice("query"));
    }
    Ok(arguments)
}

/// Some shells pass single quotes on, others take double quotes away.
fn no_object(word: &str, what: &str) -> ExitReason {
    ExitReason::usage(format!(
        "--call: the arguments came as {}, which {what}; give an object: sh takes it in single \
         quotes, as in '{{\"pattern_name\":\"summarize\"}}', cmd.exe and PowerShell 5 as \
         \"{{\\\"pattern_name\\\":\\\"summarize\\\"}}\"; or give KEY=VALUE, as in \
         pattern_name=summarize",
        shown(word, 64)
    ))
}

/// What to give instead of a word that is not an argument.
fn no_argument(tool: &str, word: &str, given: &Map<String, Value>) -> ExitReason {
    let short = shown(word, 64);
    let value = shell(&short, OS);
    let tools = tools::TOOLS.iter().filter(|one| one.name == tool);
    let names = Vec::from_iter(tools.flat_map(|one| one.argument_names(&Policy::default())));
    // bash makes such words of the members of JSON without quotes.
    let is_of = |name: &&str| word.starts_with(&format!("{name}:"));
    if names.iter().any(is_of) {
        return no_object(word, "is not JSON");
    }
    let hint = match names.first() {
        _ if tool == RUN && Path::new(word).is_file() => {
            let file = shell(word, OS);
            format!("is a file: pipe it in, < {file}, or give {INPUT}=@{file}")
        }
        Some(first) => {
            let meant = match &*word.to_ascii_lowercase() {
                "today" | "yesterday" if tool == "fabric_get_run" => "since=1d",
                "=" => "KEY=VALUE, without spaces around the =",
                _ if names.contains(&word) => &format!("{word}=…, without spaces around the ="),
                _ if tool == RUN && word.starts_with('@') => &format!("{INPUT}={value}"),
                _ if tool == RUN && given.contains_key(*first) => {
                    &format!("{INPUT}={value}, or {INPUT}=@{value} for a file")
                }
                _ => &format!("{first}={value}"),
            };
            format!(
                "is neither JSON nor KEY=VALUE: did you mean {meant}? --list-tools shows each KEY"
            )
        }
        None => format!("must be left out: {tool} takes no arguments"),
    };
    ExitReason::usage(format!("--call: \"{short}\" {hint}"))
}

/// The text of a file that is given for `key`.
fn read(key: &str, file: &str) -> Result<String, ExitReason> {
    let file = &from_home(file.to_owned());
    let path = Path::new(file);
    let opened = File::open(path).map_err(|error| {
        let why = unusable("file", path, &error);
        ExitReason::usage(format!(
            "--call: {key}: {why}; for a value that begins with @, give {key}=@@…"
        ))
    });
    input(file, opened?)
}

/// Refuses text on stdin in addition to the argument that is `given`. Blank lines do not count as text.
fn refuse_stray_text(given: &'static str) -> Result<(), ExitReason> {
    if io::stdin().is_terminal() {
        return Ok(());
    }
    let (sender, receiver) = mpsc::channel();
    let look = move || {
        let mut bytes = io::stdin().lock().bytes().map_while(Result::ok);
        if bytes.any(|byte| !byte.is_ascii_whitespace()) {
            // Fails if it comes too late.
            let _ = sender.send(());
        }
    };
    spawn("stdin", "stdin is not looked at", look);
    match receiver.recv_timeout(STRAY_TEXT) {
        Err(_) => Ok(()),
        Ok(()) => Err(ExitReason::usage(format!(
            "--call: text is piped in, and {given} is given too; leave one of them out (in a loop: </dev/null)"
        ))),
    }
}

/// Reads a text to its end: `name` is what is piped in, or a file.
fn input(name: &str, text: impl Read) -> Result<String, ExitReason> {
    let mut bytes = Vec::new();
    let read = text.take(MAX_MESSAGE as u64 + 1).read_to_end(&mut bytes);
    let why = match read {
        Ok(..=MAX_MESSAGE) => match decoded(bytes) {
            Ok(text) => return Ok(text),
            Err(what) => format!("{name} is {what}. Nothing was run."),
        },
        Ok(_) => format!("{name} is larger than {} MiB; give less", MAX_MESSAGE >> 20),
        Err(error) => format!("{name} cannot be read: {error}"),
    };
    Err(ExitReason::failed(why))
}

/// The text in these bytes.
///
/// # Errors
/// What they are instead, and what makes text of it.
fn decoded(bytes: Vec<u8>) -> Result<String, String> {
    let order = match bytes[..] {
        [0xff, 0xfe, ..] | [1..=255, 0, 1..=255, 0, ..] => "LE",
        [0xfe, 0xff, ..] | [0, 1..=255, 0, 1..=255, ..] => "BE",
        _ => "",
    };
    if !order.is_empty() {
        return Err(format!(
            "UTF-16, not UTF-8: iconv -f UTF-16{order} -t UTF-8 converts it"
        ));
    }
    // If the bytes can be UTF-8, the tool itself says whether they are text.
    String::from_utf8(bytes).map_err(|error| {
        let bytes = error.as_bytes();
        let start = String::from_iter(bytes.iter().take(512).map(|byte| char::from(*byte)));
        // No older encoding of texts has these.
        let is_binary = |byte: &u8| matches!(byte, 0..=7 | 14..=25 | 28..=31);
        let what = match tools::file_kind(&start) {
            Some(what) => what,
            None if bytes.iter().any(is_binary) => "a binary file, not text: give its text",
            None => "not UTF-8: iconv -f WINDOWS-1252 -t UTF-8 converts most older texts",
        };
        what.to_owned()
    })
}

/// The text of a result as people read it: lists as tables, other values as lines. `None` if it is an output, which is shown
/// as it is, even if it is JSON.
fn readable(result: &Value, text: &str) -> Option<String> {
    if result["structuredContent"]["output_text"].is_string() {
        return None;
    }
    let value = serde_json::from_str::<Value>(text).ok()?;
    let members = value.as_object()?.iter();
    let parts = members.map(|(name, value)| match value {
        Value::Array(rows) if rows.iter().any(Value::is_object) => aligned(rows),
        Value::Array(items) => {
            let items = items.iter().map(|item| cell(item) + "\n");
            format!("{name}:\n{}", items.collect::<String>())
        }
        Value::Object(rows) => {
            let rows = rows.iter();
            let rows = rows.map(|(name, value)| format!("  {name}: {}\n", cell(value)));
            format!("{name}:\n{}", rows.collect::<String>())
        }
        Value::String(text) => format!("{name}: {text}\n"),
        other => format!("{name}: {}\n", cell(other)),
    });
    Some(Vec::from_iter(parts).join("\n"))
}

/// Objects as a table, a column for each member that there is of these.
fn aligned(rows: &[Value]) -> String {
    const COLUMNS: &str =
        "name created_at patterns model status run_id excerpt description variables";
    let has = |column: &&str| rows.iter().any(|row| !row[*column].is_null());
    let columns = Vec::from_iter(COLUMNS.split(' ').filter(has));
    lines(&columns, rows, true)
}

/// What was used, as JSON, or as a table: for people with a last row for all, in a pipe with tabs.
pub(crate) fn usage(mut rows: Vec<Value>, json: bool) -> String {
    let for_people = !json && io::stdout().is_terminal();
    let all = rows.last().and_then(Value::as_object);
    let columns = all.map_or(0, |all| all.len());
    rows.truncate(rows.len() - usize::from(!for_people));
    match json {
        true => format!("{:#}\n", json!({ "usage": rows })),
        false => for_terminal(&lines(&runs::COLUMNS[..columns], &rows, for_people)).into_owned(),
    }
}

/// A line with the names of these members, and one for each object with their values: aligned, or with tabs.
fn lines(columns: &[&str], rows: &[Value], is_aligned: bool) -> String {
    let head = columns.iter().map(|name| (*name).to_owned()).collect();
    let values = |row: &Value| columns.iter().map(|name| cell(&row[*name])).collect();
    let body = rows.iter().map(values);
    let table: Vec<Vec<String>> = std::iter::once(head).chain(body).collect();
    let widths = (0..columns.len()).map(|at| table.iter().map(|row| row[at].chars().count()).max());
    let widths: Vec<usize> = widths.map(Option::unwrap_or_default).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let cells = cells.map(|(cell, width)| format!("{cell:<width$}"));
        match is_aligned {
            true => Vec::from_iter(cells).join("  ").trim_end().to_owned() + "\n",
            false => row.join("\t") + "\n",
        }
    };
    table.iter().map(line).collect()
}

/// A value in one line.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => Vec::from_iter(items.iter().map(cell)).join(", "),
        // JSON writes small ones as 3e-6.
        Value::Number(number) if number.is_f64() => number.as_f64().unwrap_or_default().to_string(),
        other => other.to_string(),
    };
    Vec::from_iter(text.split_whitespace()).join(" ")
}

/// Sends `request` to the server in this process. `screen` has the answer then.
fn call_here(server: &Arc<Server>, request: &Value, screen: &Arc<Screen>) {
    let session = Session::of(Revision::NEWEST_LEGACY);
    // The text comes as log messages; progress only counts.
    *lock(&session.level) = Some(Level::INFO);
    let request = request.to_string();
    let caller = Arc::new(Caller::open(Identity::Local, &server.backend.accounts));
    let message = Inbound::read(request.as_bytes(), false);
    match server.receive(&session, message, None, &caller) {
        Action::Call(call) => call.serve(server, screen.clone(), here),
        Action::Answer(answer) => screen.answer(answer),
        _ => {}
    }
}

/// The same at another server, without a session. If that answers before the end of the run, the run is followed.
fn call_there(
    settings: &Connect,
    mut request: Value,
    screen: &Arc<Screen>,
) -> Result<(), ExitReason> {
    let mut params = request["params"].take();
    let mut about = params["_meta"].take();
    about[meta::VERSION] = Revision::NEWEST.name().into();
    about[meta::CAPABILITIES] = json!({"extensions": {meta::TASKS: {}}});
    about[meta::LEVEL] = Level::INFO.name().into();
    let relay = Relay::new(settings, |_| screen.clone()).map_err(ExitReason::usage)?;
    let mut ask = |method: &str, params: Value| {
        request["method"] = method.into();
        request["params"] = params;
        request["params"]["_meta"] = about.clone();
        relay.pass_on(request.to_string().into_bytes());
        loop {
            let mut state = lock(&screen.state);
            if !state.answer.is_null() {
                return state.answer.take();
            }
            let silence = state.heard.get_or_insert_with(Instant::now).elapsed();
            drop(state);
            if screen.stopped.load(Ordering::Acquire) != 0 && method != "tasks/cancel" {
                let params = json!({"requestId": 1});
                relay.pass_on(jsonrpc::notification("notifications/cancelled", &params));
                return json!({"error": {"message": "Cancelled."}});
            }
            screen.idle(silence);
            thread::sleep(LOOK);
        }
    };
    let mut answer = ask("tools/call", params);
    let early = &mut answer["result"];
    if early["isError"] == false && early["_meta"]["run_id"].is_string() {
        // The text so far, since there is no room for a task.
        early["taskId"] = early["_meta"]["run_id"].take();
    }
    while let Some(id) = answer["result"]["taskId"].as_str() {
        // Relays the text and waits; what the task has made is its result.
        let part = json!({"run_id": id, "offset": lock(&screen.state).arrived});
        let mut task = json!({"taskId": id});
        let get = json!({"name": "fabric_get_run", "arguments": part});
        ask("tools/call", get);
        answer = ask("tasks/get", task.clone());
        if screen.stopped.load(Ordering::Acquire) != 0 {
            ask("tasks/cancel", task.clone());
        }
        let ended = &mut answer["result"];
        if ended["result"].is_object() {
            ended["result"]["_meta"]["run_id"] = task["taskId"].take();
            answer = json!({"result": ended["result"].take()});
        } else if ended["status"] == "cancelled" {
            answer = json!({"error": {"message": ended["statusMessage"].take()}});
        } else {
            thread::sleep(PAUSE);
        }
    }
    lock(&screen.state).answer = answer;
    Ok(())
}

/// Where a call's text and progress go.
#[derive(Default)]
struct Screen {
    /// Whether text is printed as it comes.
    text_wanted: bool,
    /// After this much silence, the run is given up.
    idle_timeout: Duration,
    /// The exit code, once the call must stop; 0 before that.
    stopped: AtomicU8,
    /// Whether the call has been made.
    has_begun: AtomicBool,
    state: Mutex<CallState>,
}

#[derive(Default)]
struct CallState {
    /// A progress message not printed yet. Dropped if the next text is the same.
    news: Option<String>,
    /// The last character that was printed.
    printed: Option<char>,
    /// How many characters of the output have arrived, and when the last ones did.
    arrived: usize,
    heard: Option<Instant>,
    /// The last silence of a run, in steps of 10 s.
    silent_steps: u64,
    /// Why stdout cannot be written any more.
    lost: Option<io::Error>,
    /// The last response.
    answer: Value,
}

impl CallState {
    /// What to say about a run that is silent: every 10 s.
    fn silence(&mut self, silence: Duration, idle_timeout: Duration) -> Option<String> {
        let steps = silence.as_secs() / 10;
        let is_new = std::mem::replace(&mut self.silent_steps, steps) != steps;
        let short = || format!("Nothing has arrived for {} s.", silence.as_secs());
        let told = tools::silence(silence, idle_timeout).or_else(|| (steps > 0).then(short));
        told.filter(|_| is_new)
    }
}

impl Screen {
    /// Prints to stdout.
    fn print(&self, state: &mut CallState, text: &str) {
        if text.is_empty() || state.lost.is_some() {
            return;
        }
        let mut out = io::stdout().lock();
        let shown = match out.is_terminal() {
            true => for_terminal(text),
            false => Cow::Borrowed(text),
        };
        if let Err(error) = out.write_all(shown.as_bytes()).and_then(|()| out.flush()) {
            // The reader has gone: cancel, since the rest would cost money.
            state.lost = Some(error);
            self.stopped.store(1, Ordering::Release);
        }
        state.printed = text.chars().next_back();
    }

    /// Prints the end of a call. Returns why it failed, if it did.
    fn finish(&self, answer: &Value, config: &Config) -> Option<String> {
        let mut state = lock(&self.state);
        tell(&mut state);
        // What came is printed already.
        let shown = if self.text_wanted { state.arrived } else { 0 };
        let result = &answer["result"];
        let good = result.is_object() && result["isError"] != true;
        let texts = result["content"].as_array().into_iter().flatten();
        let texts = texts.filter_map(|item| item["text"].as_str());
        let refused = answer["error"]["message"].as_str();
        let texts: Vec<&str> = refused.into_iter().chain(texts).collect();
        let (&first, rest) = texts.split_first().unwrap_or((&"", &[]));
        if config.json {
            let shown = match &result["structuredContent"] {
                _ if !good => failure(answer, rest),
                // A server with --plain-results gives the text alone.
                Value::Null => serde_json::from_str(first).unwrap_or_else(|_| first.into()),
                structured => structured.clone(),
            };
            self.print(&mut state, &format!("{shown:#}\n"));
        } else {
            let table = readable(result, first).filter(|_| io::stdout().is_terminal());
            let text = match (table, rest.last()) {
                (_, Some(last)) if !good && shown > 0 => (*last).to_owned(),
                // What had arrived before it failed.
                _ if !good => rest.join("\n"),
                (Some(table), _) if shown == 0 => table,
                _ => first.to_owned(),
            };
            // Usually all of an output is there by now.
            let left: String = text.chars().skip(shown).collect();
            self.print(&mut state, &left);
        }
        if state.printed.is_some_and(|last| last != '\n') {
            self.print(&mut state, "\n");
        }
        if !good {
            return Some(first.to_owned());
        }
        if state.lost.is_none() {
            // The note was printed before the output.
            let is_note = |text: &str| config.demo && text == NOTE;
            let warnings = rest.iter().filter(|text| !is_note(text));
            warnings.for_each(|text| say(text));
        }
        None
    }
}

/// A failure for `--json`: its error, the id of its run where that is kept, and what had arrived.
fn failure(answer: &Value, partial: &[&str]) -> Value {
    let meta = &answer["result"]["_meta"];
    let mut shown = match &answer["error"] {
        Value::Null => meta["error"].clone(),
        error => error.clone(),
    };
    if meta["run_id"].is_string() {
        shown["run_id"] = meta["run_id"].clone();
    }
    if !partial.is_empty() {
        shown["output_text"] = partial.join("\n").into();
    }
    shown
}

/// Says something on stderr. Fails if that is closed.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "fabric-mcp: {}", for_terminal(text));
}

/// Prints the pending progress message.
fn tell(state: &mut CallState) {
    if let Some(news) = state.news.take() {
        say(news.trim_end());
    }
}

impl Peer for Screen {
    fn notify(&self, message: &[u8], wanted: &dyn Fn() -> bool) {
        if !wanted() {
            return;
        }
        let message: Value = decode(message).unwrap_or_default();
        let params = &message["params"];
        let mut state = lock(&self.state);
        match message["method"].as_str() {
            Some("notifications/progress") => {
                tell(&mut state);
                state.news = params["message"].as_str().map(str::to_owned);
            }
            Some("notifications/message") if params["data"]["type"] == "content" => {
                let text = params["data"]["content"].as_str().unwrap_or_default();
                state.heard = Some(Instant::now());
                if state.news.as_deref() == Some(text) {
                    state.news = None;
                }
                tell(&mut state);
                state.arrived += text.chars().count();
                if self.text_wanted {
                    self.print(&mut state, text);
                }
            }
            None => state.answer = message,
            _ => {}
        }
    }

    fn answer(&self, answer: Answer) {
        lock(&self.state).answer = decode(&answer.body).unwrap_or_default();
    }

    fn idle(&self, silence: Duration) {
        if let Some(text) = lock(&self.state).silence(silence, self.idle_timeout) {
            say(&text);
        }
    }

    fn stopped(&self) -> bool {
        tell(&mut lock(&self.state));
        self.stopped.load(Ordering::Acquire) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_words_are_told_with_what_to_type() {
        let unknown = check_name("--call", "x\u{1b}", &Policy::default()).unwrap_err();
        let unknown = unknown.reason;
        let start = "--call: there is no tool \"x\"; fabric_run_pattern pattern_name=NAME runs a pattern; the tools are fabric_";
        assert!(unknown.starts_with(start), "{unknown}");
        for case in [
            "5 => is not a JSON object",
            "{ => is not JSON: EOF while parsing an object at line 1 column 1",
            "{\"a\":1,} => is not JSON: trailing comma at line 1 column 8",
            "{pattern_name:x} => is not JSON: key must be a string at line 1 column 2",
            "'{}' => is not JSON: expected value at line 1 column 1",
            "pattern_name:ai => is not JSON",
        ] {
            let (arguments, what) = case.split_once(" => ").unwrap();
            let message = parsed(RUN, &[arguments.to_owned()]).unwrap_err().reason;
            let told = format!(
                "--call: the arguments came as {arguments}, which {what}; give an object: sh takes"
            );
            assert!(message.starts_with(&told), "{message}");
        }
        assert_eq!(parsed(RUN, &[]), Ok(Map::new()));
        for case in [
            r#"fabric_run_pattern pattern_name=a variables={"lang_code":"de"} variables.x=y input_text=@@b=c - => {"input_text":"@b=c","pattern_name":"a","variables":{"lang_code":"de","x":"y"}}"#,
            r#"fabric_run_pattern {"model_name":"m","variables":{"a":"1"}} variables.b=2 => {"model_name":"m","variables":{"a":"1","b":"2"}}"#,
            r#"fabric_list_patterns true crime of 2024 => {"query":"true crime of 2024"}"#,
            r#"fabric_list_patterns limit=3 contract => {"limit":"3","query":"contract"}"#,
            r#"fabric_get_run since=2d => {"since":"2d"}"#,
            r#"fabric_list_patterns limit = 3 => --call: "=" is neither JSON nor KEY=VALUE: did you mean KEY=VALUE, without spaces around the =? --list-tools shows each KEY"#,
            r#"fabric_run_pattern Cargo.toml => --call: "Cargo.toml" is a file: pipe it in, < Cargo.toml, or give input_text=@Cargo.toml"#,
            r#"fabric_run_pattern input_text=Cargo.toml => --call: "Cargo.toml" is a file: pipe it in, < Cargo.toml, or give input_text=@Cargo.toml"#,
            r#"fabric_run_pattern ai => --call: "ai" is neither JSON nor KEY=VALUE: did you mean pattern_name=ai? --list-tools shows each KEY"#,
            r#"fabric_get_transcript //v?a=b&c => --call: "//v?a=b&c" is neither JSON nor KEY=VALUE: did you mean url='//v?a=b&c'? --list-tools shows each KEY"#,
            r#"fabric_get_run Yesterday => --call: "Yesterday" is neither JSON nor KEY=VALUE: did you mean since=1d? --list-tools shows each KEY"#,
            r#"fabric_run_pattern pattern_name=ai notes.txt => --call: "notes.txt" is neither JSON nor KEY=VALUE: did you mean input_text=notes.txt, or input_text=@notes.txt for a file? --list-tools shows each KEY"#,
            r#"fabric_run_pattern @notes.txt => --call: "@notes.txt" is neither JSON nor KEY=VALUE: did you mean input_text=@notes.txt? --list-tools shows each KEY"#,
            r#"fabric_run_pattern input_text = x => --call: "input_text" is neither JSON nor KEY=VALUE: did you mean input_text=…, without spaces around the =? --list-tools shows each KEY"#,
            "fabric_run_pattern pattern_name=a pattern_name=b => --call: pattern_name is given twice; leave one out",
            r#"fabric_run_pattern variables=x variables.a=1 => --call: variables.a is given twice; leave one out"#,
            "fabric_list_patterns query=x y => --call: query is given twice; leave one out",
            r#"fabric_list_contexts x => --call: "x" must be left out: fabric_list_contexts takes no arguments"#,
            r#"fabric_run_pattern input_text=@nope => --call: input_text: no such file: "nope"; for a value that begins with @, give input_text=@@…"#,
        ] {
            let (words, expected) = case.split_once(" => ").unwrap();
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            let found = match parsed(&words[0], &words[1..]) {
                Ok(arguments) => Value::from(arguments).to_string(),
                Err(exit) => exit.reason,
            };
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn lists_are_tables_for_people() {
        let result = json!({
            "matches": [{"name": "ai", "description": "It\nanswers."}, {"name": "summarize", "description": "S.", "variables": ["a", "b"]}],
            "patterns": ["x", "y"], "vendors": {"OpenAI": ["m"]}, "n": 3, "prompt": "# A\n- b",
        });
        let expected = "name       description  variables\nai         It answers.\nsummarize  S.           a, b\n\nn: 3\n\npatterns:\nx\ny\n\nprompt: # A\n- b\n\nvendors:\n  OpenAI: m\n";
        let shown = readable(&Value::Null, &result.to_string());
        assert_eq!(shown.as_deref(), Some(expected));
        // What a model wrote stays as it is.
        let output = json!({"structuredContent": {"output_text": "{\"n\": 3}"}});
        assert_eq!(readable(&output, "{\"n\": 3}"), None);
        assert_eq!(readable(&Value::Null, "42"), None);
        let costs = [3e-6, 0.0, 2.5].map(|cost| cell(&json!(cost)));
        assert_eq!(costs, ["0.000003", "0", "2.5"]);
    }

    #[test]
    fn a_silence_is_told_every_10_s() {
        let (mut state, limit) = (CallState::default(), Duration::from_secs(300));
        let mut told = |seconds: u64| {
            let tenths = (0..10).map(|tenth| Duration::from_millis(seconds * 1000 + tenth * 100));
            tenths
                .filter_map(|silence| state.silence(silence, limit))
                .count()
        };
        let seconds: Vec<u64> = (0..61).filter(|&second| told(second) == 1).collect();
        assert_eq!(seconds, [10, 20, 30, 40, 50, 60]);
        assert_eq!([told(0), told(35)], [0, 1], "after some text");
        let told = state.silence(Duration::from_secs(40), Duration::ZERO);
        assert_eq!(told.as_deref(), Some("Nothing has arrived for 40 s."));
    }

    #[test]
    fn input_is_read_within_bounds() {
        let input = |bytes: &[u8]| input("it", bytes);
        assert_eq!(input(b"abc\n"), Ok("abc\n".to_owned()));
        let large = vec![b'x'; MAX_MESSAGE];
        assert_eq!(input(&large).map(|text| text.len()), Ok(MAX_MESSAGE));
        for (bytes, what) in [
            (vec![b'x'; MAX_MESSAGE + 1], "it is larger than 8 MiB"),
            (b"caf\xe9".to_vec(), "it is not UTF-8: iconv"),
            (b"\xff\xfea\0".to_vec(), "it is UTF-16, not UTF-8: iconv"),
            (b"a\0b\0".to_vec(), "it is UTF-16, not UTF-8: iconv"),
            (b"\0a\0b".to_vec(), "iconv -f UTF-16BE -t UTF-8"),
            (b"%PDF-1.7\n\xe2".to_vec(), "it is a PDF (pdftotext"),
            (b"\xff\xd8\xff\xe1\x2f\xfeExif".to_vec(), "it is an image"),
            (b"\0\0\0\x24ftypheic\xff".to_vec(), "it is an image"),
            (b"\xd0\xcf\x11\xe0\xa1\xb1".to_vec(), "an older office"),
            (b"BZh91AY&SY\xff\xfe".to_vec(), "it is a compressed"),
            (b"\xfd7zXZ\0".to_vec(), "it is a compressed"),
            (b"7z\xbc\xaf'\x1c".to_vec(), "it is a compressed file, "),
            (b"MZ\x90\x03".to_vec(), "it is a binary file, not"),
            (b"\0\0\0\x18ftyp\xff".to_vec(), "it is a binary file, not"),
        ] {
            let error = input(&bytes).unwrap_err();
            assert!(error.code == 1 && error.reason.contains(what), "{error:?}");
        }
    }
}
