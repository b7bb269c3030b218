//! `--install` and `--uninstall`: one entry in a client's own file.
//!
//! In scope: showing the change, asking, keeping a backup. Only the entry is changed, not a comment nor a space
//! elsewhere (`jsonc`); a file where that is impossible is refused.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;

use serde_json::Value;

use crate::config::{API_KEY, AUTH_TOKEN};
use crate::text::for_terminal;

use super::file::{self, ClientFile};
use super::json::{self, KEYS};
use super::jsonc::Document;
use super::{Env, Format, Launch, McpClient, NAME, System, TOKEN_PLACEHOLDER};

/// Puts `launch` of the program at this path into the client's file, or takes the server out without it: at the terminal,
/// asking first unless the answer is `yes` already. True if the file is as it should be; otherwise the user has been told why.
///
/// # Errors
/// The reason, in one line; nothing was changed.
pub(crate) fn run(
    client: &McpClient,
    program: &str,
    launch: Option<&Launch>,
    env: Env<'_>,
    yes: bool,
) -> Result<bool, String> {
    let Format::Json(key) = client.format else {
        say(&by_hand(client, program, launch, env))?;
        return Ok(false);
    };
    let path = client
        .file(System::HERE, env)
        .ok_or("the variables HOME (on Windows USERPROFILE and APPDATA) are not set: they say where the file is")?;
    let shown_path = path.display();
    let about = |reason: String| format!("{shown_path}: {reason}. Nothing was changed");
    let uneditable = |reason| about(format!("{reason}; fix it, or add the entry by hand"));
    let found = file::find(&path).map_err(about)?;
    let text = found.text.as_deref().unwrap_or_default();
    let document = Document::read(text, key).map_err(uneditable)?;
    let wanted =
        launch.map(|launch| filled_in(client.entry(program, launch), document.own.as_ref()));
    let (entry, shown) = wanted.as_ref().map(|(entry, shown)| (entry, shown)).unzip();
    let Some(new) = document.with(entry).map_err(uneditable)? else {
        say(&match entry {
            Some(_) => format!(
                "{shown_path} has this entry already: nothing to do.\nNext: {}.\n",
                client.then
            ),
            None => format!("{shown_path} has no server \"{NAME}\": nothing to do.\n"),
        })?;
        return Ok(true);
    };
    say(&change(client, &path, &found, document.own.as_ref(), shown))?;
    if !yes && !agreed()? {
        return Ok(false);
    }
    // What is not shown is secret.
    let backup = found.replace(&new, entry != shown).map_err(about)?;
    let mut said = format!("Written: {shown_path}\n");
    if let Some(backup) = backup {
        said.push_str(&format!("Backup:  {}\n", backup.display()));
    }
    said.push_str(&next(client, entry));
    say(&said)?;
    Ok(true)
}

/// For clients whose file is not JSON: the entry and the client's own command.
fn by_hand(client: &McpClient, program: &str, launch: Option<&Launch>, env: Env<'_>) -> String {
    let (title, place) = (client.title, client.place(System::HERE, env));
    let kind = match client.format {
        Format::Json(_) | Format::Dialog(..) => "its settings",
        Format::Toml => "TOML",
        Format::Yaml => "YAML",
    };
    let Some(launch) = launch else {
        let hint = client.remove.map_or_else(
            || "Remove".to_owned(),
            |command| format!("Run {command}, or remove"),
        );
        return format!(
            "{title} keeps its servers in {kind}, which this program does not edit. {hint} \"{NAME}\" there yourself:\n  {place}\n"
        );
    };
    let config = client.config(program, launch);
    match client.command(System::HERE, program, launch) {
        Ok(command) => format!(
            "{title} keeps its servers in {kind}, which this program does not edit. It adds servers itself:\n\n  \
             {command}\n\nOr put this into {place}:\n\n{config}"
        ),
        Err(why) => format!(
            "{title} keeps its servers in {kind}, which this program does not edit, and {why}. Add this \
             yourself:\n  {place}\n\n{config}\nPrint it alone with: fabric-mcp --generate client-config {}\n",
            client.name
        ),
    }
}

