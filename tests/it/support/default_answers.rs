//! Default answers of the fake Fabric, in the format of a real one.

use serde_json::{Value, json};

use super::fabric::Request;
use super::fixtures;
use super::reply::Reply;

/// The answer to an unknown route.
pub(super) fn not_found() -> Reply {
    Reply::new(404, "text/plain", "404 page not found")
}

/// The answer of a well-behaved Fabric; `path` is without the prefix and still percent-encoded.
pub(super) fn reply(method: &str, path: &str, request: &Request) -> Reply {
    let path = decode(path);
    match (method, path.as_str()) {
        ("GET", "/patterns/names") => Reply::json(fixtures::names()),
        ("GET", "/models/names") => Reply::json(fixtures::models()),
        ("GET", "/strategies") => Reply::json(fixtures::strategies()),
        ("GET", "/config") => Reply::json(fixtures::config()),
        ("GET", "/contexts/names") => Reply::json(json!(["work"])),
        ("GET", "/sessions/names") => Reply::json(Value::Null),
        ("POST", "/chat") => chat(&request.json()),
        ("POST", "/youtube/transcript") => transcript(&request.json()),
        _ => match (method, path.strip_prefix("/patterns/")) {
            ("GET", Some(name)) => {
                fixtures::pattern(name).map_or_else(|| no_pattern(name), Reply::json)
            }
            ("POST", Some(name)) if name.ends_with("/apply") => {
                let name = name.trim_end_matches("/apply");
                fixtures::pattern(name).map_or_else(
                    || no_pattern(name),
                    |pattern| apply(pattern, &request.json()),
                )
            }
            _ => not_found(),
        },
    }
}

fn no_pattern(name: &str) -> Reply {
    let path = fixtures::HOST_PATH;
    let text = format!(
        "could not load {name}/system.md: open {path}/{name}/system.md: no such file or directory"
    );
    Reply::failure(500, json!(text))
}

fn apply(mut pattern: Value, ask: &Value) -> Reply {
    let mut text = pattern["Pattern"].as_str().unwrap_or("").to_owned();
    if let Some(variables) = ask["variables"].as_object() {
        for (name, value) in variables {
            text = text.replace(&format!("{{{{{name}}}}}"), value.as_str().unwrap_or(""));
        }
    }
    let input = ask["input"].as_str().unwrap_or("");
    text = if text.contains("{{input}}") {
        text.replace("{{input}}", input)
    } else {
        format!("{text}\n{input}")
    };
    if let Some((_, rest)) = text.split_once("{{")
        && let Some((name, _)) = rest.split_once("}}")
        && !name.contains(':')
    {
        let params = json!(format!("missing required variable: {}", name.trim()));
        return Reply::failure(500, params);
    }
    pattern["Pattern"] = json!(text);
    Reply::json(pattern)
}

/// A run that echoes its pattern and input word by word, with its usage.
fn chat(ask: &Value) -> Reply {
    let prompt = &ask["prompts"][0];
    let name = prompt["patternName"].as_str().unwrap_or("");
    if !name.is_empty() && fixtures::pattern(name).is_none() {
        let text = format!(
            "Error: could not load {name}: open {}/{name}/system.md",
            fixtures::HOST_PATH
        );
        return Reply::sse().error(&text).complete();
    }
    let text = format!(
        "Ran {name} on: {}",
        prompt["userInput"].as_str().unwrap_or("")
    );
    text.split_inclusive(' ')
        .fold(Reply::sse(), |reply, word| reply.content(word))
        .event(json!({"type": "usage", "usage": {"input_tokens": 6, "output_tokens": 8, "total_tokens": 14}}))
        .complete()
        .in_one()
}

/// Echoes the request.
fn transcript(ask: &Value) -> Reply {
    let (url, language) = (ask["url"].as_str(), ask["language"].as_str());
    let id = url.and_then(|url| Some(url.split_once("?v=")?.1));
    let (language, times) = (language.unwrap_or("en"), &ask["timestamps"]);
    let text = format!("Said in {language}, with times: {times}");
    Reply::json(
        json!({"transcript": text, "videoId": id, "title": "A title", "description": "What it is about"}),
    )
}

fn decode(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = bytes.get(at + 1..at + 3);
        let code = code.and_then(|hex| std::str::from_utf8(hex).ok());
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                decoded.push(byte);
                at += 3;
            }
            _ => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}
