//! Running the steps, one after the other.

use std::sync::Arc;

use crate::config::MAX_PARTIAL_TEXT;
use crate::fabric::{Chat, Kind, Wait};
use crate::text::shown;
use crate::tools::echo::without_echo;
use crate::tools::{Context, Failure, Outcome};

use super::output::Output;
use super::plan;

/// The warning about attachments.
const NOT_READ: &str = "The attachments were not read: Fabric's REST API ignores them today. If the output speaks of \
                        their content, it is made up. Put the text itself into input_text.";

/// A call with checked arguments: the first step, and those of `then`.
pub(super) struct RunPattern {
    pub(super) steps: Vec<Chat>,
    /// A copy of a short input, to be removed from errors in the log.
    pub(super) echo: Option<String>,
    pub(super) stream: bool,
    pub(super) max_chars: Option<usize>,
}

impl RunPattern {
    /// Runs the steps on `input`, which is freed once it is sent.
    pub(super) fn run(self, input: String, context: &Arc<Context>) -> Result<Outcome, Failure> {
        self.steps(input, context).map_err(|failure| Failure {
            logged: Some(self.logged(&failure)),
            ..failure
        })
    }

    fn steps(&self, mut input: String, context: &Arc<Context>) -> Result<Outcome, Failure> {
        let mut warnings = Vec::new();
        if self.steps.iter().any(|step| !step.attachments.is_empty()) {
            warnings.push(NOT_READ.to_owned());
        }
        warnings.extend(plan::check(&self.steps, &input, context)?);
        // The request was charged since it came; what is sent is charged anew.
        context.release(input.len());
        let mut output = Output::default();
        // Of earlier steps only what a failure may still show is kept.
        let mut earlier = Vec::new();
        for (i, step) in self.steps.iter().enumerate() {
            if i > 0 {
                earlier.push(output.start(MAX_PARTIAL_TEXT, context));
                input = std::mem::take(&mut output.text);
            }
            output = self
                .step(i, step, std::mem::take(&mut input), context, &mut warnings)
                .map_err(|mut failure| {
                    earlier.append(&mut failure.partial);
                    Failure {
                        partial: std::mem::take(&mut earlier),
                        ..failure
                    }
                })?;
        }
        Ok(output.into_outcome(self.max_chars, warnings, context))
    }

    /// Why it failed, as the log may have it: without what it repeats of the caller's and the model's texts.
    fn logged(&self, failure: &Failure) -> String {
        let Some(echo) = &self.echo else {
            // The input was not kept, so no text of a vendor may be logged.
            return match failure.error.kind {
                Kind::ApiError => "[...]".to_owned(),
                _ => failure.error.detail.clone(),
            };
        };
        let mut private = vec![echo.as_str()];
        for step in &self.steps {
            private.extend(step.variables.values().map(String::as_str));
            private.extend(step.attachments.iter().map(String::as_str));
        }
        private.extend(failure.partial.iter().map(String::as_str));
        without_echo(&failure.error.detail, &private)
    }

    /// One `POST /chat`. Only the last step's text is streamed: that of the others is not the result.
    fn step(
        &self,
        i: usize,
        step: &Chat,
        input: String,
        context: &Arc<Context>,
        warnings: &mut Vec<String>,
    ) -> Result<Output, Failure> {
        let (fabric, wait) = (&context.backend.fabric, &context.wait());
        let (count, pattern) = (self.steps.len(), step.pattern.as_str());
        let is_result = i + 1 == count;
        if i > 0 {
            context.may_begin((count - i) as u32)?;
        }
        context.stream_text(self.stream && is_result);
        if count > 1 {
            context.say(&format!("Step {} of {count}: {pattern}\n", i + 1));
        }
        let chat = Chat {
            input,
            ..step.clone()
        };
        let mut output = Output::new(is_result);
        let ended = fabric.check(chat, wait).and_then(|checked| {
            warnings.extend(checked.unused().iter().map(|name| {
                let name = shown(name, 64);
                format!("The pattern {pattern} has no variable \"{name}\": its value was not used.")
            }));
            context.count()?;
            fabric.run(checked, wait, &mut |event| output.take(event, context))
        });
        context.flush();
        output.count(step.model_label(), ended.is_ok(), context);
        let Err(error) = ended else { return Ok(output) };
        let mut error = plan::explain(step, error, context);
        if count > 1 {
            let i = i + 1;
            error.detail = format!("Step {i} of {count} ({pattern}) failed. {}", error.detail);
        }
        let partial = output.start(MAX_PARTIAL_TEXT, context);
        Err(Failure {
            partial: Some(partial)
                .filter(|text| !text.is_empty())
                .into_iter()
                .collect(),
            ..error.into()
        })
    }
}
