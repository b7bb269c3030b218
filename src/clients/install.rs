//! `--install` and `--uninstall`: one entry in a client's own file.
//!
//! In scope: showing the change and what a check of it finds, asking, keeping a backup. Only the entry is changed, not a
//! comment nor a space elsewhere (`jsonc`); a file where that is impossible is refused.

use std::env::consts::OS;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::slice::from_ref;
use std::time::Duration;

use serde_json::{Value, json};

use crate::config::{API_KEY, AUTH_TOKEN, BASE_URL, CERT_FILE, MODEL_VARIABLE, TOKEN_PREFIX};
use crate::sync::poll;
use crate::text::{counted, for_terminal, is_placeholder};
use crate::url::{self, Authority, Host};

use super::file::{self, ClientFile};
use super::jsonc::Document;
use super::layout::{self, is_key, member};
use super::{Format, Launch, McpClient, NAME, OWN, PROGRAM, TOKEN_PLACEHOLDER, located};

/// How long a check of the entry may take.
const CHECK: Duration = Duration::from_secs(2);
/// A day, in seconds.
const DAY: u64 = 24 * 3600;
/// How long an entry keeps runs.
const KEPT: u64 = 30 * DAY;

/// What is asked for.
#[derive(Debug)]
pub(crate) struct Installation {
    pub(crate) client: &'static McpClient,
    /// The name of the server in the client.
    pub(crate) name: String,
    /// What to put into the client's file: `--install`; `None` to take the server out: `--uninstall`.
    pub(crate) launch: Option<Launch>,
    /// The URL of the server, by which an entry that has nothing else is known.
    pub(crate) url: Option<String>,
    /// Whether no setting says which Fabric to use.
    pub(crate) offers: bool,
    /// Whether the entry keeps runs; `None` asks.
    pub(crate) history: Option<bool>,
    /// Whether to do it without asking: `--yes`.
    pub(crate) yes: bool,
}

/// Chooses the Fabric of an entry, or whether it has a token, and says so. Given are whether no setting has chosen, and the
/// Fabric that the user had chosen for this entry before.
pub(crate) type Choose = fn(&mut Launch, bool, Option<&str>) -> Option<String>;

