//! What clients depend on, compared with stored copies: each tool's schemas and results, and the handshake of each
//! revision.
//!
//! `tools/NAME.json` has a tool's schemas and calls with their results. A new tool needs a new file that contains only
//! its calls: `{"calls": [{"case": "good", "arguments": {}}, {"case": "unknown argument", "arguments": {"x": 1}}]}`;
//! the rest is filled in by `FABRIC_MCP_UPDATE_CONTRACTS=1 cargo test --locked contracts`. The first call is made by
//! other tests too, on the demo and where secrets are looked for. Texts for people
//! (descriptions, titles, instructions), times, ids, ports and the version are not pinned.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::support::fabric::FakeFabric;
use crate::support::process::Program;
use crate::support::stdio::{Stdio, ready};
use crate::support::{Caller, ERAS};

/// If set, the stored copies are overwritten.
const UPDATE: &str = "FABRIC_MCP_UPDATE_CONTRACTS";

/// The `schema_version` of the results in the stored copies.
const SCHEMA_VERSION: u64 = 1;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/contracts")
        .join(name)
}

/// Compares with the stored copy, or replaces it.
fn hold(path: &Path, found: &Value) {
    let shown = serde_json::to_string_pretty(found).unwrap() + "\n";
    if std::env::var_os(UPDATE).is_some() {
        return fs::write(path, shown).unwrap();
    }
    let stored = fs::read_to_string(path).unwrap_or_default();
    if shown == stored {
        return;
    }
    let differing = shown.lines().zip(stored.lines()).position(|(a, b)| a != b);
    let line = differing.unwrap_or_else(|| shown.lines().count().min(stored.lines().count()));
    let at = |text: &str| {
        text.lines()
            .nth(line)
            .unwrap_or("(the end)")
            .trim()
            .to_owned()
    };
    panic!(
        "{} differs from line {}:\n  stored: {}\n  found:  {}\nClients depend on it. A removed or \
         retyped key needs a new schema_version. If the change is meant: {UPDATE}=1 cargo test \
         --locked contracts, and review the diff.",
        path.display(),
        line + 1,
        at(&stored),
        at(&shown)
    );
}

/// A schema without texts for people.
fn structure(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            let is_text = |name: &str, value: &Value| {
                matches!(name, "description" | "title") && value.is_string()
            };
            let kept = members.iter().filter(|(name, value)| !is_text(name, value));
            Value::Object(
                kept.map(|(name, value)| (name.clone(), structure(value)))
                    .collect(),
            )
        }
        Value::Array(items) => items.iter().map(structure).collect(),
        other => other.clone(),
    }
}

/// A member of a result that its schema does not have. A schema without any properties lets all pass.
fn unknown_member<'a>(schema: &Value, found: &'a Value) -> Option<&'a String> {
    let known = schema["properties"].as_object();
    let known = known.filter(|known| !known.is_empty());
    let members = found.as_object().filter(|_| known.is_some());
    let mut members = members.into_iter().flatten();
    let mut items = found.as_array().into_iter().flatten();
    items
        .find_map(|item| unknown_member(&schema["items"], item))
        .or_else(|| {
            members.find_map(|(name, value)| match known?.get(name) {
                Some(inner) => unknown_member(inner, value),
                None => Some(name),
            })
        })
}

/// A result without values that differ between runs.
fn stable(result: &Value, fabric: &FakeFabric) -> Value {
    let meta = &result["_meta"];
    let run = &result["structuredContent"];
    let changing = [
        &meta["generated_at"],
        &meta["error"]["request_id"],
        &meta["run_id"],
        &run["run_id"],
        &run["created_at"],
    ];
    let mut text = result.to_string();
    for value in changing.into_iter().filter_map(Value::as_str) {
        text = text.replace(value, "#");
    }
    serde_json::from_str(&text.replace(&fabric.port().to_string(), "PORT")).unwrap()
}

#[test]
fn tools_keep_their_schemas_and_results() {
    let (fabric, mut client) = ready();
    let listed = client.result("tools/list", json!({}));
    let tools = listed["tools"].as_array().unwrap();
    let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
    let names: BTreeSet<String> = names.map(str::to_owned).collect();
    let files = fs::read_dir(folder("tools")).unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    let stored = files.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned());
    let stored: BTreeSet<String> = stored.collect();
    assert_eq!(
        names, stored,
        "each tool has one file in tests/it/contracts/tools"
    );
    let mut run_id = Value::Null;
    for tool in tools {
        let name = tool["name"].as_str().unwrap();
        let path = folder("tools").join(format!("{name}.json"));
        let contract: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let mut failed = BTreeSet::new();
        let mut calls = Vec::new();
        for call in contract["calls"].as_array().unwrap() {
            let mut arguments = call["arguments"].clone();
            if arguments["run_id"] == "#" {
                arguments["run_id"] = run_id.clone();
            }
            let result = client.call(name, arguments);
            let unknown = unknown_member(&tool["outputSchema"], &result["structuredContent"]);
            let schema = format!("src/tools/results/, {name}: not in the schema of its result");
            assert_eq!(unknown, None, "{schema}");
            if let Some(id) = result["structuredContent"].get("run_id") {
                run_id = id.clone();
            }
            let result = stable(&result, &fabric);
            assert_eq!(
                result["_meta"]["schema_version"], SCHEMA_VERSION,
                "{name}: {result}"
            );
            failed.insert(result["isError"] == true);
            calls.push(
                json!({"case": call["case"], "arguments": call["arguments"], "result": result}),
            );
        }
        assert_eq!(
            failed.len(),
            2,
            "{name}: one call at least that works, and one that fails"
        );
        let found = json!({
            "schema_version": SCHEMA_VERSION,
            "inputSchema": structure(&tool["inputSchema"]),
            "outputSchema": structure(&tool["outputSchema"]),
            "calls": calls,
        });
        hold(&path, &found);
    }
}

#[test]
fn handshakes_keep_what_they_offer() {
    let fabric = FakeFabric::start();
    for era in ERAS {
        let mut client = Stdio::start(Program::with(&fabric));
        let mut result = match era.is_legacy() {
            true => client.initialize(era),
            false => client.modern("server/discover", json!({}))["result"].clone(),
        };
        redact(&mut result);
        hold(
            &folder("handshake").join(format!("{}.json", era.name())),
            &result,
        );
    }
}

/// Replaces the program's version and its texts for people, at any depth.
fn redact(value: &mut Value) {
    let Value::Object(members) = value else {
        return;
    };
    for (name, value) in members.iter_mut() {
        match name.as_str() {
            "version" | "instructions" | "description" | "title" if value.is_string() => {
                *value = json!("#")
            }
            _ => redact(value),
        }
    }
}

#[test]
fn only_texts_for_people_are_left_out() {
    let schema =
        json!({"title": "T", "properties": {"title": {"type": "string", "description": "D"}}});
    let found = structure(&schema);
    assert_eq!(found, json!({"properties": {"title": {"type": "string"}}}));
    let mut info = json!({"serverInfo": {"name": "n", "version": "1"}, "capabilities": Map::new()});
    redact(&mut info);
    let expected = json!({"serverInfo": {"name": "n", "version": "#"}, "capabilities": {}});
    assert_eq!(info, expected);
}
