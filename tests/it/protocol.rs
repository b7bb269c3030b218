//! The protocol in front of a Fabric: prompts, resources and completion in exact bytes for every revision, batches of
//! slow calls, changed lists, log levels, and the end of input.

use serde_json::{Value, json};

use crate::support::fabric::FakeFabric;
use crate::support::fixtures;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::Stdio;
use crate::support::{ERAS, Era};

/// A Fabric with few patterns, so that whole lists can be compared.
fn small() -> FakeFabric {
    let fabric = FakeFabric::start();
    fabric.names(json!(["translate", "ai"]));
    fabric
}

/// A pattern's text.
fn text_of(name: &str) -> String {
    fixtures::pattern(name).unwrap()["Pattern"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// An answer in this era; `result` omits what the modern era adds to every result.
#[track_caller]
fn expect(client: &mut Stdio, era: Era, method: &str, params: Value, cache: bool, expected: Value) {
    let id = client.begin(method, params);
    let answer = client.answer(&id);
    let mut expected = json!({"jsonrpc": "2.0", "id": id, "result": expected});
    if era == Era::Modern {
        let result = &mut expected["result"];
        result["resultType"] = json!("complete");
        if cache {
            // A cached value's time-to-live is what remains of it.
            let ttl = answer["result"]["ttlMs"].as_u64().unwrap_or_default();
            assert!((1..=300_000).contains(&ttl), "{method}: {ttl}");
            result["ttlMs"] = json!(ttl);
            result["cacheScope"] = json!("private");
        }
        let info = json!({"name": "fabric-mcp", "title": "Fabric", "version": env!("CARGO_PKG_VERSION"),
                          "description": env!("CARGO_PKG_DESCRIPTION")});
        result["_meta"] = json!({"io.modelcontextprotocol/serverInfo": info});
    }
    assert_eq!(answer, expected, "{era:?} {method}");
}

/// An error: its code, and a word of its message.
#[track_caller]
fn expect_error(
    client: &mut Stdio,
    era: Era,
    method: &str,
    params: Value,
    code: i64,
    word: &str,
) -> Value {
    let error = client.error(method, params);
    assert_eq!(error["code"], code, "{era:?} {method}: {error}");
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|text| text.contains(word)),
        "{era:?} {method} {word}: {error}"
    );
    error
}

#[test]
fn prompts_are_patterns_rendered_by_fabric() {
    for era in ERAS {
        let fabric = small();
        let mut client = Stdio::speaking(era, Program::with(&fabric));
        let title = |mut value: Value, title: &str| {
            if era.from("2025-06-18") {
                value["title"] = json!(title);
            }
            value
        };
        let argument = |name: &str, description: &str, required: bool| json!({"name": name, "description": description, "required": required});
        let input = argument("input_text", "The text that the pattern works on.", false);
        let strategy = argument(
            "strategy_name",
            "A prompting strategy to put before the pattern.",
            false,
        );
        let variable = argument(
            "lang_code",
            "Value of the pattern's variable lang_code.",
            true,
        );
        let ai = json!({"name": "ai", "description": "AI.", "arguments": [input, strategy]});
        let translate = json!({"name": "translate", "description": "Translate text into {{lang_code}}.",
                               "arguments": [input, variable, strategy]});
        let list = client.result("prompts/list", Value::Null);
        // Descriptions are tested elsewhere; here only that there is one.
        assert!(
            list["prompts"]
                .as_array()
                .unwrap()
                .iter()
                .all(|p| p["description"].is_string()),
            "{list}"
        );
        let described = |mut prompt: Value, at: usize| {
            prompt["description"] = list["prompts"][at]["description"].clone();
            prompt
        };
        let prompts = json!([
            title(described(ai, 0), "AI"),
            title(described(translate, 1), "Translate")
        ]);
        expect(
            &mut client,
            era,
            "prompts/list",
            Value::Null,
            true,
            json!({"prompts": prompts}),
        );
        let prompt = |at: usize, text: &str| {
            let message = json!({"role": "user", "content": {"type": "text", "text": text}});
            json!({"description": list["prompts"][at]["description"], "messages": [message]})
        };
        let rendered = "You translate text into de.\n\nHallo {{x}}\n".to_owned();
        let get = json!({"name": "translate", "arguments": {"lang_code": "de", "input_text": "Hallo {{x}}"}});
        // Fabric leaves braces in the input alone; the fake needs an explicit reply.
        fabric.once(
            "POST /patterns/translate/apply",
            Reply::json(
                json!({"Name": "translate", "Description": "", "Pattern": rendered.clone()}),
            ),
        );
        expect(
            &mut client,
            era,
            "prompts/get",
            get,
            false,
            prompt(1, &rendered),
        );
        let asked = fabric.requests_of("POST /patterns/translate/apply")[0].json();
        assert_eq!(
            asked,
            json!({"input": "Hallo {{x}}", "variables": {"lang_code": "de"}})
        );
        let get = json!({"name": "ai", "arguments": {"input_text": "x", "strategy_name": "cot"}});
        let rendered = format!(
            "Think step by step before you answer.\n{}\nx",
            text_of("ai")
        );
        expect(
            &mut client,
            era,
            "prompts/get",
            get,
            false,
            prompt(0, &rendered),
        );
        for (name, arguments, word) in [
            ("nope", json!({}), "nope"),
            ("translate", json!({}), "lang_code"),
            ("ai", json!({"lang": "de"}), "lang"),
            ("ai", json!({"strategy_name": "nope"}), "strategy_name"),
            (
                "translate",
                json!({"lang_code": "{{plugin:sys:env:HOME}}"}),
                "lang_code",
            ),
        ] {
            let params = json!({"name": name, "arguments": arguments});
            expect_error(&mut client, era, "prompts/get", params, -32602, word);
        }
        fabric.expect_chats(0);
    }
}

