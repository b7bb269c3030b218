//! What comes back of a run: the text as it is collected, its format, and the result.

use serde::Serialize;

use crate::config::MAX_PARTIAL_TEXT;
use crate::fabric::{Event, Usage};
use crate::tools::{ChunkKind, Json, Outcome, Work};
use crate::{jsonrpc, metrics};

const DEFAULT_FORMAT: &str = "markdown";

/// How Mermaid diagrams begin, as Fabric itself recognises them.
const MERMAID: [&str; 6] = ["graph TD", "gantt", "flowchart", "sequenceDiagram", "classDiagram", "stateDiagram"];

/// What one step has sent so far.
#[derive(Default)]
pub(super) struct Output {
    text: String,
    /// The format of the first piece.
    format: Option<String>,
    usage: Option<Usage>,
}

impl Output {
    /// Takes an event in and relays it. What failures mean is the client's business.
    pub(super) fn take(&mut self, event: Event, work: &Work) {
        match event {
            Event::Content { format, content } => {
                metrics::relayed(content.len());
                let format = format.unwrap_or_else(|| DEFAULT_FORMAT.to_string());
                work.caller.chunk(ChunkKind::Content, &format, &content);
                if self.text.is_empty() {
                    self.text = content;
                } else {
                    self.text.push_str(&content);
                }
                self.format.get_or_insert(format);
            }
            Event::Usage(usage) => self.usage = Some(usage),
            Event::Error { content } => work.caller.chunk(ChunkKind::Error, "plain", &content),
            Event::Complete => work.caller.chunk(ChunkKind::Complete, "plain", ""),
            Event::Other => {}
        }
    }

    /// Counts what the step used, as far as Fabric has said it.
    pub(super) fn count_usage(&self, model: &str, work: &Work) {
        if let Some(usage) = &self.usage {
            let model = if model.is_empty() { "default" } else { model };
            let (input, output) = (usage.input_tokens, usage.output_tokens);
            metrics::used(model, &work.identity.name().to_string(), input, output);
        }
    }

    /// The text alone, for the step that follows, and what it used.
    pub(super) fn into_text(self) -> (String, Option<Usage>) {
        (self.text, self.usage)
    }

    /// The result, cut to `max_chars` characters. `used` is what earlier steps used.
    pub(super) fn into_outcome(
        mut self,
        max_chars: Option<usize>,
        used: Option<Usage>,
        mut warnings: Vec<String>,
    ) -> Outcome {
        let bytes = self.text.len();
        let format = self.output_format();
        let cut = max_chars.and_then(|max| self.text.char_indices().nth(max)).map(|(end, _)| end);
        let omitted_chars = cut.map(|end| self.text.split_off(end).chars().count());
        if let Some(omitted) = omitted_chars {
            warnings.push(format!(
                "The output was cut to {} characters by max_chars: {omitted} more were left out. Do not run the pattern \
                 again only to see them.",
                max_chars.unwrap_or_default()
            ));
        }
        let usage = add(used, self.usage);
        let output = RunOutput { format, text: self.text, usage, omitted_chars, warnings: warnings.clone() };
        Outcome { structured: Box::new(output), warnings, rows: None, bytes: Some(bytes) }
    }

    /// Fabric guesses the format from each piece by itself; only the beginning of the whole tells the truth.
    fn output_format(&self) -> String {
        let start = self.text.trim_start();
        if MERMAID.iter().any(|word| start.starts_with(word)) {
            return "mermaid".to_string();
        }
        self.format.clone().unwrap_or_else(|| DEFAULT_FORMAT.to_string())
    }

    /// What had arrived when it failed; `None` if nothing had.
    pub(super) fn into_partial(self) -> Option<String> {
        (!self.text.is_empty()).then(|| partial(&self.text).to_owned())
    }
}

/// The first [`MAX_PARTIAL_TEXT`] bytes of a text.
pub(crate) fn partial(text: &str) -> &str {
    let mut end = text.len().min(MAX_PARTIAL_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
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

struct RunOutput {
    format: String,
    text: String,
    usage: Option<Usage>,
    omitted_chars: Option<usize>,
    warnings: Vec<String>,
}

impl Json for RunOutput {
    fn write(&self, out: &mut Vec<u8>) {
        #[derive(Serialize)]
        struct Fields<'a> {
            output_format: &'a str,
            output_text: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            usage: Option<&'a Usage>,
            #[serde(skip_serializing_if = "Option::is_none")]
            omitted_chars: Option<usize>,
            #[serde(skip_serializing_if = "<[String]>::is_empty")]
            warnings: &'a [String],
        }
        let fields = Fields {
            output_format: &self.format,
            output_text: &self.text,
            usage: self.usage.as_ref(),
            omitted_chars: self.omitted_chars,
            warnings: &self.warnings,
        };
        jsonrpc::write_json(out, &fields);
    }

    fn text(&self) -> Option<&str> {
        Some(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(outcome: &Outcome) -> String {
        let mut out = Vec::new();
        outcome.structured.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn output(text: &str, format: Option<&str>) -> Output {
        Output { text: text.into(), format: format.map(String::from), usage: None }
    }

    #[test]
    fn the_whole_text_decides_the_format() {
        let format = |text: &str, first| output(text, first).output_format();
        assert_eq!(format("\n graph TD\n A-->B", Some("markdown")), "mermaid");
        assert_eq!(format("text about a graph TD", Some("plain")), "plain");
        assert_eq!(format("text", None), "markdown");
    }

    #[test]
    fn partial_text_is_cut_between_characters() {
        let text = format!("{}é", "x".repeat(MAX_PARTIAL_TEXT - 1));
        assert_eq!(output(&text, None).into_partial().map(|p| p.len()), Some(MAX_PARTIAL_TEXT - 1));
        assert_eq!(output("", None).into_partial(), None);
    }

    #[test]
    fn a_cut_output_says_how_much_is_missing() {
        let outcome = output("añb", None).into_outcome(Some(2), None, Vec::new());
        assert!(
            json(&outcome)
                .starts_with(r#"{"output_format":"markdown","output_text":"añ","omitted_chars":1,"warnings":["#)
        );
        assert!(outcome.warnings[0].contains("1 more were left out"), "{}", outcome.warnings[0]);
        let whole = output("añb", None).into_outcome(Some(3), None, Vec::new());
        assert_eq!(json(&whole), r#"{"output_format":"markdown","output_text":"añb"}"#);
    }

    #[test]
    fn usage_of_all_steps_is_added() {
        let usage = |n| Some(Usage { input_tokens: n, output_tokens: n, total_tokens: 2 * n });
        assert_eq!(add(usage(1), usage(2)), usage(3));
        assert_eq!(add(None, usage(2)), usage(2));
        assert_eq!(add(None, None), None);
    }
}