/// Does this for the program at this path, and asks on the terminal. True if the file is now as it should be, or the user
/// has been told what to do with it; otherwise the user has been told why not.
///
/// # Errors
/// The reason, in one line; nothing was changed.
pub(crate) fn run(mut asked: Installation, program: &str, choose: Choose) -> Result<bool, String> {
    let client = asked.client;
    let (Format::Json(key), None) = (client.format, client.dialog) else {
        return by_hand(asked, program, choose);
    };
    let path = client.path(OS, OWN).ok_or(
        "it is not known where the file is: set the variable HOME (on Windows USERPROFILE and \
            APPDATA)",
    )?;
    let shown_path = path.display();
    let about = |reason: String| format!("{shown_path}: {reason}. Nothing was changed");
    let uneditable = |reason| about(format!("{reason}; fix it, or change the entry by hand"));
    let found = file::find(&path).map_err(uneditable)?;
    let text = found.text.as_deref().unwrap_or_default();
    let name = asked.name.clone();
    let document = Document::read(text, key, &name).map_err(uneditable)?;
    let own = document.own.as_ref();
    let url = asked.url.as_deref().and_then(at);
    let is_own = |entry: &Value| is_ours(entry, program, url.as_ref());
    // Is the file now what this older text, which has no entry, becomes when an entry is added? The content of the
    // entry does not count.
    let any = Some(&Value::Null);
    let now = document.with(any);
    let is_now = |old: String| now == Ok(Some(old));
    let is_before = |old: &str| {
        let old = document.like(old).ok().filter(|old| old.own.is_none());
        old.and_then(|old| old.with(any).ok()?).is_some_and(is_now)
    };
    let backups = found.backups();
    let ours = own.filter(|own| is_own(own));
    let mut told = asked.settle(choose, ours)?;
    let launch = asked.launch.as_ref();
    let made = launch.map(|launch| client.entry(program, launch));
    let entry = made.clone().map(|made| filled_in(made, ours));
    let left = entry.as_ref().map(|entry| left_to_do(client, entry));
    let next = left.as_ref().map_or(String::new(), |left| {
        format!("{left}Next: {}.\n", client.then)
    });
    let Some(new) = document.with(entry.as_ref()).map_err(uneditable)? else {
        let what = match entry {
            Some(_) => "this entry already",
            None => &format!("no server \"{name}\""),
        };
        say(&format!("{shown_path} has {what}: nothing to do.\n{next}"))?;
        return Ok(true);
    };
    let made = made.unwrap_or_default();
    let shown = [own, entry.as_ref()].map(|entry| {
        let mut shown = entry.cloned();
        shown.iter_mut().for_each(|shown| mask("", shown, &made));
        shown
    });
    told += &change(client, &path, &found, &name, &shown);
    let is_older = |old: &str| {
        let own = document.like(old).ok().and_then(|old| old.own);
        !own.is_some_and(|own| is_own(&own))
    };
    // If only our entry was added, the file gets its old text back. If there was no file before, the file is removed,
    // unless a link leads to it.
    let mut olds = backups.iter().map(|(_, text)| text.as_str());
    let is_kept = entry.is_some() || found.is_link;
    let stays = is_kept || !is_before("") || olds.clone().any(is_older);
    let old = olds.find(|old| entry.is_none() && is_before(old));
    let new = old.or_else(|| stays.then_some(&*new));
    if new.is_none() {
        told += "  the file will be removed: nothing else is in it\n";
    }
    let is_foreign = own.is_some() && ours.is_none();
    if is_foreign {
        let is_by_url = |own: &Value| is_ours(own, program, authority(own).as_ref());
        let hint = match entry.is_none() && own.is_some_and(is_by_url) {
            true => "If it is one, give --url with its URL as well.",
            false => "For an entry with another name, give --name NAME.",
        };
        told += &format!(
            "This \"{name}\" does not look like an entry of fabric-mcp, and would be lost. {hint}\n"
        );
    }
    let folder = ours.and_then(|ours| after(&words(ours), STATE_DIR));
    if let (None, Some(folder)) = (&entry, folder) {
        told += &format!("The runs that were kept stay in {folder}, for your other clients.\n");
    }
    let asks = !asked.yes || is_foreign;
    if let (Some(launch), Some(entry)) = (launch, &entry) {
        told += &risks(entry);
        told += left.as_deref().filter(|_| asks).unwrap_or_default();
        told += &checked(program, launch, entry)?;
    }
    say(&told)?;
    if asks && !agreed()? {
        return Ok(false);
    }
    let is_update = own.is_some() && entry.is_some();
    // An entry that is shown with gaps has secrets, so the file becomes private.
    let has_secrets = entry != shown[1];
    let backup = found.replace(new, has_secrets).map_err(about)?;
    // Old backups that differ from the new one only in our entry are not needed any more. The one from before our entry
    // was added stays until the entry is removed.
    let is_same = |(_, old): &&(_, String)| {
        let old = document.like(old).ok();
        let old = old.filter(|old| old.rest == document.rest);
        old.is_some_and(|old| old.own.map_or(!is_update, |own| is_own(&own)))
    };
    for (old, _) in backups.iter().filter(is_same) {
        let _ = std::fs::remove_file(old);
    }
    let backup = backup.map_or(String::new(), |backup| {
        let shown = backup.display().to_string();
        // Windows puts this before a path that was resolved; people do not write it.
        let shown = shown.replace(r"\\?\UNC\", r"\\").replace(r"\\?\", "");
        format!("Backup:  {shown}\n")
    });
    let done = new.map_or("Removed", |_| "Written");
    say(&format!("{done}: {shown_path}\n{backup}{next}"))?;
    Ok(true)
}

impl Installation {
    /// Chooses the Fabric, and lets the entry keep runs in a folder that all clients share, unless its settings or the user
    /// say otherwise. Returns what to say about it. `own` is our entry in the file, which shows what was chosen before.
    fn settle(&mut self, choose: Choose, own: Option<&Value>) -> Result<String, String> {
        const NO_RUNS: [&str; 3] = ["--connect", "--patterns-dir", "--read-only"];
        let Some(launch) = &mut self.launch else {
            return Ok(String::new());
        };
        let made = self.client.entry(PROGRAM, launch);
        let why = choose(launch, self.offers, own.and_then(|own| chosen(own, &made)));
        let why = why.unwrap_or_default();
        let Launch::Program { args, .. } = launch else {
            return Ok(why);
        };
        let keeps_none = after(args, KEEP_RUNS).as_deref() == Some("0");
        let is_settled = self.history != Some(true) && (keeps_none || has(args, &[STATE_DIR]));
        if is_settled || has(args, &NO_RUNS) {
            return Ok(why);
        }
        let old = own.filter(|own| started(own).is_some()).map(words);
        // An entry that cannot keep runs does not show what its user has chosen.
        let old = old.filter(|old| !has(old, &NO_RUNS));
        let chosen = old.as_ref().map(|old| has(old, &[HISTORY]));
        let before = old.filter(|old| has(old, &[HISTORY, STATE_DIR]));
        if let (None, Some(false), Some(old)) = (self.history, chosen, &before) {
            // The user gave a folder and not --history, so there was no question: that folder stays.
            for flag in [STATE_DIR, KEEP_RUNS] {
                if let Some(value) = after(old, flag).filter(|_| !has(args, &[flag])) {
                    args.splice(..0, [flag.to_owned(), value]);
                }
            }
            return Ok(why);
        }
        let value = |flag| after(args, flag).or_else(|| after(before.as_ref()?, flag));
        let Some(folder) = value(STATE_DIR).or_else(shared_folder) else {
            return Ok(why);
        };
        let seconds = value(KEEP_RUNS).unwrap_or(KEPT.to_string());
        let time = match seconds.parse::<u64>() {
            Ok(time) if time.is_multiple_of(DAY) => counted(time / DAY, "day"),
            _ => format!("{seconds} s"),
        };
        let question = format!(
            "Keep runs for {time}, so that you can find them again? Patterns, models and \
             outputs are then stored in\n  {folder}\nfor all of your clients that keep runs. [Y/n] "
        );
        let known = self.history.or(chosen).or(self.yes.then_some(true));
        if !known.map_or_else(|| ask(&question, true), Ok)? {
            return Ok(format!(
                "{why}Runs are kept in memory only; {HISTORY} keeps them for {time}.\n"
            ));
        }
        args.push(HISTORY.to_owned());
        for (flag, value) in [(STATE_DIR, &folder), (KEEP_RUNS, &seconds)] {
            if !has(args, &[flag]) {
                args.extend([flag.to_owned(), value.clone()]);
            }
        }
        Ok(format!("{why}Runs will be kept for {time} in {folder}.\n"))
    }
}

/// The flag of an entry whose runs are kept in memory where the folder cannot be used.
const HISTORY: &str = "--history";
const STATE_DIR: &str = "--state-dir";
const KEEP_RUNS: &str = "--keep-runs";

/// The folder in which a user's clients keep runs together.
pub(crate) fn shared_folder() -> Option<String> {
    let folder = located("STATE/fabric-mcp", OS, OWN)?;
    folder.into_os_string().into_string().ok()
}

/// The program that an entry starts.
fn started(entry: &Value) -> Option<&str> {
    let command = &entry["command"];
    command.get(0).unwrap_or(command).as_str()
}

/// The words that an entry gives to its program; of one list, the program itself too.
fn words(entry: &Value) -> Vec<String> {
    let lists = [&entry["args"], &entry["command"]].map(Value::as_array);
    let words = lists.into_iter().flatten().flatten();
    words.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Whether one of these flags is among the words.
fn has(words: &[String], any: &[&str]) -> bool {
    let flag = |word: &String| any.contains(&word.split('=').next().unwrap_or_default());
    words.iter().any(flag)
}

/// The value of this flag.
fn after(words: &[String], flag: &str) -> Option<String> {
    let at = words.iter().position(|word| has(from_ref(word), &[flag]))?;
    let value = words[at].split_once('=').map(|(_, value)| value.to_owned());
    value.or_else(|| words.get(at + 1).cloned())
}

/// The host and port that an entry with a URL leads to, by itself or by `--connect`.
fn authority(entry: &Value) -> Option<Authority> {
    let url = URLS.iter().find_map(|name| entry[*name].as_str());
    let url = url.map(str::to_owned);
    at(&url.or_else(|| after(&words(entry), "--connect"))?)
}

fn at(url: &str) -> Option<Authority> {
    Authority::parse(url::split(url)?.1).ok()
}

/// The address of an entry's Fabric, if the user has chosen it: `made`, the new entry, has another, or a key was filled in.
fn chosen<'e>(entry: &'e Value, made: &Value) -> Option<&'e str> {
    let (_, url) = values(entry).find(|(name, _)| *name == BASE_URL)?;
    let has_key = |(name, value): (&str, &str)| name == API_KEY && !is_place(&value.into());
    let is_other = values(made).all(|one| one != (BASE_URL, url));
    (is_other || values(entry).any(has_key)).then_some(url)
}

