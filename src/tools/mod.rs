//! The tools: definitions, arguments, and the work with Fabric.
//!
//! In scope: the registry, arguments, jobs and their outcome, the log line of a call. Not in scope: MCP's messages
//! (`features` turns definitions and outcomes into them) and HTTP (`fabric`).

mod arguments;
mod cancel_run;
mod echo;
mod get_configuration;
mod get_pattern_details;
mod get_run;
mod get_transcript;
mod list_contexts;
mod list_models;
mod list_patterns;
mod list_strategies;
mod outcome;
mod policy;
mod run_pattern;
mod run_result;
mod started;

use std::sync::Arc;
use std::time::{Duration, Instant};

use log::Level;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::access::Identity;
pub(crate) use crate::config::Policy;
use crate::fabric::{Catalog, Client, Error, Kind, Wait};
use crate::runs::{Owner, Run, Runs};
use crate::{logging, metrics};

pub(crate) use arguments::Arguments;
pub(crate) use cancel_run::cancel;
use outcome::Plain;
pub(crate) use outcome::{Failure, Json, Outcome};
pub(crate) use run_pattern::partial;
pub(crate) use run_result::{request_id, result};
pub(crate) use started::{Paid, RunSlot, start};

/// Every tool, in listing order. The first one needs no arguments: clients that try a server out call it with `{}`.
pub(crate) static TOOLS: &[Tool] = &[
    list_patterns::TOOL,
    get_pattern_details::TOOL,
    run_pattern::TOOL,
    get_run::TOOL,
    cancel_run::TOOL,
    list_models::TOOL,
    list_strategies::TOOL,
    list_contexts::TOOL,
    get_configuration::TOOL,
    get_transcript::TOOL,
];

/// A tool's definition, and how its arguments become a job.
pub(crate) struct Tool {
    /// The name it is called by.
    pub(crate) name: &'static str,
    /// The name for people.
    pub(crate) title: &'static str,
    /// What a model needs to know to use it well.
    pub(crate) description: &'static str,
    /// JSON Schema of the arguments: plain, for picky clients, in the order for people. White space stands only at the
    /// start of lines: [`joined`] removes it. Each property begins a line, for [`properties`]. Text, since code that
    /// builds it is three times the size.
    pub(crate) input: &'static str,
    /// JSON Schema of the structured result.
    pub(crate) output: &'static str,
    /// Changes nothing, and may be repeated without harm.
    pub(crate) read_only: bool,
    /// Checks the arguments and returns the job. No I/O.
    pub(crate) prepare: fn(Arguments, &Policy) -> Prepared,
}

/// A job, or why the arguments are refused.
pub(crate) type Prepared = Result<Box<dyn Job>, Error>;

impl Tool {
    /// The tool of that name.
    pub(crate) fn named(name: &str) -> Option<&'static Tool> {
        TOOLS.iter().find(|tool| tool.name == name)
    }

    /// Decodes `arguments` (absent and `null` count as `{}`) and makes a job of them.
    ///
    /// # Errors
    /// `invalid-request`, naming the argument, what was wrong with it and what is allowed.
    pub(crate) fn job(&self, arguments: Option<&RawValue>, policy: &Policy) -> Prepared {
        (self.prepare)(Arguments::read(self.name, arguments)?, policy)
    }

    /// The names of its arguments, in the order of `input`.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &'static str> {
        properties(self.input, 4)
    }

    /// The argument that a refusal names, which is the first text between backquotes. Only the part the tool knows: the
    /// rest is the caller's text.
    fn blamed<'d>(&self, detail: &'d str) -> Option<&'d str> {
        let named = detail.split('`').nth(1)?;
        let is_ours = |part: &&str| {
            let (name, index) = part.split_once('[').unwrap_or((part, "0]"));
            let index = index.strip_suffix(']').unwrap_or_default();
            self.arguments().any(|known| known == name) && index.parse::<u16>().is_ok()
        };
        let length: usize = named
            .split('.')
            .take_while(is_ours)
            .map(|part| part.len() + 1)
            .sum();
        named.get(..length.checked_sub(1)?)
    }
}

