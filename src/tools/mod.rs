//! The tools: definitions, arguments, and the work with Fabric.
//!
//! In scope: the table of tools, arguments, the context of a call and its outcome, the log line of a call. Not in scope:
//! MCP's messages (`server` turns definitions into them) and HTTP (`fabric`).

mod arguments;
mod cancel_run;
mod context;
mod fill_pattern;
mod get_configuration;
mod get_pattern_details;
mod get_run;
mod get_transcript;
mod list_contexts;
mod list_models;
mod list_patterns;
mod list_strategies;
mod name_lookup;
mod outcome;
mod part;
mod policy;
mod prompt;
mod run_pattern;
mod run_result;

use std::cell::LazyCell;
use std::mem::take;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use log::Level;

use crate::account::Resource;
pub(crate) use crate::config::Policy;
pub(crate) use crate::fabric::Place;
use crate::fabric::{Error, Kind, Usage};
use crate::logging::Line;
use crate::protocol::{Node, Refusal, ResultWriter, Revision, jsonrpc};
use crate::text::{closest, wrapped};
use crate::{logging, metrics};

pub(crate) use arguments::is_meant;
use arguments::{Arguments, FREE, Given, GivenArgument, unquoted};
pub(crate) use context::{
    Backend, CallHead, CallPlan, Context, ContextState, LOOK_UP, MethodWork, Peer, RELATED_TASK,
    reserve_slots,
};
pub(crate) use name_lookup::take_pattern;
pub(crate) use outcome::{Outcome, ToolResult, write, write_failure};
pub(crate) use prompt::prompt;
pub(crate) use run_pattern::file_kind;
pub(crate) use run_result::{result, silence, task, write_task};

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

/// A member of `_meta`: whoever reads the result of the call types arguments at a shell, as KEY=VALUE.
pub(crate) const SHELL: &str = "fabric-mcp/shell";

/// The tools for patterns from folders. The last one is offered only if there are strategies.
pub(crate) static PATTERNS_ONLY: &[Tool] = &[
    list_patterns::TOOL,
    get_pattern_details::TOOL,
    fill_pattern::TOOL,
    list_strategies::TOOL,
];

/// A tool: its definition, and how its arguments become work.
pub(crate) struct Tool {
    /// The name it is called by.
    pub(crate) name: &'static str,
    /// The name for people.
    pub(crate) title: &'static str,
    /// What a model needs to know to use it well.
    pub(crate) description: &'static str,
    /// JSON Schema of the structured result, a file in `results`. White space stands only at the start of lines.
    output: &'static str,
    /// Changes nothing, and may be repeated without harm.
    pub(crate) read_only: bool,
    /// Asks for all arguments, the required ones first, which also gives the schema. Then checks how they go together,
    /// and returns the work. No I/O.
    declare: fn(&mut Arguments<'_>, &Policy) -> Result<ToolWork, Error>,
}

/// Does the work of a tool. Runs once, on a thread that may block.
pub(crate) type ToolWork = Box<dyn FnOnce(&Arc<Context>) -> ToolResult + Send>;

impl Tool {
    /// Does it run patterns, unless a dry run is asked for?
    pub(crate) fn is_run(&self) -> bool {
        self.name == run_pattern::TOOL.name && !self.read_only
    }

    /// Checks what was `given` at `place` and prepares the call.
    ///
    /// # Errors
    /// `invalid-request`, naming the arguments, what was wrong with them and what is allowed.
    pub(crate) fn prepare(
        &self,
        given: Given<'_>,
        place: Place,
        policy: &Policy,
    ) -> Result<(CallPlan, ToolWork), Error> {
        let read = |all: &mut Arguments<'_>| {
            let work = (self.declare)(all, policy)?;
            Ok((take(&mut all.plan), work))
        };
        // Some models wrap all arguments in one object. A misspelled `dry_run` is not that: the call would be paid for.
        let known = LazyCell::new(|| self.argument_names(policy));
        let is_known = |(name, _): &GivenArgument<'_>| known.contains(&&**name);
        // Some also repeat the name of the tool beside that object.
        let is_tool = |node: &Node<'_>| node.text() == Some(self.name);
        let others = given.iter().filter(|(_, node)| !is_tool(node));
        let own = match others.collect::<Vec<_>>()[..] {
            [one] if !is_known(one) && closest(&one.0, [FREE]).is_empty() => Some(unquoted(&one.1)),
            _ => None,
        };
        let given = match own.as_deref() {
            Some(Node::Object(members)) if members.iter().any(is_known) => members,
            _ => given,
        };
        Arguments::read(self.name, place, given, read)
    }

