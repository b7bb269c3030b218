//! Default data of the fake Fabric: patterns, strategies, models, and a configuration full of secrets. Written for
//! these tests; nothing is copied from Fabric.

use serde_json::{Value, json};

/// Part of every secret value of [`config`]; must never appear.
pub(crate) const CONFIG_CANARY: &str = "canary-config";
/// Part of every pattern's text: allowed in details, never in logs.
pub(crate) const PATTERN_CANARY: &str = "canary-pattern-text";
/// A path of Fabric's host, as in its error bodies; must never appear.
pub(crate) const HOST_PATH: &str = "/home/fabric-host/.config/fabric/patterns";

/// Each pattern's name and system prompt.
const PATTERNS: [&str; 13] = [
    "write_essay => # IDENTITY and PURPOSE\n\nYou write a short essay. It has three \
     parts.\n\ncanary-pattern-text\n",
    "summarize => # IDENTITY and PURPOSE\n\nYou shorten a text to its main points. You keep \
     names.\n\n# STEPS\n\n- Read it twice.\n\ncanary-pattern-text\n\n# INPUT:\n\nINPUT:\n",
    "summarize_meeting => # PURPOSE\n\nYou turn a meeting into decisions.\n\ncanary-pattern-text\n",
    "translate => # IDENTITY and PURPOSE\n\nYou translate text into \
     {{lang_code}}.\n\ncanary-pattern-text\n\n{{input}}\n",
    "write_letter => # IDENTITY\n\nYou write a letter to {{ recipient }} from \
     {{sender}}.\n\ncanary-pattern-text\n",
    "plugins => # IDENTITY\n\nToday is {{plugin:datetime:now}} and \
     {{ext:tool:op}}.\n\ncanary-pattern-text\n{{input}}\n",
    "ai => You answer briefly.\n\ncanary-pattern-text\n",
    "extract_wisdom => # IDENTITY and PURPOSE\n\nYou collect ideas worth \
     keeping.\n\ncanary-pattern-text\n",
    "create_coding_feature => # IDENTITY and PURPOSE\n\nYou change files in a \
     project.\n\ncanary-pattern-text\n",
    "analyze_claims => # IDENTITY and PURPOSE\n\nYou weigh claims against \
     evidence.\n\ncanary-pattern-text\n",
    "create_diagram => # IDENTITY and PURPOSE\n\nYou draw a graph of what you \
     read.\n\ncanary-pattern-text\n",
    "empty => ",
    "überblick für alle => # IDENTITY and PURPOSE\n\nDu gibst einen \
     Überblick.\n\ncanary-pattern-text\n",
];

/// The names and system prompts of the patterns.
pub(crate) fn patterns() -> impl Iterator<Item = (&'static str, &'static str)> {
    PATTERNS.iter().filter_map(|line| line.split_once(" => "))
}

/// The names in the order that the tool must return.
pub(crate) fn sorted_names() -> Vec<&'static str> {
    let mut names: Vec<_> = patterns().map(|(name, _)| name).collect();
    names.sort_unstable();
    names
}

/// `GET /patterns/names`: unsorted, as Fabric may give them.
pub(crate) fn names() -> Value {
    patterns().map(|(name, _)| name).collect()
}

/// A pattern's system prompt.
pub(crate) fn text(name: &str) -> &'static str {
    patterns().find(|(known, _)| *known == name).unwrap().1
}

/// `GET /patterns/:name`; `None` for an unknown pattern.
pub(crate) fn pattern(name: &str) -> Option<Value> {
    let (name, text) = patterns().find(|(known, _)| *known == name)?;
    Some(json!({"Name": name, "Description": "", "Pattern": text}))
}

/// `GET /strategies`.
pub(crate) fn strategies() -> Value {
    json!([
        {"name": "cot", "description": "Think in steps", "prompt": "Think step by step before you answer."},
        {"name": "self-refine", "description": "Improve a draft", "prompt": "Answer, judge the answer, improve it."},
    ])
}

/// `GET /models/names`.
pub(crate) fn models() -> Value {
    json!({"models": ["gpt-x", "meta-llama/x", "llama3:8b"],
           "vendors": {"OpenAI": ["gpt-x"], "Ollama": ["meta-llama/x", "llama3:8b"]}})
}

/// `GET /config` with secrets in many forms; [`config_kept`] lists what is not secret.
pub(crate) fn config() -> Value {
    json!({
        "openai": "sk-canary-config-0001",
        "anthropic": "canary-config",
        "mistral": "****-canary-config",
        "some_new_vendor": "canary-config with spaces\nand a second line",
        "OPENAI_API_KEY": "canary-config",
        "password": "canary-config",
        "": "canary-config",
        "schlüssel": "canary-config",
        "ollama": "http://127.0.0.1:11434/canary-config?key=canary-config#canary-config",
        "lmstudio": "https://user:canary-config@models.example:8443/v1/canary-config",
        "azure": "https://canary-config@models.example",
        "not_a_url": "ftp://models.example/canary-config",
        "looks_like_url": "http://canary-config canary-config/",
        "jdbc": "http:canary-config",
        "javascript": "javascript:canary-config",
        "nested": {"deep": {"deeper": ["canary-config", {"key": "canary-config"}]}},
        "list": ["canary-config", "", true],
        "number": 40_711_040_711_u64,
        "debug": "true",
        "stream": false,
        "groq": "",
        "null": null
    })
}

/// Values that must stay unchanged, by key.
pub(crate) fn config_kept() -> Value {
    json!({"debug": "true", "stream": false, "groq": "",
           "ollama": "http://127.0.0.1:11434", "lmstudio": "https://models.example:8443"})
}