/// The host that gets the key or token of an entry: the server, or the Fabric that a variable or a flag names; this
/// machine, if the entry does not say.
fn receiver(entry: &Value) -> Option<Host> {
    let variable = || values(entry).find(|(name, _)| *name == BASE_URL);
    let flag = || after(&words(entry), "--fabric-url");
    let url = || variable().map(|(_, url)| url.to_owned()).or_else(flag);
    let fabric = || at(&url().unwrap_or("http://127.0.0.1".to_owned()));
    authority(entry).or_else(fabric).map(|at| at.host)
}

/// Whether an entry was made by this program, which is at `program`. Such an entry starts the program, perhaps another
/// version of it. Or it is for a URL, and has nothing besides a token of ours or a place for one, or leads to the same
/// host as `url`, that of the user.
fn is_ours(entry: &Value, program: &str, url: Option<&Authority>) -> bool {
    if let Some(started) = started(entry) {
        // A program of the same name on PyPI has this flag, and this one has not.
        let is_other = has(&words(entry), &["--stdio"]);
        let file = started.rsplit(['/', '\\']).next().unwrap_or_default();
        let version = file.trim_end_matches(".exe").strip_prefix(PROGRAM);
        let is_digit = |c: char| c.is_ascii_digit();
        let is_version = |rest: &str| rest.trim_start_matches('-').starts_with(is_digit);
        return started == program
            || !is_other && version.is_some_and(|rest| rest.is_empty() || is_version(rest));
    }
    let headers = &entry["headers"];
    let token = headers["Authorization"].as_str().unwrap_or_default();
    let is_bare = headers.is_null() || *headers == json!({});
    // A server may move to another port, but many others without a token are on this machine.
    let place = |at: Authority| (at.host, at.port.filter(|_| is_bare));
    let leads_there = url.is_some() && authority(entry).map(place) == url.cloned().map(place);
    let is_alone = is_bare || *headers == json!({"Authorization": token});
    let is_token = |token: &str| token.starts_with(TOKEN_PREFIX) || is_place(&token.into());
    let is_known = token.strip_prefix("Bearer ").is_some_and(is_token);
    is_alone && (is_known || leads_there)
}

