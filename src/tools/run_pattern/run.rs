//! Running the steps, one after the other.

use std::sync::Arc;

use crate::config::MAX_PARTIAL_TEXT;
use crate::fabric::{Chat, Error, Kind, Usage, Wait};
use crate::text::{prefix, shown};
use crate::tools::echo::without_echo;
use crate::tools::{Context, Failure, Outcome};

use super::output::{Output, add};
use super::plan;

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
        let wait = context.wait();
        let mut warnings = self.warnings();
        warnings.extend(plan::check(&self.steps, &input, context)?);
        // The request was charged since it came; what is sent is charged anew.
        wait.release(input.len());
        let mut earlier = Vec::new();
        let mut used: Option<Usage> = None;
        for (i, step) in self.steps.iter().enumerate() {
            let is_last = i + 1 == self.steps.len();
            if i > 0 {
                let left = self.steps.len() - i;
                context
                    .may_begin(left as u32)
                    .map_err(|error| after(&mut earlier, error.into()))?;
            }
            let output = self
                .step(i, step, input, context, &wait, &mut warnings)
                .map_err(|failure| after(&mut earlier, failure))?;
            if is_last {
                return Ok(output.into_outcome(self.max_chars, used, warnings, context));
            }
            let (text, usage) = output.into_text();
            used = add(used, usage);
            // Of an earlier step only what a failure may still show is kept.
            earlier.push(prefix(&text, MAX_PARTIAL_TEXT).to_owned());
            input = text;
        }
        Err(Error::new(Kind::Internal, "The run had no steps.").into())
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
        wait: &Arc<dyn Wait>,
        warnings: &mut Vec<String>,
    ) -> Result<Output, Failure> {
        let count = self.steps.len();
        let is_result = i + 1 == count;
        context.begin_step(self.stream && is_result, is_result);
        if count > 1 {
            context.say(&format!(
                "Step {} of {count}: {}\n",
                i + 1,
                step.pattern.as_str()
            ));
        }
        let chat = Chat {
            input,
            ..step.clone()
        };
        let mut output = Output::new(is_result);
        let fabric = &context.backend.fabric;
        let ended = fabric.check(chat, wait).and_then(|checked| {
            warnings.extend(checked.unused().iter().map(|name| unused(step, name)));
            context.count()?;
            fabric.run(checked, wait, &mut |event| {
                output.take(event, context);
                Ok(())
            })
        });
        context.flush();
        output.count(&step.model, context);
        let Err(error) = ended else { return Ok(output) };
        let mut error = plan::explain(step, error, context);
        if count > 1 {
            error.detail = format!(
                "Step {} of {count} ({}) failed. {}",
                i + 1,
                step.pattern.as_str(),
                error.detail
            );
        }
        Err(Failure {
            partial: output.into_partial(context).into_iter().collect(),
            ..error.into()
        })
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.steps.iter().any(|step| !step.attachments.is_empty()) {
            warnings.push(
                "The attachments were not read: Fabric's REST API ignores them today. If the output speaks of their \
                 content, it is made up. Put the text itself into input_text."
                    .to_string(),
            );
        }
        warnings
    }
}

/// The warning for a variable that the pattern does not have.
fn unused(step: &Chat, name: &str) -> String {
    let pattern = step.pattern.as_str();
    format!(
        "The pattern {pattern} has no variable \"{}\": its value was not used.",
        shown(name, 64)
    )
}

/// Puts the output of earlier steps before that of the failed one.
fn after(earlier: &mut Vec<String>, mut failure: Failure) -> Failure {
    earlier.append(&mut failure.partial);
    failure.partial = std::mem::take(earlier);
    failure
}
