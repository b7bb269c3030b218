//! `--call`: one tool call from the shell, through the same code as a client's call.
//!
//! In scope: arguments, piped input, and what goes to stdout and stderr. Not in scope: what tools do. Ctrl-C and a
//! closed stdout cancel the call.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Read, Write};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::access::{Caller, Identity};
use crate::cli::ExitReason;
use crate::config::{MAX_FABRIC_BODY, MAX_MESSAGE};
use crate::encoding::json::decode;
use crate::os::signals;
use crate::protocol::{Answer, Inbound, Level, Revision, Session};
use crate::server::{Action, Server};
use crate::sync::{lock, spawn};
use crate::text::{for_terminal, hint, shown};
use crate::tools::{self, Peer, Policy};

/// The tool that takes piped input.
const RUN: &str = "fabric_run_pattern";
/// Its argument for the input.
const INPUT: &str = "input_text";
/// Its argument that lets it answer early.
const WAIT: &str = "wait_seconds";
/// How long text on stdin is waited for where none is wanted: a pipe may be inherited, and stay silent for ever.
const STRAY_TEXT: Duration = Duration::from_millis(500);

/// Calls `tool` and prints its result. True: it worked, or the reader of its output has left.
///
/// # Errors
/// Why it was not called, or failed. The exit code after a signal is 128 + its number.
pub(crate) fn run(
    server: &Arc<Server>,
    tool: &str,
    arguments: Option<&str>,
    json: bool,
) -> Result<bool, ExitReason> {
    check_name("--call", tool, &server.backend.policy)?;
    let mut arguments = parsed(arguments)?;
    if tool == RUN && is_given(&arguments, WAIT) {
        // The run would end with this process.
        return Err(ExitReason::usage(format!(
            "--call waits until the run ends; leave {WAIT} out"
        )));
    }
    if tool == RUN && !json && !server.backend.policy.patterns_only {
        // A result cut by `max_chars` is shown only once it is cut.
        let cut = arguments.contains_key("max_chars");
        arguments.entry("stream").or_insert(Value::from(!cut));
    }
    let is_dry = arguments.get("dry_run").is_some_and(|dry| *dry != false);
    if tool == "fabric_get_pattern_details" || is_dry {
        // People read all of it.
        arguments
            .entry("max_chars")
            .or_insert(Value::from(MAX_FABRIC_BODY));
    }
    // Without a pattern it is refused, and nothing need be typed for that.
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
            let text = input(stdin.lock())?;
            if !text.is_empty() {
                arguments.insert(INPUT.to_owned(), Value::from(text));
            }
        }
    }
    let screen = Arc::new(Screen {
        text_wanted: !json,
        idle_timeout: server.backend.fabric.settings.idle_timeout,
        ..Screen::default()
    });
    cancel_on_signal(&screen);
    let answer = called(server, tool, &arguments, &screen);
    let failure = screen.finish(&answer, json, server.backend.run_note);
    if let Some(error) = lock(&screen.state).lost.take() {
        return ExitReason::unwritable(error);
    }
    failure.map_or(Ok(true), |reason| {
        Err(ExitReason {
            code: screen.stopped.load(Ordering::Acquire).max(1),
            reason: for_terminal(&reason).into_owned(),
        })
    })
}

/// Refuses a name, given with `flag`, that no tool has that `policy` offers.
pub(crate) fn check_name(flag: &str, tool: &str, policy: &Policy) -> Result<(), ExitReason> {
    let names: Vec<&str> = policy.tools().map(|tool| tool.name).collect();
    if names.contains(&tool) {
        return Ok(());
    }
    let hint = hint(tool, &names, "the tools are");
    let shown: String = tool.chars().take(64).flat_map(char::escape_debug).collect();
    Err(ExitReason::usage(format!(
        "{flag}: there is no tool \"{shown}\"; {hint}"
    )))
}

fn is_given(arguments: &Map<String, Value>, name: &str) -> bool {
    !arguments.get(name).is_none_or(Value::is_null)
}

fn parsed(arguments: Option<&str>) -> Result<Map<String, Value>, ExitReason> {
    let Some(text) = arguments else {
        return Ok(Map::new());
    };
    // Some shells pass single quotes on, others take double quotes away.
    let wrong = |what: String| {
        ExitReason::usage(format!(
            "--call: the arguments came as {}, which {what}; give an object: sh takes it in single quotes, as in \
             '{{\"pattern_name\":\"summarize\"}}', cmd.exe and PowerShell 5 as \"{{\\\"pattern_name\\\":\\\"summarize\\\"}}\"",
            shown(text, 64)
        ))
    };
    match serde_json::from_str(text) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => Err(wrong("is no JSON object".to_owned())),
        Err(error) => Err(wrong(format!("is not JSON: {error}"))),
    }
}

