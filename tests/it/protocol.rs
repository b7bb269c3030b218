//! The protocol in front of a Fabric: prompts, resources and completion in exact bytes for every revision, batches of
//! slow calls, changed lists, log levels, and the end of input.

use serde_json::{Value, json};

use crate::support::expect::contains;
use crate::support::fabric::FakeFabric;
use crate::support::fixtures;
use crate::support::process::Program;
use crate::support::reply::Reply;
use crate::support::stdio::Stdio;
use crate::support::{ACKNOWLEDGED, Caller, DEADLINE, ERAS, Era};

/// A Fabric with few patterns, so that whole lists can be compared.
fn small() -> FakeFabric {
    let fabric = FakeFabric::start();
    fabric.names(json!(["translate", "ai"]));
    fabric
}

/// A result; `expected` omits what the modern era adds to every result.
#[track_caller]
fn expect(client: &mut Stdio, method: &str, params: Value, mut expected: Value) {
    let result = client.result(method, params);
    if client.era().is_modern() {
        expected["resultType"] = json!("complete");
        if method.ends_with("/list") || method.ends_with("/read") {
            // A cached value's time-to-live is what remains of it.
            let ttl = result["ttlMs"].as_u64().unwrap_or_default();
            assert!((1..=300_000).contains(&ttl), "{method}: {ttl}");
            expected["ttlMs"] = json!(ttl);
            expected["cacheScope"] = json!("private");
        }
        let info = json!({"name": "fabric-mcp", "title": "Fabric", "version": env!("CARGO_PKG_VERSION"),
                          "description": env!("CARGO_PKG_DESCRIPTION")});
        expected["_meta"] = json!({"io.modelcontextprotocol/serverInfo": info});
    }
    assert_eq!(result, expected, "{:?} {method}", client.era());
}

/// An error: its code, and a word of its message.
#[track_caller]
fn expect_error(client: &mut Stdio, method: &str, params: Value, code: i64, word: &str) -> Value {
    let error = client.error(method, params);
    assert_eq!(error["code"], code, "{:?} {method}: {error}", client.era());
    contains(&error["message"], [word]);
    error
}

/// As revisions with titles have it.
fn titled(era: Era, mut value: Value, title: &str) -> Value {
    if era >= Era::R2025_06_18 {
        value["title"] = json!(title);
    }
    value
}

#[test]
fn prompts_are_patterns_rendered_by_fabric() {
    for era in ERAS {
        let fabric = small();
        let mut client = Stdio::speaking(era, Program::with(&fabric));
        let argument = |name: &str, description: &str, required: bool| json!({"name": name, "description": description, "required": required});
        let input = argument("input_text", "The text that the pattern works on.", false);
        let before = "A prompting strategy to put before the pattern.";
        let strategy = argument("strategy_name", before, false);
        let value = "Value of the pattern's variable lang_code.";
        let variable = argument("lang_code", value, true);
        let list = client.result("prompts/list", Value::Null);
        // Descriptions are tested elsewhere; here only that there is one.
        let said = [0, 1].map(|at| list["prompts"][at]["description"].clone());
        assert!(said.iter().all(Value::is_string), "{list}");
        let ai = json!({"name": "ai", "description": said[0], "arguments": [input, strategy]});
        let translate = json!({"name": "translate", "description": said[1], "arguments": [input, variable, strategy]});
        let prompts = [(ai, "AI"), (translate, "Translate")];
        let prompts = prompts.map(|(prompt, title)| titled(era, prompt, title));
        let expected = json!({"prompts": prompts});
        expect(&mut client, "prompts/list", Value::Null, expected);
        let prompt = |at: usize, text: &str| {
            let message = json!({"role": "user", "content": {"type": "text", "text": text}});
            json!({"description": said[at], "messages": [message]})
        };
        let rendered = "You translate text into de.\n\nHallo {{x}}\n";
        let get = json!({"name": "translate", "arguments": {"lang_code": "de", "input_text": "Hallo {{x}}"}});
        // Fabric leaves braces in the input alone; the fake needs an explicit reply.
        let apply = "POST /patterns/translate/apply";
        let reply = json!({"Name": "translate", "Description": "", "Pattern": rendered});
        fabric.once(apply, Reply::json(reply));
        expect(&mut client, "prompts/get", get, prompt(1, rendered));
        let asked = fabric.requests_of(apply)[0].json();
        let sent = json!({"input": "Hallo {{x}}", "variables": {"lang_code": "de"}});
        assert_eq!(asked, sent);
        let get = json!({"name": "ai", "arguments": {"input_text": "x", "strategy_name": "cot"}});
        let text = fixtures::text("ai");
        let rendered = format!("Think step by step before you answer.\n{text}\nx");
        expect(&mut client, "prompts/get", get, prompt(0, &rendered));
        let call = json!({"lang_code": "{{plugin:sys:env:HOME}}"});
        for (name, arguments, word) in [
            ("nope", json!({}), "nope"),
            ("translate", json!({}), "lang_code"),
            ("ai", json!({"lang": "de"}), "lang"),
            ("ai", json!({"strategy_name": "nope"}), "strategy_name"),
            ("translate", call, "lang_code"),
        ] {
            let params = json!({"name": name, "arguments": arguments});
            expect_error(&mut client, "prompts/get", params, -32602, word);
        }
        fabric.expect_chats(0);
    }
}

