//! `fabric_get_configuration`: what Fabric is configured for, with every secret hidden.
//!
//! Redaction is deny-by-default: Fabric's key names follow no rule, so a value is shown only if it is harmless by its
//! form.

use std::sync::Arc;

use serde_json::Value;

use crate::url::{self, base_url};

use super::{Context, Outcome, Tool, ToolResult};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_get_configuration",
    title: "Get Fabric's configuration",
    description: "Get Fabric's configuration as its API shows it: only some vendors \
        (fabric_list_models has those that work), and no secrets.",
    output: r#"{"type":"object","properties":{},"additionalProperties":true}"#,
    read_only: true,
    declare: |_, _| Ok(Box::new(configuration)),
};

/// Replaces a value that may be secret.
const REDACTED: &str = "[REDACTED_BY_MCP_SERVER]";

/// What an empty value does not say.
const UNSAID: &str = "Fabric shows only some vendors here, and an empty value does not mean that one is \
    not set up. fabric_list_models has those that work.";

fn configuration(context: &Arc<Context>) -> ToolResult {
    let catalog = &context.backend.catalog;
    let configuration = catalog.configuration(redact, &context.observer())?;
    let mut outcome = Outcome::rows(configuration.len()).charged(context.account());
    for (key, value) in configuration.iter() {
        outcome = outcome.member(key, value);
    }
    let has_empty = configuration.values().any(|value| value == "");
    Ok(outcome.warn(has_empty.then(|| context.backend.policy.offered(UNSAID))))
}

/// Redacts everything but empty values, booleans and the origins of URLs.
fn redact(value: &mut Value) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(_) => *value = REDACTED.into(),
        Value::String(text) => {
            let trimmed = text.trim();
            *text = match trimmed.to_ascii_lowercase().as_str() {
                "" | "true" | "false" => trimmed.to_owned(),
                _ => origin(trimmed).unwrap_or_else(|| REDACTED.to_owned()),
            };
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::Object(map) => map.values_mut().for_each(redact),
    }
}

/// `scheme://host:port` of an http or https URL; user-info, path, query and fragment may all hold secrets. `None` if it
/// is anything else, or its host does not look like one.
fn origin(url: &str) -> Option<String> {
    let (scheme, authority, _) = url::split(url)?;
    // A backslash ends the authority for browsers; anything may follow it.
    let authority = authority.split('\\').next()?;
    let host = authority.rsplit('@').next()?;
    let is_label = |label: &str| label.len() <= 63 && !label.contains('_');
    let is_plain = host.len() <= 253 && host.split('.').all(is_label);
    // One `@` can end a user-info. Another one, or one further on, may end a user-info whose password has a `/`, `?` or
    // `#`: then the apparent host is part of it.
    let is_whole = url.matches('@').count() == authority.matches('@').count().min(1);
    let origin = base_url(&format!("{scheme}://{host}")).ok();
    origin.filter(|_| is_plain && is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_harmless_values_are_shown() {
        // Values as JSON; `-` stands for the text in place of a secret.
        let cases = r#"
"sk-live-123456" => -
"5" => -
12345678 => -
"" => ""
"   " => ""
null => null
true => true
"False" => "False"
"http://localhost:11434" => "http://localhost:11434"
"HTTPS://api.example.com/v1?key=SECRET#SECRET" => "https://api.example.com"
"https://user:SECRET@api.example.com:8443/SECRET" => "https://api.example.com:8443"
"https://SECRET@[::1]:80/x" => "https://[::1]:80"
"https://a@SECRET@b" => -
"https://SECRET:no-port" => -
"https://SECRET/SECRET@api.example.com" => -
"https://SECRET:12?SECRET@api.example.com" => -
"https://user:SECRET@api.example.com/SECRET@SECRET" => -
"https://SEC RET/" => -
"https://h\\SECRET" => "https://h"
"ftp://SECRET" => -
"https://" => -
"https://[SECRET]/" => -
"http://[::1]é/v1" => -
{"a":{"b":["SECRET",false]}} => {"a":{"b":["[REDACTED_BY_MCP_SERVER]",false]}}
"#;
        for case in cases.trim().lines() {
            let (value, shown) = case.split_once(" => ").unwrap();
            let value: Value = serde_json::from_str(value).unwrap();
            let shown = match shown {
                "-" => json!(REDACTED),
                shown => serde_json::from_str(shown).unwrap(),
            };
            let mut redacted = value.clone();
            redact(&mut redacted);
            assert_eq!(redacted, shown, "{value}");
        }
    }
}
