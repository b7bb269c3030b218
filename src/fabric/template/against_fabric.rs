//! Compares guard and model with Fabric's own template engine. Ignored by default:
//!
//! ```text
//! FABRIC_MCP_TEMPLATE_ENGINES=/path/one:/path/two \
//!     cargo test --locked -- --ignored --nocapture engines
//! ```
//!
//! Each program stands for one version of Fabric. It reads `{"pattern","variables","input"}` from each line of standard
//! input, and writes a line `{"text": …}` with the rendered pattern, or with `null` if Fabric refuses to render it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

use serde_json::{Value, json};

use super::engine::{EngineVersion, Rendering, VERSIONS, apply};
use super::tests::{Case, guard, hostile, only_the_pattern_runs};
use super::*;

const CASES: u64 = 500_000;

/// What the engines' host has in its environment: output of calls that opens and closes tokens.
const ENVIRONMENT: [(&str, &str); 3] = [
    ("OPENS", "host {{plugin:text:upper:"),
    ("CLOSES", "x}} {{{y}}}"),
    ("READS", "{ {{input}} }"),
];

fn calls(plugin: bool, [namespace, operation, value]: [&str; 3]) -> Option<String> {
    match (plugin, namespace, operation) {
        (true, "text", "upper") if !value.is_empty() => Some(value.to_uppercase()),
        (true, "text", "lower") if !value.is_empty() => Some(value.to_lowercase()),
        (true, "sys", "env") if !value.is_empty() => {
            let known = ENVIRONMENT.iter().find(|(name, _)| *name == value);
            Some(known.map_or(String::new(), |(_, text)| (*text).to_owned()))
        }
        _ => None,
    }
}

/// A program with Fabric's engine, and what it answered.
struct RealEngine {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl RealEngine {
    fn start(program: &str, cases: impl Iterator<Item = Case> + Send + 'static) -> RealEngine {
        let mut process = Command::new(program)
            .envs(ENVIRONMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut to = std::io::BufWriter::new(process.stdin.take().unwrap());
        thread::spawn(move || {
            for (pattern, variables, input) in cases {
                let case = json!({"pattern": pattern, "variables": variables, "input": input});
                writeln!(to, "{case}").unwrap();
            }
        });
        let answers = BufReader::new(process.stdout.take().unwrap());
        RealEngine { process, answers }
    }

    fn answer(&mut self) -> Option<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        answer["text"].as_str().map(str::to_owned)
    }
}

impl Drop for RealEngine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The model's result, unless the real engine does not return either.
fn modelled(version: EngineVersion, (text, variables, input): &Case) -> Option<Option<String>> {
    match apply(version, text, variables, input, &mut calls).outcome {
        Rendering::Done(text) => Some(Some(text)),
        Rendering::Failed => Some(None),
        Rendering::Endless | Rendering::TooLong => None,
    }
}

/// The pattern with each of its own tokens replaced once, and the input in its places.
fn replaced_once((text, variables, input): &Case) -> Option<String> {
    let mut own = text.replace("{{input}}", SENTINEL);
    if !text.contains("{{input}}") {
        own += if text.ends_with('\n') { "" } else { "\n" };
        own += SENTINEL;
    }
    let (mut done, mut at) = (String::new(), 0);
    for (begin, body) in tokens(&own) {
        done += &own[at..begin];
        at = begin + body.len() + 4;
        done += &match body.splitn(4, ':').collect::<Vec<_>>()[..] {
            ["plugin", namespace, operation, value] => calls(true, [namespace, operation, value])?,
            _ => variables.get(body)?.clone(),
        };
    }
    Some((done + &own[at..]).replace(SENTINEL, input))
}

#[test]
#[ignore = "needs Fabric's own template engines"]
fn engines_render_only_the_pattern() {
    let engines =
        std::env::var("FABRIC_MCP_TEMPLATE_ENGINES").expect("FABRIC_MCP_TEMPLATE_ENGINES");
    only_the_pattern_runs(CASES);
    for program in engines.split(':') {
        let probe: Case = ("{{{{input}}}}".into(), BTreeMap::new(), "b".into());
        let is_new = RealEngine::start(program, [probe].into_iter()).answer();
        let is_new = is_new.is_some();
        let version = VERSIONS[usize::from(is_new)];
        let cases = move || {
            (0..CASES)
                .map(hostile)
                .filter(move |case| modelled(version, case).is_some())
        };
        let mut engine = RealEngine::start(program, cases());
        let (mut compared, mut admitted, mut rendered) = (0, 0, 0);
        for case in cases() {
            let real = engine.answer();
            let expected = modelled(version, &case);
            assert_eq!(Some(&real), expected.as_ref(), "{version:?}: {case:?}");
            compared += 1;
            let (text, variables, input) = &case;
            if guard(text, variables, input).is_err()
                || (variables.is_empty() && !is_suspicious(input))
            {
                continue;
            }
            admitted += 1;
            // What the host gives is rendered again.
            if !["OPENS", "CLOSES", "READS"]
                .iter()
                .any(|name| text.contains(name))
            {
                assert_eq!(real, replaced_once(&case), "{version:?}: {case:?}");
                rendered += usize::from(real.is_some());
            }
        }
        println!(
            "{version:?}: {compared} of {CASES} cases return, as the model says; {admitted} pass \
             the guard, {rendered} of them render to their own text, each token replaced once"
        );
        assert!(admitted > 10_000 && rendered > 5_000);
    }
}

/// Every pattern of that folder, with JSON and code as its variables and input.
#[test]
#[ignore = "needs the patterns of a real Fabric"]
fn live_templates_take_ordinary_values() {
    let folder = std::env::var("FABRIC_MCP_LIVE_PATTERNS").expect("FABRIC_MCP_LIVE_PATTERNS");
    let (mut checked, mut with_variables, mut refused) = (0, 0, BTreeSet::<PathBuf>::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let Ok(text) = std::fs::read_to_string(path.join("system.md")) else {
            continue;
        };
        let pattern = Pattern {
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
            if let Err(error) = check(&pattern, "variables", &variables, input) {
                println!("{}: {value:?}: {error}", path.display());
                refused.insert(path.clone());
            }
        }
        checked += 1;
        with_variables += usize::from(!names.is_empty());
    }
    println!("{checked} patterns, {with_variables} with variables; refused some: {refused:?}");
    assert!(checked > 0);
}