/// A call with checked arguments.
pub(crate) trait Job: Send + Sync {
    /// Does the work.
    fn run(&self, work: &Work) -> Result<Outcome, Failure>;

    /// How many paid runs it makes of a model.
    fn runs(&self) -> u32 {
        0
    }

    /// Does it wait for a run that another call has started?
    fn waits(&self) -> bool {
        false
    }

    /// The paid run, if it is one: such a job runs on its own thread.
    fn paid(&self) -> Option<Paid> {
        None
    }

    /// Further fields of the log line, such as the pattern and the model.
    fn fields(&self) -> Vec<(&'static str, &str)> {
        Vec::new()
    }

    /// Texts of the caller that errors may repeat and the log must not; `None` if they were not kept, so that no text
    /// of a vendor may be logged.
    fn private(&self) -> Option<Vec<&str>> {
        Some(Vec::new())
    }
}

/// A job without cost or log fields is a function.
impl<F: Fn(&Work) -> Result<Outcome, Failure> + Send + Sync> Job for F {
    fn run(&self, work: &Work) -> Result<Outcome, Failure> {
        self(work)
    }
}

/// What a job works with.
pub(crate) struct Work {
    /// Fabric.
    pub(crate) fabric: Arc<Client>,
    /// Its cached lists.
    pub(crate) catalog: Arc<Catalog>,
    /// The caller, who waits for the result.
    pub(crate) caller: Arc<dyn Caller>,
    /// Its identity.
    pub(crate) identity: Identity,
    /// Every run that is kept.
    pub(crate) runs: Runs,
    /// Whose runs the caller sees.
    pub(crate) owner: Owner,
    /// The stored run, if the job is one.
    pub(crate) run: Option<Run>,
}

impl Work {
    /// The caller as Fabric's client needs it.
    pub(crate) fn wait(&self) -> Arc<dyn Wait> {
        self.caller.clone()
    }
}

/// The caller of a job: gets output before the result, and may leave.
pub(crate) trait Caller: Wait {
    /// Takes a piece of a run's output. It may be buffered until [`Wait::before_blocking`] or [`Caller::flush`].
    fn chunk(&self, kind: ChunkKind, format: &str, content: &str);

    /// Sends what is buffered.
    fn flush(&self);

    /// A step of a run begins. `stream`: the caller wants its text as it arrives, not only heartbeats. `is_result`: the
    /// text is the result, not the next step's input.
    fn begin_step(&self, stream: bool, is_result: bool);

    /// Sends the caller a message about the work, such as which step begins.
    fn say(&self, message: &str);

    /// A step goes to Fabric: from here on it is paid for.
    fn paying(&self) {}
}

/// Fabric's event types of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkKind {
    /// Text of the output.
    Content,
    /// A failure, as text.
    Error,
    /// The end.
    Complete,
}

impl ChunkKind {
    /// The type as Fabric writes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ChunkKind::Content => "content",
            ChunkKind::Error => "error",
            ChunkKind::Complete => "complete",
        }
    }
}

/// Runs `job` and writes the log line of the call.
pub(crate) fn run(
    tool: &Tool,
    job: &dyn Job,
    work: &Work,
    request_id: &str,
) -> Result<Outcome, Failure> {
    let begun = Instant::now();
    let running = (job.runs() > 0).then(metrics::RunInFlight::begin);
    let result = job.run(work);
    drop(running);
    let took = begun.elapsed();
    count(
        tool,
        result.as_ref().err().map(|failure| &failure.error),
        Some(took),
    );
    let mut line = log_line(tool, Some(job));
    logging::logfmt(&mut line, "duration_ms", took.as_millis());
    logging::logfmt(&mut line, "ok", result.is_ok());
    match &result {
        Ok(outcome) => {
            if let Some(rows) = outcome.rows {
                logging::logfmt(&mut line, "rows", rows);
            }
            if let Some(bytes) = outcome.bytes {
                logging::logfmt(&mut line, "bytes", bytes);
            }
        }
        Err(failure) => {
            let given = failure.partial.iter().map(String::as_str);
            let private = job
                .private()
                .map(|private| private.into_iter().chain(given).collect::<Vec<_>>());
            log_error(&mut line, tool, &failure.error, private.as_deref());
        }
    }
    logging::logfmt(&mut line, "request_id", request_id);
    // A cancelled call is not a fault.
    let is_bad = result
        .as_ref()
        .is_err_and(|failure| failure.error.kind != Kind::Cancelled);
    log::log!(target: "fabric_mcp::tools", if is_bad { Level::Warn } else { Level::Info }, "{line}");
    result
}