#[test]
fn resources_are_patterns_and_strategies_as_markdown() {
    for era in ERAS {
        let (fabric, name) = (FakeFabric::start(), "überblick für alle");
        // What cannot be read is not listed.
        fabric.names(json!([name, "q&a"]));
        let cot = json!([{"name": "cot", "description": "Think", "prompt": "Step by step."},
            {"name": "a/b", "description": "", "prompt": ""}]);
        fabric.on("GET /strategies", Reply::json(cot));
        let mut client = Stdio::speaking(era, Program::with(&fabric));
        let list = client.result("resources/list", Value::Null);
        let said = &list["resources"][0]["description"];
        let about = "fabric://pattern/%C3%BCberblick%20f%C3%BCr%20alle";
        let pattern =
            json!({"uri": about, "name": name, "description": said, "mimeType": "text/markdown"});
        let strategy = json!({"uri": "fabric://strategy/cot", "name": "cot", "description": "Think", "mimeType": "text/markdown"});
        let resources = [(pattern, "Überblick für alle"), (strategy, "Cot")];
        let resources = resources.map(|(resource, title)| titled(era, resource, title));
        let expected = json!({"resources": resources});
        expect(&mut client, "resources/list", Value::Null, expected);
        let text = fixtures::text(name);
        for (uri, text) in [(about, text), ("fabric://strategy/cot", "Step by step.")] {
            let contents = json!([{"uri": uri, "mimeType": "text/markdown", "text": text}]);
            let expected = json!({"contents": contents});
            expect(&mut client, "resources/read", json!({"uri": uri}), expected);
        }
        let code = if era.is_modern() { -32602 } else { -32002 };
        // What else is no resource is in `src/server/resources.rs`.
        for uri in ["fabric://pattern/nope", "fabric://strategy/nope"] {
            let params = json!({"uri": uri});
            let error = expect_error(&mut client, "resources/read", params, code, uri);
            assert_eq!(error["data"]["uri"], uri, "{error}");
        }
    }
}

