//! `--install` and `--uninstall`: one entry in a client's own file.
//!
//! In scope: showing the change, asking, keeping a backup. Only the entry is changed, not a comment nor a space
//! elsewhere (`jsonc`, `edit`); a file where that is impossible is refused. Not in scope: what the entry is
//! (`clients`).

mod edit;
mod file;
mod jsonc;

use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;

use serde_json::{Map, Value};

use crate::cli::flags::{API_KEY, AUTH_TOKEN};
use crate::cli::{Launch, McpClient};
use crate::clients::{self, Facts, Format, Layout, NAME, Node, System, TOKEN_PLACEHOLDER};

use edit::Edit;
use file::Found;
use jsonc::JsonSpan;

/// The user at the terminal.
struct Dialogue<'a> {
    out: &'a mut dyn Write,
    /// Where answers come from; `None` if stdin is no terminal.
    answers: Option<&'a mut dyn BufRead>,
    /// Every answer is yes.
    yes: bool,
}

/// What to do with a client's file.
pub(crate) struct Task<'a> {
    /// Whose file.
    pub(crate) client: McpClient,
    /// The path of this program.
    pub(crate) program: &'a str,
    /// What to put in; `None` to take it out.
    pub(crate) launch: Option<&'a Launch>,
    /// The environment.
    pub(crate) env: &'a dyn Fn(&str) -> Option<OsString>,
}

/// Carries out a task on the real terminal. True if the file is as wanted; if not, the user was told why.
///
/// # Errors
/// The reason, in one line; nothing was changed.
pub(crate) fn run(task: &Task<'_>, yes: bool) -> Result<bool, String> {
    let mut stdin = io::stdin().lock();
    let answers: Option<&mut dyn BufRead> = if stdin.is_terminal() {
        Some(&mut stdin)
    } else {
        None
    };
    task.run(Dialogue {
        out: &mut io::stdout(),
        answers,
        yes,
    })
}

impl Task<'_> {
    fn run(&self, mut dialogue: Dialogue<'_>) -> Result<bool, String> {
        let facts = clients::facts(self.client);
        let Format::Json(key) = facts.format else {
            return self.by_hand(&facts, &mut dialogue);
        };
        let path = clients::file(self.client, System::HERE, self.env)
            .ok_or("the variables HOME (on Windows USERPROFILE and APPDATA) are not set: they say where the file is")?;
        let about = |reason: String| format!("{}: {reason}. Nothing was changed", path.display());
        let found = file::find(&path).map_err(about)?;
        let text = found.text.as_deref().unwrap_or_default();
        let wanted = self.launch.map(|launch| {
            let entry = clients::entry(self.client, self.program, launch);
            filled_in(entry, edit::current(text, key, NAME).as_ref())
        });
        let edit = match &wanted {
            Some((entry, _)) => edit::put(text, key, NAME, entry),
            None => edit::take(text, key, NAME),
        };
        let edit =
            edit.map_err(|reason| about(format!("{reason}; mend it, or edit it by hand")))?;
        let (new, before) = match &edit {
            Edit::Same => return self.already(&facts, &path, &mut dialogue),
            Edit::Added(new) => (new, None),
            Edit::Replaced(new, before) | Edit::Removed(new, before) => (new, Some(before)),
        };
        let entry = wanted.as_ref().map(|(entry, _)| entry);
        check(text, new, key, entry).map_err(|reason| about(reason.to_owned()))?;
        let shown = wanted.as_ref().map(|(_, shown)| shown);
        show(&facts, &path, &found, before, shown, &mut dialogue)?;
        if !dialogue.agreed()? {
            return Ok(false);
        }
        let backup = found.replace(new).map_err(about)?;
        let mut said = format!("Written: {}\n", path.display());
        if let Some(backup) = backup {
            said.push_str(&format!("Backup:  {}\n", backup.display()));
        }
        said.push_str(&next(&facts, entry));
        dialogue.say(&said)?;
        Ok(true)
    }

    /// For clients whose file is not JSON: prints the entry and the client's own command.
    fn by_hand(&self, facts: &Facts, dialogue: &mut Dialogue<'_>) -> Result<bool, String> {
        let place = clients::place(self.client, System::HERE, self.env);
        let (title, name) = (facts.title, self.client.name());
        let kind = match facts.format {
            Format::Json(_) | Format::Dialog(_) => "keeps its servers in its settings".to_owned(),
            Format::Toml => "keeps its servers in TOML".to_owned(),
            Format::Yaml => "keeps its servers in YAML".to_owned(),
        };
        let text = match self.launch {
            None => {
                let hint = if facts.format == Format::Toml {
                    "codex mcp remove fabric does that, or "
                } else {
                    ""
                };
                format!("{title} {kind}: {hint}take \"{NAME}\" out there.\n  {place}\n")
            }
            Some(launch) => {
                let command = clients::command(self.client, System::HERE, self.program, launch);
                let config = clients::config(self.client, self.program, launch);
                match command {
                    Ok(command) => format!(
                        "{title} {kind}, which this program does not edit. It adds servers itself:\n\n  {command}\n\n\
                         Or put this into {place}:\n\n{config}"
                    ),
                    Err(why) => format!(
                        "{title} {kind}, which this program does not edit, and {why}. Put this there yourself:\n  {place}\n\n{config}\n\
                         Print it alone with: fabric-mcp --generate client-config {name}\n"
                    ),
                }
            }
        };
        dialogue.say(&text)?;
        Ok(false)
    }

    fn already(
        &self,
        facts: &Facts,
        path: &Path,
        dialogue: &mut Dialogue<'_>,
    ) -> Result<bool, String> {
        let path = path.display();
        let text = match self.launch {
            Some(_) => format!(
                "{path} has this entry already: nothing to do.\nNext: {}.\n",
                facts.then
            ),
            None => format!("{path} has no server \"{NAME}\": nothing to do.\n"),
        };
        dialogue.say(&text)?;
        Ok(true)
    }
}