/// What the user should know of an entry's program, and of the settings that stay in it.
fn risks(entry: &Value) -> String {
    let mut told = String::new();
    let program = started(entry).unwrap_or_default();
    let path = Path::new(program);
    let is_passing = |part| part == "target" || part == "tmp";
    if path.iter().any(is_passing) || path.starts_with(std::env::temp_dir()) {
        told += &format!(
            "The entry starts {program}, which a build or a clean-up may remove: move the program \
             to another place first.\n"
        );
    }
    let is_all = |value: &Value| {
        let mut items = value.as_array().into_iter().flatten();
        *value == true || items.any(|one| one == "*")
    };
    let mut approving = ["autoApprove", "alwaysAllow", "trust"].into_iter();
    if let Some(name) = approving.find(|name| is_all(&entry[*name])) {
        told += &format!(
            "The entry has {name}: every tool is called without asking, even those that cost money.\n"
        );
    }
    if entry["envFile"].is_string() {
        told += "The entry has envFile: variables in that file may change what the server does.\n";
    }
    told
}

/// What a check of this entry, with its variables or its token, says.
///
/// # Errors
/// A mistake in its settings, or a program, with which no server would start.
fn checked(program: &str, launch: &Launch, entry: &Value) -> Result<String, String> {
    let args = match launch {
        // The demo always works.
        Launch::Program { args, .. } if !has(args, &["--demo"]) => args.clone(),
        // There is a token only over Streamable HTTP, and with OAuth the client signs in.
        Launch::Url { url, is_sse, token } if *token && !is_sse => {
            vec!["--connect".to_owned(), url.clone()]
        }
        _ => return Ok(String::new()),
    };
    // With `--connect` there is no report in JSON.
    let json = (!has(&args, &["--connect"])).then_some("--json");
    let mut command = Command::new(program);
    command.args(args).args(json).arg("--check");
    // A reference must be to a variable that is set here.
    let values = values(entry).filter(|(_, value)| !value.contains(['{', '$']));
    let values = values.filter(|(_, value)| *value != TOKEN_PLACEHOLDER);
    command.envs(values.map(|(name, value)| match name {
        "Authorization" => (AUTH_TOKEN, value),
        _ => (name, value),
    }));
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |error| format!("{program} cannot be started: {error}. Nothing was changed");
    let mut child = command.spawn().map_err(failed)?;
    let pause = Duration::from_millis(10);
    if !poll(CHECK, pause, || !matches!(child.try_wait(), Ok(None))) {
        let _ = child.kill().and_then(|()| child.wait());
        let seconds = CHECK.as_secs();
        return Ok(format!("Check: there was no answer within {seconds} s.\n"));
    }
    let done = child.wait_with_output().map_err(failed)?;
    let [said, wrong] = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text));
    let wrong = wrong.trim_start_matches("fabric-mcp: ").trim();
    // The user gave the URL with --url, and knows nothing of --connect.
    let wrong = wrong.replace("--connect", "--url");
    let report = match serde_json::from_str::<Value>(&said) {
        Ok(report) => report,
        // A server with this entry would not start either.
        Err(_) if json.is_some() || done.status.code() == Some(2) => {
            return Err(format!("{wrong}. Nothing was changed"));
        }
        Err(_) => return Ok(format!("Check: {}{wrong}\n", said.trim())),
    };
    let problems = report["problems"].as_array().into_iter().flatten();
    let text = |part: &Value| part.as_str().unwrap_or_default().to_owned();
    let lines =
        problems.map(|one| format!("Check: {} {}\n", text(&one["what"]), text(&one["fix"])));
    let number = report["fabric"]["patterns"].as_u64();
    let works = number.filter(|_| report["ok"] == true);
    let works =
        works.map(|number| format!("Check: it works, with {}.\n", counted(number, "pattern")));
    Ok(works.into_iter().chain(lines).collect())
}