#[test]
fn resources_are_patterns_and_strategies_as_markdown() {
    for era in ERAS {
        let fabric = small();
        fabric.names(json!(["überblick für alle"]));
        fabric.on(
            "GET /strategies",
            Reply::json(
                json!([{"name": "cot", "description": "Think", "prompt": "Step by step."}]),
            ),
        );
        let mut client = Stdio::speaking(era, Program::with(&fabric));
        let uri = "fabric://pattern/%C3%BCberblick%20f%C3%BCr%20alle";
        let mut pattern =
            json!({"uri": uri, "name": "überblick für alle", "mimeType": "text/markdown"});
        let mut strategy = json!({"uri": "fabric://strategy/cot", "name": "cot", "description": "Think", "mimeType": "text/markdown"});
        if era.from("2025-06-18") {
            pattern["title"] = json!("Überblick für alle");
            strategy["title"] = json!("Cot");
        }
        let list = client.result("resources/list", Value::Null);
        pattern["description"] = list["resources"][0]["description"].clone();
        expect(
            &mut client,
            era,
            "resources/list",
            Value::Null,
            true,
            json!({"resources": [pattern, strategy]}),
        );
        let contents = |uri: &str, text: &str| json!({"contents": [{"uri": uri, "mimeType": "text/markdown", "text": text}]});
        let text = text_of("überblick für alle");
        expect(
            &mut client,
            era,
            "resources/read",
            json!({"uri": uri}),
            true,
            contents(uri, &text),
        );
        let uri = "fabric://strategy/cot";
        expect(
            &mut client,
            era,
            "resources/read",
            json!({"uri": uri}),
            true,
            contents(uri, "Step by step."),
        );
        let code = if era == Era::Modern { -32602 } else { -32002 };
        for uri in [
            "fabric://pattern/nope",
            "fabric://strategy/nope",
            "file:///etc/passwd",
            "fabric://pattern/..%2Fx",
        ] {
            let error = expect_error(
                &mut client,
                era,
                "resources/read",
                json!({"uri": uri}),
                code,
                uri,
            );
            assert_eq!(error["data"]["uri"], uri, "{error}");
        }
    }
}

#[test]
fn completion_offers_names_best_first() {
    for era in ERAS {
        let fabric = FakeFabric::start();
        let mut client = Stdio::speaking(era, Program::with(&fabric));
        let ask = |reference: Value, name: &str, value: &str| json!({"ref": reference, "argument": {"name": name, "value": value}, "context": {"arguments": {"a": "b"}}});
        let patterns = || json!({"type": "ref/resource", "uri": "fabric://pattern/{name}"});
        let found = |values: Value| {
            let total = values.as_array().map_or(0, Vec::len);
            json!({"completion": {"values": values, "total": total, "hasMore": false}})
        };
        for (reference, argument, value, values) in [
            (
                patterns(),
                "name",
                "SUM",
                json!(["summarize", "summarize_meeting"]),
            ),
            (patterns(), "name", "me", json!(["summarize_meeting"])),
            (patterns(), "name", "zz", json!([])),
            (
                json!({"type": "ref/resource", "uri": "fabric://strategy/{name}"}),
                "name",
                "re",
                json!(["self-refine"]),
            ),
            (
                json!({"type": "ref/prompt", "name": "ai"}),
                "strategy_name",
                "",
                json!(["cot", "self-refine"]),
            ),
            (
                json!({"type": "ref/prompt", "name": "ai"}),
                "input_text",
                "x",
                json!([]),
            ),
        ] {
            expect(
                &mut client,
                era,
                "completion/complete",
                ask(reference, argument, value),
                false,
                found(values),
            );
        }
        let unknown = ask(
            json!({"type": "ref/prompt", "name": "nope"}),
            "strategy_name",
            "",
        );
        expect_error(
            &mut client,
            era,
            "completion/complete",
            unknown,
            -32602,
            "nope",
        );
        // Each keystroke must not cause a request to Fabric.
        assert_eq!(fabric.requests_of("GET /strategies").len(), 1, "{era:?}");
        let names: Vec<_> = (0..250).map(|n| format!("p{n:03}")).collect();
        fabric.names(json!(names));
        let mut other = Stdio::speaking(era, Program::with(&fabric));
        let many = json!({"completion": {"values": names[..100], "total": 250, "hasMore": true}});
        expect(
            &mut other,
            era,
            "completion/complete",
            ask(patterns(), "name", "p"),
            false,
            many,
        );
    }
}

