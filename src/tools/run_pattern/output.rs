//! The output of a step: text, usage, format.

use crate::config::MAX_PARTIAL_TEXT;
use crate::fabric::{Event, Usage};
use crate::metrics;
use crate::runs::{End, RunState};
use crate::text::prefix;
use crate::tools::Outcome;
use crate::tools::context::{ChunkKind, Context};
use crate::tools::run_result::{DEFAULT_FORMAT, Rest};

/// Length of the prefix that decides the format, in bytes.
const FORMAT_TEXT: usize = 4 << 10;

/// How Mermaid diagrams begin, as Fabric itself recognises them.
const MERMAID: [&str; 6] = [
    "graph TD",
    "gantt",
    "flowchart",
    "sequenceDiagram",
    "classDiagram",
    "stateDiagram",
];

/// What one step has sent so far.
#[derive(Default)]
pub(super) struct Output {
    /// Whether the text is the result: then the store has it.
    is_result: bool,
    text: String,
    bytes: usize,
    /// The format of the first piece.
    format: Option<String>,
    usage: Option<Usage>,
}

impl Output {
    pub(super) fn new(is_result: bool) -> Output {
        Output {
            is_result,
            ..Output::default()
        }
    }

    /// Processes and relays an event. The client decides what is a failure.
    pub(super) fn take(&mut self, event: Event, context: &Context) {
        match event {
            Event::Content { format, content } => {
                self.bytes += content.len();
                let format = format.unwrap_or_else(|| DEFAULT_FORMAT.to_string());
                context.chunk(ChunkKind::Content, &format, &content);
                if !self.is_result {
                    self.text.push_str(&content);
                }
                self.format.get_or_insert(format);
            }
            Event::Usage(usage) => self.usage = Some(usage),
            Event::Error { content } => context.chunk(ChunkKind::Error, "plain", &content),
            Event::Complete => context.chunk(ChunkKind::Complete, "plain", ""),
            Event::Other => {}
        }
    }

    /// Counts the text and tokens of a step that has ended.
    pub(super) fn count(&self, model: &str, context: &Context) {
        metrics::RELAYED_BYTES.add([], self.bytes as u64);
        if let Some(usage) = &self.usage {
            let model = if model.is_empty() { "default" } else { model };
            let (input, output) = (usage.input_tokens, usage.output_tokens);
            let caller = context.caller.pass.identity.name();
            metrics::used(model, &caller, input, output);
        }
    }

    /// The text alone, for the step that follows, and what it used.
    pub(super) fn into_text(self) -> (String, Option<Usage>) {
        (self.text, self.usage)
    }

    /// The end of the run. `used` is what earlier steps used.
    pub(super) fn into_outcome(
        self,
        max_chars: Option<usize>,
        used: Option<Usage>,
        warnings: Vec<String>,
        context: &Context,
    ) -> Outcome {
        let start = context
            .run()
            .map(|writer| writer.run().read(0, FORMAT_TEXT))
            .unwrap_or_default();
        let format = output_format(&start, self.format);
        let rest = Rest {
            format: Some(format),
            max_chars,
            warnings,
            ..Rest::default()
        };
        let end = End {
            usage: add(used, self.usage).and_then(|usage| serde_json::to_value(usage).ok()),
            result: serde_json::to_value(rest).ok(),
            ..End::of(RunState::Completed)
        };
        Outcome::end(end, self.bytes)
    }

    /// What had arrived when it failed; `None` if nothing had.
    pub(super) fn into_partial(self, context: &Context) -> Option<String> {
        let text = match context.run() {
            Some(writer) if self.is_result => writer.run().read(0, MAX_PARTIAL_TEXT),
            _ => prefix(&self.text, MAX_PARTIAL_TEXT).to_owned(),
        };
        (!text.is_empty()).then_some(text)
    }
}

/// Fabric guesses the format from each piece alone; the beginning of the whole text is reliable.
fn output_format(start: &str, first: Option<String>) -> String {
    let start = start.trim_start();
    if MERMAID.iter().any(|word| start.starts_with(word)) {
        return "mermaid".to_string();
    }
    first.unwrap_or_else(|| DEFAULT_FORMAT.to_string())
}

/// What two steps used together.
pub(super) fn add(one: Option<Usage>, other: Option<Usage>) -> Option<Usage> {
    match (one, other) {
        (Some(a), Some(b)) => Some(Usage {
            input_tokens: a.input_tokens.saturating_add(b.input_tokens),
            output_tokens: a.output_tokens.saturating_add(b.output_tokens),
            total_tokens: a.total_tokens.saturating_add(b.total_tokens),
        }),
        (one, other) => one.or(other),
    }
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

    #[test]
    fn usage_of_all_steps_is_added() {
        let usage = |n| {
            Some(Usage {
                input_tokens: n,
                output_tokens: n,
                total_tokens: 2 * n,
            })
        };
        assert_eq!(add(usage(1), usage(2)), usage(3));
        assert_eq!(add(None, usage(2)), usage(2));
        assert_eq!(add(None, None), None);
    }
}