/// For clients whose file is not JSON: the entry and the client's own command.
fn by_hand(mut asked: Installation, program: &str, choose: Choose) -> Result<bool, String> {
    let client = asked.client;
    let (title, place) = (client.title, client.place(OS, OWN));
    if asked.name != NAME {
        return Err(format!(
            "--name: you add the entry of {title} by hand; give it any name there"
        ));
    }
    let mut told = asked.settle(choose, None)?;
    let what = match (&asked.launch, client.commands.get(2)) {
        (Some(launch), _) => {
            let entry = client.entry(program, launch);
            told += &risks(&entry);
            told += &checked(program, launch, &entry)?;
            let how = match client.command(OS, program, launch) {
                Ok(command) => format!("Its own command adds the server:\n\n  {command}\n\nOr add"),
                Err(why) => format!("{title} {why}. Add"),
            };
            let config = client.config(program, launch);
            let left = left_to_do(client, &entry).replace("in that file", "there");
            format!(
                "{how} this there:\n\n{config}\n{left}Next: {}.\n",
                client.then
            )
        }
        (None, Some(command)) => format!("Run {command}, or remove \"{NAME}\" there yourself.\n"),
        (None, None) => format!("Remove \"{NAME}\" there yourself.\n"),
    };
    say(&format!(
        "{told}{title} keeps its servers in a place that fabric-mcp does not edit:\n  {place}\n{what}"
    ))?;
    Ok(true)
}

/// The entry with what the user has added to it before, such as `disabled` or a variable, and the key or token that was
/// filled in, but only if the new entry leads to the same host.
fn filled_in(mut entry: Value, before: Option<&Value>) -> Value {
    let is_same = receiver(&entry) == before.and_then(receiver);
    for (member, theirs) in before.and_then(Value::as_object).into_iter().flatten() {
        // A server that asks for OAuth may take a token as well.
        let is_token = member == "headers" && started(&entry).is_none() && entry[member].is_null();
        let is_kept = is_token && is_same && !is_place(&theirs["Authorization"]);
        if is_kept || !is_key(member) {
            entry[member] = theirs.clone();
        }
        let values = entry.get_mut(member).and_then(Value::as_object_mut);
        let Some(values) = values else { continue };
        for (name, theirs) in theirs.as_object().into_iter().flatten() {
            let stays = match values.get(name) {
                Some(ours) => is_same && is_place(ours) && !is_place(theirs),
                // A variable that --install writes itself comes from the settings of now.
                // So do the certificates, unless they are for this Fabric.
                None => !is_written(name) || is_same && name == CERT_FILE,
            };
            if stays {
                values.insert(name.clone(), theirs.clone());
            }
        }
    }
    entry
}

