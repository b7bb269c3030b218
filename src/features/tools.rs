//! `tools/list` and `tools/call`: definitions and outcomes in the form of each revision.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::budget::Full;
use crate::fabric::{Error, Kind, no_room, too_many};
use crate::jsonrpc::{self, Id, NoId};
use crate::protocol::params::{given, params, text};
use crate::protocol::{
    Answer, Cache, Feature, Refusal, ResultWriter, Revision, error_object, pages, stored,
};
use crate::runs::{self, Run, Start};
use crate::text::shown;
use crate::tools::{self, Failure, Job, Outcome, Paid, TOOLS, Tool, partial};
use crate::{random, time};

use super::call::{Operation, Running};
use super::{Action, Call, Request, Server, tasks};

/// Version of the result format, in `_meta`. Adding an optional field does not change it.
const SCHEMA_VERSION: u32 = 1;

/// Result size in characters at which Claude's clients may cut: the largest value that they allow. Outputs are long,
/// and a run must not be repeated to see its end.
const MAX_RESULT_CHARS: u32 = 500_000;

/// Space for everything around the text of a result, in bytes.
const FRAME: usize = 1 << 10;

/// The tool whose calls may become tasks.
const RUN_TOOL: &str = "fabric_run_pattern";

/// `tools/list` per revision: written once, because it never changes.
#[derive(Default)]
pub(super) struct Lists([OnceLock<Arc<[u8]>>; Revision::ALL.len()]);

/// Answers `tools/list`.
pub(super) fn list(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    pages::cursor(request.params)?.page(TOOLS.len())?;
    let revision = request.context.revision;
    let list = server.tools.0[revision as usize]
        .get_or_init(|| write_list(revision, tasks::are_asked_for(&server.kept, revision)).into());
    Ok(Action::Answer(stored(&request.id, revision, list.clone())))
}

fn write_list(revision: Revision, tasks: bool) -> Vec<u8> {
    let tools: Vec<Definition> = TOOLS
        .iter()
        .map(|tool| define(tool, revision, tasks))
        .collect();
    let mut result = ResultWriter::body(revision);
    result.field("tools", &tools).cache(Cache::STATIC);
    result.end_body()
}

/// A tool in a list.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Definition {
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<Value>,
    description: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution: Option<Value>,
    input_schema: Box<RawValue>,
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'static str>,
}

fn define(tool: &Tool, revision: Revision, tasks: bool) -> Definition {
    let annotations = || {
        json!({
            "title": tool.title,
            "readOnlyHint": tool.read_only,
            "destructiveHint": false,
            "idempotentHint": tool.read_only,
            "openWorldHint": true,
        })
    };
    Definition {
        meta: revision
            .knows(Feature::ItemMeta)
            .then(|| json!({ "anthropic/maxResultSizeChars": MAX_RESULT_CHARS })),
        annotations: revision.knows(Feature::ToolAnnotations).then(annotations),
        description: tool.description,
        execution: (tasks && tool.name == RUN_TOOL).then(|| json!({ "taskSupport": "optional" })),
        input_schema: schema(tool.input),
        name: tool.name,
        output_schema: revision
            .knows(Feature::StructuredContent)
            .then(|| schema(tool.output)),
        title: revision.knows(Feature::Title).then_some(tool.title),
    }
}

/// Raw JSON, because a parsed map loses the order of properties, which clients use for their forms.
fn schema(text: &str) -> Box<RawValue> {
    RawValue::from_string(tools::joined(text)).unwrap_or_default()
}

