//! The calls of the soak's clients, and the checks of each answer: its id, its era, and its content.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::client::Client;
use super::{Random, Soak};
use crate::{fabric, http};

/// The outcome of a call, or what was wrong with it.
pub(super) type Done = Result<String, String>;

/// The mix of calls of all clients but the slow one.
pub(super) fn mixed(soak: &Soak, client: &mut dyn Client, random: &mut Random) -> Done {
    match random.below(100) {
        0..40 => soak.list(client),
        40..50 => soak.patterns(client),
        50..65 => soak.details(client, random.below(250)),
        65..80 => soak.run(client, "say", true, false),
        80..84 => soak.run(client, "say", false, false),
        84..89 => soak.run(client, "say", false, true),
        89..91 => soak.run(client, "fail", true, false),
        91..93 => soak.run(client, "cut", true, false),
        93..97 => soak.abandon(client),
        _ => soak.malformed(client),
    }
}

impl Soak {
    /// A word that no other run has.
    fn word(&self) -> String {
        format!("w{}", self.word.fetch_add(1, Ordering::Relaxed))
    }

    fn message(&self, client: &dyn Client, method: &str, mut params: Value) -> Value {
        if client.is_modern() {
            let envelope: Value = serde_json::from_str(&format!("{{{}}}", http::ENVELOPE)).unwrap();
            let meta = params["_meta"].take();
            params["_meta"] = envelope;
            if let Some(token) = meta.get("progressToken") {
                params["_meta"]["progressToken"] = token.clone();
            }
        }
        json!({"jsonrpc": "2.0", "id": self.word(), "method": method, "params": params})
    }

    fn ask(
        &self,
        client: &mut dyn Client,
        method: &str,
        params: Value,
        each: &mut dyn FnMut(&Value),
    ) -> Result<Value, String> {
        let message = self.message(client, method, params);
        let mut answer = client.ask(&message, each);
        // Only results of 2026-07-28 have a `resultType`.
        let is_modern = answer["result"]["resultType"] == "complete";
        if answer["id"] != message["id"]
            || answer["result"].is_null()
            || is_modern != client.is_modern()
        {
            return Err(format!("{message} was answered {answer}"));
        }
        Ok(answer["result"].take())
    }

    /// The structured result of a tool, or `Ok(Err(kind))` for a failure that Fabric's restart excuses. `broken`:
    /// whether its run was meant to fail.
    fn call(
        &self,
        client: &mut dyn Client,
        tool: &str,
        arguments: Value,
        broken: bool,
        said: &mut String,
    ) -> Result<Result<Value, String>, String> {
        let begun = self.milliseconds();
        let token = json!(self.word());
        let params =
            json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": token}});
        let mut each = |note: &Value| {
            // Others are late notifications of an abandoned run.
            if note["params"]["progressToken"] == token {
                said.push_str(note["params"]["message"].as_str().unwrap_or_default());
            }
        };
        let mut result = self.ask(client, "tools/call", params, &mut each)?;
        if result["isError"] == false {
            return Ok(Ok(result["structuredContent"].take()));
        }
        let texts = result["content"].as_array().cloned().unwrap_or_default();
        let kind = texts
            .iter()
            .find_map(|text| text["text"].as_str()?.rsplit_once("urn:fabric-mcp:error:"));
        let kind = kind.map_or(String::new(), |(_, kind)| kind.to_owned());
        let is_excused = broken || begun < self.troubled_until.load(Ordering::Relaxed);
        match kind.starts_with("fabric-") && is_excused {
            true => Ok(Err(kind)),
            false => Err(format!("{tool} {arguments}: {result}")),
        }
    }

    /// A call whose result must have `expected` in `field`; then its outcome is `name`.
    fn expect(
        &self,
        client: &mut dyn Client,
        (tool, arguments): (&str, Value),
        field: &str,
        expected: Value,
        name: &str,
    ) -> Done {
        match self.call(client, tool, arguments, false, &mut String::new())? {
            Ok(result) if result[field] == expected => Ok(name.to_owned()),
            Ok(result) => Err(format!("{tool}: {result}")),
            Err(kind) => Ok(format!("failed: {kind}")),
        }
    }