/// Whether --install writes a variable of this name.
fn is_written(name: &str) -> bool {
    [BASE_URL, CERT_FILE, API_KEY, AUTH_TOKEN].contains(&name) || name.starts_with(MODEL_VARIABLE)
}

/// Whether a value does not come from the user: it is still to be filled in, or is our reference to a variable.
fn is_place(value: &Value) -> bool {
    value.as_str().is_some_and(|text| {
        let is_own = [API_KEY, AUTH_TOKEN].contains(&variable(text)) && text.ends_with('}');
        ["", "Bearer"].contains(&text.trim()) || text.contains(TOKEN_PLACEHOLDER) || is_own
    })
}

/// The name in a reference to a variable, as clients write them.
fn variable(reference: &str) -> &str {
    let rest = reference.trim_end_matches('}');
    rest.rsplit(['{', ':', '$']).next().unwrap_or_default()
}

/// What an entry calls its URL.
const URLS: [&str; 3] = ["url", "serverUrl", "httpUrl"];

/// All variables and headers of an entry that are text, a token without its scheme.
fn values(entry: &Value) -> impl Iterator<Item = (&str, &str)> {
    let groups = ["env", "environment", "headers"].into_iter();
    let groups = groups.filter_map(|group| entry[group].as_object());
    let members = groups.flatten();
    let texts = members.filter_map(|(name, value)| Some((&**name, value.as_str()?)));
    texts.map(|(name, value)| (name, value.trim_start_matches("Bearer ")))
}

/// Hides what may be secret in a part of an entry, but for what is `made` here: a text that has the `name` of a secret, is in
/// such a part or holds a password, and of other texts what follows a name, a space or the path of a URL.
fn mask(name: &str, part: &mut Value, made: &Value) {
    match part {
        part if part == made || is_place(part) => {}
        Value::Object(members) => {
            for (inner, value) in members {
                let is_hidden = is_secret(name) && !is_written(inner);
                let name = if is_hidden { name } else { inner };
                mask(name, value, &made[inner]);
            }
        }
        Value::Array(words) => {
            let mut before = String::new();
            for word in words {
                let name = format!("{name} {before}");
                before = word.as_str().unwrap_or_default().to_owned();
                if made.as_array().is_none_or(|made| !made.contains(word)) {
                    mask(&name, word, &Value::Null);
                }
            }
        }
        Value::String(text) => {
            let is_flag = text.starts_with("--");
            let user = text.rsplit_once('@').map_or("", |(user, _)| user);
            let is_hidden = user.contains(':') || !is_flag && is_secret(name);
            let is_end = |c| " ?#".contains(c) || c == '=' && (!is_flag || is_secret(text));
            let end = text.find(is_end).map_or(text.len(), |at| at + 1);
            let end = if is_hidden { 0 } else { end };
            if end < text.len() {
                text.replace_range(end.., "…");
            }
        }
        Value::Number(_) if is_secret(name) => *part = "…".into(),
        _ => {}
    }
}

/// Whether a name is one of a secret, or of what has secrets in it.
fn is_secret(name: &str) -> bool {
    const PARTS: &str = "key token secret pass pwd dsn auth cred cookie bearer header env";
    let name = name.to_ascii_lowercase();
    PARTS.split(' ').any(|part| name.contains(part))
}