/// The entry with what the user has added to it before, such as `disabled`, and the key or token that was filled in; and
/// the same with that hidden.
fn filled_in(mut entry: Value, before: Option<&Value>) -> (Value, Value) {
    if let (Some(members), Some(before)) =
        (entry.as_object_mut(), before.and_then(Value::as_object))
    {
        let added = before
            .iter()
            .filter(|(name, _)| !KEYS.contains(&name.as_str()));
        members.extend(added.map(|(name, value)| (name.clone(), value.clone())));
    }
    let mut shown = entry.clone();
    for (group, name) in [
        ("env", API_KEY),
        ("environment", API_KEY),
        ("env", AUTH_TOKEN),
        ("headers", "Authorization"),
    ] {
        let theirs = before.and_then(|before| before.get(group)?.get(name)?.as_str());
        let Some(theirs) = theirs.filter(|text| !is_place(text)) else {
            continue;
        };
        for (entry, text) in [(&mut entry, theirs), (&mut shown, "…")] {
            let ours = entry.get_mut(group).and_then(|values| values.get_mut(name));
            if let Some(ours) = ours.filter(|ours| ours.as_str().is_some_and(is_place)) {
                *ours = text.into();
            }
        }
    }
    (entry, shown)
}

/// Whether a value is none of the user's: still to be filled in, or our reference to a variable.
fn is_place(text: &str) -> bool {
    let refers = |name| {
        let rest = text.trim_end_matches('}').strip_suffix(name);
        rest.is_some_and(|rest| rest.ends_with(['{', ':']))
    };
    text.is_empty() || text.contains(TOKEN_PLACEHOLDER) || refers(API_KEY) || refers(AUTH_TOKEN)
}

/// The change, as it is shown.
fn change(
    client: &McpClient,
    path: &Path,
    found: &ClientFile,
    before: Option<&Value>,
    entry: Option<&Value>,
) -> String {
    let title = client.title;
    let mut text = format!("{} ({title})\n", path.display());
    if found.is_link {
        let target = found.path.display();
        text.push_str(&format!(
            "  is a link to {target}, which is what is changed\n"
        ));
    }
    if let Some(folder) = &found.missing_folder {
        let folder = folder.display();
        text.push_str(&format!(
            "  will be created, and its folder {folder} as well: is {title} installed?\n"
        ));
    } else if found.text.is_none() {
        text.push_str("  will be created\n");
    }
    let before = before.map(|before| format!("{:#}", masked(before, entry)));
    let after = entry.map(|entry| json::text(entry, Some("  "), ""));
    for (mark, value) in [('-', before), ('+', after)] {
        let Some(value) = value else { continue };
        for line in format!("\"{NAME}\": {value}").lines() {
            text.push_str(&format!("  {mark} {line}\n"));
        }
    }
    text
}

/// The next steps for the user.
fn next(client: &McpClient, entry: Option<&Value>) -> String {
    let Some(entry) = entry else {
        return String::new();
    };
    let mut text = String::new();
    let shown = json::text(entry, Some("  "), "");
    if shown.contains(TOKEN_PLACEHOLDER) {
        text.push_str(&format!(
            "First: put the server's token in the place of {TOKEN_PLACEHOLDER}.\n"
        ));
    }
    if shown.contains(&format!("\"{API_KEY}\": \"\"")) {
        text.push_str(&format!(
            "First, if your Fabric asks for a key: put it into the empty {API_KEY} of that file.\n"
        ));
    }
    if shown.contains(&format!("\"{AUTH_TOKEN}\": \"\"")) {
        text.push_str(&format!(
            "First: put the server's token into the empty {AUTH_TOKEN} of that file.\n"
        ));
    }
    if let Some(secret) = [API_KEY, AUTH_TOKEN]
        .into_iter()
        .find(|secret| shown.contains(&format!("{secret}}}")))
    {
        let (title, start) = (client.title, client.start);
        text.push_str(&format!(
            "First: quit {title}, and start it with `{start}` from a shell where {secret} is set: the file only refers to it.\n"
        ));
        if secret == API_KEY {
            text.push_str(&format!(
                "Or do this again with {API_KEY} unset, and put the key into the empty place in the file.\n"
            ));
        }
    }
    text.push_str(&format!("Next: {}.\n", client.then));
    text
}

/// The old entry with its secrets hidden, unless the new one has the same value.
fn masked(before: &Value, after: Option<&Value>) -> Value {
    let mut shown = before.clone();
    for group in ["env", "environment", "headers"] {
        let Some(values) = shown.get_mut(group).and_then(Value::as_object_mut) else {
            continue;
        };
        for (name, value) in values {
            let same = after.and_then(|after| after.get(group)?.get(name)) == Some(value);
            if !same && value.as_str().is_some_and(|text| !text.is_empty()) {
                *value = Value::from("…");
            }
        }
    }
    shown
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
        say("Nothing was changed: stdin is no terminal to ask on. Add --yes to have it done.\n")?;
        return Ok(false);
    }
    say("Do it? [y/N] ")?;
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
            masked(&before, Some(&after)),
            json!({"command": "f", "env": {"KEY": "…", "URL": "http://a", "EMPTY": ""}, "headers": {"A": "…"}})
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