/// Refuses text on stdin beside the argument that is `given`. Blank lines are none.
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

/// Reads to its end what is piped in or typed.
fn input(stdin: impl Read) -> Result<String, ExitReason> {
    let mut bytes = Vec::new();
    let read = stdin.take(MAX_MESSAGE as u64 + 1).read_to_end(&mut bytes);
    let why = match read.map(|size| (size <= MAX_MESSAGE, String::from_utf8(bytes))) {
        Ok((true, Ok(text))) => return Ok(text),
        Ok((true, Err(error))) => {
            let start = &error.as_bytes()[..error.as_bytes().len().min(64)];
            match tools::no_text(&String::from_utf8_lossy(start)) {
                Some(what) => format!("what is piped in is {what}"),
                None => {
                    "what is piped in is not UTF-8; convert it, for example with iconv".to_owned()
                }
            }
        }
        Ok((false, _)) => format!(
            "what is piped in is larger than {} MiB; pipe in less",
            MAX_MESSAGE >> 20
        ),
        Err(error) => format!("stdin cannot be read: {error}"),
    };
    Err(ExitReason::failed(why))
}

/// From here on, the first Ctrl-C cancels the call, and the second ends the process.
fn cancel_on_signal(screen: &Arc<Screen>) {
    let mut signals = signals::install(false);
    let screen = screen.clone();
    spawn("signals", "the first Ctrl-C does nothing", move || {
        let code = signals.wait().exit_code();
        screen.stopped.store(code, Ordering::Release);
    });
}

/// A table as JSON, or for people with aligned columns and the last row, the sum, or else with tabs. The first row names
/// the columns, of which the first two are no numbers.
pub(crate) fn table(mut rows: Vec<Vec<String>>, json: bool) -> String {
    let for_people = !json && io::stdout().is_terminal();
    rows.truncate(rows.len() - usize::from(!for_people));
    if json {
        let object = |row: &Vec<String>| {
            let cells = rows[0].iter().zip(row).enumerate();
            let cells = cells.map(|(at, (name, cell))| match at {
                0 | 1 => (name.clone(), Value::from(cell.as_str())),
                _ => (name.clone(), serde_json::from_str(cell).unwrap_or_default()),
            });
            Value::Object(cells.collect())
        };
        let objects = Vec::from_iter(rows[1..].iter().map(object));
        return format!("{:#}\n", json!({ "usage": objects }));
    }
    let line = |row: &Vec<String>| {
        let cells = row.iter().enumerate().map(|(at, cell)| {
            let lengths = rows.iter().map(|row| row[at].chars().count());
            match (for_people, lengths.max().unwrap_or(0)) {
                (false, _) => cell.clone(),
                (true, width) if at < 2 => format!("{cell:<width$}"),
                (true, width) => format!("{cell:>width$}"),
            }
        });
        Vec::from_iter(cells).join(if for_people { "  " } else { "\t" }) + "\n"
    };
    rows.iter().map(line).collect()
}

/// The server's JSON-RPC response.
fn called(
    server: &Arc<Server>,
    tool: &str,
    arguments: &Map<String, Value>,
    screen: &Arc<Screen>,
) -> Value {
    let session = Arc::new(Session::of(Revision::NEWEST_LEGACY));
    // The text comes as log messages; progress only counts.
    *lock(&session.level) = Some(Level::INFO);
    let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": 1}});
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let request = request.to_string();
    let caller = Arc::new(Caller::open(Identity::Local, &server.backend.accounts));
    let inbound = Inbound::read(request.as_bytes(), false);
    match server.receive(&session, inbound, None, &caller) {
        Action::Call(call) => {
            call.serve(server, screen.clone(), |work| {
                work();
                Ok(())
            });
        }
        Action::Answer(answer) => screen.answer(answer),
        _ => {}
    }
    std::mem::take(&mut lock(&screen.state).answer)
}

/// Where a call's text and progress go.
#[derive(Default)]
struct Screen {
    /// Whether text is printed as it comes.
    text_wanted: bool,
    /// After so much silence the run is given up.
    idle_timeout: Duration,
    /// The exit code, once the call must stop; 0 before that.
    stopped: AtomicU8,
    state: Mutex<CallState>,
}

