//! `--install` and `--uninstall`: one entry in a client's own file.
//!
//! In scope: showing the change, asking, keeping a backup. Only the entry is changed, not a comment nor a space
//! elsewhere (`jsonc`); a file where that is impossible is refused.

use std::env::consts::OS;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;

use serde_json::Value;

use crate::config::{API_KEY, AUTH_TOKEN};
use crate::text::for_terminal;

use super::file::{self, ClientFile};
use super::json::{self, KEYS, member};
use super::jsonc::Document;
use super::{Env, Format, Launch, McpClient, NAME, TOKEN_PLACEHOLDER};

/// Puts `launch` of the program at this path into the client's file, or takes the server out without it: at the terminal,
/// asking first unless the answer is `yes` already. `why` stands above the change. True if the file is as it should be; otherwise the user has been told why.
///
/// # Errors
/// The reason, in one line; nothing was changed.
pub(crate) fn run(
    client: &McpClient,
    program: &str,
    launch: Option<&Launch>,
    env: Env<'_>,
    why: &str,
    yes: bool,
) -> Result<bool, String> {
    let Format::Json(key) = client.format else {
        say(&format!("{why}{}", by_hand(client, program, launch, env)))?;
        return Ok(false);
    };
    let path = client
        .file(OS, env)
        .ok_or("the variables HOME (on Windows USERPROFILE and APPDATA) are not set: they say where the file is")?;
    let shown_path = path.display();
    let about = |reason: String| format!("{shown_path}: {reason}. Nothing was changed");
    let uneditable = |reason| about(format!("{reason}; fix it, or change the entry by hand"));
    let found = file::find(&path).map_err(uneditable)?;
    let text = found.text.as_deref().unwrap_or_default();
    let document = Document::read(text, key).map_err(uneditable)?;
    let made = launch.map(|launch| client.entry(program, launch));
    let own = document.own.as_ref();
    let entry = made.clone().map(|made| filled_in(made, own));
    let Some(new) = document.with(entry.as_ref()).map_err(uneditable)? else {
        say(&match entry {
            Some(_) => format!(
                "{shown_path} has this entry already: nothing to do.\nNext: {}.\n",
                client.then
            ),
            None => format!("{shown_path} has no server \"{NAME}\": nothing to do.\n"),
        })?;
        return Ok(true);
    };
    let [before, after] = [own, entry.as_ref()].map(|entry| masked(entry, made.as_ref()));
    let change = change(client, &path, &found, [&before, &after]);
    say(&format!("{why}{change}"))?;
    if !yes && !agreed()? {
        return Ok(false);
    }
    // What is not shown is secret.
    let backup = found.replace(&new, entry != after).map_err(about)?;
    let backup = backup.map(|backup| format!("Backup:  {}\n", backup.display()));
    let (backup, next) = (backup.unwrap_or_default(), next(client, entry.as_ref()));
    say(&format!("Written: {shown_path}\n{backup}{next}"))?;
    Ok(true)
}

/// For clients whose file is not JSON: the entry and the client's own command.
fn by_hand(client: &McpClient, program: &str, launch: Option<&Launch>, env: Env<'_>) -> String {
    let (title, place) = (client.title, client.place(OS, env));
    let what = match launch {
        Some(launch) => {
            let how = match client.command(OS, program, launch) {
                Ok(command) => format!("Its own command adds the server:\n\n  {command}\n\nOr add"),
                Err(why) => format!("It {why}. Add"),
            };
            let config = client.config(program, launch);
            format!("{how} this there:\n\n{config}\nNext: {}.\n", client.then)
        }
        None => match client.commands.get(2) {
            Some(command) => format!("Run {command}, or remove \"{NAME}\" there yourself.\n"),
            None => format!("Remove \"{NAME}\" there yourself.\n"),
        },
    };
    format!(
        "{title} keeps its servers in a place that fabric-mcp does not edit:\n  {place}\n{what}"
    )
}

/// The entry with what the user has added to it before, such as `disabled`, and the key or token that was filled in.
fn filled_in(mut entry: Value, before: Option<&Value>) -> Value {
    for (member, theirs) in before.and_then(Value::as_object).into_iter().flatten() {
        if !KEYS.contains(&member.as_str()) {
            entry[member] = theirs.clone();
        }
        let values = entry.get_mut(member).and_then(Value::as_object_mut);
        for (name, ours) in values.into_iter().flatten() {
            if let Some(theirs) = theirs.get(name).filter(|theirs| !is_place(theirs))
                && is_place(ours)
            {
                *ours = theirs.clone();
            }
        }
    }
    entry
}

