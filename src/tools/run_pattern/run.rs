//! Running the steps, one after the other.

use std::mem::take;
use std::sync::Arc;

use crate::config::{MAX_PARTIAL_TEXT, SHOWN_PROMPT, is_among};
use crate::fabric::{CallObserver, Chat, Error, Kind, Name};
use crate::runs::{Record, estimate};
use crate::search;
use crate::text::{is_blank, shown};
use crate::tools::name_lookup::take_pattern;
use crate::tools::part::Part;
use crate::tools::policy::no_model;
use crate::tools::run_result::DEFAULT_FORMAT;
use crate::tools::{Context, Outcome, ToolResult, invalid, prompt};

use super::input::InputSource;
use super::missing_text::is_none;
use super::output::Output;
use super::plan;

/// Longest texts that are looked for in errors before these are logged, in bytes; a longer input is not kept for that.
const MAX_ECHO: usize = 64 << 10;

/// Shortest repetition of a private text that keeps an error out of the log, in bytes.
const ECHO: usize = 12;

/// The warning, or the error of an earlier step, if nothing is left of an output.
const ONLY_THINKING: &str = "The output was only thinking, and strip_thinking left nothing of it. \
    To see the thinking, run the pattern again without strip_thinking.";

/// The error of an earlier step without a word in its output.
const EMPTY: &str = "The output was empty, so there is nothing for the next step.";

/// A call with checked arguments: the first step, and those of `then`.
pub(super) struct RunPattern {
    pub(super) steps: Vec<Chat>,
    /// A copy of a short input, to be looked for in errors before these are logged.
    pub(super) echo: Option<String>,
    pub(super) dry_run: bool,
    pub(super) stream: bool,
    pub(super) strip_thinking: bool,
    pub(super) max_chars: Option<usize>,
    /// The input is not checked: it is run or shown as it is.
    pub(super) as_is: bool,
}

impl RunPattern {
    /// Runs the steps on the input, which is freed once it is sent; or shows the prompt of the first. Arguments that were
    /// refused are only checked for all that is wrong with them. The warnings are about those that were taken to mean others.
    pub(super) fn run(
        mut self,
        mut input: String,
        from: Option<InputSource>,
        mut warnings: Vec<String>,
        context: &Arc<Context>,
    ) -> ToolResult {
        for step in &mut self.steps {
            warnings.extend(take_pattern(&mut step.pattern, context)?);
        }
        if !self.dry_run && context.head.plan.fault.is_none() {
            self.begin(&input, from.as_ref(), context)?;
        }
        let short = |text: &str| (text.len() <= MAX_ECHO).then(|| text.to_owned());
        self.echo = short(&input);
        // Done before a transcript is fetched, which may take a minute; the guard sees the whole input when the step is
        // run.
        let lacks_input = from.is_none() && self.lacks_input(&input);
        let fault = from.as_ref().and_then(|from| from.fault(context));
        // If no pattern is named, an empty input is all that can be reported.
        let unnamed = lacks_input && self.steps[0].pattern == Name::default();
        let no_input = unnamed.then(|| plan::no_input(&self.steps[0]));
        let found = Vec::from_iter(fault.into_iter().chain(no_input).map(Err));
        let checked = plan::check(&mut self.steps, &input, lacks_input, found, context);
        warnings.extend(checked.map_err(|error| self.with_log(error))?);
        if let Some(from) = from {
            input = from.text(context)?;
            // Only nothing at all is refused: the output of an earlier run may be the word "None".
            if is_blank(&input) && self.lacks_input(&input) {
                return Err(plan::no_input(&self.steps[0]));
            }
            self.echo = short(&input);
        }
        let done = match self.dry_run {
            true => self.first_prompt(input, warnings, context),
            false => self.steps(input, warnings, context),
        };
        done.map_err(|error| self.with_log(error))
    }

    /// Whether the first step needs an input and this is none, unless a variable is its input.
    fn lacks_input(&self, input: &str) -> bool {
        let row = search::shipped(self.steps[0].pattern.as_str());
        let needs_none = self.as_is || row.is_some_and(|row| row.needs_no_input);
        !needs_none && is_none(input)
    }

    /// The patterns, one after the other.
    pub(super) fn patterns(&self) -> impl Iterator<Item = String> {
        let patterns = self.steps.iter().map(|step| step.pattern.as_str());
        patterns.map(str::to_owned)
    }