    fn list(&self, client: &mut dyn Client) -> Done {
        let result = self.ask(client, "tools/list", json!({}), &mut |_| {})?;
        let first =
            self.tools[usize::from(client.is_modern())].get_or_init(|| result["tools"].clone());
        if *first == result["tools"] {
            Ok("lists".into())
        } else {
            Err(format!("another list: {result}"))
        }
    }

    fn patterns(&self, client: &mut dyn Client) -> Done {
        let names: Vec<String> = (0..250).map(fabric::pattern_name).collect();
        let call = ("fabric_list_patterns", json!({}));
        self.expect(client, call, "patterns", json!(names), "pattern lists")
    }

    fn details(&self, client: &mut dyn Client, number: u64) -> Done {
        let name = fabric::pattern_name(number as usize);
        let text = fabric::pattern_text(&format!("patterns/{name}"));
        let call = ("fabric_get_pattern_details", json!({"pattern_name": name}));
        self.expect(client, call, "system_prompt", json!(text), "details")
    }

    fn began(&self, client: &dyn Client) {
        if client.is_modern() {
            self.runs.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A run to its end, streamed or not; or one that is answered while it runs, and read later.
    fn run(&self, client: &mut dyn Client, kind: &str, stream: bool, outlives: bool) -> Done {
        let (count, word) = (20, self.word());
        let input = format!("{kind}_{count}_2000_{word}");
        let text = (0..count).map(|number| fabric::piece(&word, number));
        let text: String = text.collect();
        let mut arguments =
            json!({"pattern_name": fabric::pattern_name(1), "input_text": input, "stream": stream});
        if outlives {
            arguments["wait_seconds"] = json!(0);
        }
        self.began(client);
        let (mut said, begun, broken) = (String::new(), self.milliseconds(), kind != "say");
        let mut result =
            match self.call(client, "fabric_run_pattern", arguments, broken, &mut said)? {
                Ok(result) => result,
                Err(_) if !text.starts_with(&said) => {
                    return Err(format!("{input}: streamed {said:?}"));
                }
                Err(kind) => return Ok(format!("failed: {kind}")),
            };
        if stream && result["status"] == "completed" && said != text {
            return Err(format!("{input}: streamed {said:?}"));
        }
        let mut name = if stream { "runs, streamed" } else { "runs" };
        if result["status"] == "working" {
            name = "runs, read later";
            let arguments = json!({"run_id": result["run_id"]});
            let got = self.call(
                client,
                "fabric_get_run",
                arguments,
                false,
                &mut String::new(),
            );
            if got.is_err() {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
            result = got?.unwrap_or_default();
        }
        let output = result["output_text"].as_str().unwrap_or("none");
        let is_excused = broken || begun < self.troubled_until.load(Ordering::Relaxed);
        match result["status"].as_str() {
            Some("completed") if output == text && !broken => Ok(name.into()),
            Some("failed") if text.starts_with(output) && is_excused => {
                Ok("failed, read later".into())
            }
            _ => Err(format!("{input}: {result}")),
        }
    }

    /// 1 MB to a slow reader.
    pub(super) fn large(&self, client: &mut dyn Client) -> Done {
        self.began(client);
        let arguments =
            json!({"pattern_name": fabric::pattern_name(3), "input_text": "size_1048576"});
        let text = fabric::text(1024).repeat(1024);
        let call = ("fabric_run_pattern", arguments);
        self.expect(client, call, "output_text", json!(text), "slow reads")
    }

    fn abandon(&self, client: &mut dyn Client) -> Done {
        let input = format!("say_500_10000_{}", self.word());
        let arguments =
            json!({"pattern_name": fabric::pattern_name(2), "input_text": input, "stream": true});
        let params = json!({"name": "fabric_run_pattern", "arguments": arguments, "_meta": {"progressToken": "p"}});
        let message = self.message(client, "tools/call", params);
        self.began(client);
        client.abandon(&message);
        Ok("abandoned".into())
    }

    fn malformed(&self, client: &mut dyn Client) -> Done {
        let answer = client.malformed();
        if answer["error"]["code"] == -32700 {
            Ok("malformed".into())
        } else {
            Err(format!("malformed: {answer}"))
        }
    }
}