/// Parses `tools/call`: finds the tool and checks the arguments.
///
/// # Errors
/// -32602 for an unknown tool, and for wrong arguments in revisions that require it.
pub(super) fn call(server: &Server, request: Request<'_>) -> Result<Action, Refusal> {
    let usage = "tools/call needs params.name, the name of a tool as a string, and params.arguments, an object.";
    let [name, arguments, task] = params(request.params, ["name", "arguments", "task"], usage)?;
    let name = text(name, usage)?;
    let arguments = given(arguments);
    // In every revision a malformed request: the error is not in a tool's argument, so a model cannot correct it.
    if arguments.is_some_and(|raw| !raw.get().starts_with('{')) {
        return Err(Refusal::params(
            "params.arguments of tools/call must be an object.",
        ));
    }
    let Some(tool) = Tool::named(&name) else {
        let shown = shown(&name, 64);
        let names: Vec<&str> = TOOLS.iter().map(|t| t.name).collect();
        return Err(Refusal::params(format!(
            "There is no tool \"{shown}\": the tools are {}.",
            names.join(", ")
        )));
    };
    let revision = request.context.revision;
    let task = match given(task).filter(|_| tasks::are_asked_for(&server.kept, revision)) {
        Some(_) if tool.name != RUN_TOOL => {
            let detail = format!("{name} cannot be a task: call it without params.task.");
            return Err(Refusal::new(jsonrpc::METHOD_NOT_FOUND, detail));
        }
        Some(task) => Some(tasks::requested(task, &server.kept.settings)?),
        None => None,
    };
    match tool.job(arguments, &server.policy) {
        Ok(job) => {
            let operation = ToolCall {
                tool,
                job: job.into(),
                task,
            };
            Ok(Action::Call(Box::new(Call::new(
                request,
                Box::new(operation),
            ))))
        }
        Err(error) => {
            let request_id = random::request_id();
            tools::log_refused(tool, None, &error, &request_id);
            // As a result, so that the model sees what is wrong and corrects it.
            if revision.knows(Feature::ArgumentErrorsAsResults) {
                let mut result = ResultWriter::new(&request.id, revision);
                write(&Err(Failure::from(error)), &request_id, &mut result);
                return Ok(Action::Answer(result.end()));
            }
            let refusal = Refusal::of(jsonrpc::INVALID_PARAMS, error);
            Ok(Action::Answer(refusal.answer(
                Some(&request.id),
                NoId::Absent,
                false,
                &request_id,
            )))
        }
    }
}

/// The answer to a `tools/call` when the budget has no room for its params.
pub(super) fn overloaded(id: &Id, revision: Revision) -> Answer {
    let error = too_many();
    let request_id = random::request_id();
    log::warn!(target: "fabric_mcp::tools", "ok=false error={} request_id={request_id}", error.kind.name());
    let mut result = ResultWriter::new(id, revision);
    write(&Err(Failure::from(error)), &request_id, &mut result);
    result.end()
}

/// A `tools/call` with checked arguments.
struct ToolCall {
    tool: &'static Tool,
    job: Arc<dyn Job>,
    /// The requested retention, if a task was requested.
    task: Option<Duration>,
}

impl Operation for ToolCall {
    fn run(&self, call: &Running<'_>, result: &mut ResultWriter) -> Result<(), Refusal> {
        let work = tools::Work {
            fabric: call.server.fabric.clone(),
            catalog: call.server.catalog.clone(),
            caller: call.notifier.clone(),
            identity: call.identity.clone(),
            runs: call.server.kept.runs.clone(),
            owner: call.owner.clone(),
            run: None,
        };
        match self.job.paid() {
            None => {
                let outcome = tools::run(self.tool, self.job.as_ref(), &work, call.request_id);
                write(&outcome, call.request_id, result);
                Ok(())
            }
            Some(paid) => self.start(paid, work, call, result),
        }
    }

    fn fail(
        &self,
        error: Error,
        request_id: &str,
        result: &mut ResultWriter,
    ) -> Result<(), Refusal> {
        tools::log_refused(self.tool, Some(self.job.as_ref()), &error, request_id);
        write(&Err(Failure::from(error)), request_id, result);
        Ok(())
    }

    fn runs(&self) -> u32 {
        self.job.runs()
    }

    fn waits(&self) -> bool {
        self.job.waits()
    }
}