fn run(id: &str, token: Option<&str>) -> Value {
    let arguments = json!({"pattern_name": "ai", "input_text": "x", "stream": true});
    let mut params = json!({"name": "fabric_run_pattern", "arguments": arguments});
    if let Some(token) = token {
        params["_meta"] = json!({"progressToken": token});
    }
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

#[test]
fn a_batch_waits_for_its_calls_and_leaves_the_cancelled_out() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::speaking(Era::Legacy("2025-03-26"), Program::with(&fabric));
    // Only progress notifications in between.
    client.result("logging/setLevel", json!({"level": "warning"}));
    fabric.on_run(Reply::sse().content("part").gate().complete());
    let ping = json!({"jsonrpc": "2.0", "id": "ping", "method": "ping"});
    let pong = json!({"jsonrpc": "2.0", "id": "ping", "result": {}});
    client.send(&json!([
        run("one", Some("t1")),
        ping,
        run("two", Some("t2"))
    ]));
    fabric.wait_held(2);
    // The calls' notifications are sent individually, before the array.
    let mut tokens = [client.recv(), client.recv()].map(|note| {
        assert_eq!(note["method"], "notifications/progress");
        assert_eq!(note["params"]["message"], "part");
        note["params"]["progressToken"].as_str().unwrap().to_owned()
    });
    tokens.sort();
    assert_eq!(tokens, ["t1", "t2"]);
    client.cancel(&json!("one"));
    fabric.wait_closed(crate::support::DEADLINE);
    fabric.release();
    let answer = client.recv();
    let ids: Vec<_> = answer
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["id"].clone())
        .collect();
    assert_eq!(ids, ["ping", "two"], "{answer}");
    assert_eq!(answer[1]["result"]["content"][0]["text"], "part");
    client.send(&json!([ping]));
    assert_eq!(client.recv(), json!([pong]), "no call to wait for");
    // An empty array is not sent.
    client.send(
        &json!([run("three", None), {"jsonrpc": "2.0", "method": "notifications/initialized"}]),
    );
    fabric.wait_held(1);
    client.cancel(&json!("three"));
    fabric.wait_closed(crate::support::DEADLINE);
    client.expect_nothing_else();
}

/// A server that polls the catalogue often, so that changes are found quickly.
fn watched(fabric: &FakeFabric, era: Era) -> Stdio {
    Stdio::speaking(
        era,
        Program::with(fabric).env("FABRIC_MCP_CATALOG_TTL", "0.05"),
    )
}

#[test]
fn a_legacy_client_that_has_listed_is_notified_of_changed_lists() {
    for era in ERAS.into_iter().filter(|era| *era != Era::Modern) {
        for method in ["prompts/list", "resources/list"] {
            let fabric = small();
            let mut client = watched(&fabric, era);
            client.result(method, Value::Null);
            fabric.names(json!(["ai"]));
            for kind in ["prompts", "resources"] {
                let method = format!("notifications/{kind}/list_changed");
                assert_eq!(
                    client.next_note(),
                    json!({"jsonrpc": "2.0", "method": method, "params": {}}),
                    "{era:?}"
                );
            }
            // A notified client gets the new list.
            let list = client.result("prompts/list", Value::Null);
            assert_eq!(list["prompts"].as_array().map(Vec::len), Some(1), "{list}");
        }
    }
}