/// The entry with what the user has added to it before, such as `disabled`, and the key or token that was filled in; and
/// the same with that hidden.
fn filled_in(mut entry: Node, before: Option<&Value>) -> (Node, Node) {
    if let (Node::Object(members), Some(before)) = (&mut entry, before.and_then(Value::as_object)) {
        let added = before
            .iter()
            .filter(|(name, _)| !clients::KEYS.contains(&name.as_str()));
        members.extend(added.map(|(name, value)| (name.clone(), Node::Found(value.clone()))));
    }
    let mut shown = entry.clone();
    for (group, name) in [("env", API_KEY), ("headers", "Authorization")] {
        let theirs = before
            .and_then(|before| before.get(group)?.get(name)?.as_str())
            .filter(|text| !text.is_empty());
        let place = |node: &mut Node, text: &str| {
            let Some(ours) = node.get_mut(group).and_then(|values| values.get_mut(name)) else {
                return;
            };
            if matches!(ours, Node::Text(text) if text.is_empty() || text.contains(TOKEN_PLACEHOLDER))
            {
                *ours = Node::text_of(text);
            }
        };
        if let Some(theirs) = theirs.filter(|theirs| !theirs.contains(TOKEN_PLACEHOLDER)) {
            place(&mut entry, theirs);
            place(&mut shown, "…");
        }
    }
    (entry, shown)
}

/// Verifies that only the entry has changed.
fn check(before: &str, after: &str, key: &str, entry: Option<&Node>) -> Result<(), &'static str> {
    let rest = |text: &str| -> Option<(Value, Option<Value>)> {
        let mut value = JsonSpan::read(text)
            .ok()?
            .map_or_else(|| Value::Object(Map::new()), |span| span.value());
        let servers = value.as_object_mut()?.remove(key);
        let mut servers = servers.unwrap_or_else(|| Value::Object(Map::new()));
        let own = servers.as_object_mut()?.remove(NAME);
        value.as_object_mut()?.insert(key.to_owned(), servers);
        Some((value, own))
    };
    match (rest(before), rest(after)) {
        (Some((old, _)), Some((new, own))) if old == new && own == entry.map(Node::value) => Ok(()),
        _ => Err("it cannot be edited without changing more than the entry; edit it by hand"),
    }
}