/// Counts and logs a call of `tool` that never ran; `job` is there if its arguments were valid.
pub(crate) fn log_refused(tool: &Tool, job: Option<&dyn Job>, error: &Error, request_id: &str) {
    count(tool, Some(error), None);
    let mut line = log_line(tool, job);
    logging::logfmt(&mut line, "ok", false);
    log_error(&mut line, tool, error, Some(&[]));
    logging::logfmt(&mut line, "request_id", request_id);
    let level = if error.kind == Kind::Cancelled {
        Level::Info
    } else {
        Level::Warn
    };
    log::log!(target: "fabric_mcp::tools", level, "{line}");
}

/// The beginning of every log line of a call.
fn log_line(tool: &Tool, job: Option<&dyn Job>) -> String {
    let mut line = String::with_capacity(160);
    logging::logfmt(&mut line, "tool", tool.name);
    for (key, value) in job.map(Job::fields).unwrap_or_default() {
        logging::logfmt(&mut line, key, value);
    }
    line
}

/// `private` is what the reason must not repeat; with `None`, a vendor's text is not logged at all.
fn log_error(line: &mut String, tool: &Tool, error: &Error, private: Option<&[&str]>) {
    logging::failure(line, error, |reason| match private {
        Some(private) => echo::without_echo(reason, private),
        None if error.kind == Kind::ApiError => "[...]".to_owned(),
        None => reason.to_owned(),
    });
    if error.kind == Kind::InvalidRequest {
        logging::logfmt(
            line,
            "argument",
            tool.blamed(&error.detail).unwrap_or("(unknown)"),
        );
    }
}

/// Counts a call of `tool` that ended with `error` or well; `took` is `None` if it never ran.
fn count(tool: &Tool, error: Option<&Error>, took: Option<Duration>) {
    metrics::TOTAL.call(
        tool.name,
        error.map_or(metrics::OK, |error| error.kind.name()),
        took,
    );
    if let Some(error) = error {
        metrics::failure(error);
    }
}

/// The input of a tool without arguments.
const NO_ARGUMENTS: &str = r#"{"type":"object","properties":{},"additionalProperties":false}"#;