    /// Begins the run.
    fn begin(
        &self,
        input: &str,
        from: Option<&InputSource>,
        context: &Context,
    ) -> Result<(), Error> {
        if context.head.plan.run_wait.is_some() && !context.backend.runs.keeps() {
            let detail = "`wait_seconds` cannot be used: this server keeps no runs (--keep-runs 0). Leave it out.";
            return Err(invalid(detail).about("wait_seconds"));
        }
        let transcripts = u32::from(matches!(from, Some(InputSource::Video(..))));
        let allowance = context.may_begin(self.steps.len() as u32 + transcripts)?;
        context.may_use(&allowance, estimate(sent(&self.steps[0], input)))?;
        let (owner, model) = (&context.caller().identity, &self.steps[0].model);
        let mut record = Record::new(owner.clone(), self.patterns().collect(), model.clone());
        // Used if the call is answered before the run ends.
        record.report.max_chars = self.max_chars;
        context.begin_run(record)
    }

    /// The error, which is private if it may repeat the caller's or the model's text.
    fn with_log(&self, mut error: Error) -> Error {
        let texts = self.steps.iter().flat_map(|step| step.variables.values());
        let texts = texts.chain(&error.partial).chain(&self.echo);
        let texts = Vec::from_iter(texts.map(String::as_str));
        let is_short = texts.iter().map(|text| text.len()).sum::<usize>() <= MAX_ECHO;
        error.is_private = match is_short && self.echo.is_some() {
            true => has_echo(&error.detail, &texts),
            // What it may repeat is not known or too long, so no text of a vendor may be logged.
            false => error.kind == Kind::ApiError,
        };
        error
    }

    /// Shows the prompt of the first step. Nothing is sent to a model. Not inlined: its values would be on the stack of
    /// each run.
    #[inline(never)]
    fn first_prompt(
        &mut self,
        input: String,
        warnings: Vec<String>,
        context: &Arc<Context>,
    ) -> ToolResult {
        fn text(name: &Option<Name>) -> &str {
            name.as_ref().map_or("", Name::as_str)
        }
        self.steps[0].input = input;
        let step = &self.steps[0];
        let strategy = text(&step.strategy);
        let prompt = prompt(context, step, strategy)
            .map_err(|error| plan::with_names_looked_up(step, error, context))?;
        let named =
            |what: &str, name: &str| (!name.is_empty()).then(|| format!("{what} \"{name}\""));
        let more = [
            named("the text of the context", text(&step.context)),
            named("any messages of the session", text(&step.session)),
            named("the order to answer in the language", &step.language),
        ];
        let more = Vec::from_iter(more.into_iter().flatten()).join(", ");
        let begins = named("The text begins with the strategy", strategy);
        let adds = format!("A run also sends these, which are not shown here: {more}.");
        let then = "The prompts of `then` are not shown, because each needs the output of the step before it.";
        let part = Part::of(&prompt, (0, self.max_chars.unwrap_or(SHOWN_PROMPT)));
        let cut = part.total_chars.zip(part.next_offset);
        let omitted = cut.map(|(all, shown)| all - shown);
        let cut = omitted.map(|omitted| {
            format!("This is the beginning of the prompt: raise max_chars to get the other {omitted} characters.")
        });
        Ok(Outcome::text("output_text", part.text.to_owned())
            .member("output_format", DEFAULT_FORMAT)
            .optional("omitted_chars", omitted)
            .warn(warnings)
            .warn(begins.map(|begins| begins + "."))
            .warn((!more.is_empty()).then_some(adds))
            .warn((self.steps.len() > 1).then(|| then.to_owned()))
            .warn(cut))
    }

    /// Runs all steps; `warnings` are those of the checks before them.
    fn steps(
        &self,
        mut input: String,
        mut warnings: Vec<String>,
        context: &Arc<Context>,
    ) -> ToolResult {
        if let Some(note) = context.backend.run_note {
            context.say(&format!("{note}\n"));
            warnings.push(note.to_owned());
        }
        let mut output = Output::default();
        // Of the output of earlier steps, only what a failure may still show is kept.
        let mut earlier = Vec::new();
        for (i, step) in self.steps.iter().enumerate() {
            if i > 0 {
                earlier.push(output.start(MAX_PARTIAL_TEXT, context));
                input = take(&mut output.text);
            }
            output = self
                .step(step, take(&mut input), &earlier, context, &mut warnings)
                .map_err(|error| Error {
                    partial: earlier.drain(..).chain(error.partial).collect(),
                    ..error
                })?;
        }
        Ok(output.into_outcome(self.max_chars, warnings, context))
    }

