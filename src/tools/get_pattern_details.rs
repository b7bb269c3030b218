//! `fabric_get_pattern_details`: one pattern, whole.

use serde::Serialize;
use serde_json::{Value, json};

use crate::fabric::{Error, Name};

use super::{Arguments, Failure, Job, Outcome, Policy, Tool, Work};

pub(super) const TOOL: Tool = Tool {
    name: "fabric_get_pattern_details",
    title: "Get pattern details",
    description: "Get one Fabric pattern: what it is for, its full system prompt, and the variables that \
                  fabric_run_pattern must be given for it.",
    input,
    output,
    read_only: true,
    prepare,
};

fn input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "pattern_name": { "type": "string", "description": "The exact name of the pattern, as fabric_list_patterns gives it." }
        },
        "required": ["pattern_name"],
        "additionalProperties": false
    })
}

fn output() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "description": "The pattern's name." },
            "description": { "type": "string", "description": "What it is for, in one sentence." },
            "system_prompt": { "type": "string", "description": "The prompt itself, in Markdown." },
            "user_prompt_template": { "type": "string", "description": "The template for the user's part; mostly empty." },
            "tags": { "type": "array", "items": { "type": "string" }, "description": "Tags; mostly none." },
            "variables": { "type": "array", "items": { "type": "string" }, "description": "Names to give in variables when the pattern is run." }
        },
        "required": ["name", "description", "system_prompt", "user_prompt_template", "tags", "variables"]
    })
}

struct GetPatternDetails {
    pattern: Name,
}

#[derive(Serialize)]
struct Details {
    name: String,
    description: String,
    system_prompt: String,
    user_prompt_template: String,
    tags: Vec<String>,
    variables: Vec<String>,
}

fn prepare(mut arguments: Arguments, _: &Policy) -> Result<Box<dyn Job>, Error> {
    let pattern = arguments.pattern()?;
    arguments.end(&["pattern_name"])?;
    Ok(Box::new(GetPatternDetails { pattern }))
}

impl Job for GetPatternDetails {
    fn run(&self, work: &Work) -> Result<Outcome, Failure> {
        let pattern = work.fabric.pattern(&self.pattern, &work.wait())?;
        let details = Details {
            name: self.pattern.as_str().to_string(),
            description: pattern.summary(),
            variables: pattern.variables(),
            system_prompt: pattern.system_prompt,
            user_prompt_template: pattern.user_prompt,
            tags: pattern.tags,
        };
        let bytes = details.system_prompt.len();
        Ok(Outcome::bytes(details, bytes))
    }

    fn fields(&self) -> Vec<(&'static str, &str)> {
        vec![("pattern", self.pattern.as_str())]
    }
}