/// The names of the properties that are indented by `indent` spaces in a schema.
fn properties(schema: &'static str, indent: usize) -> impl Iterator<Item = &'static str> {
    let before = " ".repeat(indent) + "\"";
    schema.lines().filter_map(move |line| {
        line.strip_prefix(before.as_str())?
            .split_once('"')
            .map(|(name, _)| name)
    })
}

/// A schema as it is sent: one line.
pub(crate) fn joined(schema: &str) -> String {
    schema.lines().map(str::trim_start).collect()
}

/// The catalogue for `--list-tools`: each tool's name, what it does in a line, and its arguments.
pub(crate) fn catalogue() -> String {
    let mut text = String::new();
    for tool in TOOLS {
        let first = tool
            .description
            .split_inclusive(". ")
            .next()
            .unwrap_or_default()
            .trim_end();
        text.push_str(&format!("{}\n    {first}\n", tool.name));
        let schema: Value = serde_json::from_str(tool.input).unwrap_or_default();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for name in tool.arguments() {
            let property = &schema["properties"][name];
            let needed = if required.iter().any(|r| r == name) {
                " (required)"
            } else {
                ""
            };
            let (kind, about) = (
                property["type"].as_str().unwrap_or_default(),
                property["description"].as_str().unwrap_or_default(),
            );
            text.push_str(&format!("      {name}: {kind}{needed}. {about}\n"));
        }
    }
    text
}

/// A refused argument, pattern or value.
fn refused(detail: impl Into<String>) -> Error {
    Error::new(Kind::InvalidRequest, detail)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::{
        MAX_ATTACHMENTS, MAX_CHAIN_STEPS, MAX_FABRIC_BODY, MAX_ROWS, MAX_RUN_OUTPUT,
    };

    fn parsed(schema: &str) -> Value {
        serde_json::from_str(schema).unwrap()
    }

    #[test]
    fn names_are_unique_and_the_first_tool_takes_no_arguments() {
        let names: std::collections::HashSet<_> = TOOLS.iter().map(|t| t.name).collect();
        assert_eq!(names.len(), TOOLS.len());
        assert!(TOOLS[0].job(None, &Policy::default()).is_ok());
        assert!(Tool::named("nope").is_none());
    }

    #[test]
    fn what_a_model_pays_for_is_little() {
        let bytes = TOOLS
            .iter()
            .map(|tool| tool.name.len() + tool.description.len() + joined(tool.input).len());
        let bytes: usize = bytes.sum();
        assert!(bytes <= 7500, "{bytes} bytes");
    }

    #[test]
    fn schemas_are_plain_enough_for_picky_clients() {
        fn walk(value: &Value, path: &str) {
            match value {
                Value::Object(map) => {
                    for (key, value) in map {
                        assert!(
                            !["$ref", "$schema", "anyOf", "oneOf", "allOf", "not"]
                                .contains(&key.as_str()),
                            "{path}/{key}"
                        );
                        if key == "properties" {
                            for (name, property) in value.as_object().unwrap() {
                                assert!(
                                    property.is_object(),
                                    "{path}: property {name} is no object schema"
                                );
                                assert!(
                                    property["description"].is_string(),
                                    "{path}: property {name} has no description"
                                );
                            }
                        }
                        walk(value, &format!("{path}/{key}"));
                    }
                }
                Value::Array(items) => items.iter().for_each(|item| walk(item, path)),
                _ => {}
            }
        }
        for tool in TOOLS {
            for schema in [tool.input, tool.output] {
                let text = joined(schema);
                let schema = parsed(schema);
                assert_eq!(
                    text.len(),
                    schema.to_string().len(),
                    "{}: {text} is not compact",
                    tool.name
                );
                assert_eq!(schema["type"], "object", "{}", tool.name);
                assert!(schema["properties"].is_object(), "{}", tool.name);
                walk(&schema, tool.name);
            }
            assert_eq!(
                parsed(tool.input)["additionalProperties"],
                false,
                "{}",
                tool.name
            );
        }
    }

    #[test]
    fn schemas_and_lists_name_the_same_arguments_in_the_same_order_and_what_is_required_comes_first()
     {
        for tool in TOOLS {
            let schema = parsed(tool.input);
            let declared = schema["properties"].as_object().unwrap();
            let arguments: Vec<_> = tool.arguments().collect();
            assert_eq!(declared.len(), arguments.len(), "{}", tool.name);
            let text = joined(tool.input);
            let mut rest = &*text;
            for name in &arguments {
                assert!(declared.contains_key(*name), "{}: {name}", tool.name);
                let definition = format!("\"{name}\":{{\"type\"");
                rest = rest
                    .split_once(&definition)
                    .unwrap_or_else(|| panic!("{}: {name} in {rest}", tool.name))
                    .1;
            }
            let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
            assert_eq!(required, &arguments[..required.len()], "{}", tool.name);
        }
    }

    #[test]
    fn bounds_in_schemas_are_those_that_hold() {
        for (tool, bound, value) in [
            (
                "fabric_list_patterns",
                "/properties/limit/maximum",
                MAX_ROWS,
            ),
            (
                "fabric_get_pattern_details",
                "/properties/offset/maximum",
                MAX_FABRIC_BODY,
            ),
            (
                "fabric_get_pattern_details",
                "/properties/max_chars/maximum",
                MAX_FABRIC_BODY,
            ),
            (
                "fabric_run_pattern",
                "/properties/max_chars/maximum",
                MAX_RUN_OUTPUT,
            ),
            (
                "fabric_run_pattern",
                "/properties/wait_seconds/maximum",
                3600,
            ),
            (
                "fabric_get_run",
                "/properties/offset/maximum",
                MAX_RUN_OUTPUT,
            ),
            (
                "fabric_get_run",
                "/properties/max_chars/maximum",
                MAX_RUN_OUTPUT,
            ),
            (
                "fabric_run_pattern",
                "/properties/attachments/maxItems",
                MAX_ATTACHMENTS,
            ),
            (
                "fabric_run_pattern",
                "/properties/then/maxItems",
                MAX_CHAIN_STEPS,
            ),
        ] {
            let schema = parsed(Tool::named(tool).unwrap().input);
            assert_eq!(schema.pointer(bound), Some(&value.into()), "{tool} {bound}");
        }
    }

    #[test]
    fn the_log_names_the_argument_but_nothing_that_a_caller_made_up() {
        let tool = Tool::named("fabric_run_pattern").unwrap();
        let blamed = |arguments: Value| {
            let raw = serde_json::value::to_raw_value(&arguments).unwrap();
            let Err(error) = tool.job(Some(&raw), &Policy::default()) else {
                panic!("{arguments} was taken")
            };
            let mut line = log_line(tool, None);
            log_error(&mut line, tool, &error, Some(&[]));
            line.strip_prefix("tool=fabric_run_pattern error=invalid-request argument=")
                .unwrap()
                .to_owned()
        };
        let step =
            |step: Value| json!({"pattern_name": "x", "then": [{"pattern_name": "y"}, step]});
        for (arguments, argument) in [
            (json!({}), "pattern_name"),
            (json!({"pattern_name": "a/secret"}), "pattern_name"),
            (
                json!({"pattern_name": "create_coding_feature"}),
                "pattern_name",
            ),
            (
                json!({"pattern_name": "x", "temperature": 9}),
                "temperature",
            ),
            (
                json!({"pattern_name": "x", "attachments": ["secret", 5]}),
                "attachments[1]",
            ),
            (
                json!({"pattern_name": "x", "variables": {"secret": 5}}),
                "variables",
            ),
            (
                json!({"pattern_name": "x", "variables": {"secret": "{{x}}"}}),
                "variables",
            ),
            (json!({"pattern_name": "x", "secret": 5}), "(unknown)"),
            (json!({"pattern_name": "x", "then[secret]": 5}), "(unknown)"),
            (step(json!({})), "then[1].pattern_name"),
            (
                step(json!({"pattern_name": "create_coding_feature"})),
                "then[1].pattern_name",
            ),
            (step(json!({"pattern_name": "x", "secret": 1})), "then[1]"),
            (
                step(json!({"pattern_name": "x", "variables": {"secret": 5}})),
                "then[1].variables",
            ),
            (json!([]), "(unknown)"),
        ] {
            assert_eq!(blamed(arguments.clone()), argument, "{arguments}");
        }
    }

    #[test]
    fn an_unknown_argument_is_named_with_the_allowed_ones() {
        for tool in TOOLS {
            let raw = RawValue::from_string(r#"{"pattern_name":"x","nonsense":1}"#.into()).unwrap();
            let Err(error) = tool.job(Some(&raw), &Policy::default()) else {
                panic!("{} took nonsense", tool.name)
            };
            assert_eq!(error.kind, Kind::InvalidRequest);
            if parsed(tool.input)["properties"]["pattern_name"].is_object() {
                assert!(
                    error.detail.contains("nonsense"),
                    "{}: {}",
                    tool.name,
                    error.detail
                );
            }
        }
    }
}