/// The change from one entry to another, as it is shown.
fn change(
    client: &McpClient,
    path: &Path,
    found: &ClientFile,
    name: &str,
    [before, after]: &[Option<Value>; 2],
) -> String {
    let title = client.title;
    let mut text = format!("{} ({title})\n", path.display());
    if found.is_link {
        let target = found.path.display();
        text += &format!("  is a link to {target}; that file is changed\n");
    }
    let missing = found.path.parent().filter(|folder| !folder.is_dir());
    if let Some(folder) = missing.map(Path::display) {
        text +=
            &format!("  will be created, and its folder {folder} as well: is {title} installed?\n");
    } else if found.text.is_none() {
        text += "  will be created\n";
    }
    for (mark, entry) in [('-', before), ('+', after)] {
        let written = |entry| member(name, &layout::text(entry, Some("  "), "\n"));
        for line in entry.as_ref().map(written).unwrap_or_default().lines() {
            text += &format!("  {mark} {line}\n");
        }
    }
    text
}

/// What the user still has to do before the entry works.
fn left_to_do(client: &McpClient, entry: &Value) -> String {
    let title = client.title;
    let mut text = String::new();
    for (member, off) in [("disabled", true), ("enabled", false)] {
        if entry[member] == off {
            text += &format!(
                "First: the entry is there, but \"{member}\": {off} keeps {title} from starting it. Remove that.\n"
            );
        }
    }
    for (name, value) in values(entry) {
        let variable = variable(value);
        let refers = client.reference_to(variable).as_deref() == Some(value);
        let asks = client.name == "vscode" && value.contains("${input:");
        let (_, start) = client.reference.unwrap_or_default();
        text += &match (name, value) {
            (_, TOKEN_PLACEHOLDER) => {
                format!("First: put the server's token in the place of {value}.\n")
            }
            (API_KEY | AUTH_TOKEN, "") => {
                let needs = ["your Fabric needs a key", "the server asks for a token"];
                let needs = needs[usize::from(name == AUTH_TOKEN)];
                format!("First, if {needs}, set {name} in that file.\n")
            }
            _ if refers && !start.is_empty() && [API_KEY, AUTH_TOKEN].contains(&variable) => {
                format!(
                    "First: quit {title}, and start it with `{start}` from a shell where {variable} is set: the file only refers to it.\n"
                )
            }
            _ if is_placeholder(value) && !refers && !asks => format!(
                "First: put the value itself in the place of {value} at {name}: {title} does not fill that in.\n"
            ),
            _ => continue,
        };
    }
    text
}

/// Prints. The path and the content of the file may come from somebody else, who must not control the terminal.
fn say(text: &str) -> Result<(), String> {
    let mut out = io::stdout();
    out.write_all(for_terminal(text).as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| format!("stdout cannot be written: {error}. Nothing more was done"))
}

/// Asks whether to go on.
fn agreed() -> Result<bool, String> {
    let agreed = ask("Make this change? [y/N] ", false)?;
    let why = match io::stdin().is_terminal() {
        _ if agreed => "",
        true => "Nothing was changed.\n",
        false => {
            "Nothing was changed: there is no terminal to ask you on. --yes answers yes, but never \
             replaces or removes another program's entry: for that, use a terminal.\n"
        }
    };
    say(why).map(|()| agreed)
}

/// Asks. An empty answer, or nobody there to give one, means the `usual` one.
fn ask(question: &str, usual: bool) -> Result<bool, String> {
    let mut answers = io::stdin().lock();
    if !answers.is_terminal() {
        return Ok(usual);
    }
    say(question)?;
    let mut answer = String::new();
    let read = answers.read_line(&mut answer);
    read.map_err(|error| format!("no answer can be read: {error}. Nothing was changed"))?;
    Ok(is_yes(&answer, usual))
}