impl ToolCall {
    /// Starts a run and waits for it, up to the caller's limit.
    fn start(
        &self,
        paid: Paid,
        work: tools::Work,
        call: &Running<'_>,
        result: &mut ResultWriter,
    ) -> Result<(), Refusal> {
        let kept = &call.server.kept;
        let (keeps, keep) = (kept.runs.keeps(), kept.settings.keep);
        if !keeps && paid.wait.is_some() {
            let detail = "`wait_seconds` cannot be used: this server keeps no runs (--keep-runs 0). Leave it out.";
            return self.fail(
                Error::new(Kind::InvalidRequest, detail),
                call.request_id,
                result,
            );
        }
        let Paid {
            patterns,
            model,
            wait,
            max_chars,
        } = paid;
        let limit = patience(wait, call).filter(|_| keeps);
        let start = Start {
            owner: call.owner.clone(),
            patterns,
            model,
        };
        let writer = match self.task {
            None => kept.runs.begin(start),
            Some(ttl) => kept.runs.begin_task(start, ttl).map_err(|runs::StoreFull| {
                let detail = "There is no room for another task: too many of yours or in all work or must be kept. \
                              Try again later, or call without params.task.";
                let error = Error::new(Kind::TooManyRequests, detail);
                tools::log_refused(self.tool, Some(self.job.as_ref()), &error, call.request_id);
                error
            })?,
        };
        let notifier = self.task.map(|_| call.notifier.clone());
        if let Some(notifier) = &notifier {
            notifier.become_task(&writer.run().id().to_string());
        }
        let told = move |run: &Run| {
            if let Some(notifier) = notifier {
                notifier.notify(&tasks::status(run, keep));
            }
        };
        let held = call.held.take();
        let started = match tools::start(
            self.tool,
            self.job.clone(),
            work,
            writer,
            held,
            call.request_id,
            told,
        ) {
            Ok(started) => started,
            Err(error) => return self.fail(error, call.request_id, result),
        };
        let run = &started.run;
        if self.task.is_some() {
            tasks::created(run, keep, result);
            return Ok(());
        }
        if !started.wait(limit) {
            let is_task = call.context.tasks && run.promise(keep).is_ok();
            // Before the caller learns of it.
            run.persist();
            call.notifier.detach();
            if is_task {
                tasks::created(run, keep, result);
                return Ok(());
            }
        }
        let outcome = tools::result(run, max_chars, keeps);
        write(&outcome, call.request_id, result);
        if outcome.is_err() && keeps {
            // With the id, the caller can read a text that is truncated here.
            result
                .meta
                .insert("run_id".into(), run.id().to_string().into());
        }
        Ok(())
    }
}

/// How long a caller waits for its run; `None`: until it ends.
fn patience(wait: Option<Duration>, call: &Running<'_>) -> Option<Duration> {
    let settings = &call.server.kept.settings;
    let within = Some(settings.answer_within).filter(|within| !within.is_zero());
    // With a progress token, the caller wants output as it arrives, which tasks do not send.
    let task_after = (call.context.tasks && call.context.progress_token.is_none())
        .then_some(settings.task_after);
    wait.or_else(|| task_after.into_iter().chain(within).min())
}

/// A text item of `content`.
#[derive(Serialize)]
struct TextContent<'a> {
    r#type: &'static str,
    text: &'a str,
}

fn content(text: &str) -> TextContent<'_> {
    TextContent {
        r#type: "text",
        text,
    }
}

/// Writes the result of a call, success or failure.
pub(super) fn write(
    outcome: &Result<Outcome, Failure>,
    request_id: &str,
    result: &mut ResultWriter,
) {
    let revision = result.revision;
    result
        .meta
        .insert("schema_version".into(), SCHEMA_VERSION.into());
    result
        .meta
        .insert("generated_at".into(), time::now().into());
    match outcome {
        Ok(outcome) => {
            let mut json = Vec::new();
            let text = outcome.structured.text();
            if text.is_none() {
                outcome.structured.write(&mut json);
            }
            let copies = if revision.knows(Feature::StructuredContent) {
                2
            } else {
                1
            };
            let needed =
                text.map_or(json.len() + json.len() / 4, jsonrpc::string_len) * copies + FRAME;
            // Charged before it is written: JSON may be several times as long as its text.
            if let Err(Full) = result.reserve(needed) {
                let partial = text
                    .map(|text| partial(text).to_owned())
                    .into_iter()
                    .collect();
                return write(
                    &Err(Failure {
                        error: no_room(),
                        partial,
                    }),
                    request_id,
                    result,
                );
            }
            let out = result.key("content");
            out.extend_from_slice(br#"[{"type":"text","text":"#);
            match text {
                Some(text) => jsonrpc::write_json(out, text),
                None => outcome.structured.write_as_string(out, &json),
            }
            out.push(b'}');
            for warning in &outcome.warnings {
                out.push(b',');
                jsonrpc::write_json(out, &content(warning));
            }
            out.push(b']');
            if revision.knows(Feature::StructuredContent) {
                let out = result.key("structuredContent");
                match json.is_empty() {
                    false => out.extend_from_slice(&json),
                    true => outcome.structured.write(out),
                }
            }
            result.field("isError", &false);
        }
        Err(failure) => {
            let error = &failure.error;
            let said = format!(
                "{}. {} {}",
                error.kind.title(),
                error.detail,
                error.kind.urn()
            );
            let partial = failure.partial.iter().map(String::as_str);
            let content: Vec<_> = std::iter::once(said.as_str())
                .chain(partial)
                .map(content)
                .collect();
            result.field("content", &content).field("isError", &true);
            result
                .meta
                .insert("error".into(), error_object(error, request_id).into());
        }
    }
}