    /// What it asks for under this policy.
    fn arguments(&self, policy: &Policy) -> Arguments<'static> {
        Arguments::of(self.name, |all| (self.declare)(all, policy))
    }

    /// The names of its arguments, the most important first.
    pub(crate) fn argument_names(&self, policy: &Policy) -> Vec<&'static str> {
        let asked = self.arguments(policy).asked;
        asked.iter().map(|argument| argument.name).collect()
    }

    /// JSON Schema of its arguments under this policy.
    pub(crate) fn input_schema(&self, policy: &Policy) -> String {
        self.arguments(policy).schema()
    }

    /// JSON Schema of its structured result.
    pub(crate) fn output_schema(&self) -> String {
        self.output.lines().map(str::trim_start).collect()
    }
}

/// Does the work of a call with checked arguments and writes its result.
///
/// # Errors
/// Its arguments are wrong; or it asks for a task and has failed before there was one.
pub(crate) fn call(
    work: ToolWork,
    context: &Arc<Context>,
    result: &mut ResultWriter,
) -> Result<(), Refusal> {
    let begun = Instant::now();
    let done = catch_unwind(AssertUnwindSafe(|| work(context)));
    let head = &context.head;
    // The panic hook has logged where it was; a run ends like any other.
    let mut done = done.unwrap_or_else(|_| Err(Error::bug(&head.request_id)));
    if let Err(error) = &mut done {
        error.detail = context.backend.policy.offered(&error.detail);
    }
    let refusal = match (head.plan.fault.clone(), done) {
        (Some(fault), Err(more)) if more.is_refusal() && more.detail != fault.detail => {
            fault.and(more)
        }
        (Some(fault), _) => fault,
        // Of a call that asks for a task, a result would have to be one.
        (None, Err(error)) if head.ttl.is_some() && context.run().is_none() => error,
        (None, done) => {
            end_call(done, begun, context, result);
            return Ok(());
        }
    };
    Err(match context.peer.stopped() {
        true => Error::cancelled().into(),
        false => refusal.into(),
    })
}

/// Logs a call that began at `begun` and ended with `outcome`, and writes its result, unless it was answered before. What a
/// run has come to is stored first.
fn end_call(mut outcome: ToolResult, begun: Instant, context: &Context, result: &mut ResultWriter) {
    if let (Err(error), Some(_)) = (&mut outcome, &context.backend.fabric.process) {
        error.say_of_own();
    }
    let request_id = &context.head.request_id;
    // A run that was not begun took no time.
    let has_begun = context.head.plan.needs != Resource::Runs || context.run().is_some();
    let took = has_begun.then(|| begun.elapsed());
    report(&context.head, took, &outcome, context.usage());
    let (backend, account) = (&context.backend, context.account());
    let Some(writer) = context.run() else {
        return write(&outcome, &backend.policy, account, request_id, result);
    };
    // A refused call leaves no run, unless its caller already knows the run.
    let is_refused = !context.is_answered() && outcome.as_ref().is_err_and(Error::is_refusal);
    let run = writer.run();
    if is_refused {
        backend.runs.forget(run.id());
    }
    run_result::finish(writer, outcome, context.usage(), request_id);
    // The caller learns of the end once it is stored and the run's place is free.
    context.leave();
    if context.task().is_some() {
        let status = task(&run.record(), Revision::R2025_11_25, backend.settings.keep);
        let message = jsonrpc::notification("notifications/tasks/status", &status);
        context.notify(&message);
    }
    if !context.is_answered() {
        let outcome = run_result::result(&run, None, backend, account);
        write(&outcome, &backend.policy, account, request_id, result);
        if outcome.is_err() && backend.runs.is_kept(&run) && !is_refused {
            // With the id, the caller can read a text that is truncated here.
            result.meta("run_id", &run.id());
        }
    }
}

