//! `fabric_get_run`: the state and output of a run, as long as it is kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::access::Identity;
use crate::account::Resource;
use crate::config::MAX_RUN_OUTPUT;
use crate::fabric::{CallObserver, Error};
use crate::runs::{PIECE, Run, RunState};
use crate::sync::SLICE;
use crate::text::{counted, letters};
use crate::{search, time};

use super::part::Part;
use super::run_result::{DEFAULT_FORMAT, result};
use super::{Arguments, Context, Outcome, Policy, Tool, ToolResult, ToolWork, invalid};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_get_run",
    title: "Get a run",
    description: "Get the output of a run of fabric_run_pattern, waiting for its end. Without \
                  run_id: your past runs.",
    output: include_str!("results/get_run.json"),
    read_only: true,
    declare,
};

/// Most seconds of `wait_seconds`: below the timeout of the least patient clients.
const MAX_WAIT: usize = 50;

/// Runs in a list, and what is said if there are more.
const LATEST: usize = 50;
const OLDER: &str = "Only the latest runs are listed. To find an older one, give words in query.";
/// What is said if a list is asked for as well as one run.
const NOT_USED: &str =
    "`query` and `since` were not used: they search the list of runs. Leave run_id out.";
/// Characters of its output that a run is listed with, and that a query looks at.
const EXCERPT: usize = 60;
const SEARCHED: usize = 200;

fn declare(arguments: &mut Arguments<'_>, _: &Policy) -> Result<ToolWork, Error> {
    let run_id = arguments.string("run_id: The run.");
    let wait = arguments.wait("wait_seconds: By default the maximum.", MAX_WAIT);
    let (offset, max_chars) = arguments.part(MAX_RUN_OUTPUT, MAX_RUN_OUTPUT);
    let query = arguments.string("query: Words in pattern, model or output.");
    let since = arguments.parsed("since: Such as 2d or 2026-11-30.", "a string", since);
    let Some(run_id) = run_id else {
        return Ok(Box::new(move |context| {
            list(context, query.as_deref().unwrap_or_default(), since)
        }));
    };
    if wait != Some(Duration::ZERO) {
        arguments.plan.needs = Resource::Waits;
    }
    Ok(Box::new(move |context| {
        let run = find(context, "run_id", &run_id)?;
        let usual = context.backend.settings.answer_within;
        let usual = Some(usual).filter(|usual| !usual.is_zero());
        let most = Duration::from_secs(MAX_WAIT as u64);
        let wait = wait.unwrap_or(usual.map_or(most, |usual| usual.min(most)));
        follow(context, &run, wait, offset)?;
        let (backend, account) = (&context.backend, context.account());
        let found = result(&run, Some((offset, max_chars)), backend, account)?;
        Ok(found.warn((query.is_some() || since.is_some()).then(|| NOT_USED.to_owned())))
    }))
}

/// The caller's run, which `argument` names, if only as the last one before this call. Unknown, expired and foreign ids get
/// the same error.
pub(super) fn find(context: &Context, argument: &str, run_id: &str) -> Result<Run, Error> {
    let (runs, owner) = (&context.backend.runs, &context.caller().identity);
    let own = context.run().map(|own| own.run().id());
    let before = |run: &Run| Some(run.id()) != own;
    let id = run_id.trim_matches(['"', '\'', '`']).to_lowercase();
    let is_last = ["last", "latest"].contains(&&*id);
    let id = format!("run_{}", id.trim_start_matches("run_"));
    let last = || runs.list(owner)?.into_iter().find(before);
    let found = runs.find(&id, owner).or_else(|| is_last.then(last)?);
    let why = || match is_last {
        true => no_rows(context, None),
        false => format!(
            "None of your runs has the id in `{argument}`: the id is mistyped, the run's time \
             (--keep-runs) is over, or the server was restarted without --state-dir. Take the id \
             from the result of fabric_run_pattern.",
        ),
    };
    found.ok_or_else(|| invalid(why()).about(argument))
}

/// The time of a date or of so many hours, days or weeks ago, in milliseconds since 1970.
fn since(path: &str, text: &str) -> Result<u64, Error> {
    let ago = |(unit, hours): (char, u64)| {
        let number = text.strip_suffix([unit, unit.to_ascii_uppercase()])?;
        let number: u64 = number.trim_end().parse().ok()?;
        let ago = number.saturating_mul(hours * 3_600_000);
        Some(time::milliseconds_now().saturating_sub(ago))
    };
    let mut units = [('h', 1), ('d', 24), ('w', 7 * 24)].into_iter();
    let found = units.find_map(ago).or_else(|| time::parse(text));
    let wanted = "a date in UTC, such as 2026-11-30, or how long ago, such as 12h, 2d or 1w";
    found.ok_or_else(|| invalid(format!("`{path}` must be {wanted}.")))
}