/// Shows the change.
fn show(
    facts: &Facts,
    path: &Path,
    found: &Found,
    before: Option<&Value>,
    entry: Option<&Node>,
    dialogue: &mut Dialogue<'_>,
) -> Result<(), String> {
    let mut text = format!("{} ({})\n", path.display(), facts.title);
    if found.path != path && path.is_symlink() {
        text.push_str(&format!(
            "  is a link to {}, which is what is changed\n",
            found.path.display()
        ));
    }
    if let Some(folder) = &found.missing_folder {
        let folder = folder.display();
        text.push_str(&format!(
            "  will be created, and its folder {folder} as well: is {} installed?\n",
            facts.title
        ));
    } else if found.text.is_none() {
        text.push_str("  will be created\n");
    }
    if let Some(before) = before {
        let shown = format!("{:#}", masked(before, entry.map(Node::value).as_ref()));
        text.push_str(&marked('-', &format!("\"{NAME}\": {shown}")));
    }
    if let Some(entry) = entry {
        text.push_str(&marked(
            '+',
            &format!("\"{NAME}\": {}", entry.text(&Layout::default(), "")),
        ));
    }
    dialogue.say(&text)
}

/// The next steps for the user.
fn next(facts: &Facts, entry: Option<&Node>) -> String {
    let Some(entry) = entry else {
        return String::new();
    };
    let mut text = String::new();
    let shown = entry.text(&Layout::default(), "");
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
    if let Some(secret) = [API_KEY, AUTH_TOKEN]
        .into_iter()
        .find(|secret| shown.contains(&format!("{secret}}}")))
    {
        let title = facts.title;
        text.push_str(&format!(
            "First: make sure that {title} is started where {secret} is set. It is not in the file.\n"
        ));
    }
    text.push_str(&format!("Next: {}.\n", facts.then));
    text
}

/// The old entry with its secrets hidden, unless the new one has the same value.
fn masked(before: &Value, after: Option<&Value>) -> Value {
    let mut shown = before.clone();
    for group in ["env", "headers"] {
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

fn marked(mark: char, text: &str) -> String {
    text.lines()
        .map(|line| format!("  {mark} {line}\n"))
        .collect()
}

impl Dialogue<'_> {
    fn say(&mut self, text: &str) -> Result<(), String> {
        let said = self
            .out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush());
        said.map_err(|error| format!("stdout cannot be written: {error}. Nothing more was done"))
    }

    /// Asks whether to go on.
    fn agreed(&mut self) -> Result<bool, String> {
        if self.yes {
            return Ok(true);
        }
        let Some(answers) = &mut self.answers else {
            self.say(
                "Nothing was changed: stdin is no terminal to ask on. Add --yes to have it done.\n",
            )?;
            return Ok(false);
        };
        let mut answer = String::new();
        self.out
            .write_all(b"Do it? [y/N] ")
            .and_then(|()| self.out.flush())
            .and_then(|()| answers.read_line(&mut answer))
            .map_err(|error| format!("no answer can be read: {error}. Nothing was changed"))?;
        let agreed = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
        if !agreed {
            self.say("Nothing was changed.\n")?;
        }
        Ok(agreed)
    }
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

    fn answered(text: &str) -> (Result<bool, String>, String) {
        let (mut out, mut answers) = (Vec::new(), text.as_bytes());
        let mut dialogue = Dialogue {
            out: &mut out,
            answers: Some(&mut answers),
            yes: false,
        };
        let agreed = dialogue.agreed();
        (agreed, String::from_utf8(out).unwrap())
    }

    #[test]
    fn only_a_yes_is_one() {
        for yes in ["y\n", "Yes\n", " y \r\n", "YES"] {
            assert_eq!(answered(yes), (Ok(true), "Do it? [y/N] ".to_owned()));
        }
        for no in ["", "\n", "n\n", "yeah\n", "y y\n"] {
            assert_eq!(
                answered(no),
                (Ok(false), "Do it? [y/N] Nothing was changed.\n".to_owned())
            );
        }
    }
}