#[test]
fn modern_subscriptions_are_acknowledged_tagged_filtered_and_ended() {
    let fabric = small();
    let mut client = watched(&fabric, Era::Modern);
    client.result("prompts/list", Value::Null);
    let key = "io.modelcontextprotocol/subscriptionId";
    let listen = |client: &mut Stdio, id: &Value, filter: Value| {
        client.begin_as(id, "subscriptions/listen", json!({"notifications": filter}));
        client.recv()
    };
    let acknowledged = |id: &Value, filter: Value| {
        json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
               "params": {"_meta": {key: id}, "notifications": filter}})
    };
    let (prompts, resources, gone) = (json!("p"), json!(0), json!("gone"));
    let wanted = json!({"promptsListChanged": true, "toolsListChanged": true, "resourceSubscriptions": ["fabric://pattern/ai"]});
    assert_eq!(
        listen(&mut client, &prompts, wanted),
        acknowledged(&prompts, json!({"promptsListChanged": true}))
    );
    let wanted = json!({"resourcesListChanged": true, "promptsListChanged": false});
    assert_eq!(
        listen(&mut client, &resources, wanted),
        acknowledged(&resources, json!({"resourcesListChanged": true}))
    );
    let both = json!({"resourcesListChanged": true, "promptsListChanged": true});
    assert_eq!(
        listen(&mut client, &gone, both.clone()),
        acknowledged(&gone, both)
    );
    // The id of a subscription is in use until it is cancelled.
    client.begin_as(&gone, "tools/list", Value::Null);
    assert_eq!(client.answer(&gone)["error"]["code"], -32600);
    client.cancel(&gone);
    client.begin_as(&gone, "tools/list", Value::Null);
    assert!(client.answer(&gone)["result"].is_object());
    fabric.names(json!(["ai"]));
    let heard = [client.next_note(), client.next_note()];
    for (id, kind) in [(&prompts, "prompts"), (&resources, "resources")] {
        let note = json!({"jsonrpc": "2.0", "method": format!("notifications/{kind}/list_changed"), "params": {"_meta": {key: id}}});
        assert!(heard.contains(&note), "{note} is not among {heard:?}");
    }
    client.close_stdin();
    let rest = client.rest();
    assert_eq!(rest.len(), 4, "{rest:?}");
    for id in [&prompts, &resources] {
        let of = |message: &&Value| {
            message.get("id") == Some(id) || message["params"].get("requestId") == Some(id)
        };
        let own: Vec<_> = rest.iter().filter(of).collect();
        assert_eq!(
            (
                &own[0]["result"]["resultType"],
                &own[0]["result"]["_meta"][key]
            ),
            (&json!("complete"), id),
            "the result comes first: {rest:?}"
        );
        assert_eq!(own[1]["method"], "notifications/cancelled", "{rest:?}");
    }
    assert!(client.wait_exit(crate::support::DEADLINE).success());
}

#[test]
fn chunks_are_log_messages_for_those_who_ask_for_them() {
    let chunk = |kind: &str, content: &str| {
        let format = if kind == "content" {
            "markdown"
        } else {
            "plain"
        };
        let data = json!({"type": kind, "format": format, "content": content});
        json!({"jsonrpc": "2.0", "method": "notifications/message",
               "params": {"level": "info", "logger": "fabric_run_pattern", "data": data}})
    };
    let all = [chunk("content", "a text"), chunk("complete", "")];
    for era in ERAS {
        // Before a legacy client sets a level, the server chooses.
        for (level, hears) in [
            (None, era != Era::Modern),
            (Some("debug"), true),
            (Some("info"), true),
            (Some("notice"), false),
        ] {
            let fabric = FakeFabric::start();
            fabric.on_run(Reply::run(&["a text"]));
            let mut client = Stdio::speaking(era, Program::with(&fabric));
            let mut params = json!({"name": "fabric_run_pattern", "arguments": {"pattern_name": "ai", "stream": true}});
            match (era, level) {
                (Era::Modern, Some(level)) => {
                    params["_meta"] = json!({"io.modelcontextprotocol/logLevel": level})
                }
                (Era::Legacy(_), Some(level)) => {
                    drop(client.result("logging/setLevel", json!({"level": level})))
                }
                _ => {}
            }
            client.result("tools/call", params);
            assert_eq!(
                client.notes(),
                if hears { &all[..] } else { &[] },
                "{era:?} {level:?}"
            );
        }
    }
}

#[test]
fn annotations_are_true() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::speaking(Era::Legacy("2025-11-25"), Program::with(&fabric));
    let result = client.result("tools/list", Value::Null);
    for tool in result["tools"].as_array().unwrap() {
        let runs = ["fabric_run_pattern", "fabric_cancel_run"]
            .map(Value::from)
            .contains(&tool["name"]);
        let notes = &tool["annotations"];
        assert_eq!(notes["readOnlyHint"], !runs, "{tool}");
        assert_eq!(notes["idempotentHint"], !runs, "{tool}");
        assert_eq!(notes["openWorldHint"], true, "{tool}");
    }
}