/// Whether a value is none of the user's: still to be filled in, or our reference to a variable.
fn is_place(value: &Value) -> bool {
    let text = value.as_str().unwrap_or_default();
    let refers = |name| {
        let rest = text.trim_end_matches('}').strip_suffix(name);
        rest.is_some_and(|rest| rest.ends_with(['{', ':']))
    };
    text.is_empty() || text.contains(TOKEN_PLACEHOLDER) || refers(API_KEY) || refers(AUTH_TOKEN)
}

/// The entry with its secrets hidden: all but what is `made` here.
fn masked(entry: Option<&Value>, made: Option<&Value>) -> Option<Value> {
    let mut shown = entry?.clone();
    for group in ["env", "environment", "headers"] {
        let values = shown.get_mut(group).and_then(Value::as_object_mut);
        for (name, value) in values.into_iter().flatten() {
            let same = made.and_then(|made| made.get(group)?.get(name)) == Some(value);
            if !same && *value != "" {
                *value = "…".into();
            }
        }
    }
    Some(shown)
}

/// The change from one entry to another, as it is shown.
fn change(
    client: &McpClient,
    path: &Path,
    found: &ClientFile,
    [before, after]: [&Option<Value>; 2],
) -> String {
    let title = client.title;
    let mut text = format!("{} ({title})\n", path.display());
    if found.is_link {
        let target = found.path.display();
        text += &format!("  is a link to {target}, which is what is changed\n");
    }
    text += &match (found.missing_folder().map(Path::display), &found.text) {
        (Some(folder), _) => {
            format!("  will be created, and its folder {folder} as well: is {title} installed?\n")
        }
        (None, None) => "  will be created\n".to_owned(),
        (None, Some(_)) => String::new(),
    };
    for (mark, entry) in [('-', before), ('+', after)] {
        let Some(entry) = entry else { continue };
        let entry = member(NAME, &json::text(entry, Some("  "), "\n"));
        for line in entry.lines() {
            text += &format!("  {mark} {line}\n");
        }
    }
    text
}

/// The next steps for the user.
fn next(client: &McpClient, entry: Option<&Value>) -> String {
    let Some(entry) = entry else {
        return String::new();
    };
    let (title, entry) = (client.title, entry.to_string());
    let mut text = String::new();
    if entry.contains(TOKEN_PLACEHOLDER) {
        text += &format!("First: put the server's token in the place of {TOKEN_PLACEHOLDER}.\n");
    }
    for (secret, put) in [
        (API_KEY, "First, if your Fabric asks for a key: put it"),
        (AUTH_TOKEN, "First: put the server's token"),
    ] {
        if entry.contains(&format!("\"{secret}\":\"\"")) {
            text += &format!("{put} into the empty {secret} of that file.\n");
        }
        if entry.contains(&format!("{secret}}}")) {
            let (_, start) = client.reference.unwrap_or_default();
            text += &format!(
                "First: quit {title}, and start it with `{start}` from a shell where {secret} is set: the file only refers to it.\n"
            );
        }
    }
    if entry.contains(&format!("{API_KEY}}}")) {
        text += &format!(
            "Or do this again with {API_KEY} unset, and put the key into the empty place in the file.\n"
        );
    }
    text + &format!("Next: {}.\n", client.then)
}

/// Where the file is, and what it holds, may be somebody else's work.
fn say(text: &str) -> Result<(), String> {
    let mut out = io::stdout();
    out.write_all(for_terminal(text).as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| format!("stdout cannot be written: {error}. Nothing more was done"))
}

/// Asks whether to go on.
fn agreed() -> Result<bool, String> {
    let mut answers = io::stdin().lock();
    if !answers.is_terminal() {
        say(
            "Nothing was changed: stdin is not a terminal, so nobody can be asked. Add --yes to go ahead without asking.\n",
        )?;
        return Ok(false);
    }
    say("Make this change? [y/N] ")?;
    let mut answer = String::new();
    answers
        .read_line(&mut answer)
        .map_err(|error| format!("no answer can be read: {error}. Nothing was changed"))?;
    let agreed = is_yes(&answer);
    if !agreed {
        say("Nothing was changed.\n")?;
    }
    Ok(agreed)
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn old_secrets_are_not_shown() {
        let before = json!({"command": "f", "env": {"KEY": "hunter2", "URL": "http://a", "EMPTY": ""}, "headers": {"A": "b"}});
        let after = json!({"command": "g", "env": {"URL": "http://a"}});
        assert_eq!(
            masked(Some(&before), Some(&after)),
            Some(
                json!({"command": "f", "env": {"KEY": "…", "URL": "http://a", "EMPTY": ""}, "headers": {"A": "…"}})
            )
        );
    }

    #[test]
    fn only_a_yes_is_one() {
        for yes in ["y\n", "Yes\n", " y \r\n", "YES"] {
            assert!(is_yes(yes), "{yes}");
        }
        for no in ["", "\n", "n\n", "yeah\n", "y y\n"] {
            assert!(!is_yes(no), "{no}");
        }
    }
}