fn list(context: &Arc<Context>, query: &str, since: Option<u64>) -> ToolResult {
    let (runs, owner) = (&context.backend.runs, &context.caller().identity);
    let none = || invalid(no_rows(context, None)).about("run_id");
    let all = runs.list(owner).ok_or_else(none)?;
    let now = time::milliseconds_now();
    let words = search::stems(query);
    let has_words = |run: &&Run| {
        let has = |text: &str| {
            let found = search::stems(text);
            let is_found = |word: &String| found.iter().any(|own| own.starts_with(word));
            words.iter().all(is_found)
        };
        let record = run.bare();
        // Without separators, "gpt4" finds gpt-4o, as people type it.
        let (model, typed) = (&record.model, String::from_iter(letters(&record.model)));
        let about = format!("{} {model} {typed} ", record.patterns.join(" "));
        // The text may have to be read from its file.
        has(&about) || has(&(about + &run.read_chars(0, SEARCHED)))
    };
    let entry = |run: &Run| {
        let record = run.bare();
        let mut entry = json!({
            "run_id": record.id,
            "status": record.state.name(),
            "patterns": record.patterns,
            "created_at": time::timestamp(record.created),
            "age_seconds": now.saturating_sub(record.created) / 1000,
            "excerpt": run.read_chars(0, EXCERPT),
        });
        if !record.model.is_empty() {
            entry["model"] = record.model.as_str().into();
        }
        if let Some(chars) = record.chars {
            entry["total_chars"] = chars.into();
        }
        entry
    };
    let is_asked = |run: &&Run| since.is_none_or(|since| run.bare().created >= since);
    let mut found = all.iter().take_while(is_asked).filter(has_words);
    let rows: Vec<Value> = found.by_ref().take(LATEST).map(entry).collect();
    let older = found.next().map(|_| OLDER.to_owned());
    let all = all.last().map(|oldest| (all.len(), oldest.bare().created));
    let why = rows.is_empty().then(|| no_rows(context, all)).or(older);
    Ok(Outcome::rows(rows.len()).member("runs", rows).warn(why))
}

/// Why a list is empty, or there is none. `all`: how many runs there are, and when the oldest began.
fn no_rows(context: &Context, all: Option<(usize, u64)>) -> String {
    match (all, &context.backend.settings.memory_only) {
        (Some((number, oldest)), _) => format!(
            "Of the {} kept since {}, none fits. Leave query and since out to list the latest.",
            counted(number, "run"),
            time::timestamp(oldest)
        ),
        // Others are not told paths of this machine.
        (None, Some(why)) if context.caller().identity == Identity::Local => {
            format!("No earlier run is known: {why}.")
        }
        _ if matches!(context.caller().identity, Identity::Peer(_)) => {
            "`run_id` is missing or no id: without a token there is no list of runs, because \
             anyone who has a run's id may read that run. Take the id from the result of \
             fabric_run_pattern, or use a server with tokens (--tokens-file)."
                .to_owned()
        }
        _ if !context.backend.runs.keeps() => {
            "No run is kept: --keep-runs is 0, or --call was given no --state-dir.".to_owned()
        }
        _ => "No run of yours is kept: this server knows of none, or the time for which they are \
              kept (--keep-runs) is over. Runs of other callers are not listed."
            .to_owned(),
    }
}

/// Waits for the end, at most as long as asked, and relays the text from character `offset` on.
fn follow(context: &Context, run: &Run, wait: Duration, offset: usize) -> Result<(), Error> {
    context.stream_text(true);
    if run.bare().state != RunState::Working {
        return Ok(());
    }
    let begun = Instant::now();
    // What comes before `offset` is not relayed, even if it is still to come.
    let (mut chars, mut seen) = (0, 0);
    loop {
        let left = wait.saturating_sub(begun.elapsed());
        let record = run.wait(seen, left.min(SLICE));
        if record.bytes > seen {
            // In pieces, because many callers may follow one long run, and each would hold all of its text.
            let text = run.read(seen, PIECE);
            if text.is_empty() {
                return Ok(());
            }
            seen += text.len() as u64;
            let skip = offset.saturating_sub(chars);
            chars += text.chars().count();
            context.content(DEFAULT_FORMAT, Part::of(&text, (skip, PIECE)).text);
        } else if record.state != RunState::Working || left.is_zero() {
            return Ok(());
        }
        context.still_waiting()?;
    }
}