#[derive(Default)]
struct CallState {
    /// A progress message not printed yet. Dropped if the next text is the same.
    news: Option<String>,
    /// The last character that was printed.
    printed: Option<char>,
    /// Whether the line about waiting was printed.
    said_wait: bool,
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
        tools::silence(silence, idle_timeout).filter(|_| is_new)
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
    fn finish(&self, answer: &Value, json: bool, note: Option<&str>) -> Option<String> {
        let mut state = lock(&self.state);
        tell(&mut state);
        let result = &answer["result"];
        let good = result.is_object() && result["isError"] != true;
        let texts = result["content"].as_array().into_iter().flatten();
        let texts = texts.filter_map(|item| item["text"].as_str());
        let refused = answer["error"]["message"].as_str();
        let texts: Vec<&str> = refused.into_iter().chain(texts).collect();
        let (&first, rest) = texts.split_first().unwrap_or((&"", &[]));
        if json {
            let shown = match good {
                true => result["structuredContent"].clone(),
                false => failure(answer, rest),
            };
            self.print(&mut state, &format!("{shown:#}\n"));
        } else if state.printed.is_none() {
            match serde_json::from_str::<Value>(first) {
                // What had arrived before it failed.
                _ if !good => self.print(&mut state, &rest.join("\n")),
                // Indented for people.
                Ok(value) if io::stdout().is_terminal() => {
                    self.print(&mut state, &format!("{value:#}"))
                }
                _ => self.print(&mut state, first),
            }
        }
        if state.printed.is_some_and(|last| last != '\n') {
            self.print(&mut state, "\n");
        }
        if !good {
            return Some(first.to_owned());
        }
        if state.lost.is_none() {
            // The note was said before the output.
            let warnings = rest.iter().filter(|text| Some(**text) != note);
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
    fn notify(&self, message: &[u8], _wanted: &dyn Fn() -> bool) {
        let message: Value = decode(message).unwrap_or_default();
        let params = &message["params"];
        let mut state = lock(&self.state);
        match message["method"].as_str() {
            Some("notifications/progress") => {
                tell(&mut state);
                state.news = params["message"].as_str().map(str::to_owned);
                // Shows after some silence that the call still runs.
                if state.news.is_none()
                    && state.printed.is_none()
                    && !state.said_wait
                    && io::stderr().is_terminal()
                {
                    state.said_wait = true;
                    say("waiting for Fabric; Ctrl-C cancels");
                }
            }
            Some("notifications/message") if params["data"]["type"] == "content" => {
                let text = params["data"]["content"].as_str().unwrap_or_default();
                if state.news.as_deref() == Some(text) {
                    state.news = None;
                }
                tell(&mut state);
                if self.text_wanted {
                    self.print(&mut state, text);
                }
            }
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
        for (tool, meant) in [
            ("fabric_list_patern", "fabric_list_patterns"),
            ("list_models", "fabric_list_models"),
        ] {
            let message = format!("--call: there is no tool \"{tool}\"; did you mean {meant}?");
            let found = check_name("--call", tool, &Policy::default());
            assert_eq!(found, Err(ExitReason::usage(message)));
        }
        let unknown = check_name("--call", "x\u{1b}", &Policy::default())
            .unwrap_err()
            .reason;
        assert!(
            unknown.starts_with("--call: there is no tool \"x\\u{1b}\"; the tools are fabric_"),
            "{unknown}"
        );
        for case in [
            "5 => is no JSON object",
            "{ => is not JSON: EOF while parsing an object at line 1 column 1",
            "{\"a\":1,} => is not JSON: trailing comma at line 1 column 8",
            "{pattern_name:x} => is not JSON: key must be a string at line 1 column 2",
            "'{}' => is not JSON: expected value at line 1 column 1",
        ] {
            let (arguments, what) = case.split_once(" => ").unwrap();
            let message = parsed(Some(arguments)).unwrap_err().reason;
            let told = format!(
                "--call: the arguments came as {arguments}, which {what}; give an object: sh takes"
            );
            assert!(message.starts_with(&told), "{message}");
        }
        assert_eq!(parsed(None), Ok(Map::new()));
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
        assert_eq!(seconds, [30, 40, 50, 60]);
        assert_eq!([told(0), told(35)], [0, 1], "after some text");
    }

    #[test]
    fn input_is_read_within_bounds() {
        assert_eq!(input(&b"abc\n"[..]), Ok("abc\n".to_owned()));
        let large = vec![b'x'; MAX_MESSAGE];
        assert_eq!(input(&large[..]).map(|text| text.len()), Ok(MAX_MESSAGE));
        for (bytes, what) in [
            (vec![b'x'; MAX_MESSAGE + 1], "larger than 8 MiB"),
            (b"\xff".to_vec(), "not UTF-8"),
        ] {
            let error = input(&bytes[..]).unwrap_err();
            assert!(error.code == 1 && error.reason.contains(what), "{error:?}");
        }
    }
}