/// Counts and logs the call of a tool; `took` is `None` if it never ran. If a rule of the
/// operator refuses it, the line names what was refused; otherwise it has the arguments that could be read.
pub(crate) fn report(
    head: &CallHead,
    took: Option<Duration>,
    result: &ToolResult,
    usage: Option<Usage>,
) {
    let Some(tool) = head.tool else { return };
    let error = result.as_ref().err();
    let outcome = error.map_or(metrics::OK, |error| error.kind.name());
    metrics::call(tool.name, outcome, took);
    error.into_iter().for_each(metrics::failure);
    let mut line = Line::default();
    line.field("tool", tool.name);
    let by_policy = error.filter(|error| error.policy_refusal.is_some());
    for (key, value) in head.plan.fields.iter().filter(|_| by_policy.is_none()) {
        line.field(key, value.as_str());
    }
    by_policy.inspect(|error| line.policy_refusal(error));
    line.optional("duration_ms", took.map(|took| took.as_millis() as u64))
        .field("ok", result.is_ok());
    match result {
        Ok(outcome) => {
            line.field(outcome.size.0, outcome.size.1);
        }
        Err(error) => log_failure(&mut line, error),
    }
    line.optional("input_tokens", usage.map(|usage| usage.input_tokens))
        .optional("output_tokens", usage.map(|usage| usage.output_tokens))
        .field("request_id", head.request_id.as_str());
    let level = error.map_or(Level::Info, logging::level);
    line.log(level, "fabric_mcp::tools");
}

fn log_failure(line: &mut Line, error: &Error) {
    line.failure(error);
    if error.kind == Kind::InvalidRequest {
        let argument = error.argument.as_deref();
        line.field("argument", argument.unwrap_or("(unknown)"));
    }
}

/// The catalogue for `--list-tools`: each tool's name, what it does in a line, and its arguments.
pub(crate) fn catalogue(policy: &Policy) -> String {
    let mut text = String::new();
    for tool in policy.tools() {
        let mut sentences = tool.description.split_inclusive(". ");
        let first = sentences.next().unwrap_or_default().trim_end();
        text.push_str(&format!("{}\n    {}\n", tool.name, wrapped(first, 4)));
        for argument in tool.arguments(policy).asked {
            let needed = if argument.required { " (required)" } else { "" };
            let (name, kind) = (argument.name, argument.json_type);
            let line = format!("{name}: {kind}{needed}. {}", argument.description);
            text.push_str(&format!("      {}\n", wrapped(&line, 8)));
        }
    }
    text
}