#[test]
fn completion_offers_names_best_first() {
    for era in ERAS {
        let fabric = FakeFabric::start();
        let mut client = Stdio::speaking(era, Program::with(&fabric));
        let ask = |reference: &Value, name: &str, value: &str| json!({"ref": reference, "argument": {"name": name, "value": value}, "context": {"arguments": {"a": "b"}}});
        let of = |kind: &str| json!({"type": "ref/resource", "uri": format!("fabric://{kind}/{{name}}")});
        let prompt = |name: &str| json!({"type": "ref/prompt", "name": name});
        let (patterns, ai) = (of("pattern"), prompt("ai"));
        let sums = json!(["summarize", "summarize_meeting"]);
        for (reference, argument, value, values) in [
            (&patterns, "name", "SUM", sums),
            (&patterns, "name", "me", json!(["summarize_meeting"])),
            (&patterns, "name", "zz", json!([])),
            (&of("strategy"), "name", "re", json!(["self-refine"])),
            (&ai, "strategy_name", "", json!(["cot", "self-refine"])),
            (&ai, "input_text", &"x".repeat(5000), json!([])),
        ] {
            let total = values.as_array().map_or(0, Vec::len);
            let found = json!({"values": values, "total": total, "hasMore": false});
            let body = json!({"completion": found});
            let (params, found) = (ask(reference, argument, value), body);
            expect(&mut client, "completion/complete", params, found);
        }
        let unknown = ask(&prompt("nope"), "strategy_name", "");
        expect_error(&mut client, "completion/complete", unknown, -32602, "nope");
        // Each keystroke must not cause a request to Fabric.
        assert_eq!(fabric.requests_of("GET /strategies").len(), 1, "{era:?}");
        let names: Vec<_> = (0..250).map(|n| format!("p{n:03}")).collect();
        fabric.names(json!(names));
        let mut other = Stdio::speaking(era, Program::with(&fabric));
        let many = json!({"completion": {"values": names[..100], "total": 250, "hasMore": true}});
        let params = ask(&patterns, "name", "p");
        expect(&mut other, "completion/complete", params, many);
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
    let mut client = Stdio::speaking(Era::R2025_03_26, Program::with(&fabric));
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
    fabric.wait_closed(DEADLINE);
    fabric.release();
    let answer = client.recv();
    let ids = [&answer[0]["id"], &answer[1]["id"]];
    assert_eq!(json!(ids), json!(["ping", "two"]), "{answer}");
    assert!(answer[2].is_null(), "{answer}");
    assert_eq!(answer[1]["result"]["content"][0]["text"], "part");
    client.send(&json!([ping]));
    assert_eq!(client.recv(), json!([pong]), "no call to wait for");
    // An empty array is not sent.
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    client.send(&json!([run("three", None), initialized]));
    fabric.wait_held(1);
    client.cancel(&json!("three"));
    fabric.wait_closed(DEADLINE);
    client.expect_nothing_else();
}

/// A server that polls the catalogue often, so that changes are found quickly.
fn watched(fabric: &FakeFabric, era: Era) -> Stdio {
    Stdio::speaking(era, Program::with(fabric).flags("--catalog-ttl 0.05"))
}

#[test]
fn a_legacy_client_that_has_listed_is_notified_of_changed_lists() {
    for era in ERAS.into_iter().filter(|era| era.is_legacy()) {
        for method in ["prompts/list", "resources/list"] {
            let fabric = small();
            let mut client = watched(&fabric, era);
            client.result(method, Value::Null);
            fabric.names(json!(["ai"]));
            for kind in ["prompts", "resources"] {
                let method = format!("notifications/{kind}/list_changed");
                let note = json!({"jsonrpc": "2.0", "method": method, "params": {}});
                assert_eq!(client.next_note(), note, "{era:?}");
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
    let mut client = watched(&fabric, Era::MODERN);
    client.result("prompts/list", Value::Null);
    let key = "io.modelcontextprotocol/subscriptionId";
    let (prompts, resources, gone) = (json!("p"), json!(0), json!("gone"));
    let both = json!({"resourcesListChanged": true, "promptsListChanged": true});
    for (id, wanted, filter) in [
        (
            &prompts,
            json!({"promptsListChanged": true, "toolsListChanged": true, "resourceSubscriptions": ["fabric://pattern/ai"]}),
            json!({"promptsListChanged": true}),
        ),
        (
            &resources,
            json!({"resourcesListChanged": true, "promptsListChanged": false}),
            json!({"resourcesListChanged": true}),
        ),
        (&gone, both.clone(), both),
    ] {
        let params = json!({"notifications": wanted});
        client.begin_as(id, "subscriptions/listen", params);
        let params = json!({"_meta": {key: id}, "notifications": filter});
        let acknowledged = json!({"jsonrpc": "2.0", "method": ACKNOWLEDGED, "params": params});
        assert_eq!(client.recv(), acknowledged);
    }
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
        let result = &own[0]["result"];
        assert_eq!(result["resultType"], "complete", "it comes first: {rest:?}");
        assert_eq!(&result["_meta"][key], id, "{rest:?}");
        assert_eq!(own[1]["method"], "notifications/cancelled", "{rest:?}");
    }
    assert!(client.wait_exit(DEADLINE).success());
}

#[test]
fn chunks_are_log_messages_for_those_who_ask_for_them() {
    let chunk = |kind: &str, format: &str, content: &str| {
        let data = json!({"type": kind, "format": format, "content": content});
        json!({"jsonrpc": "2.0", "method": "notifications/message",
               "params": {"level": "info", "logger": "fabric_run_pattern", "data": data}})
    };
    let all = [
        chunk("content", "markdown", "a text"),
        chunk("complete", "plain", ""),
    ];
    for era in ERAS {
        // Before a legacy client sets a level, the server chooses.
        for (level, hears) in [
            (None, era.is_legacy()),
            (Some("debug"), true),
            (Some("info"), true),
            (Some("notice"), false),
        ] {
            let fabric = FakeFabric::start();
            fabric.on_run(Reply::run(&["a text"]));
            let mut client = Stdio::speaking(era, Program::with(&fabric));
            let mut params = json!({"name": "fabric_run_pattern", "arguments": {"pattern_name": "ai", "input_text": "x", "stream": true}});
            if let Some(level) = level {
                match era {
                    Era::MODERN => {
                        params["_meta"]["io.modelcontextprotocol/logLevel"] = json!(level)
                    }
                    _ => drop(client.result("logging/setLevel", json!({"level": level}))),
                }
            }
            client.result("tools/call", params);
            let heard = if hears { &all[..] } else { &[] };
            assert_eq!(client.notes(), heard, "{era:?} {level:?}");
        }
    }
}

#[test]
fn annotations_are_true() {
    let fabric = FakeFabric::start();
    let mut client = Stdio::speaking(Era::R2025_11_25, Program::with(&fabric));
    let result = client.result("tools/list", Value::Null);
    for tool in result["tools"].as_array().unwrap() {
        let runs = ["fabric_run_pattern", "fabric_cancel_run"].map(Value::from);
        let runs = runs.contains(&tool["name"]);
        let notes = &tool["annotations"];
        assert_eq!(notes["readOnlyHint"], !runs, "{tool}");
        assert_eq!(notes["idempotentHint"], !runs, "{tool}");
        assert_eq!(notes["openWorldHint"], true, "{tool}");
        let leads = tool["name"] == "fabric_list_patterns";
        let meta = tool["_meta"].get("anthropic/alwaysLoad");
        assert_eq!(meta, leads.then_some(&json!(true)), "{tool}");
    }
}
