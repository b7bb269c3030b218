//! Running the steps, one after the other.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fabric::{Chat, Error, Kind, Usage, Wait};
use crate::sync::lock;
use crate::text::shown;
use crate::tools::{Failure, Job, Outcome, Paid, Work};

use super::output::{Output, add, partial};
use super::plan;

/// A call with checked arguments: the first step, and those of `then`.
pub(super) struct RunPattern {
    /// The first one's input is in `input`.
    pub(super) steps: Vec<Chat>,
    /// Taken by the run, so that it is freed once sent.
    pub(super) input: Mutex<String>,
    /// A copy of a short input, to be removed from errors in the log.
    pub(super) echo: Option<String>,
    pub(super) stream: bool,
    pub(super) max_chars: Option<usize>,
    pub(super) wait: Option<Duration>,
}

impl Job for RunPattern {
    fn run(&self, work: &Work) -> Result<Outcome, Failure> {
        let wait = work.wait();
        let mut warnings = self.warnings();
        warnings.extend(plan::check(&self.steps, &self.input_of_plan(), work)?);
        let mut input = std::mem::take(&mut *lock(&self.input));
        // The request was charged since it came; what is sent is charged anew.
        wait.release(input.len());
        let mut earlier = Vec::new();
        let mut used: Option<Usage> = None;
        for (i, step) in self.steps.iter().enumerate() {
            let is_last = i + 1 == self.steps.len();
            let output = self
                .step(i, step, input, work, &wait, &mut warnings)
                .map_err(|failure| after(&mut earlier, failure))?;
            if is_last {
                return Ok(output.into_outcome(self.max_chars, used, warnings, work));
            }
            let (text, usage) = output.into_text();
            used = add(used, usage);
            // Of an earlier step only what a failure may still show is kept.
            earlier.push(partial(&text).to_owned());
            input = text;
        }
        Err(Error::new(Kind::Internal, "The run had no steps.").into())
    }

    fn runs(&self) -> u32 {
        self.steps.len() as u32
    }

    fn paid(&self) -> Option<Paid> {
        Some(Paid {
            patterns: self
                .steps
                .iter()
                .map(|step| step.pattern.as_str().to_owned())
                .collect(),
            model: self
                .steps
                .first()
                .map(|step| step.model.clone())
                .unwrap_or_default(),
            wait: self.wait,
            max_chars: self.max_chars,
        })
    }

    fn fields(&self) -> Vec<(&'static str, &str)> {
        let mut fields: Vec<_> = self
            .steps
            .iter()
            .map(|step| ("pattern", step.pattern.as_str()))
            .collect();
        if let Some(first) = self.steps.first().filter(|step| !step.model.is_empty()) {
            fields.push(("model", &first.model));
        }
        fields
    }

    fn private(&self) -> Option<Vec<&str>> {
        let mut private = Vec::new();
        private.push(self.echo.as_deref()?);
        for step in &self.steps {
            private.extend(step.variables.values().map(String::as_str));
            private.extend(step.attachments.iter().map(String::as_str));
        }
        Some(private)
    }
}

impl RunPattern {
    /// One `POST /chat`. Only the last step's text is streamed: that of the others is not the result.
    fn step(
        &self,
        i: usize,
        step: &Chat,
        input: String,
        work: &Work,
        wait: &Arc<dyn Wait>,
        warnings: &mut Vec<String>,
    ) -> Result<Output, Failure> {
        let count = self.steps.len();
        let is_result = i + 1 == count;
        work.caller.begin_step(self.stream && is_result, is_result);
        if count > 1 {
            work.caller.say(&format!(
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
        let ended = work.fabric.check(chat, wait).and_then(|checked| {
            warnings.extend(checked.unused().iter().map(|name| unused(step, name)));
            work.caller.paying();
            work.fabric.run(checked, wait, &mut |event| {
                output.take(event, work);
                Ok(())
            })
        });
        work.caller.flush();
        output.count(&step.model, work);
        let Err(error) = ended else { return Ok(output) };
        let mut error = plan::explain(step, error, work);
        if count > 1 {
            error.detail = format!(
                "Step {} of {count} ({}) failed. {}",
                i + 1,
                step.pattern.as_str(),
                error.detail
            );
        }
        Err(Failure {
            error,
            partial: output.into_partial(work).into_iter().collect(),
        })
    }

    /// The input, if the plan of a chain checks it.
    fn input_of_plan(&self) -> String {
        let has_variables = self
            .steps
            .first()
            .is_some_and(|step| !step.variables.is_empty());
        if self.steps.len() > 1 && has_variables {
            lock(&self.input).clone()
        } else {
            String::new()
        }
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