/// A refused argument, pattern or value.
fn invalid(detail: impl Into<String>) -> Error {
    Error::new(Kind::InvalidRequest, detail)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::protocol::Inbound;

    /// The refusal of these arguments.
    fn refusal(tool: &Tool, arguments: &Value) -> Error {
        match prepared(tool, arguments) {
            Ok(_) => panic!("{} took {arguments}", tool.name),
            Err(error) => error,
        }
    }

    /// Prepares a call with these arguments, as a message has them.
    pub(super) fn prepared(tool: &Tool, arguments: &Value) -> Result<CallPlan, Error> {
        let message =
            json!({"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"arguments": arguments}});
        let message = message.to_string();
        let inbound = Inbound::read(message.as_bytes(), false);
        let Some(request) = inbound.request() else {
            panic!("{message}")
        };
        let params = request.params.as_ref().unwrap();
        let Some(Node::Object(arguments)) = params.get("arguments") else {
            panic!("{message}")
        };
        let (plan, _) = tool.prepare(arguments, Place::Call, &Policy::default())?;
        plan.fault.clone().map_or(Ok(plan), Err)
    }

    fn parsed(schema: &str) -> Value {
        serde_json::from_str(schema).unwrap()
    }

    #[test]
    fn names_are_unique_and_the_first_tool_takes_no_arguments() {
        let names: std::collections::HashSet<_> = TOOLS.iter().map(|t| t.name).collect();
        assert_eq!(names.len(), TOOLS.len());
        assert!(prepared(&TOOLS[0], &json!({})).is_ok());
    }

    /// What a client puts into a model's context.
    #[test]
    fn all_tools_take_at_most_7440_bytes_of_json() {
        let tool = |tool: &Tool| {
            let schema = parsed(&tool.input_schema(&Policy::default()));
            json!({"name": tool.name, "description": tool.description, "inputSchema": schema})
        };
        let bytes = Value::from_iter(TOOLS.iter().map(tool)).to_string().len();
        assert!(bytes <= 7440, "{bytes} bytes: shorten a description");
    }

    #[test]
    fn schemas_are_plain_enough_for_picky_clients() {
        fn walk(value: &Value, path: &str) {
            match value {
                Value::Object(map) => {
                    for (key, value) in map {
                        let exotic = "$ref $schema anyOf oneOf allOf not";
                        let is_plain = !exotic.split(' ').any(|word| word == key);
                        assert!(is_plain, "{path}/{key}");
                        if key == "properties" {
                            for (name, property) in value.as_object().unwrap() {
                                let is_described = property["description"].is_string();
                                assert!(is_described, "{path}: {name} has no description");
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
            for text in [tool.input_schema(&Policy::default()), tool.output_schema()] {
                let schema = parsed(&text);
                let compact = schema.to_string().len();
                assert_eq!(text.len(), compact, "{}: {text}", tool.name);
                assert_eq!(schema["type"], "object", "{}", tool.name);
                assert!(schema["properties"].is_object(), "{}", tool.name);
                walk(&schema, tool.name);
            }
            let schema = parsed(&tool.input_schema(&Policy::default()));
            let found = &schema["additionalProperties"];
            assert_eq!(found, false, "{}", tool.name);
        }
    }

    #[test]
    fn schemas_are_exactly_these_bytes() {
        let none = Arguments::default();
        let expected = r#"{"type":"object","properties":{},"additionalProperties":false}"#;
        assert_eq!(none.schema(), expected);
        let mut all = Arguments::default();
        let text = |_: &str, text: &str| Ok(text.to_owned());
        all.required("z: Say \"z\".", "a string", text);
        all.flag("f: F.", false);
        all.number("n", (-2.0, 2.0), 0.5);
        all.integer("i: I.", (1, 9));
        all.variables("v: V.");
        all.steps("s: S.", 8, |step| {
            Ok(step.required("p: P.", "a string", |_, text| Ok(text.to_owned())))
        });
        assert_eq!(
            all.schema(),
            concat!(
                r#"{"type":"object","properties":{"z":{"type":"string","description":"Say \"z\"."},"#,
                r#""f":{"type":"boolean","description":"F."},"#,
                r#""n":{"type":"number","minimum":-2,"maximum":2,"description":"Default 0.5."},"#,
                r#""i":{"type":"integer","minimum":1,"maximum":9,"description":"I."},"#,
                r#""v":{"type":"object","additionalProperties":{"type":"string"},"description":"V."},"#,
                r#""s":{"type":"array","maxItems":8,"items":{"type":"object","properties":{"#,
                r#""p":{"type":"string","description":"P."}},"required":["p"],"additionalProperties":false},"#,
                r#""description":"S."}},"required":["z"],"additionalProperties":false}"#
            )
        );
        for tool in TOOLS {
            let asked = tool.arguments(&Policy::default()).asked;
            let is_sorted = asked.is_sorted_by_key(|argument| !argument.required);
            assert!(is_sorted, "{}: required first", tool.name);
        }
    }

    #[test]
    fn the_log_names_the_argument_but_nothing_that_a_caller_made_up() {
        let tool = &run_pattern::TOOL;
        let blamed = |arguments: Value| {
            let error = refusal(tool, &arguments);
            let mut line = Line::default();
            log_failure(&mut line, &error);
            let line = line.to_logfmt();
            let (before, argument) = line.rsplit_once(" argument=").unwrap();
            let has_reason = before != "error=invalid-request";
            let expected = before.contains("create_coding_feature");
            assert_eq!(has_reason, expected, "a rule's");
            assert!(!line.contains("secret"), "{line}");
            argument.to_owned()
        };
        let coding = json!({"pattern_name": "create_coding_feature"});
        let of = |name: &str, value: Value| json!({"pattern_name": "x", name: value});
        let step = |step: Value| of("then", json!([{"pattern_name": "y"}, step]));
        let (wrong, template) = (json!({"secret": [5]}), json!({"secret": "{{x}}"}));
        for (arguments, argument) in [
            (json!({}), "pattern_name"),
            (json!({"pattern_name": "a/secret"}), "pattern_name"),
            (coding.clone(), "pattern_name"),
            (of("temperature", json!(9)), "temperature"),
            (of("attachments", json!(["secret", 5])), "attachments"),
            (of("variables", wrong.clone()), "variables"),
            (of("variables", template), "variables"),
            (of("secret", json!(5)), "(unknown)"),
            (of("then[secret]", json!(5)), "(unknown)"),
            (step(json!({})), "then[1].pattern_name"),
            (step(coding), "then[1].pattern_name"),
            (step(of("secret", json!(1))), "then[1]"),
            (step(of("variables", wrong)), "then[1].variables"),
        ] {
            assert_eq!(blamed(arguments.clone()), argument, "{arguments}");
        }
    }
}
