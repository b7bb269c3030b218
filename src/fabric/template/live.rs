//! Compares the model of the engine with the real one. Ignored by default:
//!
//! ```text
//! FABRIC_MCP_LIVE_URL=http://127.0.0.1:8080 FABRIC_MCP_LIVE_PATTERNS=~/.config/fabric/patterns \
//!     cargo test --locked -- --ignored live_templates
//! ```
//!
//! Writes the pattern `fabric_mcp_live_model` into that folder. Also compares runs if `FABRIC_MCP_LIVE_ECHO` is set to
//! the text that the default model puts before the prompt it echoes.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::engine::{Rendering, VERSIONS, Version, apply};
use super::tests::hostile;
use super::*;
use crate::config;
use crate::fabric::{Client, NoWait, Wait};

const NAME: &str = "fabric_mcp_live_model";

struct LiveFabric {
    client: Client,
    file: PathBuf,
    wait: Arc<dyn Wait>,
}

impl LiveFabric {
    fn open() -> LiveFabric {
        let variable =
            |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
        let time = Duration::from_secs(10);
        let settings = config::Fabric {
            url: variable("FABRIC_MCP_LIVE_URL"),
            api_key: None,
            ca_file: None,
            connect_timeout: time,
            idle_timeout: time,
            run_timeout: time,
            request_timeout: time,
            models_timeout: time,
        };
        let folder = PathBuf::from(variable("FABRIC_MCP_LIVE_PATTERNS")).join(NAME);
        std::fs::create_dir_all(&folder).unwrap();
        LiveFabric {
            client: Client::new(&settings).unwrap(),
            file: folder.join("system.md"),
            wait: Arc::new(NoWait),
        }
    }

    fn post(&self, path: &str, body: &Value) -> Option<String> {
        let response = self.client.post(
            path,
            body.to_string().into_bytes(),
            self.client.run_limits(),
            &self.wait,
            None,
        );
        let bytes = response
            .and_then(|response| response.into_bytes(config::MAX_FABRIC_BODY))
            .ok()?;
        Some(String::from_utf8(bytes).unwrap())
    }

    fn apply(
        &self,
        text: &str,
        variables: &BTreeMap<String, String>,
        input: &str,
    ) -> Option<String> {
        std::fs::write(&self.file, text).unwrap();
        let body = json!({"input": input, "variables": variables});
        let body: Value =
            serde_json::from_str(&self.post(&format!("/patterns/{NAME}/apply"), &body)?).unwrap();
        Some(body["Pattern"].as_str().unwrap().to_owned())
    }

    /// The output of a run of the pattern as last written.
    fn run(&self, variables: &BTreeMap<String, String>, input: &str) -> Option<String> {
        let prompt = json!({"userInput": input, "patternName": NAME, "variables": variables});
        let body = self.post("/chat", &json!({"prompts": [prompt]}))?;
        let events = body
            .split("data: ")
            .filter_map(|event| serde_json::from_str::<Value>(event.trim()).ok());
        let events: Vec<Value> = events.collect();
        let failed = events.iter().any(|event| event["type"] == "error");
        let text = events
            .iter()
            .filter(|event| event["type"] == "content")
            .filter_map(|event| event["content"].as_str());
        (!failed).then(|| text.collect())
    }
}

/// As on a host without extensions and without the variable in its environment.
fn calls(plugin: bool, [namespace, operation, value]: [&str; 3]) -> Option<String> {
    match (plugin, namespace, operation) {
        (true, "text", "upper") if !value.is_empty() => Some(value.to_uppercase()),
        (true, "text", "lower") if !value.is_empty() => Some(value.to_lowercase()),
        (true, "sys", "env") if !value.is_empty() => Some(String::new()),
        _ => None,
    }
}

#[test]
#[ignore = "needs a real Fabric"]
fn live_templates_are_what_the_model_says() {
    let live = LiveFabric::open();
    let version = if live.apply("{{{{input}}}}", &BTreeMap::new(), "b").is_some() {
        Version::V470
    } else {
        VERSIONS[0]
    };
    let echo = std::env::var("FABRIC_MCP_LIVE_ECHO").ok();
    let (mut compared, mut failed, mut runs) = (0, 0, 0);
    for seed in 0..2_000 {
        let (text, variables, input) = hostile(seed);
        let told = format!("seed {seed}, {version:?}: {text:?} with {variables:?} on {input:?}");
        let expected = match apply(version, &text, &variables, &input, &mut calls).outcome {
            Rendering::Done(text) => Some(text),
            Rendering::Failed => None,
            // The real engine does not return.
            Rendering::Endless | Rendering::TooLong => continue,
        };
        assert_eq!(live.apply(&text, &variables, &input), expected, "{told}");
        compared += 1;
        failed += usize::from(expected.is_none());
        if let Some(echo) = echo
            .as_ref()
            .filter(|_| seed % 5 == 0 && expected.as_ref().is_none_or(|t| !t.trim().is_empty()))
        {
            let given = live.run(&variables, &input);
            let given = given
                .as_deref()
                .and_then(|text| text.strip_prefix(echo))
                .map(str::trim);
            assert_eq!(given, expected.as_deref().map(str::trim), "{told}");
            runs += 1;
        }
    }
    println!(
        "{version:?}: {compared} patterns compared, {failed} of them refused by Fabric, {runs} run"
    );
    assert!(compared > 1_500);
}

/// Every pattern of that folder, with JSON and code as its variables and input.
#[test]
#[ignore = "needs the patterns of a real Fabric"]
fn live_templates_take_ordinary_values() {
    let folder = std::env::var("FABRIC_MCP_LIVE_PATTERNS").unwrap();
    let (mut checked, mut with_variables, mut refused) = (0, 0, BTreeSet::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let Ok(text) = std::fs::read_to_string(path.join("system.md")) else {
            continue;
        };
        if path.ends_with(NAME) {
            continue;
        }
        let pattern = Pattern {
            name: path.display().to_string(),
            system_prompt: text,
            ..Pattern::default()
        };
        let names = pattern.variables();
        for value in [
            "de",
            "",
            r#"{"a": {"b": [1, {"c": {}}]}}"#,
            "fn f() { g({}) }",
            "${x}",
            "}",
            "{x}",
        ] {
            let mut variables = BTreeMap::from([("unused".to_owned(), value.to_owned())]);
            variables.extend(names.iter().map(|name| (name.clone(), value.to_owned())));
            let input = "{{ jinja }} and { code }";
            let Err(error) = check(&pattern, &variables, input) else {
                continue;
            };
            // One has nested braces of its own, with which no Fabric terminates.
            for version in VERSIONS {
                let run = apply(
                    version,
                    &pattern.system_prompt,
                    &variables,
                    input,
                    &mut calls,
                );
                assert_eq!(run.outcome, Rendering::Failed, "{value}: {error}");
            }
            refused.insert(path);
            break;
        }
        checked += 1;
        with_variables += usize::from(!names.is_empty());
    }
    println!(
        "{checked} patterns take ordinary values, {with_variables} have variables, but for {refused:?}"
    );
    assert!(checked > 0);
}
