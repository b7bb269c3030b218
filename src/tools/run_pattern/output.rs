//! The output of a step: text, usage, format.

use crate::account::QuotaExceeded;
use crate::fabric::{CallObserver, Cause, Error, Event, Kind, Usage, no_room};
use crate::metrics;
use crate::runs::{RunReport, estimate};
use crate::text::prefix;
use crate::tools::run_result::DEFAULT_FORMAT;
use crate::tools::{Context, Outcome};

use super::thinking::ThinkingFilter;

/// Length of the prefix that decides the format, in bytes.
const FORMAT_TEXT: usize = 4 << 10;

/// How Mermaid diagrams begin, as Fabric itself recognises them.
const MERMAID: &str = "graph TD|gantt|flowchart|sequenceDiagram|classDiagram|stateDiagram";

/// What one step has sent so far.
#[derive(Default)]
pub(super) struct Output {
    /// Whether the text is the run's result: then the run keeps it, and not this.
    is_result: bool,
    /// Leaves out what the model thinks before it answers.
    thinking: Option<ThinkingFilter>,
    /// A block of thinking has no end, and is in the text.
    pub(super) is_unclosed: bool,
    /// All of the output was left out.
    pub(super) is_only_thinking: bool,
    /// The text of an earlier step.
    pub(super) text: String,
    bytes: usize,
    /// Characters of all that came, thinking included.
    received: u64,
    /// The format of the first piece.
    format: Option<String>,
    usage: Option<Usage>,
}

impl Output {
    pub(super) fn new(is_result: bool, strip_thinking: bool) -> Output {
        Output {
            is_result,
            thinking: strip_thinking.then(ThinkingFilter::default),
            ..Output::default()
        }
    }

    /// Keeps and relays an event. The client decides what is a failure.
    ///
    /// # Errors
    /// There is no room for the text.
    pub(super) fn take(&mut self, event: Event, context: &Context) -> Result<(), Error> {
        match event {
            Event::Content { format, content } => {
                let format = format.unwrap_or_else(|| DEFAULT_FORMAT.to_owned());
                self.received += content.chars().count() as u64;
                let text = match &mut self.thinking {
                    Some(thinking) => {
                        context.hold(content.len())?;
                        let (text, left_out) = thinking.take(&content);
                        context.release(text.len() + left_out);
                        text
                    }
                    None => content.into(),
                };
                self.relay(&format, &text, context)?;
                self.format.get_or_insert(format);
            }
            Event::Usage(usage) => {
                self.usage = Some(usage.most(self.usage.unwrap_or_default()));
            }
            Event::Error { content } => context.event("error", &content),
            Event::Complete => {
                self.finish(context);
                context.event("complete", "");
            }
            Event::Other => {}
        }
        Ok(())
    }

    /// Relays text that was held back in case it was thinking, because nothing more comes.
    pub(super) fn finish(&mut self, context: &Context) {
        let Some(thinking) = self.thinking.take() else {
            return;
        };
        let (rest, is_unclosed) = thinking.finish();
        context.release(rest.len());
        self.is_unclosed = is_unclosed;
        self.is_only_thinking = self.bytes == 0 && rest.is_empty();
        // Nothing more comes, so a lack of room is no reason to end the run.
        let _ = self.relay(DEFAULT_FORMAT, &rest, context);
    }

    /// Keeps a part of the output, which may be empty, and tells the caller.
    ///
    /// # Errors
    /// The run has no room for more.
    pub(super) fn relay(
        &mut self,
        format: &str,
        mut text: &str,
        context: &Context,
    ) -> Result<(), Error> {
        self.bytes += text.len();
        context.content(format, text);
        if !self.is_result {
            self.text.push_str(text);
            context.hold(text.len())?;
            // The run is told only that text has arrived, not the text itself.
            text = "";
        }
        let appended = context.run().map_or(Ok(()), |run| run.append(text));
        appended.map_err(|QuotaExceeded| no_room())
    }

    /// Counts the text and tokens of a step that has ended, also in the ledger if its model was asked.
    pub(super) fn count(&self, error: Option<&Error>, context: &Context) {
        metrics::RELAYED_BYTES.add([], self.bytes as u64);
        let (mut known, written) = ([0; 2], estimate(self.received));
        let counted = self.usage.and_then(|usage| {
            context.add_usage(usage);
            // What a model thinks is in the total alone of some vendors.
            let (input, total) = (usage.input_tokens, usage.total_tokens);
            let output = usage.output_tokens.max(total.saturating_sub(input));
            metrics::TOKENS.add(["input"], input);
            metrics::TOKENS.add(["output"], output);
            known = [input, output];
            // Text without any tokens was not counted, and some vendors count what they write only at the end.
            let is_whole = error.is_none() && output > 0 || output >= written;
            is_whole.then_some(known)
        });
        if counted.is_none() && (error.is_none() || self.bytes > 0) {
            metrics::WITHOUT_USAGE.add([], 1);
        }
        // If Fabric did not accept the run, no model has read anything. If it ended without an answer, its model may have:
        // headers come only with the first event.
        let is_refused = |error: &Error| {
            use Kind::{ApiUnavailable, InvalidRequest, PatternNotFound};
            let kinds = [ApiUnavailable, InvalidRequest, PatternNotFound];
            let ends = [Cause::Closed, Cause::ClosedTls, Cause::FabricEnded].map(Some);
            self.received == 0
                && !ends.contains(&error.cause)
                && (kinds.contains(&error.kind) || error.status.is_some_and(|status| status >= 400))
        };
        let refusal = error.filter(|error| is_refused(error));
        let counted = counted.or(refusal.map(|_| [0, 0]));
        // An error of a proxy (5xx) may come after Fabric has asked a model.
        let may_have_asked = |error: &Error| error.status.is_some_and(|status| status >= 500);
        let has_asked = refusal.is_none_or(may_have_asked);
        let outcome = error.map_or(metrics::OK, |error| error.kind.name());
        if let Some(run) = context.run() {
            let [input, output] = known;
            let spent = counted.ok_or([input, output.max(written)]);
            run.answered(outcome, has_asked.then_some(spent));
        }
    }

    /// The end of the run.
    pub(super) fn into_outcome(
        self,
        max_chars: Option<usize>,
        warnings: Vec<String>,
        context: &Context,
    ) -> Outcome {
        let start = self.start(FORMAT_TEXT, context);
        Outcome {
            report: RunReport {
                format: Some(output_format(&start, self.format)),
                max_chars,
                warnings,
                ..RunReport::default()
            },
            size: ("bytes", self.bytes),
            ..Outcome::default()
        }
    }

    /// The beginning of the text, at most `most` bytes.
    pub(super) fn start(&self, most: usize, context: &Context) -> String {
        match context.run().filter(|_| self.is_result) {
            Some(writer) => writer.run().read(0, most),
            None => prefix(&self.text, most).to_owned(),
        }
    }
}

/// Fabric guesses the format from each piece alone; the beginning of the whole text is reliable.
fn output_format(start: &str, first: Option<String>) -> String {
    let start = start.trim_start();
    let is_mermaid = MERMAID.split('|').any(|word| start.starts_with(word));
    let format = is_mermaid.then(|| "mermaid".to_owned()).or(first);
    format.unwrap_or_else(|| DEFAULT_FORMAT.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_text_decides_the_format() {
        let format = |text: &str, first: Option<&str>| output_format(text, first.map(String::from));
        assert_eq!(format("\n graph TD\n A-->B", Some("markdown")), "mermaid");
        assert_eq!(format("text about a graph TD", Some("plain")), "plain");
        assert_eq!(format("text", None), "markdown");
    }
}