    /// One `POST /chat`, after `earlier` steps have given this. Only the text of the last step is streamed,
    /// because only that is the result.
    fn step(
        &self,
        step: &Chat,
        input: String,
        earlier: &[String],
        context: &Arc<Context>,
        warnings: &mut Vec<String>,
    ) -> Result<Output, Error> {
        let (fabric, observer) = (&context.backend.fabric, &context.observer());
        let (i, count, pattern) = (earlier.len(), self.steps.len(), step.pattern.as_str());
        let is_result = i + 1 == count;
        // The transcript, or the step before, took its time.
        let allowance = context.may_begin((count - i) as u32)?;
        let (models, sent) = (&allowance.models, sent(step, &input));
        if i == 0 {
            // What comes from elsewhere was not known before.
            context.may_use(&allowance, estimate(sent))?;
        }
        if !is_among(models, &step.model) {
            let error = no_model(step, models);
            return Err(error.of_policy(pattern, step.model_label()));
        }
        context.stream_text(self.stream && is_result);
        if count > 1 {
            context.say(&format!("Step {} of {count}: {pattern}\n", i + 1));
        }
        let chat = Box::new(Chat {
            input,
            ..step.clone()
        });
        let mut output = Output::new(is_result, self.strip_thinking);
        let ended = fabric.check(chat, observer).and_then(|checked| {
            warnings.extend(checked.unused.iter().map(|name| {
                let name = shown(name, 64);
                format!("The pattern {pattern} has no variable \"{name}\": its value was not used.")
            }));
            if !step.model.is_empty() {
                context.backend.catalog.list_models_once(observer)?;
            }
            context.count()?;
            // From here on, silence counts as silence of the model.
            output.relay(DEFAULT_FORMAT, "", context)?;
            // Only runs of the demo have a note. They cost nothing, so the ledger has no line for them.
            if let Some(run) = context.run().filter(|_| context.backend.run_note.is_none()) {
                run.ask(step.model_label(), estimate(sent), earlier);
            }
            fabric.run(checked, observer, &mut |event| output.take(event, context))
        });
        output.finish(context);
        context.flush();
        let ended = ended.map_err(|error| plan::with_names_looked_up(step, error, context));
        output.count(ended.as_ref().err(), context);
        let mut error = match ended {
            Err(error) => error,
            Ok(()) if !is_result && is_blank(&output.text) => {
                let thought = output.is_only_thinking.then_some(ONLY_THINKING);
                Error::new(Kind::ApiError, thought.unwrap_or(EMPTY))
            }
            Ok(()) => {
                if output.is_only_thinking {
                    warnings.push(ONLY_THINKING.to_owned());
                }
                if output.is_unclosed {
                    warnings.push(format!(
                        "The output of {pattern} begins with thinking that does not end, so it was not left out."
                    ));
                }
                return Ok(output);
            }
        };
        if count > 1 {
            let why = match i {
                0 => error.detail,
                // The steps before it have run, so the words "Nothing was run" would be wrong.
                _ => error.detail.replace(" Nothing was run.", ""),
            };
            error.detail = format!("Step {} of {count} ({pattern}) failed. {why}", i + 1);
        }
        let partial = Some(output.start(MAX_PARTIAL_TEXT, context));
        error.partial = Vec::from_iter(partial.filter(|text| !text.is_empty()));
        Err(error)
    }
}

/// How many characters of its caller's a step sends.
fn sent(step: &Chat, input: &str) -> u64 {
    let texts = step.variables.values().map(String::as_str).chain([input]);
    texts.map(|text| text.chars().count() as u64).sum()
}

/// Whether an error repeats [`ECHO`] bytes of any of these texts. Any two texts share shorter parts.
fn has_echo(error: &str, private: &[&str]) -> bool {
    let part = |(at, _)| {
        let mut ends = at + ECHO..=error.len();
        error.get(at..ends.find(|end| error.is_char_boundary(*end))?)
    };
    let mut parts = error.char_indices().filter_map(part);
    parts.any(|part| private.iter().any(|text| text.contains(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_the_callers_text_is_known() {
        let input = "Dear Ms Müller, my card is 4000-1234 and the model is not a clue. Ω";
        for (error, is_echo) in [
            ("Error: model not found", false),
            ("bad prompt: \"Müller, my card\" (400)", true),
            ("the model is broken, 4000-1234.", true),
            ("the model ", false),
        ] {
            assert_eq!(has_echo(error, &["", input]), is_echo, "{error}");
        }
    }
}