fn is_yes(answer: &str, usual: bool) -> bool {
    match answer.trim().to_ascii_lowercase().as_str() {
        // The end of the input (Ctrl-D) is no answer, unlike a line without text.
        "" => usual && answer.ends_with('\n'),
        said => ["y", "yes"].contains(&said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_secrets_are_not_shown() {
        let after = json!({"command": "g", "env": {"URL": "http://a"}, "args": ["a=b"]});
        for row in r#"{"command": "f", "env": {"KEY": "SEC", "URL": "http://a", "EMPTY": "", "NUMBER": 7}}|{"command": "f", "env": {"KEY": "…", "URL": "http://a", "EMPTY": "", "NUMBER": "…"}}
            {"env": {"FABRIC_BASE_URL": "http://h:1/x", "FABRIC_API_KEY": "SEC"}, "headers": {"A": "SEC"}}|{"env": {"FABRIC_BASE_URL": "http://h:1/x", "FABRIC_API_KEY": "…"}, "headers": {"A": "…"}}
            {"args": ["--header", "X: SEC", "--api-key", "SEC", "--api-key=SEC=", "-e", "A=SEC", "a=b"]}|{"args": ["--header", "…", "--api-key", "…", "--api-key=…", "…", "A=…", "a=b"]}
            {"command": ["npx", "-y", "@x/y@1", "--read-only", "--deny-pattern=ai", "-H", "A: SEC"]}|{"command": ["npx", "-y", "@x/y@1", "--read-only", "--deny-pattern=ai", "-H", "A: …"]}
            {"url": "https://u:SEC@x/mcp?api_key=SEC", "serverUrl": "https://x/mcp?k=SEC@"}|{"url": "…", "serverUrl": "…"}
            {"url": "https://x/mcp?k=SEC", "apiKey": "SEC", "oauth": {"clientSecret": "SEC", "id": 7}}|{"url": "https://x/mcp?…", "apiKey": "…", "oauth": {"clientSecret": "…", "id": "…"}}
            {"disabled": true, "timeout": 60, "autoApprove": ["a"]}|{"disabled": true, "timeout": 60, "autoApprove": ["a"]}"#.lines() {
            let (before, shown) = row.split_once('|').unwrap();
            let [mut before, shown]: [Value; 2] = [before, shown].map(|text| serde_json::from_str(text).unwrap());
            mask("", &mut before, &after);
            assert_eq!(before, shown);
        }
    }

    #[test]
    fn an_entry_is_ours_by_what_it_starts_or_shows() {
        let made = at("https://h/mcp");
        let start = |program: &str| json!({"command": [program, "--demo"]});
        let to = |(url, token)| json!({"url": url, "headers": {"Authorization": format!("Bearer {token}")}});
        let urls = "o fmcp_0|o ${env:FABRIC_MCP_AUTH_TOKEN}|o YOUR_TOKEN|h:2 sk-1".split('|');
        let urls = urls.map(|row| row.split_once(' ').unwrap());
        let urls = urls.map(|(host, token)| to((format!("https://{host}/mcp"), token)));
        let programs = [
            "/x/fabric-mcp",
            "C:\\x\\fabric-mcp-1.2.exe",
            "/opt/other-name",
        ]
        .map(start);
        let plain = [json!({"serverUrl": "https://h/mcp"})];
        let ours = urls.chain(programs).chain(plain).map(|entry| (entry, true));
        let foreign = [
            start("fabric-mcp-proxy"),
            start("fabric-mcpserver.exe"),
            json!({"command": "fabric-mcp", "args": ["--stdio"]}),
            to(("https://o/mcp".to_owned(), "sk-1")),
            json!({"url": "https://h:2/mcp"}),
            json!({"url": "https://h/mcp", "headers": {"X": ""}}),
        ];
        for (entry, is) in ours.chain(foreign.map(|entry| (entry, false))) {
            let found = is_ours(&entry, "/opt/other-name", made.as_ref());
            assert_eq!(found, is, "{entry}");
        }
    }

    #[test]
    fn what_an_entry_lets_happen_is_told() {
        for row in r#"{"autoApprove": ["a", "*"], "command": "/var/tmp/f"} => has autoApprove|/var/tmp/f, which
            {"command": ["/x/target/f"]} => /x/target/f, which
            {"url": "http://target/x"} => |
            {"alwaysAllow": true, "envFile": "~/.env"} => has alwaysAllow|has envFile
            {"autoApprove": ["a"], "trust": false} => |"#.lines()
        {
            let (entry, words) = row.split_once(" => ").unwrap();
            let told = risks(&serde_json::from_str(entry).unwrap());
            let words = Vec::from_iter(words.split('|').filter(|word| !word.is_empty()));
            assert!(words.iter().all(|word| told.contains(word)), "{told}");
            assert_eq!(told.lines().count(), words.len(), "{told}");
        }
    }

    #[test]
    fn only_a_yes_is_one() {
        for (is_one, answers) in [
            (true, ["y\n", " Yes \r\n", "YES", "\n"]),
            (false, ["", "n\n", "nein\n", "y y\n"]),
        ] {
            let found = answers.map(|answer| is_yes(answer, true));
            assert_eq!(found, [is_one; 4], "{answers:?}");
        }
    }
}
